"""Several lanes of one program, drawn by hand: one letter a second."""

import pytest

from simulator.clock.batch.evaluate import evaluate
from simulator.clock.batch.lane import timeline_of
from simulator.clock.batch.lanes import Fallback, lanes_of
from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.interference import ABSENT, Contention, Measured
from simulator.laws.kernels import Kernel
from simulator.readings.batch import exposures
from simulator.schedules.program import Launch
from simulator.schedules.tape import Tape
from simulator.world.mesh import Mesh

WORLD = Mesh(hosts=1, devices_per_host=2).world()


def collective(role):
    return Collective(kind="all_gather", elements=1, bytes_per_element=1, group=WORLD, role=role)


def kernel(name):
    return Kernel(kind=name, time=1.0)


def lane(program, times, interference=ABSENT, channels=0, shared=False, **communicators):
    """One lane: *times* by role and kind; each role of *communicators* on one of its own, with its own link."""
    numbers, operations = {"gather": 0, **communicators}, program.operations
    names = [item.role if isinstance(item, Collective) else item.kind for item in operations]
    is_collective = [isinstance(item, Collective) for item in operations]
    cast = RankClass(
        name="all ranks",
        ranks=2,
        program=program,
        times=tuple(0.0 if other else times[name] for name, other in zip(names, is_collective, strict=True)),
        phases=tuple(
            (
                Phase(
                    payload=times[name],
                    usage=((0 if shared else numbers[name], 1.0),),
                    latency=0.0,
                    rate=1.0,
                    channels=channels,
                ),
            )
            if other
            else ()
            for name, other in zip(names, is_collective, strict=True)
        ),
        communicators=tuple(
            numbers[name] if other else NO_COMMUNICATOR for name, other in zip(names, is_collective, strict=True)
        ),
        movement=(0.0,) * len(operations),
        interference=interference,
    )
    links = tuple(Link(name=str(number), kind="link", bandwidth=1.0) for number in range(2))
    return Stage(classes=(cast,), members=(1,) * len(set(numbers.values())), links=links)


def ends(batch, stream=0):
    """Ends of the launches of a stream, lane by lane."""
    program = batch.lanes.plan.program
    rows = [
        batch.ends[index]
        for index, item in enumerate(program.instructions)
        if isinstance(item, Launch) and item.stream == stream
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def gathered_before_use():
    """A gather, a kernel that needs it, a second gather beside that kernel, a kernel that needs that one."""
    tape = Tape()
    for name in ("a", "b"):
        gathered = tape.launch(collective("gather"), "communication", label=name)
        tape.wait("compute", gathered)
        tape.launch(kernel("forward"), "compute", label=name)
    return tape.program()


def test_each_lane_has_its_own_critical_path():
    """The same program on a fast and on a slow network; a dot is a stall.

    fast  communication  GG            slow  communication  GGGGGGGG
          compute        .FFFFFF             compute        ....FFF.FFF
    """
    program = gathered_before_use()
    stages = [lane(program, {"gather": gather, "forward": 3.0}) for gather in (1.0, 4.0)]
    batch, found = evaluate(lanes_of(stages)), exposures(lanes_of(stages))
    assert ends(batch) == [[4.0, 7.0], [7.0, 11.0]]
    assert batch.step_time.tolist() == [7.0, 11.0]
    assert found.stalled.tolist() == [1.0, 5.0]
    assert found.by_cause["bandwidth"].tolist() == [1.0, 5.0]
    assert found.communication.tolist() == [2.0, 8.0]
    assert found.fallback.tolist() == [Fallback.NONE, Fallback.NONE]


def test_a_kernel_is_slow_as_long_as_something_is_beside_it_in_its_lane():
    """Two gathers in a row, one kernel of 6; at half speed, by half of the multiprocessors, undisturbed.

    communication  GGGG       ends at 4        communication  GGGGGGGGGGGGGGGG    ends at 16
    compute        KKKKKKKK   2 of work, 4     compute        KKKKKKKKKKKK        12
    """
    tape = Tape()
    for name in ("a", "b"):
        tape.launch(collective("gather"), "communication", label=name)
    tape.launch(kernel("forward"), "compute", label="k")
    program = tape.program()
    half = Contention(multiprocessors=128, memory=1.0)
    stages = [
        lane(program, {"gather": 2.0, "forward": 6.0}, Measured(2.0)),
        lane(program, {"gather": 8.0, "forward": 6.0}, half, channels=64),
        lane(program, {"gather": 8.0, "forward": 6.0}, ABSENT),
    ]
    assert ends(evaluate(lanes_of(stages))) == [[8.0], [12.0], [6.0]]
    assert exposures(lanes_of(stages)).slowed.tolist() == [2.0, 6.0, 0.0]


@pytest.mark.parametrize(("channels", "end"), [(32, 9.5), (64, 11.0)])
def test_shares_of_several_communicators_add_up(channels, end):
    """Gather 0-6, reduction 0-4; a kernel of 7.

    gather     GGGGGG        32 channels each of 128: a half of the speed for 4, three quarters for 2, then full speed:
    reduction  RRRR          2 of work, 1.5 and 3.5, ends at 9.5
    compute    KKKKKKKKK...  64 channels each: not under a quarter for 4, a half for 2: 1 of work, 1 and 5, ends at 11
    """
    tape = Tape()
    tape.launch(collective("gather"), "gather", label="g")
    tape.launch(collective("reduce"), "reduce", label="r")
    tape.launch(kernel("forward"), "compute", label="k")
    times = {"gather": 6.0, "reduce": 4.0, "forward": 7.0}
    contention = Contention(multiprocessors=128, memory=1.0)
    stages = [lane(tape.program(), times, contention, channels=channels, reduce=1)]
    assert ends(evaluate(lanes_of(stages))) == [[end]]


def two_copies():
    """Two streams in each of which a copy is followed by a collective that runs beside the other stream's copy."""
    tape = Tape()
    for name in ("gather", "reduce"):
        tape.launch(kernel(f"copy {name}"), f"stream {name}", label=name)
        tape.launch(collective(name), f"stream {name}", label=name)
    return tape.program()


@pytest.mark.parametrize(("rounds", "reason"), [(8, Fallback.NONE), (0, Fallback.UNSETTLED)])
def test_kernels_of_two_streams_each_hear_of_what_follows_the_other(monkeypatch, rounds, reason):
    """Which copy ends first decides which of them is slow, at half speed, and that differs from lane to lane.

    lane 0  stream gather  CCGGGG          lane 1  stream gather  CCCccccGGGG
            stream reduce  CCccccRRRRRR            stream reduce  CCCRRRRRR
    """
    monkeypatch.setattr("simulator.clock.batch.evaluate.MOST_ROUNDS", rounds)
    program = two_copies()
    stages = [
        lane(
            program,
            {"copy gather": gather, "copy reduce": reduce, "gather": 4.0, "reduce": 6.0},
            Measured(2.0),
            reduce=1,
        )
        for gather, reduce in ((2.0, 4.0), (5.0, 3.0))
    ]
    batch = evaluate(lanes_of(stages))
    assert batch.fallback.tolist() == [reason, reason]
    assert batch.step_time.tolist() == [12.0, 11.0]
    for number, expected in enumerate(
        [{"gather": [2.0, 6.0], "reduce": [6.0, 12.0]}, {"gather": [7.0, 11.0], "reduce": [3.0, 9.0]}]
    ):
        timeline = timeline_of(batch, number)
        assert {name: [span.end for span in timeline.stream(f"stream {name}")] for name in expected} == expected


def test_of_two_delays_until_the_same_moment_one_is_charged():
    """What compute needs first stands behind another on the communicator and is launched late; h is work of the host.

    lane 0  host           hh               lane 1  host           hh
            communicator   LLF                      communicator   LLLLF
            compute        ...KK                    compute        .....KK
    """
    tape = Tape()
    later = tape.launch(collective("gather"), "later", label="l")
    tape.work(2.0)
    first = tape.launch(collective("first"), "first", label="f")
    for gathered in (first, later):
        tape.wait("compute", gathered)
        tape.launch(kernel("forward"), "compute", label="k")
    stages = [lane(tape.program(), {"gather": gather, "first": 1.0, "forward": 1.0}, first=0) for gather in (2.0, 4.0)]
    found = exposures(lanes_of(stages))
    assert found.step_time.tolist() == [5.0, 7.0]
    assert found.by_cause["host"].tolist() == [2.0, 2.0]
    assert found.by_cause["queueing"].tolist() == [0.0, 2.0]
    assert found.by_cause["bandwidth"].tolist() == [1.0, 1.0]
    assert found.by_collective["first"].tolist() == found.stalled.tolist() == [3.0, 5.0]


def test_a_lane_falls_back_if_two_collectives_meet_on_a_link():
    """Gather and reduction of 4 over one link; in lane 0 the copy of 4 keeps them apart, in lane 1 it takes 2.

    lane 0  stream gather  GGGG           lane 1  stream gather  GGGGGG      2 alone, 4 at half the rate
            stream reduce  CCCCRRRR               stream reduce  CCRRRRRR    the other way round
    """
    tape = Tape()
    tape.launch(collective("gather"), "stream gather", label="g")
    tape.launch(kernel("copy"), "stream reduce", label="c")
    tape.launch(collective("reduce"), "stream reduce", label="r")
    program = tape.program()
    stages = [lane(program, {"gather": 4.0, "copy": copy, "reduce": 4.0}, shared=True, reduce=1) for copy in (4.0, 2.0)]
    batch = evaluate(lanes_of(stages))
    assert batch.fallback.tolist() == [Fallback.NONE, Fallback.SHARING]
    assert batch.step_time.tolist() == [8.0, 8.0]
    assert [span.end for span in batch.timelines[1].classes[0].spans] == [6.0, 2.0, 8.0]
    assert batch.reasons()["sharing"] == 1
