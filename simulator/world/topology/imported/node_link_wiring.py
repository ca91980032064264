"""Kinds of links and their wiring, recognised in a graph by building it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from simulator.world.catalog import Number
from simulator.world.topology.cluster import DEVICE, Cluster, Library, LinkKind, NodeKind, Scope, load_cluster
from simulator.world.topology.graph import graph
from simulator.world.topology.imported.layout import Cpu, Figure, Layout, Link, Node, bandwidth, latency
from simulator.world.topology.imported.node_link_content import Content, Edge, Place, pairs_of

__all__ = ["layout_of"]

Ends = frozenset[str]
"""Names of the kinds of nodes that a kind of link joins; one where it joins devices in pairs."""


def layout_of(content: Content) -> Layout | None:
    """Return the cluster whose graph *content* is; None if there is none."""
    per = _scopes(content)
    count = {name: 1 + max(place[2] for place in content.kinds if place[0] == name) for name in per}
    kind = {place[0]: kind for place, kind in content.kinds.items()}
    pod = _hosts_per_pod(content, per)
    found = replace(
        load_cluster("flat"),  # for what a graph does not hold
        hosts=content.hosts,
        accelerators_per_host=content.devices,
        hosts_per_pod=pod,
        hosts_per_zone=content.attributes.get("hosts_per_zone") or -(-content.hosts // pod) * pod,
        nodes=tuple(NodeKind(name=name, kind=kind[name], per=per[name], count=count[name]) for name in per),
        links=(),
    )
    for link in _ordered(content, per):
        tried = [replace(found, links=(*found.links, wired)) for wired in _wirings(link)]
        fitting = next((cluster for cluster in tried if _edges_of(cluster) == _edges_in(content, cluster)), None)
        if fitting is None:
            return None
        found = fitting
    complete = set(graph(found)) == set(content.kinds) and len(found.links) == len(_kinds(content))
    return _written(content, found) if complete else None


def _wirings(link: LinkKind) -> list[LinkKind]:
    return [link] if link.wiring == "pairs" else [link, replace(link, wiring="spread")]


def _edges_of(cluster: Cluster) -> set[tuple[Place, Place]]:
    """Links of the last kind of *cluster*, both ways."""
    kind = cluster.links[-1].name
    return {(a, b) for a, b, data in graph(cluster).edges(data=True) if data["kind"].split(":")[0] == kind}


def _edges_in(content: Content, cluster: Cluster) -> set[tuple[Place, Place]]:
    """Links of that kind in the file, both ways."""
    found = [edge.ends for edge in content.edges if edge.name == cluster.links[-1].name]
    return {*found, *((b, a) for a, b in found)}


def _scopes(content: Content) -> dict[str, Scope]:
    """Scope of each kind: as written, else by the number of places that its nodes stand in."""
    places: dict[str, set[int]] = {}
    for name, place, _ in content.kinds:
        places.setdefault(name, set()).add(place)
    guessed: dict[str, Scope] = {
        name: "host" if len(found) == content.hosts else "cluster" if len(found) == 1 else "pod"
        for name, found in places.items()
    }
    return guessed | dict(content.scopes)


def _hosts_per_pod(content: Content, per: Mapping[str, Scope]) -> int:
    written = content.attributes.get("hosts_per_pod")
    if isinstance(written, int) and written > 0:
        return written
    first = {
        low[1]
        for edge in content.edges
        for low, high in (edge.ends, edge.ends[::-1])
        if per[low[0]] == "host" and per[high[0]] == "pod" and high[1] == 0
    }
    return len(first) or content.hosts


def _kinds(content: Content) -> dict[tuple[str, Ends], list[Edge]]:
    kinds: dict[tuple[str, Ends], list[Edge]] = {}
    for edge in content.edges:
        kinds.setdefault((edge.name, frozenset(end[0] for end in edge.ends)), []).append(edge)
    return kinds


def _ordered(content: Content, per: Mapping[str, Scope]) -> Iterator[LinkKind]:
    """Kinds of links from the devices upwards, up to one whose links are unequal or that hangs in the air."""
    left = _kinds(content)
    width = {name: get_args(Scope).index(scope) for name, scope in per.items()}
    reached = [DEVICE]
    while ready := [key for key in left if key[1] & set(reached)]:
        name, ends = min(ready, key=lambda key: min(reached.index(end) for end in key[1] if end in reached))
        rank = {end: reached.index(end) if end in reached else len(reached) for end in ends}
        low_to_high = sorted(ends, key=lambda end: (rank[end], width[end]))
        kind = _kind(left.pop((name, ends)), (low_to_high[0], low_to_high[-1]))
        if kind is None:
            return
        yield kind
        reached += [end for end in low_to_high if end not in reached]


def _kind(edges: Sequence[Edge], ends: tuple[str, str]) -> LinkKind | None:
    """What *edges* are; None if they are unequal or join nodes of a kind that are not devices."""
    pairs = pairs_of(edges)
    counts = {(first, second): count for first, second, count in pairs}
    figures = {(_each(edge.bandwidth, counts[edge.pair] if edge.pair else 1), edge.latency) for edge in edges}
    if len(figures) > 1 or len(counts) < len(pairs) or (ends[0] == ends[1] and not pairs):
        return None
    ((width, delay),) = figures
    name = edges[0].name
    return LinkKind(
        name=name,
        technology=edges[0].technology,
        ends=ends,
        wiring="pairs" if pairs else "all",
        pairs=pairs,
        nominal=Number(value=width, name=name, unit="B/s", basis="published"),
        efficiency=None,
        latency=Number(value=delay, name=name, unit="s", basis="published"),
    )


def _each(bandwidth: float, links: int) -> float:
    """Bandwidth of one of *links*, without the last digits that a division leaves."""
    return float(f"{bandwidth / links:.12g}") if links > 1 else bandwidth


def _written(content: Content, found: Cluster) -> Layout:
    def figure(value: str) -> Figure:
        return Figure(value=value, basis="published", source="simulator", at=f"Payload in the graph of {content.file}")

    library: Library | None = content.attributes.get("library")
    cpu: Cpu | None = content.attributes.get("cpu")
    return Layout(
        nodes=tuple(Node(name=node.name, kind=node.kind, per=node.per, count=node.count) for node in found.nodes),
        links=tuple(
            Link(
                name=link.name,
                ends=link.ends,
                technology=link.technology,
                wiring=link.wiring,
                pairs=link.pairs,
                bandwidth=figure(bandwidth(link.nominal.value)),
                latency=figure(latency(link.latency.value)),
            )
            for link in found.links
        ),
        hosts=content.hosts,
        hosts_per_pod=found.hosts_per_pod,
        hosts_per_zone=found.hosts_per_zone,
        library=library if library and library in get_args(Library) else "nccl",
        cpu=cpu if cpu in get_args(Cpu) else None,
    )
