"""Where the nodes of a cluster stand in a drawing.

A kind of node stands as many rows above the devices as links lie between.  A switch that joins only the devices of a
host stands below them if the way to the network goes another way, as an NVSwitch; links that join devices straight to
each other hang below them as arcs, and those of a torus join hosts as arcs above.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from simulator.readings.plots.excerpt import Box, Excerpt
from simulator.world.topology.cluster import DEVICE, Cluster, Scope
from simulator.world.topology.placement import place_of

__all__ = ["ARCS", "Edges", "Place", "Places", "placed"]

GAP = 1.0
"""Between hosts, in widths of a device; one more between pods, and one more between zones."""

WIDEST = 1.1
"""Half of the width of a node that stands beside others of its kind."""

CUT = 2.4
"""Width of a box for nodes that are not drawn one by one, in widths of one that is."""

ARCS = 1.0
"""Depth of the arc between the nodes furthest apart, in distances of rows."""

Edges = tuple[float, float]
"""Left and right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A box; lengths across in widths of a device, up in distances of rows."""

    x: float
    y: float
    half: float
    """Half of its width."""
    tall: float = 0.13
    """Half of its height."""
    among: Edges
    """What its row of neighbours is spread over."""
    alone: bool = False
    """Stands above all its hosts, so that what it joins is below some part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Everything that a drawing needs to know about positions."""

    of: Mapping[Box, Place]
    spans: Mapping[tuple[Scope, int], Edges]
    """Of each host, pod and zone, and of the cluster."""
    rows: Mapping[str, float]
    """Height at which each kind of node stands."""
    inside: Edges
    """Bottom and top of what stands in hosts."""
    top: float
    """Of the highest row, or of the arcs above it."""

    @property
    def width(self) -> float:
        """Of all hosts."""
        left, right = self.spans["cluster", 0]
        return right - left


def placed(shown: Excerpt) -> Places:
    """Place what is shown: a row for each kind, hosts side by side."""
    cluster = shown.cluster
    present = {box.name for box in shown.boxes}
    rows = {name: row for name, row in _rows(cluster).items() if name in present}
    spans = _spans(shown)
    together: dict[tuple[str, int], list[Box]] = defaultdict(list)
    for box in shown.boxes:
        together[box.name, box.place].append(box)
    of: dict[Box, Place] = {}
    for (name, place), boxes in together.items():
        node = cluster.node(name)
        of |= _spread(boxes, rows[name], spans[node.per, place], single=node.kind == "switch")
    tall = next(iter(of.values())).tall
    inner = [row for name, row in rows.items() if cluster.node(name).per == "host"]
    level = {line.lower.name for line in shown.lines if line.level}
    bottom = min(min(inner) - tall, -ARCS if DEVICE in level else 0.0)
    top = max(row + (ARCS if name in level - {DEVICE} else 0.0) for name, row in rows.items())
    return Places(of=of, spans=spans, rows=rows, inside=(bottom, max(inner) + tall), top=top)


def _rows(cluster: Cluster) -> dict[str, float]:
    """Height of each kind of node; links come lower kinds first."""
    rows = {DEVICE: 0.0}
    for link in cluster.links:
        lower, upper = link.ends
        rows[upper] = min(rows.get(upper, rows[lower] + 1), rows[lower] + 1)
    onward = {link.ends[0] for link in cluster.links if link.wiring != "pairs"}
    first = {name for name, row in rows.items() if row == 1}
    below = {name for name in first - onward if cluster.node(name).per == "host"} if first & onward else set[str]()
    return rows | dict.fromkeys(below, -1.0 - (ARCS if cluster.direct else 0.0))


def _spans(shown: Excerpt) -> dict[tuple[Scope, int], Edges]:
    """Left and right edge of what stands in each host, pod and zone."""
    scopes: Sequence[Scope] = ("host", "pod", "zone", "cluster")
    wide = sum(_weight(box) for box in shown.boxes if (box.name, box.place) == (DEVICE, shown.hosts[0]))
    spans: dict[tuple[Scope, int], Edges] = {}
    at = 0.0
    for host in shown.hosts:
        keys = [(scope, place_of(shown.cluster, host, scope)) for scope in scopes]
        at += GAP * sum(key not in spans for key in keys[:-1]) if spans else 0.0
        for key in keys:
            spans[key] = (spans.get(key, (at, at))[0], at + wide)
        at += wide
    return spans


def _weight(box: Box) -> float:
    return CUT if box.nodes > 1 else 1.0


def _spread(boxes: Iterable[Box], row: float, edges: Edges, *, single: bool) -> dict[Box, Place]:
    """Space the *boxes* of a row evenly between *edges*; a *single* switch is as wide as what it serves."""
    of: dict[Box, Place] = {}
    ordered = sorted(boxes)
    step = (edges[1] - edges[0]) / sum(_weight(box) for box in ordered)
    at = edges[0]
    for box in ordered:
        wide = step * _weight(box)
        alone = single and len(ordered) == 1
        half = 0.4 * step + (wide - step) / 2 if step <= 1 else wide / 2 - 0.1
        narrow = half if alone else min(half, WIDEST * _weight(box))
        of[box] = Place(x=at + wide / 2, y=row, half=narrow, among=edges, alone=alone)
        at += wide
    return of
