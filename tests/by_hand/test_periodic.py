"""When a step has become periodic, on timelines that can be drawn by hand."""

import pytest

from simulator.clock.periodic import periods, track_of, windows
from simulator.clock.recurrence import replayed
from simulator.clock.stage import stage
from simulator.laws.kernels import Kernel
from simulator.schedules.tape import Tape


def kernel(tape, time, stream="compute", label="k"):
    return tape.launch(Kernel(kind="forward", time=time), stream, label=label)


@pytest.fixture
def played(scenario):
    """What happens in a program, on the engine's terms."""

    def play(tape):
        (played,) = replayed(stage(scenario(), tape.program()).classes)
        return played

    return play


def micro_batches(count, body, first=0.0, last=0.0):
    """A step of *count* equal micro-batches, a kernel before them and one after them."""
    tape = Tape()
    kernel(tape, first, label="first")
    for number in range(count):
        tape.micro_batch = number
        body(tape)
    kernel(tape, last, label="last")
    return tape


def last(shorter, longer):
    """The last window of what happened, next to a shorter step."""
    return windows(shorter.program(), longer.program)[0]


def repeats(played, found):
    """Whether one more window would change nothing else."""
    return bool(periods(track_of(played), found) > 0)


def one_kernel(tape):
    kernel(tape, 2.0)


def test_the_window_is_one_micro_batch():
    """first  k  k  |k|  last"""
    shorter, longer = (micro_batches(count, one_kernel).program() for count in (2, 3))
    assert [(found.first, found.size) for found in windows(shorter, longer)] == [(3, 1), (2, 1)]


def test_a_program_whose_micro_batches_differ_has_none():
    """a b c and a b c d: what is added stands nowhere else."""

    def differs(tape):
        kernel(tape, 1.0, label=f"k{tape.micro_batch}")

    shorter, longer = (micro_batches(count, differs).program() for count in (3, 4))
    assert windows(shorter, longer) == windows(longer, longer) == []


def test_equal_kernels_repeat(played):
    """first 0-1 | k 1-3 | k 3-5 | last 5-6"""
    longer = played(micro_batches(2, one_kernel, first=1.0, last=1.0))
    (found,) = windows(micro_batches(1, one_kernel, first=1.0, last=1.0).program(), longer.program)
    assert repeats(longer, found)


def with_side(tape):
    """A kernel of 2 s, and beside it one of 1 s that begins when the last one is over."""
    tape.wait("side", kernel(tape, 2.0))
    kernel(tape, 1.0, "side")


def test_what_is_still_running_from_before_is_no_periodic_state(played):
    """The side stream is busy for 10 s at first; two micro-batches later it still is, eight later it is not.

    compute  k 0-2  k 2-4  k 4-6 ...
    side     first 0-10  1 1 1 ...
    """

    def step(count):
        tape = Tape()
        kernel(tape, 10.0, "side", label="first")
        for number in range(count):
            tape.micro_batch = number
            with_side(tape)
        return tape

    early, late = played(step(3)), played(step(16))
    assert not repeats(early, last(step(2), early))
    assert repeats(late, last(step(15), late))


def test_what_nobody_waits_for_may_still_be_what_the_step_ends_with(played):
    """The side stream is busy for 100 s, so three or four micro-batches of 2 s make no difference; sixty would.

    compute  k 0-2  k 2-4  k 4-6
    side     first 0-100
    """

    def step(count):
        tape = Tape()
        kernel(tape, 100.0, "side", label="first")
        for number in range(count):
            tape.micro_batch = number
            kernel(tape, 2.0)
        return tape

    early = played(step(4))
    assert not repeats(early, last(step(3), early))


def launching(time):
    """A body of two kernels of 1 s whose launches take the host so long."""

    def body(tape):
        for _ in range(2):
            tape.work(time)
            kernel(tape, 1.0)

    return body


@pytest.mark.parametrize(("time", "expected"), [(0.5, True), (2.0, True)])
def test_a_host_that_is_always_ahead_or_always_late_repeats(played, time, expected):
    longer = played(micro_batches(4, launching(time), first=1.0))
    assert repeats(longer, last(micro_batches(3, launching(time), first=1.0), longer)) is expected


def test_a_host_that_falls_behind_is_not_yet_periodic(played):
    """A first kernel of 16 s gives the host a lead of 16 s, of which it loses 2 s in each micro-batch.

    host      2  4 | 6  8 | 10  12 | ...
    compute   first 0-16, k 16-17 k 17-18 | k k | ... as fast as kernels go, until the host is what it waits for
    """
    longer = played(micro_batches(4, launching(2.0), first=16.0))
    assert not repeats(longer, last(micro_batches(3, launching(2.0), first=16.0), longer))
    later = played(micro_batches(16, launching(2.0), first=16.0))
    assert repeats(later, last(micro_batches(15, launching(2.0), first=16.0), later))


def test_a_host_that_gets_ahead_must_not_be_waited_for_at_the_end(played):
    """The last kernel is launched 6 s after the others: late now, and in time if there were more micro-batches."""

    def step(count):
        tape = Tape()
        for number in range(count):
            tape.micro_batch = number
            kernel(tape, 2.0)
        tape.work(7.0)
        kernel(tape, 1.0, label="last")
        return tape

    late = played(step(3))
    assert late.spans[-1].start == 7.0 > late.spans[-2].end
    assert not repeats(late, last(step(2), late))
    in_time = played(step(4))
    assert repeats(in_time, last(step(3), in_time))
