"""The cluster as a networkx directed graph.

Equal hosts make most of a large cluster redundant.  :func:`graph` builds any subset of its hosts: all of them for
drawing and for ``ranks: all``, or a *sample* - two hosts of the first pod, one of the second, one of the second zone -
that already holds every kind of route.  On the sample each link carries ``members``, the number of such links in the
whole cluster, so nothing here grows with the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import networkx as nx

from simulator.errors import NoRouteError
from simulator.world.topology.cluster import DEVICE, Cluster, LinkKind, NodeKind, Scope
from simulator.world.topology.mixed import links_by_type, type_of
from simulator.world.topology.placement import place_of, sample_hosts
from simulator.world.topology.torus import neighbours

__all__ = ["Node", "device", "graph", "kind_of_link", "pair_count", "routes", "sample"]

Node = tuple[str, int, int]
"""Kind, number of its host, pod, zone or cluster, index in there."""


def device(cluster: Cluster, rank: int) -> Node:
    """Return the node that *rank* sits on."""
    return (DEVICE, *divmod(rank, cluster.accelerators_per_host))


def graph(cluster: Cluster, hosts: Iterable[int] | None = None) -> nx.DiGraph[Node]:
    """Build the nodes and links that the devices in use on *hosts* (default: all) can reach.

    Returns
    -------
    Directed graph; a node has ``kind``; a link has ``kind`` (its :class:`LinkKind`'s name and direction), ``bandwidth``
    [B/s], ``latency`` [s].
    """
    built: nx.DiGraph[Node] = nx.DiGraph()
    for host in range(cluster.hosts) if hosts is None else hosts:
        for index in range(cluster.accelerators_per_host):
            built.add_node((DEVICE, host, index), kind="device")
    for link in cluster.links:
        lower, upper = (cluster.node(end) for end in link.ends)
        if link.wiring == "pairs":
            _add_pairs(built, link, cluster)
            continue
        if link.wiring == "torus":
            _add_torus(built, link)
            continue
        own = links_by_type(cluster, link.name)
        for node in [node for node in built if node[0] == lower.name]:
            mine = own[type_of(cluster, node[1]) if lower.per == "host" else 0]
            place = node[1] if lower.per == upper.per else _place(cluster, node[1], lower.per, upper.per)
            for index in _uppers(node[2], lower, upper, link):
                other = (upper.name, place, index)
                built.add_node(other, kind=upper.kind)
                for tail, head in ((node, other), (other, node)):
                    built.add_edge(
                        tail,
                        head,
                        kind=kind_of_link(link, tail[0]),
                        bandwidth=mine.bandwidth,
                        latency=mine.latency.value,
                    )
    return built


def _add_pairs(built: nx.DiGraph[Node], link: LinkKind, cluster: Cluster) -> None:
    """Join devices of a host straight to each other; several links between two are one of their sum."""
    own = links_by_type(cluster, link.name)
    devices = [node for node in built if node[0] == DEVICE]
    for tail, head in ((a, b) for a in devices for b in devices if a != b and a[1] == b[1]):
        count = pair_count(link, tail[2], head[2])
        if count:
            kind, mine = f"{link.name}:{tail[2]}>{head[2]}", own[type_of(cluster, tail[1])]
            built.add_edge(tail, head, kind=kind, bandwidth=count * mine.bandwidth, latency=mine.latency.value)


def _add_torus(built: nx.DiGraph[Node], link: LinkKind) -> None:
    """Join each host's router to those of the next hosts along all axes, as far as they are there."""
    for tail in [node for node in built if node[0] == link.ends[0]]:
        for (axis, direction), host in neighbours(tail[1], link.axes):
            head = (tail[0], host, tail[2])
            if head in built:
                kind = f"{link.name}:{axis}{direction}"
                built.add_edge(tail, head, kind=kind, bandwidth=link.bandwidth, latency=link.latency.value)


def pair_count(link: LinkKind, first: int, second: int) -> int:
    """Links of a kind wired in pairs that join two devices of a host."""
    if not link.pairs:
        return 1
    return sum(count for a, b, count in link.pairs if {a, b} == {first, second})


@lru_cache(maxsize=16)
def sample(cluster: Cluster) -> nx.DiGraph[Node]:
    """Build the quotient: few hosts, each link with ``members``, its number in the whole cluster; not to be changed."""
    built = graph(cluster, sample_hosts(cluster))
    for link in cluster.links:
        lower = cluster.node(link.ends[0])
        if link.wiring in ("pairs", "torus"):
            for edge in built.edges:
                if built.edges[edge]["kind"].split(":")[0] == link.name:
                    built.edges[edge]["members"] = cluster.hosts
            continue
        containers = cluster.containers(lower.per)
        for tail in link.ends:
            kind = kind_of_link(link, tail)
            edges = [edge for edge in built.edges if built.edges[edge]["kind"] == kind]
            first = [(a, b) for a, b in edges if (a if a[0] == lower.name else b)[1] == 0]
            for edge in edges:
                built.edges[edge]["members"] = len(first) * containers
    return built


def kind_of_link(link: LinkKind, tail: str) -> str:
    """Return the name of one direction of *link*, the one that starts at node kind *tail*."""
    lower, upper = link.ends
    return f"{link.name}:{lower}>{upper}" if tail == lower else f"{link.name}:{upper}>{lower}"


def routes(built: nx.DiGraph[Node], source: Node, target: Node) -> Sequence[Sequence[tuple[Node, Node]]]:
    """All shortest routes from *source* to *target*, each a sequence of links.

    Raises
    ------
    NoRouteError
        No chain of links joins them.
    """
    try:
        return [list(pairwise(path)) for path in nx.all_shortest_paths(built, source, target)]
    except nx.NetworkXNoPath:
        names = [f"{kind} {index} of host {host}" for kind, host, index in (source, target)]
        remedy = "add links to the topology that join them"
        raise NoRouteError(f"no route from {names[0]} to {names[1]}", key="links", remedy=remedy) from None


def _place(cluster: Cluster, number: int, lower: Scope, upper: Scope) -> int:
    """Number of the *upper* container in which *lower* container *number* stands."""
    if lower == "pod" and upper == "zone":
        pods = -(-cluster.pods // cluster.containers("zone"))
        packed = number * cluster.hosts_per_pod // cluster.hosts_per_zone
        return packed if cluster.placement == "packed" else number // pods
    return place_of(cluster, number, upper) if lower == "host" else 0


def _uppers(index: int, lower: NodeKind, upper: NodeKind, link: LinkKind) -> range:
    """Indices of the upper nodes that lower node *index* is wired to."""
    if link.wiring == "all":
        return range(upper.count)
    if lower.count >= upper.count:
        only = index * upper.count // lower.count
        return range(only, only + 1)
    return range(index * upper.count // lower.count, (index + 1) * upper.count // lower.count)
