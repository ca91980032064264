"""Where the nodes of a cluster stand in a drawing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Node", "Place", "Places", "placed"]

Node = tuple[str, int, int]
"""Kind of node, number of its host, pod or cluster, index in there."""

GAP = 1.0
"""Between hosts, in widths of a device."""

WIDEST = 1.1
"""Half of the width of a node that stands beside others of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A box; lengths across in widths of a device, up in distances of rows."""

    x: float
    y: float
    half: float
    """Half of its width."""
    tall: float = 0.13
    """Half of its height."""
    alone: bool = False
    """Stands above all its hosts, so that what it joins is below some part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Everything that a drawing needs to know about positions."""

    of: Mapping[Node, Place]
    hosts: Mapping[int, tuple[float, float, float, float]]
    """Left, right, bottom and top of each host."""
    rows: Mapping[str, float]
    """Height at which each kind of node stands."""
    width: float

    @property
    def bottom(self) -> float:
        """Of the lowest row."""
        return min(self.rows.values(), default=0.0)

    @property
    def top(self) -> float:
        """Of the highest row."""
        return max(self.rows.values(), default=0.0)


def placed(kinds: Mapping[Node, str], links: Sequence[tuple[Node, Node]]) -> Places:
    """Place the nodes: a row for each kind, hosts side by side.

    A node stands as many rows above the devices as links lie between, over the hosts that it serves.  A switch that
    joins only the devices of one host stands below them if the way to the network goes another way, as an NVSwitch.
    """
    neighbours: dict[Node, list[Node]] = defaultdict(list)
    for tail, head in links:
        neighbours[tail].append(head)
    heights = _heights(kinds, neighbours)
    serves = _served_hosts(heights, neighbours)
    inside = _inside(kinds, heights, neighbours, serves)
    below = _below(heights, neighbours, inside)
    rows = {node[0]: float(-1 if node[0] in below else height) for node, height in heights.items()}
    left, width = _columns(kinds)
    of: dict[Node, Place] = {}
    for name, row in rows.items():
        of |= _spread([node for node in heights if node[0] == name], row, left, serves, kinds)
    return Places(of=of, hosts=_boxes(of, inside, serves), rows=rows, width=width)


def _heights(kinds: Mapping[Node, str], neighbours: Mapping[Node, Sequence[Node]]) -> dict[Node, int]:
    """Links between each node and the nearest device; breadth first."""
    heights = {node: 0 for node, kind in kinds.items() if kind == "device"}
    queue = list(heights)
    for node in queue:
        for other in neighbours[node]:
            if other not in heights:
                heights[other] = heights[node] + 1
                queue.append(other)
    return heights


def _lower(node: Node, heights: Mapping[Node, int], neighbours: Mapping[Node, Sequence[Node]]) -> list[Node]:
    return [other for other in neighbours[node] if heights[other] < heights[node]]


def _served_hosts(heights: Mapping[Node, int], neighbours: Mapping[Node, Sequence[Node]]) -> dict[Node, frozenset[int]]:
    """Hosts of the devices below each node."""
    serves: dict[Node, frozenset[int]] = {}
    for node in heights:  # breadth first, so what is below comes before
        lower = _lower(node, heights, neighbours)
        serves[node] = frozenset().union(*(serves[other] for other in lower)) if lower else frozenset((node[1],))
    return serves


def _inside(
    kinds: Mapping[Node, str],
    heights: Mapping[Node, int],
    neighbours: Mapping[Node, Sequence[Node]],
    serves: Mapping[Node, frozenset[int]],
) -> set[str]:
    """Names of the kinds that stand in hosts: what serves one host and is not behind a NIC."""
    outside: set[str] = set()
    for node in heights:
        lower = _lower(node, heights, neighbours)
        if len(serves[node]) > 1 or any(kinds[other] == "nic" or other[0] in outside for other in lower):
            outside.add(node[0])
    return {node[0] for node in heights} - outside


def _below(heights: Mapping[Node, int], neighbours: Mapping[Node, Sequence[Node]], inside: set[str]) -> set[str]:
    """Names of the kinds that are drawn below the devices."""
    first = {node[0] for node, height in heights.items() if height == 1}
    onward = {node[0] for node, height in heights.items() if any(heights[other] > height for other in neighbours[node])}
    return (first - onward) & inside if first & onward else set()


def _columns(kinds: Mapping[Node, str]) -> tuple[dict[int, tuple[float, float]], float]:
    """Left and right edge of each host's column, and the width of all."""
    count: dict[int, int] = defaultdict(int)
    for node, kind in kinds.items():
        if kind == "device":
            count[node[1]] += 1
    edges: dict[int, tuple[float, float]] = {}
    at = 0.0
    for host in sorted(count):
        edges[host] = (at, at + count[host])
        at += count[host] + GAP
    return edges, at - GAP + 1


def _spread(
    nodes: Iterable[Node],
    row: float,
    columns: Mapping[int, tuple[float, float]],
    serves: Mapping[Node, frozenset[int]],
    kinds: Mapping[Node, str],
) -> dict[Node, Place]:
    """Space the nodes of one row evenly over the hosts that their host, pod or cluster serves."""
    of: dict[Node, Place] = {}
    together: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        together[node[1]].append(node)
    for members in together.values():
        hosts = set[int]().union(*(serves[node] for node in members))
        left, right = min(columns[host][0] for host in hosts), max(columns[host][1] for host in hosts)
        step = (right - left) / len(members)
        for number, node in enumerate(sorted(members)):
            alone = len(members) == 1 and kinds[node] == "switch"
            half = 0.4 * step if step <= 1 else step / 2 - 0.1 if alone else min(step / 2 - 0.1, WIDEST)
            of[node] = Place(x=left + (number + 0.5) * step - 0.5, y=row, half=half, alone=alone)
    return of


def _boxes(
    of: Mapping[Node, Place], inside: set[str], serves: Mapping[Node, frozenset[int]]
) -> dict[int, tuple[float, float, float, float]]:
    """Boxes around what stands in each host."""
    found: dict[int, tuple[float, float, float, float]] = {}
    for node, place in of.items():
        if node[0] in inside:
            (host,) = serves[node]
            edges = (place.x - place.half, place.x + place.half, place.y - place.tall, place.y + place.tall)
            left, right, bottom, top = found.get(host, edges)
            found[host] = (
                min(left, edges[0]), max(right, edges[1]), min(bottom, edges[2]), max(top, edges[3]),
            )  # fmt: skip
    return {host: (left - 0.3, right + 0.3, bottom, top) for host, (left, right, bottom, top) in sorted(found.items())}
