"""Fabrics: sizing rules, and an oversubscribed one loses what theory says."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.fabric import ClassFabric, FullFabric
from simulator.laws.collectives.ring import Ring
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import load_cluster
from simulator.world.topology.fabrics import read_fabric, with_fabric
from simulator.world.topology.torus import crossings, diameter

GIGA = 1e9


def on(fabric, hosts=128, cluster="dgx-h100"):
    section = read_fabric(fabric, None)
    return load_cluster(cluster, hosts=hosts, on_fabric=lambda written: with_fabric(written, section))


def ring(cluster, kind="all_gather", stride=1):
    """A textbook ring over all ranks, or over the first of every *stride* ranks: seconds per byte."""
    mesh = Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host)
    group = mesh.group("g", mesh.ranks // stride, stride)
    collective = Collective(kind=kind, elements=GIGA, bytes_per_element=1, group=group, role="test")
    (exchange,) = Ring().exchanges(collective)
    phase = ClassFabric(cluster).phase(exchange)
    return phase.payload / phase.rate


def counts(cluster):
    return {node.name: cluster.containers(node.per) * node.count for node in cluster.nodes if node.per != "host"}


def test_a_superpod_has_its_leaves_for_32_hosts():
    """SuperPOD H100: 32 hosts and 8 leaves per unit; 127 hosts (of 128 places) have 32 leaves."""
    cluster = on("rail_optimised")
    assert (cluster.hosts_per_pod, counts(cluster)["leaf"]) == (32, 32)


def test_three_tiers_reach_r_cubed_over_four_ports():
    """Radix 64: 65,536 ports, in zones of 32 leaves of 32 ports."""
    cluster = on({"kind": "fat_tree", "tiers": 3}, hosts=8192)
    assert cluster.hosts_per_pod == 4  # 32 ports down of a leaf, 8 cards a host
    assert cluster.hosts_per_zone == 128  # 32 leaves
    assert cluster.hosts * 8 == 64**3 // 4
    assert counts(cluster) == {"leaf": 2048, "spine": 64 * 32, "core": 32}


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_uplinks_carry_what_the_ratio_leaves(ratio):
    cluster = on({"kind": "fat_tree", "oversubscription": ratio})
    links = {link.name: link for link in cluster.links}
    up = links["uplink"].bandwidth * cluster.node("spine").count
    down = links["network"].bandwidth * 8 * cluster.hosts_per_pod
    assert up == pytest.approx(down / ratio)


@pytest.mark.parametrize("ratio", [2, 4])
def test_a_ring_in_host_order_leaves_a_leaf_once_per_pod(ratio):
    """A ring crosses the uplinks of a leaf of h hosts with 1/h of their traffic: 4:1 costs nothing where h >= 4."""
    cluster = on({"kind": "fat_tree", "oversubscription": ratio})
    assert cluster.hosts_per_pod >= ratio
    assert ring(cluster) == pytest.approx(ring(on("single_switch")))


@pytest.mark.parametrize("ratio", [2, 4])
def test_a_ring_over_scattered_hosts_loses_the_whole_ratio(ratio):
    """Neighbours share no leaf, every message climbs, and uplinks carry 1/ratio of what cards do."""
    cluster = replace(on({"kind": "fat_tree", "oversubscription": ratio}, hosts=120), placement="scattered")
    assert cluster.hosts % cluster.hosts_per_pod == 0
    assert ring(cluster) == pytest.approx(ratio * ring(on("single_switch", hosts=120)))


def test_scattered_hosts_of_a_zone_climb_to_the_cores():
    """Three tiers whose cores are 4:1: a job dealt out to two zones loses 4, one that is packed nothing."""
    cluster = on({"kind": "fat_tree", "tiers": 3, "core_oversubscription": 4}, hosts=256)
    assert cluster.containers("zone") == 2
    assert ring(replace(cluster, placement="scattered")) == pytest.approx(4 * ring(on("single_switch", hosts=256)))
    assert ring(cluster) == pytest.approx(ring(on("single_switch", hosts=256)))


def test_a_dragonfly_gives_a_ring_half_of_its_global_links():
    """Groups of 128 hosts; all messages between groups go to the next one."""
    cluster = on("dragonfly_plus", hosts=512)
    assert cluster.hosts_per_pod == 32 * 32 // 8
    stride = 8 * cluster.hosts_per_pod
    assert ring(cluster, stride=stride) == pytest.approx(2 * ring(on("single_switch", hosts=512), stride=stride))


def test_minimal_routing_leaves_the_links_to_one_group():
    cluster = on({"kind": "dragonfly_plus", "routing": "minimal"}, hosts=512)
    stride = 8 * cluster.hosts_per_pod
    assert ring(cluster, stride=stride) == pytest.approx(3 * ring(on("single_switch", hosts=512), stride=stride))


def test_rails_without_spines_join_hosts_only_by_rail():
    cluster = on("rail_only")
    assert counts(cluster) == {"leaf": 8}
    assert ring(cluster) == pytest.approx(ring(on("single_switch")))


def test_another_technology_has_its_own_efficiency_and_latency():
    links = {link.name: link for link in on({"kind": "single_switch", "technology": "tcp"}).links}
    assert links["network"].technology == "tcp"
    assert links["network"].efficiency.value == 0.8
    assert links["network"].latency.value == pytest.approx(53.5e-6)


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        ("fat_trea", ["fat_tree"]),
        ({"kind": "fat_tree", "oversubscripton": 4}, ["did you mean 'oversubscription'?"]),
        ({"kind": "fat_tree", "oversubscription": 0.5}, ["oversubscription"]),
        ({"kind": "rail_only", "tiers": 3}, ["tiers"]),
    ],
)
def test_wrong_fabrics_are_told(fabric, words):
    with pytest.raises(InputError) as caught:
        read_fabric(fabric, None)
    assert all(word in str(caught.value) for word in words)


def torus(*axes, cluster="dgx-h100"):
    hosts = 1
    for length in axes:
        hosts *= length
    return on({"kind": "torus", "axes": list(axes)}, hosts=hosts, cluster=cluster)


def loads(cluster, fabric, algorithm, kind):
    """Mean bytes on a link of each kind (of the axes, of the hosts) of a collective of 1 GB over all ranks."""
    world = Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host).world()
    collective = Collective(kind=kind, elements=GIGA, bytes_per_element=1, group=world, role="test")
    (exchange,) = algorithm.exchanges(collective)
    phase = fabric.phase(exchange, world.members(0))
    found, members = Counter(), Counter(link.kind for link in fabric.links)
    for link, share in phase.usage:
        found[fabric.links[link].kind] += share * phase.payload
    return {name: found[name] / members[name] for name in found}


def test_an_offset_of_one_moves_the_next_axis_where_the_first_is_at_its_end():
    assert crossings((4, 2), 1) == {(0, "+"): 1.0, (1, "+"): 0.25}
    assert crossings((4, 2), 3) == {(0, "-"): 1.0, (1, "+"): 0.75}
    assert crossings((4,), 2) == {(0, "+"): 1.0, (0, "-"): 1.0}  # halfway: half of the messages go either way


def test_all_others_are_a_quarter_of_an_axis_away():
    """Axis of 4: 0, 1, 2, 1 links to the four places, mean 1, half of it in each direction; 16 hosts, 15 others."""
    assert crossings((4, 4), None) == pytest.approx(dict.fromkeys(product((0, 1), "+-"), 0.5 * 16 / 15))
    assert diameter((4, 4)) == 4


def test_a_ring_in_host_order_uses_one_direction_of_the_first_axis():
    """8 cards of 50 GB/s on 4 links of a host: 100 GB/s each, of which a flat ring uses one: a quarter of the cards."""
    assert ring(torus(4, 4)) == pytest.approx(4 * ring(on("single_switch", hosts=16)))


@pytest.mark.parametrize("axes", [(4, 4), (5,), (2, 3), (2, 2, 2)])
@pytest.mark.parametrize(("algorithm", "kind"), [(Ring(), "all_gather"), (Direct(), "all_to_all")])
def test_links_of_a_torus_carry_what_all_single_ones_do(axes, algorithm, kind):
    cluster = torus(*axes)
    whole, single = (loads(cluster, fabric(cluster), algorithm, kind) for fabric in (ClassFabric, FullFabric))
    assert whole == pytest.approx(single)


def test_axes_must_hold_the_hosts():
    with pytest.raises(InputError, match="product is the 16 hosts"):
        on({"kind": "torus", "axes": [4, 5]}, hosts=16)
