"""A cluster as a drawing: hosts side by side, devices at the bottom, the network above them.

What is said about a kind of link stands at the height at which its lines are drawn.  Dotted lines lead to boxes that
stand for the middle of a long row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch

from simulator.readings.colours import LINK_COLOURS, NODE_COLOURS
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, headline, panel
from simulator.readings.plots.captions import (
    Caption,
    findings,
    footnotes,
    link_captions,
    node_caption,
    place_caption,
    title,
)
from simulator.readings.plots.excerpt import Box, Excerpt, excerpt
from simulator.readings.plots.places import ARCS, Places, placed
from simulator.readings.plots.strokes import line_width, strokes
from simulator.world.topology.cluster import Cluster, LinkKind, Scope

__all__ = ["topology_figure"]

WIDTH = 12.0
"""[inch]"""

ROW = 1.2
"""Distance of the rows [inch]."""

LEFT, RIGHT = 1.25, 9.6
"""Edges of the drawing [inch]; beside it stand the names of nodes and of links."""

MARGIN = 0.4
"""Beside the hosts, in widths of a device."""

HEADLINE = 0.75
"""[inch]"""

BRACKET = 0.34
"""A pod's or a zone's, with its name [inch]."""

LINE = 1.4 * SMALL / 72
"""Distance of lines of text [inch]."""


def topology_figure(cluster: Cluster) -> Figure:
    """Nodes and links of a cluster, the wider the line the higher the bandwidth.

    At most four hosts are drawn, from two zones and two pods of each where there are so many.
    """
    shown = excerpt(cluster)
    places = placed(shown)
    notes = footnotes(cluster)
    scopes = _bracketed(cluster)
    below = 0.4 + BRACKET * len(scopes) + LINE * len(notes)
    low, high = places.inside[0] - 0.1, places.top + 0.25
    figure = Figure(figsize=(WIDTH, HEADLINE + ROW * (high - low) + below))
    headline(figure, title(cluster), findings(shown))
    axes = panel(figure, LEFT, below, RIGHT - LEFT, ROW * (high - low))
    axes.set_axis_off()
    axes.set_xlim(-MARGIN, places.width + MARGIN)
    axes.set_ylim(low, high)
    _draw_hosts(axes, shown, places)
    _draw_brackets(axes, shown, places, scopes)
    _draw_links(axes, shown, places)
    for name in places.rows:
        _draw_row(axes, shown, places, name)
    _explain(figure, shown, notes)
    return figure


def _bracketed(cluster: Cluster) -> list[Scope]:
    """Scopes between host and cluster that have switches of their own."""
    scopes: Sequence[Scope] = ("pod", "zone")
    return [scope for scope in scopes if any(node.per == scope for node in cluster.nodes)]


def _draw_hosts(axes: Axes, shown: Excerpt, places: Places) -> None:
    bottom, top = places.inside
    for host in shown.hosts:
        left, right = places.spans["host", host]
        corner, width, height = (left - 0.3, bottom - 0.1), right - left + 0.6, top - bottom + 0.2
        axes.add_patch(
            FancyBboxPatch(
                corner, width, height, "round,pad=0,rounding_size=0.15", facecolor="#F7F7F2", edgecolor="#C9C9BF",
                mutation_aspect=0.4, clip_on=False,
            )
        )  # fmt: skip
        _name(axes, (left + right) / 2, corner[1] - 0.05 / ROW, place_caption(shown, "host", host))


def _draw_brackets(axes: Axes, shown: Excerpt, places: Places, scopes: Sequence[Scope]) -> None:
    """Pods and zones, below their hosts."""
    for (scope, number), (left, right) in places.spans.items():
        if scope in scopes:
            y = places.inside[0] - 0.1 - (0.3 + BRACKET * scopes.index(scope)) / ROW
            ends, up = (left - 0.3, right + 0.3), y + 0.05 / ROW
            axes.plot((ends[0], *ends, ends[1]), (up, y, y, up), color=GREY, linewidth=0.8, clip_on=False)
            _name(axes, (left + right) / 2, y - 0.04 / ROW, place_caption(shown, scope, number))


def _name(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="top", fontsize=MEDIUM, color=GREY)


def _draw_links(axes: Axes, shown: Excerpt, places: Places) -> None:
    """Lines, and right of them what there is to say about each kind."""
    links = shown.cluster.links
    shades = {link.name: LINK_COLOURS[index % len(LINK_COLOURS)] for index, link in enumerate(links)}
    width = line_width(shown)
    for collection in strokes(shown, places, shades, width):
        axes.add_collection(collection)
    beside: dict[float, list[tuple[Caption, str]]] = defaultdict(list)
    for link in links:
        if any(line.link == link.name for line in shown.lines):
            captions = link_captions(shown.cluster, link)
            beside[_height(places, link)] += [(caption, shades[link.name]) for caption in captions]
    for height, found in beside.items():
        for number, (caption, shade) in enumerate(found):
            y = height + ((len(found) - 1) / 2 - number) * LINE / ROW
            _caption(axes, y, caption, shade, width(caption.bandwidth or 0.0))


def _height(places: Places, link: LinkKind) -> float:
    """Where the lines of *link* are."""
    aside = {"pairs": -0.5 * ARCS, "torus": 0.5 * ARCS}.get(link.wiring, 0.0)
    return sum(places.rows[end] for end in link.ends) / 2 + aside


def _caption(axes: Axes, y: float, caption: Caption, shade: str, width: float) -> None:
    beside = axes.get_yaxis_transform()  # across in parts of the drawing, up as what is drawn
    inch = 1 / (RIGHT - LEFT)
    if caption.bandwidth is not None:
        ends = (1 + 0.05 * inch, 1 + 0.3 * inch)
        axes.add_line(Line2D(ends, (y, y), color=shade, linewidth=width, transform=beside, clip_on=False))
    axes.text(1 + 0.38 * inch, y, caption.text, transform=beside, va="center", fontsize=SMALL)


def _draw_row(axes: Axes, shown: Excerpt, places: Places, name: str) -> None:
    """Nodes of one kind, and its name to the left."""
    boxes = [box for box in shown.boxes if box.name == name]
    texts = _texts(shown, places, boxes)
    for box in boxes:
        place, cut = places.of[box], box.nodes > 1
        axes.add_patch(
            FancyBboxPatch(
                (place.x - place.half, place.y - place.tall), 2 * place.half, 2 * place.tall,
                "round,pad=0,rounding_size=0.06", mutation_aspect=0.4, zorder=3, linewidth=0.8, edgecolor="#777777",
                facecolor=NODE_COLOURS[shown.cluster.node(name).kind], linestyle=":" if cut else "-", label=name,
            )
        )  # fmt: skip
        axes.text(place.x, place.y, texts[box], ha="center", va="center_baseline", fontsize=SMALL, zorder=4)
    axes.text(
        -0.1 / (RIGHT - LEFT), places.rows[name], node_caption(shown, name), transform=axes.get_yaxis_transform(),
        ha="right", va="center", fontsize=MEDIUM,
    )  # fmt: skip


def _texts(shown: Excerpt, places: Places, boxes: Sequence[Box]) -> dict[Box, str]:
    """What stands in the boxes of a row: in all of them or in none, except that a cut is always marked."""
    inch = (RIGHT - LEFT) / (places.width + 2 * MARGIN)
    letter = 0.6 * SMALL / 72  # about the width of one [inch]
    texts = {box: _text(shown, box, alone=places.of[box].alone) for box in boxes}
    fit = {box: len(text) * letter < 2 * places.of[box].half * inch for box, text in texts.items()}
    whole = all(fit[box] for box in boxes if box.nodes == 1)
    return {box: text if whole and fit[box] else "…" if box.nodes > 1 else "" for box, text in texts.items()}


def _text(shown: Excerpt, box: Box, *, alone: bool) -> str:
    """What stands in a box: an index, or the name and place of a switch that is the only one there."""
    if box.nodes > 1:
        return f"… {box.nodes} more"
    if not alone:
        return str(box.first)
    scope = shown.cluster.node(box.name).per
    return box.name.replace("_", " ") + (f" {box.place}" if scope in ("pod", "zone") else "")


def _explain(figure: Figure, shown: Excerpt, notes: Sequence[str]) -> None:
    """What the colours of boxes mean, and how links were sized."""
    height = float(figure.get_figheight())
    present = {shown.cluster.node(box.name).kind for box in shown.boxes}
    kinds = [kind for kind in NODE_COLOURS if kind in present]
    boxes = [Patch(facecolor=NODE_COLOURS[kind], edgecolor=GREY, label=kind) for kind in kinds]
    figure.legend(
        handles=boxes, loc="lower right", bbox_to_anchor=(0.99, 0.08 / height), ncol=3, frameon=False, fontsize=SMALL,
        handlelength=1.2, columnspacing=1.0, handletextpad=0.5, borderpad=0, borderaxespad=0,
    )  # fmt: skip
    for number, note in enumerate(reversed(notes)):
        figure.text(0.012, (0.07 + LINE * number) / height, note, va="bottom", fontsize=SMALL, color=GREY)
