"""What a drawing shows of a cluster: few hosts, and of many alike nodes the first and the last.

Hosts are equal, so some of them tell everything if every kind of neighbour is among them: hosts of one pod, of two
pods, of two zones.  What hangs above them is drawn whole, except that a long row is cut in the middle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.world.topology.cluster import Cluster
from simulator.world.topology.graph import Node, graph
from simulator.world.topology.mixed import type_of
from simulator.world.topology.placement import place_of
from simulator.world.topology.torus import coordinates, torus_link

__all__ = ["Box", "Excerpt", "Line", "excerpt"]

MOST_HOSTS, MOST_DEVICES = 4, 32
"""That are legible side by side; two hosts always are, cut if need be."""

LONGEST, MOST = 128, 40
"""Boxes in a row, and in one host, pod or zone, with lines that the eye can still tell apart."""

ALIKE = 8
"""Nodes that are drawn one by one though all have the same links."""


class Box(NamedTuple):
    """A node, or a run of alike nodes that is not drawn one by one."""

    name: str
    """Kind of node."""
    place: int
    """Number of the host, pod, zone or cluster."""
    first: int
    """Index in there of the first node that it stands for."""
    nodes: int
    """That it stands for."""


class Line(NamedTuple):
    """Links between two boxes."""

    lower: Box
    upper: Box
    link: str
    bandwidth: float
    """From a node to a node in one direction [B/s]."""

    @property
    def level(self) -> bool:
        """Joins nodes of one kind, which stand in one row."""
        return self.lower.name == self.upper.name

    @property
    def cut(self) -> bool:
        """Stands for the links of nodes that are not drawn one by one."""
        return self.lower.nodes > 1 or self.upper.nodes > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The part of a cluster that is drawn."""

    cluster: Cluster
    hosts: tuple[int, ...]
    """Neighbours in a pod stand side by side."""
    boxes: tuple[Box, ...]
    """Those of a kind in order of place and index."""
    lines: tuple[Line, ...]


def excerpt(cluster: Cluster) -> Excerpt:
    """Choose what to draw of *cluster*."""
    hosts = _hosts(cluster)
    built = graph(cluster, hosts)
    box_of = _boxes(cluster, list(built))
    found: dict[tuple[Box, Box], Line] = {}
    for tail, head, data in built.edges(data=True):
        one, other = box_of[tail], box_of[head]
        if one != other and (other, one) not in found:
            found.setdefault((one, other), Line(one, other, str(data["kind"]).split(":")[0], float(data["bandwidth"])))
    return Excerpt(
        cluster=cluster, hosts=tuple(hosts), boxes=tuple(sorted(set(box_of.values()))), lines=tuple(found.values())
    )


def _hosts(cluster: Cluster) -> list[int]:
    """Hosts that are neighbours in every way, and of every type, as far as they have room."""
    room = max(2, min(MOST_HOSTS, MOST_DEVICES // cluster.accelerators_per_host))
    torus = torus_link(cluster)
    chosen = _corner(torus.axes, cluster.hosts)[:room] if torus else _neighbours(cluster, room)
    shown = {type_of(cluster, host) for host in chosen}
    ends = [
        cluster.hosts - sum(item.hosts for item in cluster.others[number:]) for number in range(len(cluster.others))
    ]
    missing = [first for number, first in enumerate(ends, start=1) if number not in shown][: room - 1]
    kept = [*chosen[: room - len(missing)], *missing]
    return sorted(kept, key=lambda host: (place_of(cluster, host, "zone"), place_of(cluster, host, "pod"), host))


def _corner(axes: tuple[int, ...], hosts: int) -> list[int]:
    """Hosts of a torus that are first or second along every axis."""
    return [host for host in range(hosts) if max(coordinates(host, axes)) <= 1]


def _neighbours(cluster: Cluster, room: int) -> list[int]:
    """Hosts from two zones, two pods of each, and two of each pod."""
    tree: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for host in range(cluster.hosts):
        tree[place_of(cluster, host, "zone")][place_of(cluster, host, "pod")].append(host)
    most = [len(tree), len(tree[0]), len(tree[0][0])]
    zones = min(2, most[0])
    pods = min(2, most[1], room // zones)
    hosts = min(most[2], room // (zones * pods))
    pods = min(most[1], room // (zones * hosts))  # where pods are small, more of them
    zones = min(most[0], room // (pods * hosts))
    return [
        host
        for zone in sorted(tree)[:zones]
        for pod in sorted(tree[zone])[:pods]
        for host in tree[zone][pod][:hosts]
    ]  # fmt: skip


def _boxes(cluster: Cluster, nodes: Sequence[Node]) -> Mapping[Node, Box]:
    """The box of each node."""
    alike = {link.ends[1] for link in cluster.links if link.wiring == "all"}
    places, indices = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for name, place, index in nodes:
        places[name].add(place)
        indices[name].add(index)
    runs = {
        name: _runs(sorted(found), ALIKE if name in alike else min(MOST, LONGEST // len(places[name])))
        for name, found in indices.items()
    }
    return {(name, place, index): Box(name, place, *runs[name][index]) for name, place, index in nodes}


def _runs(indices: Sequence[int], most: int) -> dict[int, tuple[int, int]]:
    """First and length of the run in which each index is drawn: by itself, or in the middle of a long row."""
    cut = indices[3:-1] if len(indices) > most else ()
    return {index: (cut[0], len(cut)) if index in cut else (index, 1) for index in indices}
