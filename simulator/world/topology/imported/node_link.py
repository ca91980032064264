"""networkx' node-link JSON of our own graph: :func:`node_link` writes what :func:`read` reads.

A node's id is a list of kind, number of its host, pod, zone or cluster, and index in there, as
:mod:`simulator.world.topology.graph` builds it.  Kinds and wiring are recognised by building the graph again: a file
whose graph does not come out the same is refused.  What a graph cannot show - the library, the vendor of the CPUs, what
a link is, how many links join a pair of devices - stands in attributes, and is left at its default where they are
missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import networkx as nx

from simulator.errors import InputError
from simulator.world.catalog import Number
from simulator.world.topology.cluster import DEVICE, Cluster, LinkKind, NodeKind, load_cluster, technology_of
from simulator.world.topology.graph import graph
from simulator.world.topology.imported.inventory import Inventory, Nic, ScaleUp, rails
from simulator.world.topology.imported.layout import Figure, Layout, Link, Node, bandwidth, latency

__all__ = ["node_link", "read"]

FORMAT = "networkx node-link JSON"

Place = tuple[str, int, int]
"""Kind, number of its host, pod or cluster, index in there."""
Kind = Literal["device", "switch", "nic"]
Per = Literal["host", "pod", "cluster"]
Wiring = Literal["all", "spread"]
WIRINGS: tuple[Wiring, ...] = get_args(Wiring)
Ends = frozenset[str]
"""Names of the two kinds of nodes that a kind of link joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    ends: tuple[Place, Place]
    name: str
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    file: str
    kinds: Mapping[Place, Kind]
    edges: tuple[_Edge, ...]
    hosts: int
    devices: int


def node_link(cluster: Cluster) -> dict[str, Any]:
    """Return the graph of *cluster* as ``networkx.node_link_graph(data, edges="edges")`` reads it."""
    built = graph(cluster)
    per = {node.name: node.per for node in cluster.nodes}
    return {
        "directed": True,
        "multigraph": False,
        "graph": {"name": cluster.name, "hosts_per_pod": cluster.hosts_per_pod},
        "nodes": [{"id": list(node), "per": per[node[0]], **data} for node, data in built.nodes(data=True)],
        "edges": [{"source": list(tail), "target": list(head), **data} for tail, head, data in built.edges(data=True)],
    }


def read(text: str, file: str) -> Inventory:
    """Read the *text* of a graph; *file* is its name.

    Raises
    ------
    InputError
        Not JSON, no node-link graph, ids or attributes that our graph does not have, or a node without links.
    """
    raw = _raw(text, file)
    content = _content(raw, file)
    layout = _layout(content, raw)
    found = tuple(_nics(content))
    return Inventory(
        file=file,
        format=FORMAT,
        accelerators=content.devices,
        hosts=content.hosts,
        scale_up=_scale_up(content),
        nics=found,
        rails=rails(found),
        notes=("bandwidths in a graph are payload: efficiency is already in them",),
        layout=layout,
        obstacle=""
        if layout
        else "the links of a kind are not wired 'all' or 'spread' or are unequal; write the cluster file by hand",
    )


def _raw(text: str, file: str) -> Mapping[str, Any]:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON in line {error.lineno}: {error.msg}", file=file) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("nodes"), list) or _links(raw) is None:
        remedy = "a node-link graph has the lists 'nodes' and 'edges' (or 'links')"
        raise InputError("not a node-link graph", file=file, remedy=remedy)
    return raw


def _links(raw: Mapping[str, Any]) -> list[Any] | None:
    links = raw.get("edges", raw.get("links"))
    return links if isinstance(links, list) else None


def _content(raw: Mapping[str, Any], file: str) -> _Content:
    kinds = dict(_nodes(raw, file))
    devices = [place for place in kinds if place[0] == DEVICE]
    if not devices:
        raise InputError(f"no node of kind {DEVICE!r}", file=file, key="nodes")
    edges = tuple(_edge(item, kinds, index, file) for index, item in enumerate(_links(raw) or []))
    hosts = 1 + max(host for _, host, _ in devices)
    per_host = 1 + max(index for _, _, index in devices)
    if len(devices) != hosts * per_host:
        problem = f"{len(devices)} devices, but hosts go to {hosts - 1} and indices to {per_host - 1}"
        raise InputError(problem, file=file, key="nodes", remedy="every host must have as many devices")
    return _Content(file=file, kinds=kinds, edges=edges, hosts=hosts, devices=per_host)


def _nodes(raw: Mapping[str, Any], file: str) -> Iterator[tuple[Place, Kind]]:
    for index, item in enumerate(raw["nodes"]):
        key = f"nodes[{index}]"
        place = _place(item.get("id") if isinstance(item, dict) else item, file, key)
        if item.get("kind") not in get_args(Kind):
            raise InputError("expected device, switch or nic", file=file, key=f"{key}.kind", value=item.get("kind"))
        yield place, item["kind"]


def _place(written: object, file: str, key: str) -> Place:
    if isinstance(written, list) and [type(part) for part in written] == [str, int, int]:
        return (written[0], written[1], written[2])
    remedy = "write an id like ['device', 0, 3]: kind, number of host (or pod, or 0), index in there"
    raise InputError("no id of our graph", file=file, key=key, value=written, remedy=remedy)


def _edge(item: object, kinds: Mapping[Place, Kind], index: int, file: str) -> _Edge:
    key = f"edges[{index}]"
    if not isinstance(item, dict):
        raise InputError("expected source, target, bandwidth, latency", file=file, key=key, value=item)
    source, target = (_place(item.get(end), file, f"{key}.{end}") for end in ("source", "target"))
    for end in (source, target):
        if end not in kinds:
            raise InputError("no such node", file=file, key=key, value=list(end))
    for attribute, unit in (("bandwidth", "B/s above zero"), ("latency", "s")):
        value = item.get(attribute)
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise InputError(f"expected a number in {unit}", file=file, key=f"{key}.{attribute}", value=value)
    if item["bandwidth"] == 0:
        raise InputError("expected a number in B/s above zero", file=file, key=f"{key}.bandwidth", value=0)
    name = str(item.get("kind") or "-".join(sorted((source[0], target[0])))).split(":", maxsplit=1)[0]
    return _Edge(ends=(source, target), name=name, bandwidth=float(item["bandwidth"]), latency=float(item["latency"]))


def _layout(content: _Content, raw: Mapping[str, Any]) -> Layout | None:
    per = _scopes(content, raw)
    count = {name: 1 + max(place[2] for place in content.kinds if place[0] == name) for name in per}
    kind = {place[0]: kind for place, kind in content.kinds.items()}
    nodes = tuple(NodeKind(name=name, kind=kind[name], per=per[name], count=count[name]) for name in per)
    links = _ordered(content, per)
    if links is None:
        return None
    pod = _hosts_per_pod(content, raw, per)
    bare = replace(
        load_cluster("flat"),  # for what a graph does not hold
        hosts=content.hosts, accelerators_per_host=content.devices, hosts_per_pod=pod, nodes=nodes,
        hosts_per_zone=-(-content.hosts // pod) * pod,
    )  # fmt: skip
    wired: tuple[LinkKind, ...] = ()
    for link in links:
        tried = [replace(bare, links=(*wired, replace(link, wiring=wiring))) for wiring in WIRINGS]
        fitting = next((cluster for cluster in tried if _edges_of(cluster) == _edges_in(content, cluster)), None)
        if fitting is None:
            return None
        wired = fitting.links
    whole = set(graph(replace(bare, links=wired))) == set(content.kinds)
    return _written(content, nodes, wired, pod) if whole else None


def _edges_of(cluster: Cluster) -> set[tuple[Place, Place]]:
    """Links of the last kind of *cluster*, both ways."""
    kind = cluster.links[-1].name
    return {(a, b) for a, b, data in graph(cluster).edges(data=True) if data["kind"].split(":")[0] == kind}


def _edges_in(content: _Content, cluster: Cluster) -> set[tuple[Place, Place]]:
    """Links of that kind in the file, both ways."""
    found = [edge.ends for edge in content.edges if edge.name == cluster.links[-1].name]
    return {*found, *((b, a) for a, b in found)}


def _scopes(content: _Content, raw: Mapping[str, Any]) -> dict[str, Per]:
    """Scope of each kind: as written, else by the number of places that its nodes stand in."""
    written = {item["id"][0]: item["per"] for item in raw["nodes"] if item.get("per") in get_args(Per)}
    places: dict[str, set[int]] = {}
    for name, place, _ in content.kinds:
        places.setdefault(name, set()).add(place)
    guessed: dict[str, Per] = {
        name: "host" if len(found) == content.hosts else "cluster" if len(found) == 1 else "pod"
        for name, found in places.items()
    }
    return guessed | written


def _hosts_per_pod(content: _Content, raw: Mapping[str, Any], per: Mapping[str, Per]) -> int:
    written = raw.get("graph", {}).get("hosts_per_pod") if isinstance(raw.get("graph"), dict) else None
    if isinstance(written, int) and written > 0:
        return written
    first = {
        low[1]
        for edge in content.edges
        for low, high in (edge.ends, edge.ends[::-1])
        if per[low[0]] == "host" and per[high[0]] == "pod" and high[1] == 0
    }
    return len(first) or content.hosts


def _ordered(content: _Content, per: Mapping[str, Per]) -> list[LinkKind] | None:
    """Kinds of links from the devices upwards; None if those of a kind are unequal or one hangs in the air."""
    kinds: dict[tuple[str, Ends], set[tuple[float, float]]] = {}
    for edge in content.edges:
        ends = frozenset(end[0] for end in edge.ends)
        kinds.setdefault((edge.name, ends), set()).add((edge.bandwidth, edge.latency))
    if any(len(figures) > 1 or len(ends) != 2 for (_, ends), figures in kinds.items()):
        return None
    width = {name: get_args(Per).index(scope) for name, scope in per.items()}
    reached = [DEVICE]
    ordered: list[LinkKind] = []
    while len(ordered) < len(kinds):
        ready = [key for key in kinds if key[1] & set(reached) and key[0] not in {link.name for link in ordered}]
        if not ready:
            return None
        name, ends = min(ready, key=lambda key: min(reached.index(end) for end in key[1] if end in reached))
        rank = {end: reached.index(end) if end in reached else len(reached) for end in ends}
        lower, upper = sorted(ends, key=lambda end: (rank[end], width[end]))
        ordered.append(_kind(name, (lower, upper), *next(iter(kinds[name, ends]))))
        reached += [upper] if upper not in reached else []
    return ordered


def _kind(name: str, ends: tuple[str, str], width: float, delay: float) -> LinkKind:
    return LinkKind(
        name=name,
        technology=technology_of(name),
        ends=ends,
        wiring="all",
        nominal=Number(value=width, name=name, unit="B/s", basis="published"),
        efficiency=None,
        latency=Number(value=delay, name=name, unit="s", basis="published"),
    )


def _written(content: _Content, nodes: Sequence[NodeKind], links: Sequence[LinkKind], pod: int) -> Layout:
    def figure(value: str) -> Figure:
        return Figure(value=value, basis="published", source="simulator", at=f"Payload in the graph of {content.file}")

    return Layout(
        nodes=tuple(Node(name=node.name, kind=node.kind, per=node.per, count=node.count) for node in nodes),
        links=tuple(
            Link(
                name=link.name,
                ends=link.ends,
                technology=link.technology,
                wiring=link.wiring,
                bandwidth=figure(bandwidth(link.nominal.value)),
                latency=figure(latency(link.latency.value)),
            )
            for link in links
        ),
        hosts=content.hosts,
        hosts_per_pod=pod,
    )


def _neighbours(content: _Content) -> nx.Graph[Place]:
    """What the first host's nodes are joined to."""
    joined: nx.Graph[Place] = nx.Graph()
    joined.add_nodes_from(content.kinds)
    joined.add_edges_from(edge.ends for edge in content.edges)
    return joined


def _scale_up(content: _Content) -> ScaleUp:
    if content.devices == 1:
        return "none"
    joined = _neighbours(content)
    devices = [(DEVICE, 0, index) for index in range(content.devices)]
    shared = set.intersection(*(set(joined[device]) for device in devices))
    names = {node[0] for node in shared if content.kinds[node] == "switch" and node[1] == 0}
    if not names:
        return "unknown"
    return "nvswitch" if "nvswitch" in names else "pcie" if any("pcie" in name for name in names) else "switch"


def _nics(content: _Content) -> Iterator[Nic]:
    """Ports of the first host; their speed is that of the link that leads away from the devices."""
    joined = _neighbours(content)
    away = nx.multi_source_dijkstra_path_length(joined, {place for place in content.kinds if place[0] == DEVICE})
    speed = {end: edge.bandwidth for edge in content.edges for end in edge.ends if _outer(edge, end, away)}
    for nic in sorted(place for place, kind in content.kinds.items() if kind == "nic" and place[1] == 0):
        if any(content.kinds[other] == "nic" and away[other] > away[nic] for other in joined[nic]):
            continue  # a card that has its ports as nodes
        steps = nx.single_source_shortest_path_length(joined, nic)
        reach = {index: steps.get((DEVICE, 0, index), len(joined)) for index in range(content.devices)}
        near = tuple(index for index, distance in reach.items() if distance == min(reach.values()))
        yield Nic(name=f"{nic[0]} {nic[2]}", speed=speed.get(nic), near=near)


def _outer(edge: _Edge, end: Place, away: Mapping[Place, float]) -> bool:
    other = edge.ends[1] if end == edge.ends[0] else edge.ends[0]
    return away.get(other, 0) > away.get(end, 0)
