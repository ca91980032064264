"""Critical paths that can be drawn by hand, one for each cause of a stall, and what the step is without the cause.

Two ranks of `flat` at 1 GB/s; a collective of t seconds has 2 t 1e9 elements of 1 byte, and a latency of twice the
link's (it crosses two links).  K are kernels, G gathers that compute waits for, R reductions that nobody waits for.

Without its resource a step must be shorter by at least what is charged to the cause.
"""

from dataclasses import replace

import pytest

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.by_link import exposed_by_link
from simulator.readings.critical import critical_path, exposed_by_layer
from simulator.readings.exposure import exposure
from simulator.schedules.tape import Tape
from tests.conftest import flat


class Step:
    """A played step, and how to play it again with something changed on its stage."""

    def __init__(self, asked, tape, change=lambda ready: ready):
        self.ready = change(stage(asked, tape.program()))
        self.timeline = simulate(self.ready)
        self.time = self.timeline.step_time

    def path(self, classes=None):
        """Start, end, kind, operation and reason of each piece."""
        found = critical_path(self.timeline.classes[:classes], self.ready, self.time)
        return [(piece.start, piece.end, piece.kind, piece.operation, piece.after) for piece in found.pieces]

    def causes(self):
        """What is charged to which cause in the first class."""
        return {cause: time for cause, time in self.reading().by_cause().items() if time}

    def reading(self):
        return exposure(self.timeline.classes[0], self.time)

    def by_link(self):
        return exposed_by_link(self.reading(), self.timeline.classes[0], self.ready)


@pytest.fixture
def world(scenario):
    return scenario().mesh.world()


@pytest.fixture
def gather(world):
    return maker(world, "all_gather")


@pytest.fixture
def reduction(world):
    return maker(world, "reduce_scatter")


def maker(group, kind):
    def make(time):
        return Collective(kind=kind, elements=2e9 * time, bytes_per_element=1, group=group, role=kind)

    return make


def kernel(tape, time, stream="compute", kind="forward", **options):
    return tape.launch(Kernel(kind=kind, time=time, **options), stream, label="layer")


def phases(**changes):
    """Change every phase of a stage."""

    def change(ready):
        classes = tuple(
            replace(item, phases=tuple(tuple(replace(phase, **changes) for phase in each) for each in item.phases))
            for item in ready.classes
        )
        return replace(ready, classes=classes)

    return change


def gathered_late(gather):
    """K, then G which needs it, then K which needs G."""
    tape = Tape()
    tape.wait("gather", kernel(tape, 1.0))
    tape.wait("compute", tape.launch(gather(2.0), "gather", label="g"))
    kernel(tape, 1.0)
    return tape


def test_bandwidth(scenario, gather):
    """K needs the bytes of G.

    compute    K 0-1          K 3-4
    network          G 1-3
    """
    tape = gathered_late(gather)
    step = Step(scenario(), tape)
    assert step.path() == [
        (0.0, 1.0, "compute", "forward", "start"),
        (1.0, 3.0, "bandwidth", "all_gather", "data"),
        (3.0, 4.0, "compute", "forward", "data"),
    ]
    assert step.causes() == {"bandwidth": 2.0}
    assert step.time - Step(scenario(), tape, phases(payload=0.0)).time == 2.0


def test_latency(scenario, gather):
    """G takes 1 s before a byte flows, over two links of 0.5 s.

    compute    K 0-1                    K 4-5
    network          (1-2) G 2-4
    """
    tape, slow = gathered_late(gather), scenario(topology=flat(2, "1 GB/s", "0.5 s"))
    step = Step(slow, tape)
    assert step.path() == [
        (0.0, 1.0, "compute", "forward", "start"),
        (1.0, 2.0, "latency", "all_gather", "data"),
        (2.0, 4.0, "bandwidth", "all_gather", ""),
        (4.0, 5.0, "compute", "forward", "data"),
    ]
    assert step.causes() == {"bandwidth": 2.0, "latency": 1.0}
    assert step.time - Step(slow, tape, phases(latency=0.0)).time == 1.0


@pytest.mark.parametrize("alone", [False, True])
def test_contention(scenario, gather, world, alone):
    """G and R of another communicator get half of the link each, 0-4; alone G takes 0-2.

    compute                   K 4-5
    network    G 0-4
    network    R 0-4
    """
    tape = Tape()
    tape.wait("compute", tape.launch(gather(2.0), "gather", label="g"))
    if not alone:
        tape.launch(maker(replace(world, name="other"), "reduce_scatter")(2.0), "reduce", label="r")
    kernel(tape, 1.0)
    step = Step(scenario(), tape)
    if alone:
        assert step.time == 3.0  # 2 s less, which is what contention was charged with
        return
    assert step.path() == [
        (0.0, 2.0, "bandwidth", "all_gather", "start"),
        (2.0, 4.0, "contention", "all_gather", ""),
        (4.0, 5.0, "compute", "forward", "data"),
    ]
    assert step.causes() == {"bandwidth": 2.0, "contention": 2.0}
    assert step.by_link() == {"link": 4.0}


def test_queueing(scenario, gather, reduction, world):
    """G stands behind R, whose two bytes take no time to speak of; on its own communicator it would not.

    compute                            K 6-7
    network    (R 0-2)(2-4) G 4-6
    """

    def tape(first):
        found = Tape()
        found.launch(first(0.0), "reduce", label="r")
        found.wait("compute", found.launch(gather(2.0), "gather", label="g"))
        kernel(found, 1.0)
        return found

    slow = scenario(topology=flat(2, "1 GB/s", "1 s"))
    step = Step(slow, tape(reduction))
    assert step.path() == [
        (0.0, 2.0, "latency", "reduce_scatter", "start"),
        (2.0, 4.0, "latency", "all_gather", "communicator"),
        (4.0, 6.0, "bandwidth", "all_gather", ""),
        (6.0, 7.0, "compute", "forward", "data"),
    ]
    assert step.causes() == {"bandwidth": 2.0, "latency": 2.0, "queueing": 2.0}
    own = Step(slow, tape(maker(replace(world, name="other"), "reduce_scatter")))
    assert step.time - own.time == 2.0


def test_prefetch_limit(scenario, gather):
    """G may start only when the kernel of another stream is over.

    side       K 0-2
    compute              K 5-6
    network        G 2-5
    """

    def tape(*, bounded):
        found = Tape()
        first = kernel(found, 2.0, "side")
        if bounded:
            found.wait("gather", first, "prefetch limit")
        found.wait("compute", found.launch(gather(3.0), "gather", label="g"))
        kernel(found, 1.0)
        return found

    step = Step(scenario(), tape(bounded=True))
    assert step.path() == [
        (0.0, 2.0, "compute", "forward", "start"),
        (2.0, 5.0, "bandwidth", "all_gather", "prefetch limit"),
        (5.0, 6.0, "compute", "forward", "data"),
    ]
    assert step.causes() == {"bandwidth": 3.0, "prefetch limit": 2.0}
    assert step.time - Step(scenario(), tape(bounded=False)).time == 2.0


def test_a_host_that_is_blocked_by_a_bound_on_prefetch_passes_it_on(scenario, gather):
    """The host waits for the kernel of another stream before it launches G.

    side       K 0-2
    network          G 2-5
    """
    tape = Tape()
    tape.synchronize(kernel(tape, 2.0, "side"), "prefetch limit")
    tape.launch(gather(3.0), "gather", label="g")
    assert Step(scenario(), tape).path() == [
        (0.0, 2.0, "compute", "forward", "start"),
        (2.0, 5.0, "bandwidth", "all_gather", "prefetch limit"),
    ]


def test_host(scenario, gather):
    """The host launches G after 4 s of work.

    host       ###### 0-4
    compute                    K 6-7
    network            G 4-6
    """

    def tape(work):
        found = Tape()
        found.work(work)
        found.wait("compute", found.launch(gather(2.0), "gather", label="g"))
        kernel(found, 1.0)
        return found

    step = Step(scenario(), tape(4.0))
    assert step.path() == [
        (0.0, 4.0, "host", "host work", "start"),
        (4.0, 6.0, "bandwidth", "all_gather", "launch"),
        (6.0, 7.0, "compute", "forward", "data"),
    ]
    assert step.causes() == {"bandwidth": 2.0, "host": 4.0}
    assert step.time - Step(scenario(), tape(0.0)).time == 4.0


def test_a_host_that_was_blocked_goes_back_to_what_blocked_it(scenario, gather):
    """The host waits for the first K, works for 2 s, and lets another stream wait for what is long over.

    compute    K 0-1              K 3-4
    host             ### 1-3
    """
    tape = Tape()
    first = kernel(tape, 1.0)
    tape.synchronize(first, "host")
    tape.work(2.0)
    tape.wait("side", first)
    tape.wait("compute", tape.record("side"))
    kernel(tape, 1.0)
    assert Step(scenario(), tape).path() == [
        (0.0, 1.0, "compute", "forward", "start"),
        (1.0, 3.0, "host", "host work", "host"),
        (3.0, 4.0, "compute", "forward", "data"),
    ]


def test_skew(scenario, gather):
    """Rank 1 computes for 3 s, rank 0 for 1 s; G starts when both are there.

    rank 0     K 0-1      G 3-5  U 5-6
    rank 1     K 0-3      G 3-5  U 5-6
    """
    tape = Tape()
    tape.wait("gather", kernel(tape, 1.0))
    tape.wait("compute", tape.launch(gather(2.0), "gather", label="g"))
    kernel(tape, 1.0, kind="update")

    def late(ready):
        first, second = ready.classes
        return replace(ready, classes=(first, replace(second, times=(3.0, *second.times[1:]))))

    both = scenario(run={"ranks": "all"})
    step = Step(both, tape, late)
    end = [(3.0, 5.0, "bandwidth", "all_gather", "rank"), (5.0, 6.0, "compute", "update", "data")]
    assert step.path() == [(0.0, 3.0, "compute", "forward", "start"), *end]
    assert step.path(classes=1) == [
        (0.0, 1.0, "compute", "forward", "start"), (1.0, 3.0, "skew", "all_gather", "data"), *end,
    ]  # fmt: skip
    by_class = critical_path(step.timeline.classes, step.ready, step.time).total("rank_class")
    assert by_class == {"rank 1": 3.0, "rank 0": 3.0}
    assert step.causes() == {"bandwidth": 2.0, "skew": 2.0}
    assert step.time - Step(both, tape).time == 2.0


def test_a_class_that_is_done_early_waits_for_the_others(scenario):
    """Rank 1 computes for 3 s, rank 0 for 1 s, and that is all."""
    tape = Tape()
    kernel(tape, 1.0)

    def late(ready):
        first, second = ready.classes
        return replace(ready, classes=(first, replace(second, times=(3.0,))))

    step = Step(scenario(run={"ranks": "all"}), tape, late)
    assert step.path() == [(0.0, 3.0, "compute", "forward", "start")]
    assert [item[:3] for item in step.path(classes=1)] == [(0.0, 1.0, "compute"), (1.0, 3.0, "skew")]


def test_copy(scenario):
    """Compute waits for a copy out of a gathered buffer, in another stream.

    side       C 0-2
    compute          K 2-3
    """

    def tape(time):
        found = Tape()
        copied = kernel(found, time, "side", kind="copy out", is_copy=True, serves="all_gather")
        found.wait("compute", copied)
        kernel(found, 1.0)
        return found

    step = Step(scenario(), tape(2.0))
    assert step.path() == [(0.0, 2.0, "copy", "copy out", "start"), (2.0, 3.0, "compute", "forward", "data")]
    assert step.causes() == {"copy": 2.0}
    assert step.time - Step(scenario(), tape(0.0)).time == 2.0


def test_what_communication_adds_to_a_kernel_is_a_piece_of_its_own(scenario, reduction):
    """Beside R a kernel of 1 s takes two.

    compute    K 0-2
    network    R 0-2
    """
    tape = Tape()
    tape.launch(reduction(2.0), "reduce", label="r")
    kernel(tape, 1.0)
    kernel(tape, 1.0)
    step = Step(scenario(compute={"overlap_slowdown": 2.0}), tape)
    assert step.path() == [
        (0.0, 1.0, "compute", "forward", "start"),
        (1.0, 2.0, "slowed", "forward", ""),
        (2.0, 3.0, "compute", "forward", "stream"),
    ]
    assert step.causes() == {}


def test_a_stall_beside_a_longer_chain_is_not_on_the_path(scenario, gather):
    """Compute waits for G 1-2, but then for a copy, which takes longer than all that.

    compute    K 0-1        K 2-3        K 4-5
    network          G 1-2
    side       C 0-4
    """
    tape = Tape()
    copied = kernel(tape, 4.0, "side", is_copy=True)
    tape.wait("gather", kernel(tape, 1.0))
    tape.wait("compute", tape.launch(gather(1.0), "gather", label="g"))
    kernel(tape, 1.0)
    tape.wait("compute", copied)
    kernel(tape, 1.0)
    step = Step(scenario(), tape)
    assert step.path() == [(0.0, 4.0, "copy", "forward", "start"), (4.0, 5.0, "compute", "forward", "data")]
    assert step.causes() == {"bandwidth": 1.0, "copy": 1.0}


def test_exposed_by_layer_and_link(scenario, gather, reduction):
    """G is behind R: for 2 s compute waits for the bytes of R, for 2 s for those of G.

    compute                    K 4-5
    network    R 0-2  G 2-4
    """
    tape = Tape()
    tape.launch(reduction(2.0), "reduce", label="r")
    tape.wait("compute", tape.launch(gather(2.0), "gather", label="g"))
    kernel(tape, 1.0)
    step = Step(scenario(), tape)
    assert step.causes() == {"bandwidth": 2.0, "queueing": 2.0}
    assert exposed_by_layer(step.reading()) == {"g": 4.0}
    assert step.by_link() == {"link": 4.0}


def test_what_is_queued_behind_has_a_link_while_its_bytes_move(scenario, gather, reduction):
    """G is behind R, and R behind S and the kernel that it waits for; each crosses two links of 0.5 s latency.

    side       K 0-4
    network    (S 0-1) 1-2   (R 4-5) 5-7   (G 7-8) 8-10

    From 2 to 4 the network is idle, as R is ahead of G in the queue.  Bytes move for 1 + 2 + 2 s, latencies take 3.
    """
    tape = Tape()
    tape.launch(reduction(1.0), "reduce", label="s")
    tape.wait("reduce", kernel(tape, 4.0, "side"))
    tape.launch(reduction(2.0), "reduce", label="r")
    tape.wait("compute", tape.launch(gather(2.0), "gather", label="g"))
    kernel(tape, 1.0)
    step = Step(scenario(topology=flat(2, "1 GB/s", "0.5 s")), tape)
    assert step.causes() == {"bandwidth": 2.0, "latency": 1.0, "queueing": 7.0}
    assert step.by_link() == {"link": 5.0, "no link": 5.0}


@pytest.mark.parametrize("sends", [True, False])
def test_a_bound_on_prefetch_has_the_link_of_the_transfer_that_it_waits_for(scenario, gather, world, sends):
    """G may start when R, of another communicator, is over; or when a kernel of another stream is.

    compute                   K 5-6
    other      R 0-2
    network           G 2-5
    """
    tape = Tape()
    other = maker(replace(world, name="other"), "reduce_scatter")
    bound = tape.launch(other(2.0), "reduce", label="r") if sends else kernel(tape, 2.0, "side")
    tape.wait("gather", bound, "prefetch limit")
    tape.wait("compute", tape.launch(gather(3.0), "gather", label="g"))
    kernel(tape, 1.0)
    step = Step(scenario(), tape)
    assert step.causes() == {"bandwidth": 3.0, "prefetch limit": 2.0}
    assert step.by_link() == ({"link": 5.0} if sends else {"link": 3.0, "no link": 2.0})


def test_a_host_that_is_blocked_by_a_bound_on_prefetch_has_the_link_of_what_blocks_it(scenario, gather, world):
    """The host waits for R before it launches G, then works for 1 s.

    host              ### 2-3
    other      R 0-2
    network               G 3-6
    """
    tape = Tape()
    other = maker(replace(world, name="other"), "reduce_scatter")
    tape.synchronize(tape.launch(other(2.0), "reduce", label="r"), "prefetch limit")
    tape.work(1.0)
    tape.wait("compute", tape.launch(gather(3.0), "gather", label="g"))
    kernel(tape, 1.0)
    step = Step(scenario(), tape)
    assert step.causes() == {"bandwidth": 3.0, "host": 1.0, "prefetch limit": 2.0}
    assert step.by_link() == {"link": 5.0, "no link": 1.0}


def test_the_host_and_late_ranks_have_no_link(scenario, gather):
    """The host launches G after 4 s of work."""
    tape = Tape()
    tape.work(4.0)
    tape.wait("compute", tape.launch(gather(2.0), "gather", label="g"))
    kernel(tape, 1.0)
    assert Step(scenario(), tape).by_link() == {"no link": 4.0, "link": 2.0}


HALVES = {
    "cluster": "dgx-a100-80gb",
    "hosts": 2,
    "accelerators_per_host": 2,
    "algorithm": "hierarchical",
    "links": {
        "nvlink": {"bandwidth": "1 GB/s", "latency": "0.5 s", "efficiency": 1},
        **{name: {"bandwidth": "64 GB/s", "latency": "0 s", "efficiency": 1} for name in ("pcie", "uplink")},
        "network": {"bandwidth": "1 GB/s", "latency": "0 s", "efficiency": 1},
    },
}
"""Two hosts of two devices, each with a card of 1 GB/s and 1 GB/s to its neighbour."""


def test_a_hierarchical_collective_is_divided_by_the_links_of_its_phases(scenario):
    """Of 4e9 B each rank has 1e9: over its card that takes 1 s; then 2e9 B go to its neighbour, 1 s later, in 2 s."""
    asked = scenario(topology=HALVES)
    tape = Tape()
    tape.wait("compute", tape.launch(maker(asked.mesh.world(), "all_gather")(2.0), "gather", label="g"))
    kernel(tape, 1.0)
    step = Step(asked, tape)
    found = critical_path(step.timeline.classes, step.ready, step.time)
    assert [(item.start, item.end, item.kind, item.link) for item in found.pieces] == [
        (0.0, 1.0, "bandwidth", "network"),
        (1.0, 2.0, "latency", "nvlink"),
        (2.0, 4.0, "bandwidth", "nvlink"),
        (4.0, 5.0, "compute", ""),
    ]
    assert found.total("link") == {"nvlink": 3.0, "network": 1.0}
    assert step.by_link() == {"nvlink": 3.0, "no link": 1.0}


def test_queueing_has_the_link_of_what_is_ahead_and_not_its_own(scenario):
    """R, over the cards alone, is ahead of G, which is 2 s between neighbours, 1 s over cards and has 1 s of latency.

    compute               K 6-7
    network    R 0-2  G 2-6
    """
    asked = scenario(topology=HALVES)
    tape, cards = Tape(), Tape()
    cards.launch(maker(asked.mesh.group("across", 2, 2), "reduce_scatter")(2.0), "reduce", label="r")
    tape.launch(maker(asked.mesh.world(), "reduce_scatter")(2.0), "reduce", label="r")
    tape.wait("compute", tape.launch(maker(asked.mesh.world(), "all_gather")(2.0), "gather", label="g"))
    kernel(tape, 1.0)

    def over_cards(ready):
        (cast,) = ready.classes
        phases = stage(asked, cards.program()).classes[0].phases[:1] + cast.phases[1:]
        return replace(ready, classes=(replace(cast, phases=phases),))

    step = Step(asked, tape, over_cards)
    assert step.causes() == {"bandwidth": 3.0, "latency": 1.0, "queueing": 2.0}
    assert step.by_link() == {"nvlink": 3.0, "network": 2.0, "no link": 1.0}
