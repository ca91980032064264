"""networkx' node-link JSON of our own graph: :func:`node_link` writes what :func:`read` reads.

A node's id is a list of kind, number of its host, pod, zone or cluster, and index in there, as
:mod:`simulator.world.topology.graph` builds it.  Kinds and wiring are recognised by building the graph again: a file
whose graph does not come out the same is refused.  What a graph cannot show - the library, the vendor of the CPUs, what
a link is, how many links join a pair of devices - stands in attributes, and keeps its default where they are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import networkx as nx

from simulator.world.topology.cluster import DEVICE, Cluster
from simulator.world.topology.graph import graph, pair_count
from simulator.world.topology.imported.inventory import Inventory, Nic, ScaleUp, is_full_mesh, rails
from simulator.world.topology.imported.node_link_content import Content, Edge, Pairs, Place, pairs_of, parse
from simulator.world.topology.imported.node_link_wiring import layout_of

__all__ = ["node_link", "read"]

FORMAT = "networkx node-link JSON"


def node_link(cluster: Cluster) -> dict[str, Any]:
    """Return the graph of *cluster* as ``networkx.node_link_graph(data, edges="edges")`` reads it."""
    built = graph(cluster)
    per = {node.name: node.per for node in cluster.nodes}
    return {
        "directed": True,
        "multigraph": False,
        "graph": {key: getattr(cluster, key) for key in ("name", "hosts_per_pod", "hosts_per_zone", "library", "cpu")},
        "nodes": [{"id": list(node), "per": per[node[0]], **data} for node, data in built.nodes(data=True)],
        "edges": [
            {"source": list(tail), "target": list(head), **data, **_attributes(cluster, tail, head, data["kind"])}
            for tail, head, data in built.edges(data=True)
        ],
    }


def _attributes(cluster: Cluster, tail: Place, head: Place, kind: str) -> dict[str, Any]:
    link = next(link for link in cluster.links if link.name == kind.split(":", maxsplit=1)[0])
    several = {"links": pair_count(link, tail[2], head[2])} if link.wiring == "pairs" else {}
    return {"technology": link.technology} | several


def read(text: str, file: str) -> Inventory:
    """Read the *text* of a graph; *file* is its name.

    Raises
    ------
    InputError
        Not JSON, no node-link graph, or ids and attributes that our graph does not have.
    """
    content = parse(text, file)
    layout = layout_of(content)
    found = tuple(_nics(content))
    pairs = pairs_of([edge for edge in content.edges if edge.ends[0][1] == 0])
    return Inventory(
        file=file,
        format=FORMAT,
        accelerators=content.devices,
        hosts=content.hosts,
        scale_up=_scale_up(content, pairs),
        pairs=pairs,
        nics=found,
        rails=rails(found),
        notes=("bandwidths in a graph are payload: efficiency is already in them",),
        layout=layout,
        obstacle=""
        if layout
        else "links of a kind are unequal or not wired 'all', 'spread' or in 'pairs'; write the cluster file by hand",
    )


def _neighbours(content: Content) -> nx.Graph[Place]:
    """What the first host's nodes are joined to."""
    joined: nx.Graph[Place] = nx.Graph()
    joined.add_nodes_from(content.kinds)
    joined.add_edges_from(edge.ends for edge in content.edges)
    return joined


def _scale_up(content: Content, pairs: Pairs) -> ScaleUp:
    if content.devices == 1:
        return "none"
    if pairs:
        links = {(first, second): count for first, second, count in pairs}
        return "mesh" if is_full_mesh(links, content.devices) else "partial mesh"
    joined = _neighbours(content)
    devices = [(DEVICE, 0, index) for index in range(content.devices)]
    shared = set.intersection(*(set(joined[device]) for device in devices))
    names = {node[0] for node in shared if content.kinds[node] == "switch" and node[1] == 0}
    if not names:
        return "unknown"
    return "nvswitch" if "nvswitch" in names else "pcie" if any("pcie" in name for name in names) else "switch"


def _nics(content: Content) -> Iterator[Nic]:
    """Ports of the first host; their speed is that of the link that leads away from the devices."""
    joined = _neighbours(content)
    away = nx.multi_source_dijkstra_path_length(joined, {place for place in content.kinds if place[0] == DEVICE})
    outer = {end: edge for edge in content.edges for end in edge.ends if _outer(edge, end, away)}
    for nic in sorted(place for place, kind in content.kinds.items() if kind == "nic" and place[1] == 0):
        if any(content.kinds[other] == "nic" and away[other] > away[nic] for other in joined[nic]):
            continue  # a card that has its ports as nodes
        steps = nx.single_source_shortest_path_length(joined, nic)
        reach = {index: steps.get((DEVICE, 0, index), len(joined)) for index in range(content.devices)}
        near = tuple(index for index, distance in reach.items() if distance == min(reach.values()))
        edge = outer.get(nic)
        yield Nic(
            name=f"{nic[0]} {nic[2]}",
            speed=edge.bandwidth if edge else None,
            near=near,
            technology=edge.technology if edge else "other",
        )


def _outer(edge: Edge, end: Place, away: Mapping[Place, float]) -> bool:
    other = edge.ends[1] if end == edge.ends[0] else edge.ends[0]
    return away.get(other, 0) > away.get(end, 0)
