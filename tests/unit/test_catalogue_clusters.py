"""The numbers of the shipped clusters' links, typed a second time, and what NCCL and measurements say of them.

The tables were typed from the reference (network.md 1.2, 1.8, 2.1, 2.3, 3, 4, 5.2, 5.3), not from the YAML files.
"""

from __future__ import annotations

import pytest

from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import ClassFabric, Phase
from simulator.laws.collectives.library import library
from simulator.laws.collectives.ring import Ring
from simulator.laws.collectives.rings import host_rings
from simulator.world.catalog import Number
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Cluster, Forced, load_cluster, shipped_clusters
from simulator.world.topology.graph import device, graph, routes, sample

GIGA, MICRO = 1e9, 1e-6

Row = tuple[str, float, float | None, float]
"""Link, GB/s, efficiency (None: all of it), us."""

G3, G4, G5, G6 = (15.75, 12 / 15.75), (31.5, 24 / 31.5), (63.0, 48 / 63), (126.0, 96 / 126)
"""PCIe x16: GB/s, and what ncclTopoAddPci reckons of it."""

NV2, NV3 = ("nvlink", 6 * 25, 22.5 / 25, 1.7), ("nvlink", 12 * 25, 20 / 25, 1.7)
NV4, NV5 = ("nvlink", 18 * 25, 20.6 / 25, 1.7), ("nvlink", 18 * 50, 40.1 / 50, 1.7)
"""Links times GB/s of one, ncclTopoNVLinkBw over that (V100: what a link was measured to carry), half a hop."""

CUBE, MESH, XGMI = ("nvlink", 25, 22.5 / 25, 3.4), ("nvlink", 25, 20 / 25, 3.4), ("xgmi", 64, 48 / 64, 3.4)
"""One link of devices that are joined in pairs, a whole hop."""

EDR, HDR, NDR, XDR = (12.5, 12 / 12.5), (25.0, 24 / 25), (50.0, 48 / 50), (100.0, 96 / 100)

LINKS: dict[str, list[Row]] = {
    "aws-p3dn": [CUBE, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 151)],
    "aws-p4d": [NV3, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 76)],
    "aws-p4de": [NV3, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 76)],
    "aws-p5": [NV4, ("pcie", *G5, 6), ("card", 15.75, 12 / 15.75, 0), ("network", 12.5, 0.94, 21)],
    "aws-p5e": [NV4, ("pcie", *G5, 6), ("card", 15.75, 12 / 15.75, 0), ("network", 12.5, 0.94, 21)],
    "aws-p5en": [NV4, ("pcie", *G5, 6), ("card", 31.5, 24 / 31.5, 0), ("network", 25, 0.94, 19)],
    "aws-p6-b200": [NV5, ("pcie", *G5, 6), ("network", 50, 0.94, 19)],
    "aws-p6-b300": [NV5, ("pcie", *G6, 6), ("card", *G5, 0), ("network", 50, 0.94, 19)],
    "azure-ndmv4": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1)],
    "azure-ndv2": [CUBE, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 1)],
    "azure-ndv4": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1)],
    "azure-ndv5": [NV4, ("pcie", *G5, 6), ("network", *NDR, 1)],
    "cloud-100gbe": [("pcie", *G4, 2.85), ("host_bridge", *G4, 2.65), ("network", 12.5, 0.85, 1.5)],
    "dgx-1v": [CUBE, ("pcie", *G3, 6), ("card", *G3, 0), ("network", *EDR, 1)],
    "dgx-2": [NV2, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 1)],
    "dgx-a100-40gb": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1), ("uplink", *HDR, 0.33)],
    "dgx-a100-80gb": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1), ("uplink", *HDR, 0.33)],
    "dgx-b200": [NV5, ("pcie", *G5, 6), ("network", *NDR, 1), ("uplink", 2 * NDR[0], NDR[1], 0.33)],
    "dgx-b300": [NV5, ("pcie", *G6, 6), ("network", *XDR, 1), ("uplink", 18 * XDR[0], XDR[1], 0.33)],
    "dgx-h100": [NV4, ("pcie", *G5, 6), ("network", *NDR, 1), ("uplink", 2 * NDR[0], NDR[1], 0.33)],
    "flat": [("link", 50, None, 0)],
    "gb200-nvl72": [NV5, ("pcie", *G5, 6), ("network", *NDR, 1)],
    "gcp-a3-high": [
        NV4, ("pcie", *G5, 5.5), ("crossbar", G5[0], None, 0), ("card", *G4, 0), ("network", 25, 0.8, 53.5),
    ],
    "gcp-a3-mega": [NV4, ("pcie", *G5, 5.5), ("network", 25, 0.945, 53.5)],
    "gcp-a3-ultra": [NV4, ("pcie", *G5, 5.5), ("network", 50, 0.94, 1.5)],
    "gcp-a4-high": [NV5, ("pcie", *G5, 5.5), ("network", 50, 0.94, 1.5)],
    "hgx-a100-4gpu": [MESH, ("pcie", *G4, 6), ("network", *HDR, 1)],
    "hgx-a100-4x100gbe": [
        NV3, ("pcie", *G4, 5.5), ("crossbar", G4[0], None, 0), ("card", *G4, 0), ("network", 12.5, 0.94, 1.5),
    ],
    "hgx-h20": [NV4, ("pcie", *G5, 6), ("network", *NDR, 1)],
    "hgx-h200": [NV4, ("pcie", *G5, 6), ("network", *NDR, 1), ("uplink", 2 * NDR[0], NDR[1], 0.33)],
    "l40s-pcie": [("pcie", 31.5, 20 / 31.5, 2.85), ("host_bridge", *G4, 2.65), ("network", 25, 0.85, 1.5)],
    "mi300x": [XGMI, ("pcie", *G5, 5.5), ("network", 50, 357 / 400, 1.5)],
    "oci-a100": [NV3, ("pcie", *G4, 5.5), ("half", 12.5, None, 0), ("network", 12.5, 0.95, 1.5)],
    "oci-h100": [NV4, ("pcie", *G5, 5.5), ("half", 25, None, 0), ("network", 25, 0.94, 1.5)],
    "rtx-4090-pcie": [("staging", 31.5 / 4, 5 / 7.875, 2.85), ("host_bridge", *G4, 2.65), ("network", 12.5, 0.85, 1.5)],
    "rtx-pro-6000-pcie": [("pcie", *G5, 2.85), ("host_bridge", *G5, 2.65), ("network", 50, 0.85, 1.5)],
}  # fmt: skip

SHAPES: dict[str, tuple[str, int, int | None]] = {
    # accelerator, devices and network ports per host (section 4); None: no network cards are modelled
    "aws-p3dn": ("v100-sxm-32gb", 8, 1),
    "aws-p4d": ("a100-sxm-40gb", 8, 4),
    "aws-p4de": ("a100-sxm-80gb", 8, 4),
    "aws-p5": ("h100-sxm-80gb", 8, 32),
    "aws-p5e": ("h200-sxm-141gb", 8, 32),
    "aws-p5en": ("h200-sxm-141gb", 8, 16),
    "aws-p6-b200": ("b200-sxm-180gb", 8, 8),
    "aws-p6-b300": ("b300-sxm-288gb", 8, 16),
    "azure-ndmv4": ("a100-sxm-80gb", 8, 8),
    "azure-ndv2": ("v100-sxm-32gb", 8, 1),
    "azure-ndv4": ("a100-sxm-40gb", 8, 8),
    "azure-ndv5": ("h100-sxm-80gb", 8, 8),
    "cloud-100gbe": ("a100-sxm-80gb", 8, 1),
    "dgx-1v": ("v100-sxm-32gb", 8, 4),
    "dgx-2": ("v100-sxm-32gb", 16, 8),
    "dgx-a100-40gb": ("a100-sxm-40gb", 8, 8),
    "dgx-a100-80gb": ("a100-sxm-80gb", 8, 8),
    "dgx-b200": ("b200-sxm-180gb", 8, 8),
    "dgx-b300": ("b300-sxm-288gb", 8, 8),
    "dgx-h100": ("h100-sxm-80gb", 8, 8),
    "flat": ("a100-sxm-80gb", 1, None),
    "gb200-nvl72": ("gb200-186gb", 72, 72),
    "gcp-a3-high": ("h100-sxm-80gb", 8, 4),
    "gcp-a3-mega": ("h100-sxm-80gb", 8, 8),
    "gcp-a3-ultra": ("h200-sxm-141gb", 8, 8),
    "gcp-a4-high": ("b200-sxm-180gb", 8, 8),
    "hgx-a100-4gpu": ("a100-sxm-80gb", 4, 4),
    "hgx-a100-4x100gbe": ("a100-sxm-80gb", 8, 4),
    "hgx-h20": ("h20-sxm-96gb", 8, 8),
    "hgx-h200": ("h200-sxm-141gb", 8, 8),
    "l40s-pcie": ("l40s-48gb", 8, 2),
    "mi300x": ("mi300x-192gb", 8, 8),
    "oci-a100": ("a100-sxm-80gb", 8, 16),
    "oci-h100": ("h100-sxm-80gb", 8, 16),
    "rtx-4090-pcie": ("rtx-4090-24gb", 8, 1),
    "rtx-pro-6000-pcie": ("rtx-pro-6000-96gb", 8, 4),
}

RAILS = [name for name, links in LINKS.items() if links[-1][0] == "uplink"]
SCALE_UP = {name: links[0][0] for name, links in LINKS.items() if links[0][0] in ("nvlink", "xgmi")}
SLOW_HOPS = {
    "aws-p3dn": 14 + 2 * 150, "aws-p4d": 14 + 2 * 75, "aws-p4de": 14 + 2 * 75, "aws-p5": 14 + 2 * 20,
    "aws-p5e": 14 + 2 * 20, "aws-p5en": 14 + 2 * 18, "aws-p6-b200": 14 + 2 * 18, "aws-p6-b300": 14 + 2 * 18,
    "gcp-a3-high": 14 + 2 * 52, "gcp-a3-mega": 14 + 2 * 52,
}  # fmt: skip
"""NET 14 us, and the network's own once for the message and once for the flush (section 5.3; A3: fit) [us]."""

FARTHEST = {"aws-p3dn": 2, "azure-ndv2": 2, "dgx-1v": 2, "hgx-a100-4gpu": 1, "mi300x": 1}
"""Links between the farthest two devices of a host that are joined in pairs."""

RINGS = [
    # cluster, devices, rings: measured all-reduces at 1 GiB (22.55, 45.14, 85.36, 45.74, 87.01, 134.51 GB/s) over 22.5
    ("dgx-1v", 2, 1), ("dgx-1v", 3, 2), ("dgx-1v", 4, 4), ("dgx-1v", 6, 2), ("dgx-1v", 7, 4), ("dgx-1v", 8, 6),
    ("hgx-a100-4gpu", 2, 4), ("hgx-a100-4gpu", 4, 12),  # all links of a device
    ("mi300x", 2, 1), ("mi300x", 8, 7),  # section 4: one link, and 7 x 48
]  # fmt: skip

BUSBW = [
    # cluster, hosts, devices in use on each, GB/s, tolerance and why it is not less
    ("aws-p3dn", 2, 8, 12, 0.002),  # one card; NCCL's step of 12
    ("aws-p4d", 2, 8, 48, 0.002),  # NCCL 4x12
    ("aws-p4de", 2, 8, 48, 0.002),
    ("aws-p5", 4, 8, 365, 0.04),  # measured all-reduce over a ring; EFA assumed in the middle of its range
    ("aws-p5e", 4, 8, 365, 0.04),  # as aws-p5
    ("aws-p6-b300", 2, 8, 16 * 50 * 0.94, 0.001),  # EFA assumed
    ("aws-p6-b200", 2, 8, 382, 0.03),  # measured all-reduce, algorithm not stated; EFA assumed
    ("azure-ndv2", 2, 8, 12, 0.002),
    ("azure-ndv4", 2, 8, 187.2, 0.03),  # measured all-reduce at 8 GiB, not yet all of NCCL's 8x24
    ("azure-ndv5", 2, 8, 8 * 48, 0.001),  # NCCL 8x48
    ("dgx-1v", 1, 2, 22.55, 0.005),  # measured all-reduces at 1 GiB
    ("dgx-1v", 1, 3, 45.14, 0.005),
    ("dgx-1v", 1, 4, 85.36, 0.06),  # less than four rings of the others
    ("dgx-1v", 1, 6, 45.74, 0.02),
    ("dgx-1v", 1, 7, 87.01, 0.04),
    ("dgx-1v", 1, 8, 134.51, 0.005),
    ("dgx-1v", 2, 8, 4 * 12, 0.002),  # NCCL 4x10 to 4x12
    ("dgx-2", 1, 16, 6 * 22.5, 0.001),  # a link carries 22.5; all-reduces of 117 to 140 were measured
    ("dgx-2", 2, 16, 8 * 12, 0.002),  # NCCL 8x12
    ("dgx-a100-80gb", 1, 8, 12 * 20, 0.001),  # NCCL 12x20
    ("dgx-a100-80gb", 1, 8, 229.4, 0.05),  # fit of a reduce-scatter; NCCL's constant is higher than what is reached
    ("dgx-a100-80gb", 2, 8, 192, 0.001),  # measured, and NCCL 8x24
    ("dgx-a100-40gb", 2, 8, 192, 0.001),
    ("dgx-b200", 1, 8, 16 * 45, 0.005),  # NCCL 16x45 of 721.8
    ("dgx-b200", 1, 8, 787, 0.09),  # fit of an all-gather; NCCL's constant is lower than what is reached
    ("dgx-b300", 1, 8, 16 * 45, 0.005),
    ("dgx-b300", 2, 8, 8 * 96, 0.001),
    ("dgx-h100", 1, 8, 360, 0.035),  # NCCL 12x30 and measured; the link has 370.8, which no channel uses up
    ("dgx-h100", 8, 8, 384, 0.001),  # NCCL 8x48
    ("dgx-h100", 4, 8, 375, 0.03),  # slides print 370 and 380 for 32 GPUs without SHARP
    ("gb200-nvl72", 1, 4, 720, 0.005),  # fit of all-gathers on 2 and 4 GPUs
    ("gcp-a3-high", 2, 8, 80, 0.001),  # 0.8 of 100 GB/s, assumed
    ("gcp-a3-mega", 2, 8, 189, 0.001),  # measured
    ("gcp-a4-high", 2, 8, 8 * 50 * 0.94, 0.001),  # RoCE assumed in the middle of its range
    ("hgx-a100-4gpu", 1, 2, 4 * 20, 0.001),  # NCCL: 20 of each of four links
    ("hgx-a100-4gpu", 1, 4, 12 * 20, 0.001),
    ("hgx-a100-4x100gbe", 2, 8, 47, 0.001),  # RoCE assumed in the middle of its range
    ("hgx-h20", 1, 8, 360, 0.035),  # as dgx-h100
    ("hgx-h20", 2, 8, 8 * 48, 0.001),
    ("hgx-h200", 1, 8, 360, 0.035),  # as dgx-h100
    ("l40s-pcie", 1, 2, 20, 0.001),  # measured
    ("mi300x", 1, 2, 48, 0.001),  # measured
    ("mi300x", 1, 8, 313, 0.075),  # measured all-reduce; RCCL's constant, 7 x 48, is higher than what is reached
    ("mi300x", 2, 8, 357, 0.001),  # measured all-reduce
    ("oci-a100", 2, 8, 190, 0.001),  # measured
    ("oci-h100", 2, 8, 16 * 22.5, 0.05),  # NCCL is told 180 Gbit/s per port; RoCE assumed in the middle of its range
    ("rtx-4090-pcie", 1, 8, 5, 0.001),  # NCCL 1x5
]

LATENCIES = [
    # cluster, hosts, us of an all-gather, Ring Simple: section 1.8 less the base latency of 8.4 us
    ("dgx-h100", 1, 32.2 - 8.4),
    ("dgx-1v", 1, 32.2 - 8.4),
    ("dgx-a100-80gb", 1, 32.2 - 8.4),
    ("dgx-b200", 1, 32.2 - 8.4),
    ("rtx-4090-pcie", 1, 48.3 - 8.4),
    ("aws-p4d", 2, 220.0 - 8.4),
    ("dgx-h100", 8, 296.8 - 8.4),
]

ALL_REDUCES = [
    # cluster, devices of a host, GB/s measured at 1 GiB; five V100 have no ring over NVLink alone (measured: 37.17)
    ("dgx-1v", 2, 22.55), ("dgx-1v", 3, 45.14), ("dgx-1v", 4, 85.36), ("dgx-1v", 6, 45.74), ("dgx-1v", 7, 87.01),
    ("dgx-1v", 8, 134.51), ("mi300x", 2, 48), ("mi300x", 8, 313),
]  # fmt: skip

ROUNDING = 1e-3
"""The files round efficiencies to three digits."""


def numbers(name: str) -> dict[str, Number]:
    links = load_cluster(name).links
    return {number.name.removeprefix(f"{name}."): number for link in links for number in link.numbers()}


def all_gather(name: str, hosts: int, devices: int | None = None) -> tuple[Cluster, Phase]:
    """A ring over all devices that are in use; 1 GB in all."""
    cluster = load_cluster(name, hosts=hosts, accelerators_per_host=devices)
    group = Mesh(hosts=hosts, devices_per_host=cluster.accelerators_per_host).world()
    collective = Collective(kind="all_gather", elements=GIGA, bytes_per_element=1, group=group, role="test")
    (exchange,) = Ring().exchanges(collective)
    return cluster, ClassFabric(cluster).phase(exchange)


def test_the_tables_know_every_shipped_cluster() -> None:
    assert list(LINKS) == list(SHAPES) == [path.stem for path in shipped_clusters()]


@pytest.mark.parametrize("name", LINKS)
def test_the_links_have_the_numbers_of_their_sources_and_no_others(name: str) -> None:
    expected = {}
    for link, bandwidth, efficiency, latency in LINKS[name]:
        expected |= {f"{link}.bandwidth": bandwidth * GIGA, f"{link}.latency": latency * MICRO}
        expected |= {} if efficiency is None else {f"{link}.efficiency": efficiency}
    assert {key: number.value for key, number in numbers(name).items()} == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("name", SHAPES)
def test_a_host_has_the_devices_and_network_ports_of_its_source(name: str) -> None:
    part, devices, ports = SHAPES[name]
    cluster = load_cluster(name)
    assert (cluster.accelerator.name, cluster.accelerators_per_host) == (part, devices)
    network = next(link for link in cluster.links if link.name in ("network", "link"))
    assert cluster.node(network.ends[0]).count == (ports or devices)


@pytest.mark.parametrize("name", LINKS)
def test_a_hop_takes_as_long_as_nccl_reckons(name: str) -> None:
    """Section 1.2, Ring Simple: NVLink 3.4, PCI 5.7, NET 14.0 us; one more switch on each side between pods."""
    inside = {"nvlink": 3.4, "xgmi": 3.4, "pcie": 5.7, "staging": 5.7}.get(LINKS[name][0][0])
    between = 0.0 if name == "flat" else SLOW_HOPS.get(name, 14.0)
    pod = load_cluster(name).hosts_per_pod if name in RAILS else 2
    cluster = load_cluster(name, hosts=2 * pod)
    built, devices = sample(cluster), cluster.accelerators_per_host
    expected = [(devices, between)] + ([] if inside is None else [(1, inside)])
    expected += [(pod * devices, between + 2 * 0.33)] if name in RAILS else []
    for rank, latency in expected:
        for route in routes(built, device(cluster, 0), device(cluster, rank)):
            found = sum(built.edges[edge]["latency"] for edge in route)
            assert found == pytest.approx(latency * MICRO, rel=1e-9)


@pytest.mark.parametrize(("name", "hosts", "devices", "expected", "tolerance"), BUSBW)
def test_an_all_gather_reaches_the_bus_bandwidth_that_is_known(
    name: str, hosts: int, devices: int, expected: float, tolerance: float
) -> None:
    cluster, phase = all_gather(name, hosts, devices)
    busbw = GIGA * (cluster.ranks - 1) / cluster.ranks / (phase.payload / phase.rate)
    assert busbw == pytest.approx(expected * GIGA, rel=tolerance)


@pytest.mark.parametrize(("name", "devices", "expected"), ALL_REDUCES)
def test_the_library_of_a_cluster_reduces_over_direct_links_as_measured(
    name: str, devices: int, expected: float
) -> None:
    cluster, payload = load_cluster(name, hosts=1, accelerators_per_host=devices), 2**30
    group = Mesh(hosts=1, devices_per_host=devices).world()
    collective = Collective(kind="all_reduce", elements=payload, bytes_per_element=1, group=group, role="test")
    exchanges = library(cluster, cluster.library, Forced()).exchanges(collective)
    time = sum(ClassFabric(cluster).phase(exchange).duration for exchange in exchanges)
    assert 2 * (devices - 1) / devices * payload / time == pytest.approx(expected * GIGA, rel=0.08)


@pytest.mark.parametrize(("name", "hosts", "expected"), LATENCIES)
def test_an_all_gather_has_the_latency_of_the_test_vectors(name: str, hosts: int, expected: float) -> None:
    assert all_gather(name, hosts)[1].latency == pytest.approx(expected * MICRO, rel=1e-9)


@pytest.mark.parametrize("name", SCALE_UP)
def test_traffic_of_a_host_stays_on_its_own_links(name: str) -> None:
    """No route over PCIe is as short as that over NVLink or xGMI: NCCL would not take it."""
    cluster = load_cluster(name, hosts=1)
    built = graph(cluster)
    lengths = set()
    for rank in range(1, cluster.ranks):
        for route in routes(built, device(cluster, 0), device(cluster, rank)):
            assert {built.edges[edge]["kind"].split(":")[0] for edge in route} == {SCALE_UP[name]}
            lengths.add(len(route))
    assert max(lengths) == FARTHEST.get(name, 2)


@pytest.mark.parametrize(("name", "devices", "rings"), RINGS)
def test_nccl_finds_as_many_rings_as_were_measured(name: str, devices: int, rings: int) -> None:
    assert host_rings(load_cluster(name).direct, tuple(range(devices))).channels == rings


def test_the_devices_of_a_cube_mesh_use_all_their_six_links() -> None:
    boards = [load_cluster(name).direct for name in ("dgx-1v", "azure-ndv2", "aws-p3dn")]
    assert boards[0] is not None
    assert [board and board.pairs for board in boards] == [boards[0].pairs] * 3
    for one in range(8):
        assert sum(count for *pair, count in boards[0].pairs if one in pair) == 6


def test_rccl_runs_where_xgmi_is() -> None:
    libraries = {name: load_cluster(name).library for name in SCALE_UP}
    assert [name for name, library in libraries.items() if library == "rccl"] == ["mi300x"]


@pytest.mark.parametrize("name", SCALE_UP)
def test_the_network_is_narrower_than_what_stands_before_it(name: str) -> None:
    """NCCL takes the NIC's rate where PCIe has more; all links of a host together, because several may share one."""
    cluster = load_cluster(name)
    together = {
        link.name: max(cluster.node(end).count for end in link.ends if cluster.node(end).per == "host") * link.bandwidth
        for link in cluster.links
        if cluster.node(link.ends[0]).per == "host"
    }
    before = {"pcie", "crossbar", "card", "half"} & set(together)
    assert before
    assert together["network"] < min(together[name] for name in before)


@pytest.mark.parametrize("name", RAILS)
def test_a_leaf_has_as_much_up_as_down(name: str) -> None:
    cluster = load_cluster(name)
    links = {link.name: link for link in cluster.links}
    down = cluster.hosts_per_pod * links["network"].bandwidth
    assert cluster.node("spine").count * links["uplink"].bandwidth == pytest.approx(down)
