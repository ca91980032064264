"""What holds for NCCL's collectives: every algorithm, protocol and kind, on groups and clusters of many shapes."""

import itertools
import math
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.laws.collectives.base import Collective, CollectiveKind, Quantization
from simulator.laws.collectives.fabric import ClassFabric, FullFabric
from simulator.laws.collectives.library import library
from simulator.laws.collectives.nccl.constants import ALGORITHMS, PROTOCOLS
from simulator.laws.collectives.nccl.latency import latency
from simulator.laws.collectives.nccl.library import NcclCollectives
from simulator.laws.collectives.nccl.system import SystemReader
from simulator.laws.collectives.nccl.tuning import estimates
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Forced, Library, load_cluster

INT4 = Quantization(bits=4, block=2048)
KINDS = get_args(CollectiveKind)
CHOSEN = ("all_gather", "reduce_scatter", "all_reduce")
"""Kinds for which NCCL has a choice."""
NAMES = (
    "aws-p4d", "cloud-100gbe", "dgx-2", "dgx-a100-80gb", "dgx-b200", "dgx-h100", "flat", "gcp-a3-high", "l40s-pcie",
    "rtx-4090-pcie",
)  # fmt: skip
PAYLOADS = st.sampled_from([64, 1e4, 1e6, 3e7, 1e9])

FEW = {"hosts": st.integers(1, 3), "devices": (1, 2, 4, 8)}
"""Clusters of which the full graph is small; devices share cards evenly, as a class of links supposes."""

kinds = st.sampled_from(KINDS)


@st.composite
def groups(draw, hosts=st.integers(1, 4), devices=(1, 2, 3, 4, 8)):
    """A cluster of the catalogue, partly used, and one of the ways to divide its ranks."""
    whole = load_cluster(draw(st.sampled_from(NAMES)))
    devices = draw(st.sampled_from([n for n in devices if n <= whole.accelerators_per_host]))
    cluster = load_cluster(whole.name, hosts=draw(hosts), accelerators_per_host=devices)
    cluster = replace(cluster, hosts_per_pod=draw(st.sampled_from([1, 2, 32])))
    mesh = Mesh(hosts=cluster.hosts, devices_per_host=devices)
    shapes = [mesh.world(), mesh.group("host", devices), mesh.group("rail", cluster.hosts, devices)]
    if devices % 2 == 0:
        shapes += [mesh.group("half", devices // 2), mesh.group("every second", devices // 2, 2)]
    return cluster, draw(st.sampled_from(shapes))


@st.composite
def calls(draw, **of_group):
    """A cluster, a collective on one of its groups, and a pair of algorithm and protocol that NCCL has for it."""
    cluster, group = draw(groups(**of_group))
    kind = draw(st.sampled_from(CHOSEN))
    assume(group.size > 1)
    sharp = draw(st.booleans())
    system = SystemReader(cluster, in_network=sharp).system(group)
    pairs = [(item.algorithm, item.protocol) for item in estimates(kind, 1e6, system)]
    algorithm, protocol = draw(st.sampled_from(sorted(pairs)))
    return cluster, group, kind, Forced(algorithm=algorithm, protocol=protocol, sharp=sharp)


def collective(kind, group, payload=1e8, quantization=None):
    return Collective(
        kind=kind, elements=payload / 2, bytes_per_element=2, group=group, role="test", quantization=quantization
    )


def phases(cluster, asked, forced=Forced(), name="nccl"):
    fabric = ClassFabric(cluster)
    return [fabric.phase(exchange) for exchange in library(cluster, name, forced).exchanges(asked)]


def duration(cluster, asked, forced=Forced(), name="nccl"):
    return sum(phase.duration for phase in phases(cluster, asked, forced, name))


def carried(found, links):
    amounts = [0.0] * len(links)
    for phase in found:
        for link, share in phase.usage:
            amounts[link] += share * phase.payload
    return amounts


@given(call=calls(), payload=PAYLOADS)
def test_what_is_prescribed_is_taken(call, payload):
    cluster, group, kind, forced = call
    (exchange,) = library(cluster, "nccl", forced).exchanges(collective(kind, group, payload))
    assert (exchange.algorithm, exchange.protocol) == (forced.algorithm, forced.protocol)


@given(given_group=groups(), kind=kinds, algorithm=st.sampled_from(ALGORITHMS), protocol=st.sampled_from(PROTOCOLS))
def test_what_is_prescribed_is_taken_or_refused(given_group, kind, algorithm, protocol):
    """Broadcasts and reduces have rings only, whatever the algorithm; direct messages follow no prescription."""
    cluster, group = given_group
    assume(group.size > 1 and kind != "all_to_all")
    expected = algorithm if kind in CHOSEN else "ring", protocol
    forced = Forced(algorithm=algorithm, protocol=protocol)
    exists = {(item.algorithm, item.protocol) for item in estimates(kind, 1e8, SystemReader(cluster).system(group))}
    if expected in exists:
        found = phases(cluster, collective(kind, group), forced)
        assert {(phase.algorithm, phase.protocol) for phase in found} == {expected}
    else:
        with pytest.raises(InputError, match="use one of"):
            phases(cluster, collective(kind, group), forced)


@given(given_group=groups(), kind=kinds, payload=PAYLOADS, name=st.sampled_from(get_args(Library)))
def test_every_library_carries_out_every_kind(given_group, kind, payload, name):
    """Nothing is negative, and no link carries more than its bandwidth allows."""
    cluster, group = given_group
    fabric = ClassFabric(cluster)
    for phase in phases(cluster, collective(kind, group, payload), name=name):
        assert phase.latency >= 0
        assert phase.payload >= 0
        assert phase.rate > 0
        assert math.isfinite(phase.duration)
        for link, share in phase.usage:
            assert share >= 0
            needed = share * phase.payload / fabric.links[link].bandwidth
            assert needed <= (phase.duration - phase.latency) * (1 + 1e-9)


@given(given_group=groups(), kind=kinds, name=st.sampled_from(get_args(Library)), quantized=st.booleans())
def test_one_rank_costs_nothing(given_group, kind, name, quantized):
    cluster, _ = given_group
    alone = Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host).group("alone", 1)
    quantization = INT4 if quantized and kind in ("all_gather", "reduce_scatter") else None
    assert library(cluster, name, Forced()).exchanges(collective(kind, alone, quantization=quantization)) == ()


@given(given_group=groups(), kind=st.sampled_from(["all_gather", "reduce_scatter"]), payload=PAYLOADS)
def test_quantised_collectives_work_on_every_group(given_group, kind, payload):
    """Also where one of the two hops of a gradient exchange is between one rank and itself."""
    cluster, group = given_group
    found = duration(cluster, collective(kind, group, payload, INT4))
    assert found > 0 if group.size > 1 else found == 0


@given(given_group=groups(), kind=st.sampled_from(["all_gather", "reduce_scatter"]))
def test_four_bits_put_less_on_every_link(given_group, kind):
    cluster, group = given_group
    links = ClassFabric(cluster).links
    plain, quantised = (
        carried(phases(cluster, collective(kind, group, 1e9, quantization)), links) for quantization in (None, INT4)
    )
    assert all(less <= more for less, more in zip(quantised, plain, strict=True))
    assert sum(quantised) < sum(plain) or group.size == 1


@given(call=calls(), payload=PAYLOADS, factor=st.sampled_from([2.0, 3.7, 100.0]))
def test_more_takes_longer(call, payload, factor):
    """For one pair; twice as much, because a tree's bandwidth changes by steps with the payload."""
    cluster, group, kind, forced = call
    once, more = (duration(cluster, collective(kind, group, size), forced) for size in (payload, factor * payload))
    assert once < more


@given(given_group=groups(), payload=PAYLOADS, factor=st.sampled_from([2.0, 100.0]))
def test_more_takes_longer_by_messages_between_all(given_group, payload, factor):
    """One protocol: from 1 MiB to a peer on."""
    cluster, group = given_group
    assume(group.size > 1)
    smaller = max(payload, group.size * 2**20)
    once, more = (
        duration(cluster, collective("all_to_all", group, size)) for size in (smaller, factor * smaller)
    )  # fmt: skip
    assert once < more


@given(call=calls(), payload=PAYLOADS, factor=st.sampled_from([1.1, 2.0, 10.0]))
def test_one_pair_alone_is_never_slower_on_faster_links(call, payload, factor):
    """Of protocol Simple and rings: others are capped by channel, and faster links may have fewer channels."""
    cluster, group, kind, forced = call
    assume(forced.protocol == "simple" and forced.algorithm in ("ring", "pat"))
    faster = replace(
        cluster,
        links=tuple(
            replace(link, nominal=replace(link.nominal, value=factor * link.nominal.value)) for link in cluster.links
        ),
    )
    slow, fast = (duration(item, collective(kind, group, payload), forced) for item in (cluster, faster))
    assert fast <= slow * (1 + 1e-9)


@given(given_group=groups(**FEW), kind=kinds, payload=PAYLOADS)
def test_a_class_loads_each_kind_of_link_as_all_groups_do(given_group, kind, payload):
    """The busiest link of the quotient is the busiest of the full graph, and latencies are equal."""
    check_class_against_full(*given_group, kind, payload, "nccl")


@given(call=calls(**FEW), payload=PAYLOADS)
def test_a_class_loads_each_kind_of_link_as_all_groups_do_whatever_the_pair(call, payload):
    cluster, group, kind, forced = call
    check_class_against_full(cluster, group, kind, payload, "nccl", forced)


def check_class_against_full(cluster, group, kind, payload, name, forced=Forced()):
    by_class, by_rank = ClassFabric(cluster), FullFabric(cluster)
    communicators = {group.members(rank) for rank in range(cluster.ranks)}
    for exchange in library(cluster, name, forced).exchanges(collective(kind, group, payload)):
        quotient = by_class.phase(exchange)
        full = [by_rank.phase(exchange, members) for members in communicators]
        loads = [
            amount / link.bandwidth
            for amount, link in zip(carried(full, by_rank.links), by_rank.links, strict=True)
        ]  # fmt: skip
        mine = carried([quotient], by_class.links)
        assert max(
            amount / link.bandwidth for amount, link in zip(mine, by_class.links, strict=True)
        ) == pytest.approx(max(loads), rel=1e-9)  # fmt: skip
        assert [phase.latency for phase in full] == pytest.approx([quotient.latency] * len(full), rel=1e-9)


@given(
    name=st.sampled_from(["dgx-a100-80gb", "dgx-h100", "aws-p4d"]),
    kind=st.sampled_from(CHOSEN),
    protocol=st.sampled_from(PROTOCOLS),
)
def test_a_ring_waits_longer_the_more_ranks_it_has(name, kind, protocol):
    waits = []
    for hosts in (1, 2, 3, 8, 100, 1000):
        cluster = load_cluster(name, hosts=hosts)
        system = SystemReader(cluster).system(Mesh(hosts=hosts, devices_per_host=8).world())
        waits.append(latency(kind, system, "ring", protocol))
    assert all(a < b for a, b in itertools.pairwise(waits))


@given(given_group=groups(), kind=st.sampled_from(CHOSEN), payload=PAYLOADS)
def test_the_choice_is_the_least_of_its_estimates(given_group, kind, payload):
    """LL128 between hosts aside, which is not allowed for large messages."""
    cluster, group = given_group
    assume(group.size > 1)
    collectives = NcclCollectives(cluster, Forced())
    system = collectives.system(group)
    chosen = collectives.choose(kind, payload, system)
    others = [item for item in estimates(kind, payload, system) if item.protocol != "ll128"]
    assert all(chosen.time(payload) <= item.time(payload) for item in others)


@pytest.mark.parametrize("hosts", [1, 2, 64, 16_384])
def test_any_number_of_hosts(hosts):
    cluster = load_cluster("dgx-h100", hosts=hosts)
    group = Mesh(hosts=hosts, devices_per_host=8).world()
    for kind in KINDS:
        assert 0 < duration(cluster, collective(kind, group)) < math.inf


@pytest.mark.parametrize("hosts", [1, 2])
def test_hpz_and_hsdp_groups_of_a_cluster(hosts):
    mesh = Mesh(hosts=8 * hosts, devices_per_host=8)
    cluster = load_cluster("dgx-h100", hosts=8 * hosts)
    for group in (mesh.group("hpz", 8), mesh.group("shard", 32), mesh.group("replicate", 2 * hosts, 32)):
        for kind in CHOSEN:
            check_class_against_full(cluster, group, kind, 1e8, "nccl")


MESH = """
name: mesh
title: Devices linked in pairs, each with a card of its own
accelerator: mi300x-192gb
nodes:
  - {{name: device, kind: device, per: host, count: {devices}}}
  - {{name: nic, kind: nic, per: host, count: {devices}}}
  - {{name: fabric, kind: switch, per: cluster, count: 1}}
links:
  - name: xgmi
    ends: [device, device]
    wiring: pairs
    pairs: {pairs}
    bandwidth: {{value: 64 GB/s, basis: assumed, source: simulator}}
    latency: {{value: 3.4 us, basis: assumed, source: simulator}}
  - name: pcie
    ends: [device, nic]
    wiring: spread
    bandwidth: {{value: 48 GB/s, basis: assumed, source: simulator}}
    latency: {{value: 6 us, basis: assumed, source: simulator}}
  - name: network
    technology: roce
    ends: [nic, fabric]
    wiring: spread
    bandwidth: {{value: 400 Gbit/s, basis: assumed, source: simulator}}
    latency: {{value: 1 us, basis: assumed, source: simulator}}
"""
FULL_MESH, SQUARE, DOUBLE = "[]", "[[0, 1, 1], [1, 2, 1], [2, 3, 1], [3, 0, 1]]", "[[0, 1, 3]]"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "all_to_all"])
@pytest.mark.parametrize("name", get_args(Library))
@pytest.mark.parametrize(
    ("devices", "pairs"), [(2, FULL_MESH), (4, FULL_MESH), (5, FULL_MESH), (2, DOUBLE), (4, SQUARE)]
)
def test_a_class_loads_rings_through_meshes_as_all_groups_do(tmp_path, devices, pairs, name, kind):
    check_mesh(tmp_path, devices, pairs, name, kind)


@pytest.mark.parametrize("name", get_args(Library))
@pytest.mark.parametrize(
    ("devices", "pairs"), [(2, FULL_MESH), (4, FULL_MESH), (5, FULL_MESH), (2, DOUBLE), (4, SQUARE)]
)
def test_a_class_loads_messages_between_all_on_meshes_as_all_groups_do(tmp_path, devices, pairs, name):
    check_mesh(tmp_path, devices, pairs, name, "all_to_all")


def check_mesh(tmp_path, devices, pairs, name, kind):
    path = tmp_path / "mesh.yaml"
    path.write_text(MESH.format(devices=devices, pairs=pairs), encoding="utf-8")
    for hosts in (1, 3):
        cluster = load_cluster(str(path), hosts=hosts)
        mesh = Mesh(hosts=hosts, devices_per_host=devices)
        for group in (mesh.world(), mesh.group("host", devices), mesh.group("rail", hosts, devices)):
            check_class_against_full(cluster, group, kind, 1e8, name)


TWO_SWITCHES = """
name: two-switches
title: Eight devices on two PCIe switches, a card on each
accelerator: l40s-48gb
nodes:
  - {name: device, kind: device, per: host, count: 8}
  - {name: pcie_switch, kind: switch, per: host, count: 2}
  - {name: cpu, kind: switch, per: host, count: 1}
  - {name: nic, kind: nic, per: host, count: 2}
  - {name: fabric, kind: switch, per: cluster, count: 1}
links:
  - name: pcie
    ends: [device, pcie_switch]
    wiring: spread
    bandwidth: {value: 24 GB/s, basis: assumed, source: simulator}
    latency: {value: 2.85 us, basis: assumed, source: simulator}
  - name: bridge
    technology: pcie
    ends: [pcie_switch, cpu]
    wiring: all
    bandwidth: {value: BRIDGE, basis: assumed, source: simulator}
    latency: {value: 1 us, basis: assumed, source: simulator}
  - name: slot
    technology: pcie
    ends: [pcie_switch, nic]
    wiring: spread
    bandwidth: {value: 24 GB/s, basis: assumed, source: simulator}
    latency: {value: 1 us, basis: assumed, source: simulator}
  - name: network
    technology: roce
    ends: [nic, fabric]
    wiring: spread
    bandwidth: {value: 100 Gbit/s, basis: assumed, source: simulator}
    latency: {value: 1 us, basis: assumed, source: simulator}
"""


@pytest.mark.parametrize("name", get_args(Library))
@pytest.mark.parametrize("bridge", ["10 GB/s", "100 GB/s"])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_class_loads_two_switches_of_a_host_as_all_groups_do(tmp_path, devices, bridge, name):
    """Some pairs share a switch and others do not; the bridge between switches is the bottleneck, or is not."""
    path = tmp_path / "two.yaml"
    path.write_text(TWO_SWITCHES.replace("BRIDGE", bridge), encoding="utf-8")
    for hosts, kind in itertools.product((1, 3), KINDS):
        cluster = load_cluster(str(path), hosts=hosts, accelerators_per_host=devices)
        mesh = Mesh(hosts=hosts, devices_per_host=devices)
        shapes = [mesh.world(), mesh.group("host", devices), mesh.group("rail", hosts, devices)]
        for group in (*shapes, mesh.group("half", devices // 2), mesh.group("every second", devices // 2, 2)):
            check_class_against_full(cluster, group, kind, 1e8, name)
