"""The shipped files of the catalogue: every number has a pedigree, every cluster can be built.

The numbers themselves are typed a second time in ``test_catalogue_parts.py`` and ``test_catalogue_clusters.py``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import networkx as nx
import pytest

from simulator.errors import InputError
from simulator.units import Duration
from simulator.world.catalog import sources
from simulator.world.document import data_directory, read_mapping
from simulator.world.topology.cluster import load_cluster, shipped_clusters
from simulator.world.topology.graph import device, graph, routes, sample

CLUSTERS = [path.stem for path in shipped_clusters()]


def written_numbers(content: object) -> list[dict[str, object]]:
    """Every mapping in a file that has a basis."""
    if isinstance(content, dict):
        inner = [found for value in content.values() for found in written_numbers(value)]
        return ([content] if "basis" in content else []) + inner
    return [found for value in content for found in written_numbers(value)] if isinstance(content, list) else []


def number_files() -> list[Path]:
    folders = (data_directory("topologies") / name for name in ("parts", "libraries", "stacks", "servers", "prices"))
    return [*shipped_clusters(), *(path for folder in folders for path in sorted(folder.glob("*.yaml")))]


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
    named = {"calculon", "msccl-tools", "nccl-595", "nvidia-dgx-superpod-a100", "nvidia-matmul-guide"}  # in words
    assert set(sources()) - named <= used


@pytest.mark.parametrize("path", shipped_clusters(), ids=lambda path: path.stem)
def test_a_cluster_is_called_like_its_file_and_opens_with_a_drawing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert load_cluster(path.stem).name == path.stem
    assert text.startswith("#")
    assert "device 0" in text.split("\nname:")[0]


def pod(name: str) -> int:
    """Hosts of a pod; where all hosts are one pod, a few."""
    section = read_mapping(data_directory("topologies") / f"{name}.yaml")
    return section.get("hosts_per_pod", 5)


@pytest.mark.parametrize("name", CLUSTERS)
def test_all_devices_of_two_hosts_are_joined(name: str) -> None:
    assert nx.is_strongly_connected(graph(load_cluster(name, hosts=2)))


@pytest.mark.parametrize("pods", [1, 2, 3])
@pytest.mark.parametrize("name", CLUSTERS)
def test_all_devices_of_some_pods_are_joined(name: str, pods: int) -> None:
    cluster = load_cluster(name, hosts=pods * pod(name))
    built = graph(cluster)
    assert nx.is_strongly_connected(built)
    assert routes(built, device(cluster, 0), device(cluster, cluster.ranks - 1))


@pytest.mark.parametrize("used", [None, 1])
@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("pods", [1, 2, 3])
def test_the_sample_counts_the_links_of_the_whole_cluster(name: str, pods: int, used: int | None) -> None:
    cluster = load_cluster(name, hosts=pods * pod(name), accelerators_per_host=used)
    true = Counter(kind for _, _, kind in graph(cluster).edges(data="kind"))
    sampled = {data["kind"]: data["members"] for _, _, data in sample(cluster).edges(data=True)}
    assert sampled == dict(true)


def test_no_time_at_all_is_a_duration() -> None:
    assert Duration.parse("0 s") == 0


@pytest.mark.parametrize(
    ("text", "named"), [("1parsec", "parsec"), ("2.5e3 parsec", "parsec"), ("5 Eparsec", "Eparsec")]
)
def test_a_wrong_unit_is_named_as_it_was_written(text, named):
    """Its first letter may look like a prefix."""
    with pytest.raises(InputError, match=f"'{named}' is not a unit"):
        Duration.parse(text)
