"""The shipped numbers, typed a second time, and the shipped clusters, built.

The tables below were typed from the reference (network.md 1.2, 2.1, 4, 5.2, 5.3 and gemm.csv), not from the YAML files.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path

import networkx as nx
import pytest

from simulator.units import Duration
from simulator.world.catalog import Number, accelerator, sources
from simulator.world.document import data_directory, read_mapping
from simulator.world.topology.cluster import load_cluster, shipped_clusters
from simulator.world.topology.graph import device, graph, routes, sample

GIGA, TERA, MICRO = 1e9, 1e12, 1e-6

PARTS = ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "v100-sxm-32gb")
CLUSTERS = ("cloud-100gbe", "dgx-a100-80gb", "dgx-h100", "flat")

PART_NUMBERS = [
    # section 4: HBM GB / TB/s / dense bf16 TFLOP/s; fp32 from the datasheets; MAMF from gemm.csv
    ("a100-sxm-80gb", "memory", 80 * GIGA),
    ("a100-sxm-80gb", "memory_bandwidth", 2.04 * TERA),
    ("a100-sxm-80gb", "peak_flops.bf16", 312 * TERA),
    ("a100-sxm-80gb", "peak_flops.fp16", 312 * TERA),
    ("a100-sxm-80gb", "peak_flops.fp32", 19.5 * TERA),
    ("a100-sxm-80gb", "matrix_efficiency", 271.2 / 312),
    ("a100-sxm-80gb", "attention_efficiency", 0.55),
    ("a100-sxm-80gb", "memory_efficiency", 0.85),
    ("a100-sxm-40gb", "memory", 40 * GIGA),
    ("a100-sxm-40gb", "memory_bandwidth", 1.555 * TERA),
    ("a100-sxm-40gb", "peak_flops.bf16", 312 * TERA),
    ("a100-sxm-40gb", "peak_flops.fp16", 312 * TERA),
    ("a100-sxm-40gb", "peak_flops.fp32", 19.5 * TERA),
    ("a100-sxm-40gb", "matrix_efficiency", 271.2 / 312),
    ("a100-sxm-40gb", "attention_efficiency", 0.55),
    ("a100-sxm-40gb", "memory_efficiency", 0.85),
    ("h100-sxm-80gb", "memory", 80 * GIGA),
    ("h100-sxm-80gb", "memory_bandwidth", 3.35 * TERA),
    ("h100-sxm-80gb", "peak_flops.bf16", 989 * TERA),
    ("h100-sxm-80gb", "peak_flops.fp16", 989 * TERA),
    ("h100-sxm-80gb", "peak_flops.fp32", 67 * TERA),
    ("h100-sxm-80gb", "matrix_efficiency", 794.5 / 989),
    ("h100-sxm-80gb", "attention_efficiency", 0.35),
    ("h100-sxm-80gb", "memory_efficiency", 0.85),
    ("v100-sxm-32gb", "memory", 32 * GIGA),
    ("v100-sxm-32gb", "memory_bandwidth", 0.9 * TERA),
    ("v100-sxm-32gb", "peak_flops.fp16", 125 * TERA),
    ("v100-sxm-32gb", "peak_flops.fp32", 15.7 * TERA),
    ("v100-sxm-32gb", "matrix_efficiency", 0.8),
    ("v100-sxm-32gb", "attention_efficiency", 0.4),
    ("v100-sxm-32gb", "memory_efficiency", 0.85),
]

LINK_NUMBERS = [
    # sections 2.1 (per link and PCIe), 5.2 (network), 5.3 and 1.2 (latencies)
    ("dgx-a100-80gb", "nvlink.bandwidth", 12 * 25 * GIGA),
    ("dgx-a100-80gb", "nvlink.efficiency", 20 / 25),
    ("dgx-a100-80gb", "nvlink.latency", 3.4 * MICRO / 2),
    ("dgx-a100-80gb", "pcie.bandwidth", 31.5 * GIGA),
    ("dgx-a100-80gb", "pcie.efficiency", 24 / 31.5),
    ("dgx-a100-80gb", "pcie.latency", 6 * MICRO),
    ("dgx-a100-80gb", "network.bandwidth", 25 * GIGA),
    ("dgx-a100-80gb", "network.efficiency", 24 / 25),
    ("dgx-a100-80gb", "network.latency", 1 * MICRO),
    ("dgx-a100-80gb", "uplink.bandwidth", 25 * GIGA),
    ("dgx-a100-80gb", "uplink.efficiency", 24 / 25),
    ("dgx-a100-80gb", "uplink.latency", 0.33 * MICRO),
    ("dgx-h100", "nvlink.bandwidth", 18 * 25 * GIGA),
    ("dgx-h100", "nvlink.efficiency", 20.6 / 25),
    ("dgx-h100", "nvlink.latency", 3.4 * MICRO / 2),
    ("dgx-h100", "pcie.bandwidth", 63 * GIGA),
    ("dgx-h100", "pcie.efficiency", 48 / 63),
    ("dgx-h100", "pcie.latency", 6 * MICRO),
    ("dgx-h100", "network.bandwidth", 50 * GIGA),
    ("dgx-h100", "network.efficiency", 48 / 50),
    ("dgx-h100", "network.latency", 1 * MICRO),
    ("dgx-h100", "uplink.bandwidth", 2 * 50 * GIGA),
    ("dgx-h100", "uplink.efficiency", 48 / 50),
    ("dgx-h100", "uplink.latency", 0.33 * MICRO),
    ("cloud-100gbe", "pcie.bandwidth", 31.5 * GIGA),
    ("cloud-100gbe", "pcie.efficiency", 24 / 31.5),
    ("cloud-100gbe", "pcie.latency", 5.7 * MICRO / 2),
    ("cloud-100gbe", "host_bridge.bandwidth", 31.5 * GIGA),
    ("cloud-100gbe", "host_bridge.efficiency", 24 / 31.5),
    ("cloud-100gbe", "host_bridge.latency", 2.65 * MICRO),
    ("cloud-100gbe", "network.bandwidth", 12.5 * GIGA),
    ("cloud-100gbe", "network.efficiency", 0.85),
    ("cloud-100gbe", "network.latency", 1.5 * MICRO),
    ("flat", "link.bandwidth", 50 * GIGA),
    ("flat", "link.latency", 0.0),
]

PAYLOAD_BANDWIDTHS = [
    # what NCCL reckons with, section 2.1: GPU to NVSwitch in total, PCIe x16, NET
    ("dgx-a100-80gb", "nvlink", 240 * GIGA),
    ("dgx-a100-80gb", "pcie", 24 * GIGA),
    ("dgx-a100-80gb", "network", 24 * GIGA),
    ("dgx-h100", "nvlink", 370.8 * GIGA),
    ("dgx-h100", "pcie", 48 * GIGA),
    ("dgx-h100", "network", 48 * GIGA),
    ("cloud-100gbe", "pcie", 24 * GIGA),
    ("cloud-100gbe", "network", 10.625 * GIGA),
    ("flat", "link", 50 * GIGA),
]

HOPS = [
    # section 1.2, Ring Simple: NVLink 3.4, PCI 5.7, NET 14.0 us
    ("dgx-a100-80gb", (0, 1), 3.4 * MICRO),
    ("dgx-a100-80gb", (0, 8), 14.0 * MICRO),
    ("dgx-a100-80gb", (0, 20 * 8), 14.66 * MICRO),
    ("dgx-h100", (0, 1), 3.4 * MICRO),
    ("dgx-h100", (0, 8), 14.0 * MICRO),
    ("dgx-h100", (0, 32 * 8), 14.66 * MICRO),
    ("cloud-100gbe", (0, 1), 5.7 * MICRO),
    ("cloud-100gbe", (0, 8), 14.0 * MICRO),
    ("flat", (0, 1), 0.0),
]

ROUNDING = 1e-3
"""The files round efficiencies to three digits; the reference rounds 2039 GB/s to 2.04 TB/s."""


def numbers_of_part(name: str) -> dict[str, Number]:
    return {number.name.removeprefix(f"{name}."): number for number in accelerator(name).numbers()}


def numbers_of_links(name: str) -> dict[str, Number]:
    links = load_cluster(name).links
    return {number.name.removeprefix(f"{name}."): number for link in links for number in link.numbers()}


def written_numbers(content: object) -> list[dict[str, object]]:
    """Every mapping in a file that has a basis."""
    if isinstance(content, dict):
        inner = [found for value in content.values() for found in written_numbers(value)]
        return ([content] if "basis" in content else []) + inner
    return [found for value in content for found in written_numbers(value)] if isinstance(content, list) else []


def number_files() -> list[Path]:
    return [*shipped_clusters(), *sorted((data_directory("topologies") / "parts").glob("*.yaml"))]


@pytest.mark.parametrize(("part", "key", "expected"), PART_NUMBERS)
def test_a_number_of_a_part_is_what_its_source_says(part: str, key: str, expected: float) -> None:
    assert numbers_of_part(part)[key].value == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize(("cluster", "key", "expected"), LINK_NUMBERS)
def test_a_number_of_a_link_is_what_its_source_says(cluster: str, key: str, expected: float) -> None:
    assert numbers_of_links(cluster)[key].value == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize(("cluster", "link", "expected"), PAYLOAD_BANDWIDTHS)
def test_a_link_carries_what_nccl_reckons(cluster: str, link: str, expected: float) -> None:
    found = {kind.name: kind.bandwidth for kind in load_cluster(cluster).links}
    assert found[link] == pytest.approx(expected, rel=ROUNDING)


def test_no_number_is_missing_from_the_tables() -> None:
    typed = {(name, key) for name, key, _ in PART_NUMBERS + LINK_NUMBERS}
    loaded = {(name, key) for name in PARTS for key in numbers_of_part(name)}
    loaded |= {(name, key) for name in CLUSTERS for key in numbers_of_links(name)}
    assert typed == loaded


def test_the_tables_know_every_shipped_file() -> None:
    assert [path.stem for path in number_files()] == [*CLUSTERS, *PARTS]


@pytest.mark.parametrize("path", number_files(), ids=lambda path: path.stem)
def test_every_number_says_where_it_comes_from(path: Path) -> None:
    found = written_numbers(read_mapping(path))
    assert found
    for number in found:
        assert number["source"] in sources()
        assert number["at"]


def test_every_source_is_described_and_used() -> None:
    used = {str(number["source"]) for path in number_files() for number in written_numbers(read_mapping(path))}
    for key, source in sources().items():
        assert set(source) == {"title", "what", "version", "citation"}, key
        assert all(isinstance(value, str) and value for value in source.values()), key
    named = {"calculon", "nvidia-dgx-superpod-a100"}  # also named in words
    assert set(sources()) - named <= used


@pytest.mark.parametrize("path", shipped_clusters(), ids=lambda path: path.stem)
def test_a_cluster_is_called_like_its_file_and_opens_with_a_drawing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert load_cluster(path.stem).name == path.stem
    assert text.startswith("#")
    assert "device 0" in text.split("\nname:")[0]


@pytest.mark.parametrize("name", CLUSTERS)
def test_all_devices_of_two_hosts_are_joined(name: str) -> None:
    cluster = load_cluster(name, hosts=2)
    built = graph(cluster)
    for source, target in permutations(range(cluster.ranks), 2):
        assert routes(built, device(cluster, source), device(cluster, target))


@pytest.mark.parametrize("name", ["dgx-a100-80gb", "dgx-h100"])
def test_all_devices_of_two_pods_are_joined(name: str) -> None:
    cluster = load_cluster(name)
    cluster = load_cluster(name, hosts=2 * cluster.hosts_per_pod)
    built = graph(cluster)
    assert nx.is_strongly_connected(built)
    assert routes(built, device(cluster, 0), device(cluster, cluster.ranks - 1))


@pytest.mark.parametrize(("name", "ranks", "expected"), HOPS)
def test_a_hop_takes_as_long_as_nccl_reckons(name: str, ranks: tuple[int, int], expected: float) -> None:
    cluster = load_cluster(name, hosts=max(2, 2 * load_cluster(name).hosts_per_pod))
    built = graph(cluster)
    source, target = (device(cluster, rank) for rank in ranks)
    for route in routes(built, source, target):
        assert sum(built.edges[edge]["latency"] for edge in route) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("used", [None, 1])
@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("pods", [1, 2, 3])
def test_the_sample_counts_the_links_of_the_whole_cluster(name: str, pods: int, used: int | None) -> None:
    pod = load_cluster(name).hosts_per_pod if name.startswith("dgx") else 5
    cluster = load_cluster(name, hosts=pods * pod, accelerators_per_host=used)
    true = Counter(kind for _, _, kind in graph(cluster).edges(data="kind"))
    sampled = {data["kind"]: data["members"] for _, _, data in sample(cluster).edges(data=True)}
    assert sampled == dict(true)


@pytest.mark.parametrize("name", ["dgx-a100-80gb", "dgx-h100"])
def test_a_leaf_has_as_much_up_as_down(name: str) -> None:
    cluster = load_cluster(name)
    links = {link.name: link for link in cluster.links}
    down = cluster.hosts_per_pod * links["network"].bandwidth
    assert cluster.node("spine").count * links["uplink"].bandwidth == pytest.approx(down)


@pytest.mark.parametrize("name", ["dgx-a100-80gb", "dgx-h100"])
def test_the_network_is_narrower_than_the_pcie_before_it(name: str) -> None:
    links = {link.name: link for link in load_cluster(name).links}
    assert links["network"].bandwidth < links["pcie"].bandwidth


def test_no_time_at_all_is_a_duration() -> None:
    assert Duration.parse("0 s") == 0


def test_volta_has_no_bf16() -> None:
    assert set(accelerator("v100-sxm-32gb").peak_flops) == {"fp16", "fp32"}
