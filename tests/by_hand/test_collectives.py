"""Collectives whose time is known."""

from itertools import pairwise

import pytest
import simpy

from simulator.clock.network import Network
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.fabric import ClassFabric, Link, Phase
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.laws.collectives.ring import Ring
from simulator.units import Bandwidth, Duration
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import LinkOverride, load_cluster

GIGABYTE = 1e9


def gather(group, payload=GIGABYTE):
    return Collective(kind="all_gather", elements=payload, bytes_per_element=1, group=group, role="gather")


def duration(algorithm, collective, cluster):
    fabric = ClassFabric(cluster)
    return sum(fabric.phase(exchange).duration for exchange in algorithm.exchanges(collective))


def flat(hosts, bandwidth=GIGABYTE, latency=0.0):
    link = LinkOverride(bandwidth=Bandwidth(bandwidth), latency=Duration(latency))
    return load_cluster("flat", hosts=hosts, overrides={"link": link})


@pytest.mark.parametrize("ranks", [2, 3, 8, 1024])
def test_a_ring_on_one_switch_takes_exactly_its_share_of_the_payload(ranks):
    cluster = flat(ranks)
    found = duration(Ring(), gather(Mesh(hosts=ranks, devices_per_host=1).world()), cluster)
    assert found == GIGABYTE * (ranks - 1) / ranks / GIGABYTE


def nodes_of_eight(nvlink):
    """8 hosts of 8 GPUs, each GPU with a 50 GB/s network card of its own, no latency."""
    free = LinkOverride(bandwidth=Bandwidth(1e30), latency=Duration(0), efficiency=1.0)
    fast = LinkOverride(bandwidth=Bandwidth(nvlink), latency=Duration(0), efficiency=1.0)
    card = LinkOverride(bandwidth=Bandwidth(50e9), latency=Duration(0), efficiency=1.0)
    return load_cluster("dgx-h100", hosts=8, overrides={"pcie": free, "nvlink": fast, "network": card, "uplink": free})


def test_a8_a_flat_ring_of_64_ranks_uses_all_eight_cards_of_a_host():
    found = duration(Ring(), gather(Mesh(hosts=8, devices_per_host=8).world()), nodes_of_eight(1e12))
    assert found == pytest.approx(63 / 64 * GIGABYTE / 400e9, rel=1e-12)  # 2.46 ms


def test_a8_eight_rings_of_eight_ranks_use_one_card_each():
    rails = Mesh(hosts=8, devices_per_host=8).group("rail", 8, stride=8)
    found = duration(Ring(), gather(rails, GIGABYTE / 8), nodes_of_eight(1e12))
    assert found == pytest.approx(7 / 8 * GIGABYTE / 8 / 50e9, rel=1e-12)  # 2.19 ms


def test_a8_the_hierarchical_gather_reaches_the_lower_bound_when_nvlink_is_fast():
    world = Mesh(hosts=8, devices_per_host=8).world()
    found = duration(Hierarchical(Ring(), Ring()), gather(world), nodes_of_eight(1e18))
    assert found == pytest.approx(7 / 8 * GIGABYTE / 400e9, rel=1e-6)  # 2.19 ms


def test_a15_latency_of_a_ring_is_linear_and_of_doubling_logarithmic():
    """1,024 ranks, 5 us per message (2.5 us up to the switch, 2.5 us down): 5.1 ms against 50 us."""
    cluster = flat(1024, latency=2.5e-6)
    tiny = gather(Mesh(hosts=1024, devices_per_host=1).world(), payload=1e-9)
    assert duration(Ring(), tiny, cluster) == pytest.approx(1023 * 5e-6)
    assert duration(RecursiveDoubling(), tiny, cluster) == pytest.approx(10 * 5e-6)


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 100, 1024])
def test_a15_both_move_the_same_bytes(ranks):
    world = Mesh(hosts=ranks, devices_per_host=1).world()
    ring, doubling = (duration(algorithm(), gather(world), flat(ranks)) for algorithm in (Ring, RecursiveDoubling))
    assert ring == pytest.approx(doubling, rel=1e-12)


def test_eight_gpus_share_the_one_card_of_a_cloud_host():
    """Two hosts of eight, one 100 Gbit/s card each: a ring sends 15/16 of the payload through it."""
    full = {"efficiency": 1.0, "latency": Duration(0)}
    cluster = load_cluster("cloud-100gbe", hosts=2, overrides={
        name: LinkOverride(**full) for name in ("pcie", "host_bridge", "network")
    })  # fmt: skip
    found = duration(Ring(), gather(Mesh(hosts=2, devices_per_host=8).world()), cluster)
    assert found == pytest.approx(15 / 16 * GIGABYTE / 12.5e9, rel=1e-12)


def test_two_transfers_share_a_link_and_the_longer_goes_on_alone():
    """Half rate each while both run: 2 s of work and 1 s of work, both started at 0, end at 3 s and 2 s.

    long   ==== ==== ====      half rate until 2, then full
    short  ==== ====
    """
    env = simpy.Environment()
    network = Network(env, [Link(name="link", kind="link", bandwidth=1.0)])
    ends = {}

    def carry(name, payload):
        yield network.carry(Phase(payload=payload, usage=((0, 1.0),), latency=0.0, rate=1.0))
        ends[name] = env.now

    env.process(carry("long", 2.0))
    env.process(carry("short", 1.0))
    env.run()
    assert ends == {"long": 3.0, "short": 2.0}


def test_groups_of_a_mesh_tile_the_world():
    mesh = Mesh(hosts=4, devices_per_host=8)
    for size, stride in [(32, 1), (8, 1), (4, 1), (2, 1), (4, 8), (2, 16), (8, 4), (16, 2)]:
        group = mesh.group("g", size, stride)
        seen = sorted(rank for rank in range(32) if group.members(rank)[0] == rank for rank in group.members(rank))
        assert seen == list(range(32))
        members = group.members(0)
        assert len({rank // 8 for rank in members}) == group.hosts
        assert all(b - a == stride for a, b in pairwise(members))
