"""Who is charged for a stall, on timelines that can be drawn by hand.

Two ranks of `flat` at 1 GB/s; a collective of t seconds has 2 t 1e9 elements of 1 byte.
"""

import pytest

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.exposure import exposure
from simulator.schedules.tape import Tape


@pytest.fixture
def collective(scenario):
    group = scenario().mesh.world()

    def make(kind, time):
        return Collective(kind=kind, elements=2e9 * time, bytes_per_element=1, group=group, role=kind)

    return make


def charges(scenario, tape):
    reading = exposure(simulate(stage(scenario(), tape.program())).classes[0])
    return [(stall.start, stall.end, stall.cause, stall.collective) for stall in reading.stalls]


def kernel(tape, time):
    return tape.launch(Kernel(kind="forward", time=time), "compute", label="layer")


def test_a_gather_that_the_host_launches_after_a_blocking_reduction_pays_for_the_reduction(scenario, collective):
    """The host waits for R before it launches G.

    compute    K 0-1                        K 9-
    network          R 1-6      G 6-9
    """
    tape = Tape()
    tape.wait("reduce", kernel(tape, 1.0))
    tape.synchronize(tape.launch(collective("reduce_scatter", 5), "reduce", label="r"), "host")
    tape.wait("compute", tape.launch(collective("all_gather", 3), "gather", label="g"))
    kernel(tape, 1.0)
    assert charges(scenario, tape) == [
        (1.0, 6.0, "bandwidth", "reduce_scatter"),
        (6.0, 9.0, "bandwidth", "all_gather"),
    ]


def test_a_host_that_launches_as_soon_as_the_bound_on_prefetch_allows_is_not_late(scenario, collective):
    """The host waits for the first kernel, and launches G in the same instant.

    compute    (side 0-2)            K 5-
    network               G 2-5
    """
    tape = Tape()
    side = tape.launch(Kernel(kind="forward", time=2.0), "side", label="layer")
    tape.synchronize(side, "prefetch limit")
    tape.wait("compute", tape.launch(collective("all_gather", 3), "gather", label="g"))
    kernel(tape, 1.0)
    assert charges(scenario, tape) == [
        (0.0, 2.0, "prefetch limit", "all_gather"),
        (2.0, 5.0, "bandwidth", "all_gather"),
    ]


def test_a_host_that_waits_for_a_bound_on_prefetch_is_no_slow_host(scenario, collective):
    """The host waits for the first kernel before it launches G, and is slow by 1 s afterwards.

    compute    K 0-2                        K 6-
    network               (host 2-3) G 3-6
    """
    tape = Tape()
    side = tape.launch(Kernel(kind="forward", time=2.0), "side", label="layer")
    tape.synchronize(side, "prefetch limit")
    tape.work(1.0)
    tape.wait("compute", tape.launch(collective("all_gather", 3), "gather", label="g"))
    kernel(tape, 1.0)
    assert charges(scenario, tape) == [
        (0.0, 2.0, "prefetch limit", "all_gather"),
        (2.0, 3.0, "host", "all_gather"),
        (3.0, 6.0, "bandwidth", "all_gather"),
    ]


def test_a_late_host_is_charged_although_its_wait_passes_through_another_stream(scenario, collective):
    """G needs the event of a stream that the host reaches at 10; what that waited for was over at 1.

    compute    K 0-1      (host until 10)     K 12-
    network                          G 10-12
    """
    tape = Tape()
    first = kernel(tape, 1.0)
    tape.work(10.0)
    tape.wait("side", first)
    tape.wait("gather", tape.record("side"))
    tape.wait("compute", tape.launch(collective("all_gather", 2), "gather", label="g"))
    kernel(tape, 1.0)
    assert charges(scenario, tape) == [(1.0, 10.0, "host", "all_gather"), (10.0, 12.0, "bandwidth", "all_gather")]


def test_a_kernel_whose_event_passes_through_a_stream_late_is_host_bound(scenario, collective):
    """R is over at 2; the host, which is slow, lets the side stream wait for it at 5, and compute for that.

    compute    (host until 5)   K 5-6
    network    R 0-2
    """
    tape = Tape()
    reduced = tape.launch(collective("reduce_scatter", 2), "reduce", label="r")
    tape.work(5.0)
    tape.wait("side", reduced)
    tape.wait("compute", tape.record("side"))
    kernel(tape, 1.0)
    assert charges(scenario, tape) == [(0.0, 5.0, "host bound", "")]


def test_a_kernel_of_another_stream_is_named_by_what_it_does(scenario):
    """compute waits 0-2 for an update in another stream."""
    tape = Tape()
    tape.wait("compute", tape.launch(Kernel(kind="update", time=2.0), "side", label="layer"))
    kernel(tape, 1.0)
    assert charges(scenario, tape) == [(0.0, 2.0, "copy", "update")]
