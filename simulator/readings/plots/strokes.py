"""How links are drawn: straight lines up, arcs below devices or above hosts that are joined straight to each other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from matplotlib.collections import LineCollection

from simulator.readings.plots.excerpt import Box, Excerpt, Line
from simulator.readings.plots.places import ARCS, Place, Places
from simulator.world.topology.cluster import DEVICE

__all__ = ["line_width", "strokes"]

THICKEST, THINNEST = 3.2, 0.6
"""Lines of the fastest link in hosts and of the slowest [pt]."""

FEW_ARCS = 32
"""That have room for thick lines."""

CORNERS = 40
"""Of an arc; even at the size of a slide it looks round."""

Point = tuple[float, float]


def strokes(
    shown: Excerpt, places: Places, shades: Mapping[str, str], width: Callable[[float], float]
) -> list[LineCollection]:
    """Draw one collection for each kind of link, in the colour of *shades*, with the *width* of their bandwidths."""
    kinds: dict[str, list[Line]] = defaultdict(list)
    for line in shown.lines:
        kinds[line.link].append(line)
    return [_collection(places, lines, shades[name], width) for name, lines in kinds.items()]


def line_width(shown: Excerpt) -> Callable[[float], float]:
    """Return line width [pt] as a function of bandwidth [B/s]: a link of a hundredth of the fastest is still a line."""
    inside = [line for line in shown.lines if shown.cluster.node(line.lower.name).per == "host"]
    arcs = sum(line.level for line in inside)  # many at each device: thinner, to tell apart
    widest = THICKEST * min(1.0, FEW_ARCS / max(1, arcs))
    fastest = max((line.bandwidth for line in inside), default=1.0)
    return lambda bandwidth: min(1.4 * widest, max(THINNEST, widest * math.sqrt(bandwidth / fastest)))


def _collection(places: Places, lines: Sequence[Line], shade: str, width: Callable[[float], float]) -> LineCollection:
    straight = [_straight(places.of[line.lower], places.of[line.upper]) for line in lines]
    return LineCollection(
        _arcs(places, lines) if lines[0].level else straight,
        linewidths=[width(line.bandwidth) for line in lines],
        linestyles=[(0, (1.0, 1.5)) if line.cut else "solid" for line in lines],
        colors=shade,
        alpha=min(0.85, 0.85 * math.sqrt(40 / len(lines))),
        zorder=2,
        label=lines[0].link,
    )


def _straight(one: Place, other: Place) -> list[Point]:
    """Ends of a line between two boxes, upright where a wide box allows it."""
    lower, upper = sorted((one, other), key=lambda place: place.y)
    low = _beside(upper, lower) if lower.alone else lower.x
    high = _beside(lower, upper) if upper.alone else upper.x
    return [(low, lower.y + lower.tall), (high, upper.y - upper.tall)]


def _beside(node: Place, wide: Place) -> float:
    """Where a line from *node* meets a wide box: right there, or at the same part of it as of the row of *node*."""
    left, right = node.among
    if wide.among[0] <= left and right <= wide.among[1]:
        return node.x
    return wide.x + wide.half * (2 * (node.x - left) / (right - left) - 1)


def _arcs(places: Places, lines: Sequence[Line]) -> list[list[Point]]:
    """Half ellipses below devices or above hosts, the deeper the further apart these are."""
    partners: dict[Box, list[Box]] = defaultdict(list)
    for line in lines:
        partners[line.lower].append(line.upper)
        partners[line.upper].append(line.lower)
    longest = max(abs(places.of[line.lower].x - places.of[line.upper].x) for line in lines)
    found = []
    for line in lines:
        left, right = sorted((line.lower, line.upper), key=lambda box: places.of[box].x)
        start, end = _port(places, partners[left], left, right), _port(places, partners[right], right, left)
        sign = -1 if left.name == DEVICE else 1
        tall = sign * places.of[left].tall
        depth = (sign * ARCS - tall) * (places.of[right].x - places.of[left].x) / longest
        found.append(_half_ellipse(start, end, places.of[left].y + tall, depth))
    return found


def _port(places: Places, partners: Sequence[Box], box: Box, partner: Box) -> float:
    """Where the arc to *partner* ends at *box*: near ones outside, so that none cross there."""
    place = places.of[box]
    left = sorted((other for other in partners if places.of[other].x < place.x), key=lambda it: -places.of[it].x)
    right = sorted((other for other in partners if places.of[other].x > place.x), key=lambda it: -places.of[it].x)
    order = [*left, *right]
    return place.x + place.half * 0.8 * (2 * (order.index(partner) + 0.5) / len(order) - 1)


def _half_ellipse(start: float, end: float, level: float, depth: float) -> list[Point]:
    centre, radius = (start + end) / 2, (end - start) / 2
    angles = [math.pi * corner / CORNERS for corner in range(CORNERS + 1)]
    return [(centre - radius * math.cos(angle), level + depth * math.sin(angle)) for angle in angles]
