"""A cluster as a drawing: hosts side by side, devices at the bottom, the network above them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch

from simulator.readings.colours import LINK_COLOURS, NODE_COLOURS
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, grouped_legend, headline, panel
from simulator.readings.plots.places import Node, Place, Places, placed
from simulator.units import readable

__all__ = ["topology_figure"]

WIDTH = 12.0
"""[inch]"""

ROW = 1.25
"""Distance of the rows [inch]."""

LEFT, RIGHT = 0.09, 0.83
"""Edges of the drawing; right of it stands the legend."""

THICKEST = 3.2
"""Line of the fastest link [pt]."""

Link = tuple[Node, Node, str, float]
"""Tail, head, name, bandwidth [B/s]."""


def topology_figure(nodes: Sequence[tuple[Node, str]], links: Sequence[Link], title: str) -> Figure:
    """Nodes and links of a cluster, the wider the line the higher the bandwidth.

    Parameters
    ----------
    nodes
        Each with its kind: ``device``, ``nic`` or ``switch``.
    links
        Tail, head, name and bandwidth in that direction [B/s]; what follows a colon in a name is left out.
    """
    kinds = dict(nodes)
    places = placed(kinds, [(tail, head) for tail, head, _, _ in links])
    above, below = 0.3, 0.5
    drawing = ROW * (places.top - places.bottom + above + below)
    figure = Figure(figsize=(WIDTH, drawing + 0.65))
    headline(figure, title)
    axes = panel(figure, LEFT * WIDTH, 0.05, (RIGHT - LEFT) * WIDTH, drawing)
    axes.set_axis_off()
    _draw_hosts(axes, places)
    _draw_links(axes, places, links)
    inches = WIDTH * (RIGHT - LEFT) / (places.width + 0.6)
    for node, place in places.of.items():
        _draw_node(axes, place, kinds[node], str(node[2]) if 2 * place.half * inches > 0.09 * len(str(node[2])) else "")
    _name_rows(axes, places)
    axes.set_xlim(-0.9, places.width - 0.3)
    axes.set_ylim(places.bottom - below, places.top + above)
    shown = [kind for kind in NODE_COLOURS if kind in kinds.values()]
    boxes = [Patch(facecolor=NODE_COLOURS[kind], edgecolor=GREY, label=kind) for kind in shown]
    groups: dict[str, Sequence[Artist]] = {"links, each way": _legend(links), "nodes": boxes}
    grouped_legend(figure, groups, left=RIGHT + 0.012, top=axes.get_position().y1 - 0.02)
    return figure


def _draw_hosts(axes: Axes, places: Places) -> None:
    for host, (left, right, bottom, top) in places.hosts.items():
        corner, width, height = (left, bottom - 0.1), right - left, top - bottom + 0.2
        style = "round,pad=0,rounding_size=0.15"
        axes.add_patch(
            FancyBboxPatch(corner, width, height, style, facecolor="#F7F7F2", edgecolor="#C9C9BF", mutation_aspect=0.4)
        )
        axes.text(
            (left + right) / 2, corner[1] - 0.06, f"host {host}", ha="center", va="top", fontsize=MEDIUM, color=GREY
        )


def _draw_links(axes: Axes, places: Places, links: Sequence[Link]) -> None:
    """Each pair of directions is one line, as wide as the slower of the two."""
    slower: dict[frozenset[Node], tuple[str, float]] = {}
    for tail, head, name, bandwidth in links:
        pair = frozenset((tail, head))
        known = slower.get(pair, (name, bandwidth))
        slower[pair] = (known[0], min(known[1], bandwidth))
    fastest = max((bandwidth for _, bandwidth in slower.values()), default=1.0)
    lines: dict[str, list[tuple[tuple[float, float], tuple[float, float]]]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    for pair, (name, bandwidth) in slower.items():
        one, other = sorted((places.of[node] for node in pair), key=lambda place: place.y)
        lines[_bare(name)].append(_joined(one, other))
        widths[_bare(name)].append(_thickness(bandwidth, fastest))
    for name, shade in _shades(links).items():
        faint = min(0.85, 0.85 * math.sqrt(40 / len(lines[name])))
        axes.add_collection(
            LineCollection(lines[name], linewidths=widths[name], colors=shade, alpha=faint, zorder=2, label=name)
        )


def _thickness(bandwidth: float, fastest: float) -> float:
    """Line width [pt]: a link of a hundredth of the bandwidth is still a line."""
    return max(0.6, THICKEST * math.sqrt(bandwidth / fastest))


def _joined(lower: Place, upper: Place) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ends of a line between two boxes, upright where a wide box allows it."""
    low = _beside(upper, lower) if lower.alone else lower.x
    high = _beside(lower, upper) if upper.alone else upper.x
    return (low, lower.y + lower.tall), (high, upper.y - upper.tall)


def _beside(node: Place, wide: Place) -> float:
    """Where a wide box is nearest to *node*."""
    return min(max(node.x, wide.x - wide.half), wide.x + wide.half)


def _draw_node(axes: Axes, place: Place, kind: str, text: str) -> None:
    corner = (place.x - place.half, place.y - place.tall)
    axes.add_patch(
        FancyBboxPatch(
            corner, 2 * place.half, 2 * place.tall, "round,pad=0,rounding_size=0.06", mutation_aspect=0.4, zorder=3,
            facecolor=NODE_COLOURS.get(kind, "white"), edgecolor="#777777", linewidth=0.8,
        )
    )  # fmt: skip
    axes.text(place.x, place.y, text, ha="center", va="center_baseline", fontsize=SMALL, zorder=4)


def _name_rows(axes: Axes, places: Places) -> None:
    for name, y in places.rows.items():
        axes.text(-1.0, y, name.replace("_", " "), ha="right", va="center", fontsize=MEDIUM)


def _bare(name: str) -> str:
    """Name of a link without what tells its directions apart."""
    return name.partition(":")[0]


def _shades(links: Iterable[Link]) -> dict[str, str]:
    """Colour of each kind of link, in the order in which they are met."""
    names = dict.fromkeys(_bare(name) for _, _, name, _ in links)
    return {name: LINK_COLOURS[index % len(LINK_COLOURS)] for index, name in enumerate(names)}


def _legend(links: Sequence[Link]) -> list[Line2D]:
    """One line for each kind of link, with the range of its bandwidths."""
    found: Mapping[str, set[float]] = defaultdict(set)
    for _, _, name, bandwidth in links:
        found[_bare(name)].add(bandwidth)
    fastest = max((max(bandwidths) for bandwidths in found.values()), default=1.0)
    handles = []
    for name, shade in _shades(links).items():
        bounds = dict.fromkeys(readable(bound, "B/s") for bound in (min(found[name]), max(found[name])))
        label = f"{name.replace('_', ' ')} {' to '.join(bounds)}"
        handles.append(Line2D([], [], color=shade, linewidth=_thickness(max(found[name]), fastest), label=label))
    return handles
