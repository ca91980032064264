"""Kernels beside collectives that hold multiprocessors and move memory: timelines drawn by hand."""

import pytest

from simulator.clock.cast import RankClass, Stage, occupancy
from simulator.clock.engine import simulate
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.collectives.library import library
from simulator.laws.interference import Contention
from simulator.laws.kernels import Kernel
from simulator.schedules.tape import Tape
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Forced, load_cluster

HALF = Contention(multiprocessors=128, memory=2.0)
WORLD = Mesh(hosts=1, devices_per_host=2).world()


def collective(label):
    return Collective(kind="all_gather", elements=1, bytes_per_element=1, group=WORLD, role=label)


def played(kernels, collectives):
    """Kernels (time, part bound by memory) in a row; beside them collectives (time, channels, traffic per second)."""
    tape = Tape()
    for index, _ in enumerate(collectives):
        tape.launch(collective(str(index)), f"stream {index}", label=str(index))
    for index, _ in enumerate(kernels):
        tape.launch(Kernel(kind="forward", time=1.0, serves=str(index)), "compute", label=str(index))
    phases = [
        (Phase(payload=time, usage=((index, 1.0),), latency=0.0, rate=1.0, channels=channels, traffic=traffic * time),)
        for index, (time, channels, traffic) in enumerate(collectives)
    ]
    cast = RankClass(
        name="all ranks",
        ranks=2,
        program=tape.program(),
        times=(*(0.0 for _ in collectives), *(time for time, _ in kernels)),
        movement=(*(0.0 for _ in collectives), *(movement for _, movement in kernels)),
        interference=HALF,
        phases=(*phases, *(() for _ in kernels)),
        communicators=(*range(len(collectives)), *(-1 for _ in kernels)),
    )
    links = tuple(Link(name=str(index), kind="link", bandwidth=1.0) for index, _ in enumerate(collectives))
    timeline = simulate(Stage(classes=(cast,), members=(1,) * len(collectives), links=links))
    return [span.end for span in timeline.classes[0].stream("compute")]


def test_each_kernel_is_slowed_by_what_bounds_it():
    """64 of 128 multiprocessors, no memory traffic: arithmetic takes twice as long, memory traffic as long as alone.

    communication  CCCCCCCCCCCC   12
    arithmetic     AAAAAAAA       4 alone: 8
    memory                 MMMM   4
    """
    assert played([(4.0, 0.0), (4.0, 1.0)], [(12.0, 64, 0.0)]) == [8.0, 12.0]


def test_memory_traffic_is_slowed_by_copies():
    """Copies take half of the memory's bandwidth: the other way round.

    communication  CCCCCCCCCCCC   12
    arithmetic     AAAA           4
    memory             MMMMMMMM   4 alone: 8
    """
    assert played([(4.0, 0.0), (4.0, 1.0)], [(12.0, 0, 1.0)]) == [4.0, 12.0]


def test_a_second_collective_slows_the_kernel_further_as_long_as_it_runs():
    """32 channels leave 3/4 of the multiprocessors, 64 leave a half.

    first   CCCC        4, 32 channels
    second  CC          2, 32 channels
    kernel  kkKK____    2 at 1/2: 1 done; 2 at 3/4: 1.5 done; the rest of 4.5 alone: 2
    """
    assert played([(4.5, 0.0)], [(4.0, 32, 0.0), (2.0, 32, 0.0)]) == [6.0]


def test_a_collective_takes_the_most_channels_of_its_phases_and_its_mean_traffic():
    first = Phase(payload=2.0, usage=(), latency=1.0, rate=1.0, channels=8, traffic=6.0)
    second = Phase(payload=3.0, usage=(), latency=0.0, rate=1.0, channels=4, traffic=6.0)
    assert occupancy((first, second)) == (8, 2.0)


@pytest.mark.parametrize(
    ("cluster", "hosts", "channels"),
    [("dgx-a100-80gb", 1, 24), ("dgx-a100-80gb", 8, 16), ("dgx-h100", 1, 24), ("dgx-h100", 8, 16), ("dgx-b200", 1, 32)],
)
def test_channels_are_those_that_nccl_opens(cluster, hosts, channels):
    """A100 24 on one host and 16 on eight rails, H100 the same, B200 32 (network.md 7.3)."""
    (exchange,) = gathered(cluster, hosts, "all_gather")
    assert exchange.channels == channels


def test_a_gather_copies_and_a_reduction_reads_twice():
    """Per byte sent: read and write; read two, write one; an all-reduce is half of each."""
    kinds = ("all_gather", "reduce_scatter", "all_reduce")
    found = [gathered("dgx-a100-80gb", 8, kind)[0].copies for kind in kinds]
    assert found == [2.0, 3.0, 2.5]


def gathered(cluster, hosts, kind):
    """What NCCL does with a gigabyte among all ranks."""
    loaded = load_cluster(cluster, hosts=hosts)
    group = Mesh(hosts=hosts, devices_per_host=8).world()
    asked = Collective(kind=kind, elements=1e9, bytes_per_element=1, group=group, role="")
    return library(loaded, "nccl", Forced()).exchanges(asked)
