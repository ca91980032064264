"""The numbers of the shipped clusters' links, typed a second time, and what NCCL and measurements say of them.

The tables were typed from the reference (network.md 1.2, 1.8, 2.1, 2.3, 3, 4, 5.2, 5.3), not from the YAML files.
"""

from __future__ import annotations

import pytest

from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import ClassFabric, Phase
from simulator.laws.collectives.ring import Ring
from simulator.world.catalog import Number
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Cluster, load_cluster, shipped_clusters
from simulator.world.topology.graph import device, graph, routes, sample

GIGA, MICRO = 1e9, 1e-6

Row = tuple[str, float, float | None, float]
"""Link, GB/s, efficiency (None: all of it), us."""

G3, G4, G5 = (15.75, 12 / 15.75), (31.5, 24 / 31.5), (63.0, 48 / 63)
"""PCIe x16: GB/s, and what ncclTopoAddPci reckons of it."""

NV2, NV3 = ("nvlink", 6 * 25, 22.5 / 25, 1.7), ("nvlink", 12 * 25, 20 / 25, 1.7)
NV4, NV5 = ("nvlink", 18 * 25, 20.6 / 25, 1.7), ("nvlink", 18 * 50, 40.1 / 50, 1.7)
"""Links times GB/s of one, ncclTopoNVLinkBw over that (V100: what a link was measured to carry), half a hop."""

EDR, HDR, NDR = (12.5, 12 / 12.5), (25.0, 24 / 25), (50.0, 48 / 50)

LINKS: dict[str, list[Row]] = {
    "aws-p4d": [NV3, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 76)],
    "aws-p4de": [NV3, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 76)],
    "aws-p5": [NV4, ("pcie", *G5, 6), ("card", 15.75, 12 / 15.75, 0), ("network", 12.5, 0.94, 21)],
    "aws-p5en": [NV4, ("pcie", *G5, 6), ("card", 31.5, 24 / 31.5, 0), ("network", 25, 0.94, 19)],
    "aws-p6-b200": [NV5, ("pcie", *G5, 6), ("network", 50, 0.94, 19)],
    "azure-ndmv4": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1)],
    "azure-ndv4": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1)],
    "azure-ndv5": [NV4, ("pcie", *G5, 6), ("network", *NDR, 1)],
    "cloud-100gbe": [("pcie", *G4, 2.85), ("host_bridge", *G4, 2.65), ("network", 12.5, 0.85, 1.5)],
    "dgx-2": [NV2, ("pcie", *G3, 6), ("crossbar", G3[0], None, 0), ("card", *G3, 0), ("network", *EDR, 1)],
    "dgx-a100-40gb": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1), ("uplink", *HDR, 0.33)],
    "dgx-a100-80gb": [NV3, ("pcie", *G4, 6), ("network", *HDR, 1), ("uplink", *HDR, 0.33)],
    "dgx-b200": [NV5, ("pcie", *G5, 6), ("network", *NDR, 1), ("uplink", 2 * NDR[0], NDR[1], 0.33)],
    "dgx-h100": [NV4, ("pcie", *G5, 6), ("network", *NDR, 1), ("uplink", 2 * NDR[0], NDR[1], 0.33)],
    "flat": [("link", 50, None, 0)],
    "gb200-nvl72": [NV5, ("pcie", *G5, 6), ("network", *NDR, 1)],
    "gcp-a3-high": [
        NV4, ("pcie", *G5, 5.5), ("crossbar", G5[0], None, 0), ("card", *G4, 0), ("network", 25, 0.8, 53.5),
    ],
    "gcp-a3-mega": [NV4, ("pcie", *G5, 5.5), ("network", 25, 0.945, 53.5)],
    "gcp-a3-ultra": [NV4, ("pcie", *G5, 5.5), ("network", 50, 0.94, 1.5)],
    "hgx-h200": [NV4, ("pcie", *G5, 6), ("network", *NDR, 1), ("uplink", 2 * NDR[0], NDR[1], 0.33)],
    "l40s-pcie": [("pcie", 31.5, 20 / 31.5, 2.85), ("host_bridge", *G4, 2.65), ("network", 25, 0.85, 1.5)],
    "oci-a100": [NV3, ("pcie", *G4, 5.5), ("half", 12.5, None, 0), ("network", 12.5, 0.95, 1.5)],
    "oci-h100": [NV4, ("pcie", *G5, 5.5), ("half", 25, None, 0), ("network", 25, 0.94, 1.5)],
    "rtx-4090-pcie": [("staging", 31.5 / 4, 5 / 7.875, 2.85), ("host_bridge", *G4, 2.65), ("network", 12.5, 0.85, 1.5)],
    "rtx-pro-6000-pcie": [("pcie", *G5, 2.85), ("host_bridge", *G5, 2.65), ("network", 50, 0.85, 1.5)],
}  # fmt: skip

SHAPES: dict[str, tuple[str, int, int | None]] = {
    # accelerator, devices and network ports per host (section 4); None: no network cards are modelled
    "aws-p4d": ("a100-sxm-40gb", 8, 4),
    "aws-p4de": ("a100-sxm-80gb", 8, 4),
    "aws-p5": ("h100-sxm-80gb", 8, 32),
    "aws-p5en": ("h200-sxm-141gb", 8, 16),
    "aws-p6-b200": ("b200-sxm-180gb", 8, 8),
    "azure-ndmv4": ("a100-sxm-80gb", 8, 8),
    "azure-ndv4": ("a100-sxm-40gb", 8, 8),
    "azure-ndv5": ("h100-sxm-80gb", 8, 8),
    "cloud-100gbe": ("a100-sxm-80gb", 8, 1),
    "dgx-2": ("v100-sxm-32gb", 16, 8),
    "dgx-a100-40gb": ("a100-sxm-40gb", 8, 8),
    "dgx-a100-80gb": ("a100-sxm-80gb", 8, 8),
    "dgx-b200": ("b200-sxm-180gb", 8, 8),
    "dgx-h100": ("h100-sxm-80gb", 8, 8),
    "flat": ("a100-sxm-80gb", 1, None),
    "gb200-nvl72": ("gb200-186gb", 72, 72),
    "gcp-a3-high": ("h100-sxm-80gb", 8, 4),
    "gcp-a3-mega": ("h100-sxm-80gb", 8, 8),
    "gcp-a3-ultra": ("h200-sxm-141gb", 8, 8),
    "hgx-h200": ("h200-sxm-141gb", 8, 8),
    "l40s-pcie": ("l40s-48gb", 8, 2),
    "oci-a100": ("a100-sxm-80gb", 8, 16),
    "oci-h100": ("h100-sxm-80gb", 8, 16),
    "rtx-4090-pcie": ("rtx-4090-24gb", 8, 1),
    "rtx-pro-6000-pcie": ("rtx-pro-6000-96gb", 8, 4),
}

RAILS = [name for name, links in LINKS.items() if links[-1][0] == "uplink"]
NVSWITCHES = [name for name, links in LINKS.items() if links[0][0] == "nvlink"]
SLOW_HOPS = {
    "aws-p4d": 14 + 2 * 75, "aws-p4de": 14 + 2 * 75, "aws-p5": 14 + 2 * 20, "aws-p5en": 14 + 2 * 18,
    "aws-p6-b200": 14 + 2 * 18, "gcp-a3-high": 14 + 2 * 52, "gcp-a3-mega": 14 + 2 * 52,
}  # fmt: skip
"""NET 14 us, and the network's own once for the message and once for the flush of Simple (section 5.3; A3: fit) [us]."""

BUSBW = [
    # cluster, hosts, devices in use on each, GB/s, tolerance and why it is not less
    ("aws-p4d", 2, 8, 48, 0.002),  # NCCL 4x12
    ("aws-p4de", 2, 8, 48, 0.002),
    ("aws-p5", 4, 8, 365, 0.04),  # measured all-reduce over a ring; EFA assumed in the middle of its range
    ("aws-p6-b200", 2, 8, 382, 0.03),  # measured all-reduce, algorithm not stated; EFA assumed
    ("azure-ndv4", 2, 8, 187.2, 0.03),  # measured all-reduce at 8 GiB, not yet all of NCCL's 8x24
    ("azure-ndv5", 2, 8, 8 * 48, 0.001),  # NCCL 8x48
    ("dgx-2", 1, 16, 6 * 22.5, 0.001),  # a link carries 22.5; all-reduces of 117 to 140 were measured
    ("dgx-2", 2, 16, 8 * 12, 0.002),  # NCCL 8x12
    ("dgx-a100-80gb", 1, 8, 12 * 20, 0.001),  # NCCL 12x20
    ("dgx-a100-80gb", 1, 8, 229.4, 0.05),  # fit of a reduce-scatter; NCCL's constant is higher than what is reached
    ("dgx-a100-80gb", 2, 8, 192, 0.001),  # measured, and NCCL 8x24
    ("dgx-a100-40gb", 2, 8, 192, 0.001),
    ("dgx-b200", 1, 8, 16 * 45, 0.005),  # NCCL 16x45 of 721.8
    ("dgx-b200", 1, 8, 787, 0.09),  # fit of an all-gather; NCCL's constant is lower than what is reached
    ("dgx-h100", 1, 8, 360, 0.035),  # NCCL 12x30 and measured; the link has 370.8, which no channel uses up
    ("dgx-h100", 8, 8, 384, 0.001),  # NCCL 8x48
    ("dgx-h100", 4, 8, 375, 0.03),  # slides print 370 and 380 for 32 GPUs without SHARP
    ("gb200-nvl72", 1, 4, 720, 0.005),  # fit of all-gathers on 2 and 4 GPUs
    ("gcp-a3-high", 2, 8, 80, 0.001),  # 0.8 of 100 GB/s, assumed
    ("gcp-a3-mega", 2, 8, 189, 0.001),  # measured
    ("hgx-h200", 1, 8, 360, 0.035),  # as dgx-h100
    ("l40s-pcie", 1, 2, 20, 0.001),  # measured
    ("oci-a100", 2, 8, 190, 0.001),  # measured
    ("oci-h100", 2, 8, 16 * 22.5, 0.05),  # NCCL is told 180 Gbit/s per port; RoCE assumed in the middle of its range
    ("rtx-4090-pcie", 1, 8, 5, 0.001),  # NCCL 1x5
]

LATENCIES = [
    # cluster, hosts, us of an all-gather, Ring Simple: section 1.8 less the base latency of 8.4 us
    ("dgx-h100", 1, 32.2 - 8.4),
    ("dgx-a100-80gb", 1, 32.2 - 8.4),
    ("dgx-b200", 1, 32.2 - 8.4),
    ("rtx-4090-pcie", 1, 48.3 - 8.4),
    ("aws-p4d", 2, 220.0 - 8.4),
    ("dgx-h100", 8, 296.8 - 8.4),
]

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
    inside = {"nvlink": 3.4, "pcie": 5.7, "staging": 5.7}.get(LINKS[name][0][0])
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


@pytest.mark.parametrize(("name", "hosts", "expected"), LATENCIES)
def test_an_all_gather_has_the_latency_of_the_test_vectors(name: str, hosts: int, expected: float) -> None:
    assert all_gather(name, hosts)[1].latency == pytest.approx(expected * MICRO, rel=1e-9)


@pytest.mark.parametrize("name", NVSWITCHES)
def test_traffic_of_a_host_stays_on_nvlink(name: str) -> None:
    """No route over PCIe is as short as that over the NVSwitch: NCCL would not take it."""
    cluster = load_cluster(name, hosts=1)
    built = graph(cluster)
    for rank in range(1, cluster.ranks):
        (route,) = routes(built, device(cluster, 0), device(cluster, rank))
        assert [built.edges[edge]["kind"].split(":")[0] for edge in route] == ["nvlink", "nvlink"]


@pytest.mark.parametrize("name", NVSWITCHES)
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
