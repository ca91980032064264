"""Small multiples: one panel for each value of a key, on the same axes, so that they can be compared.

Tufte, The Visual Display of Quantitative Information (1983), chapter 8.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from simulator.readings.colours import SERIES_COLOURS
from simulator.readings.layout import Layout
from simulator.readings.marks import Mark, remark
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, grouped_legend, headline, panel
from simulator.readings.varied import number_text

__all__ = [
    "BAR",
    "MARKERS",
    "Panel",
    "colour_bar",
    "finish",
    "handle",
    "labelled",
    "look",
    "multiples",
    "number_axis",
    "shade_of",
    "size_of",
    "value_ticks",
]

WIDTH, MARGIN = 12.0, 2.75
"""Of the figure, and of what stands at the right of the panels [inch]."""

LEFT, TOP, FOOT, GAP, HEADING = 0.95, 1.05, 0.95, 0.22, 0.42
"""Around the panels, and between them [inch]."""

BAR = 1.0
"""Height of the bar of colours with what it says [inch]."""

ACROSS = 4
"""Panels side by side before the next row begins."""

HEIGHTS: Final = {1: 4.6, 2: 3.3}
"""Height of a panel by the number of them side by side; of more, 2.4 [inch]."""

MARKERS: Final = "osD^v<>P"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One of the small multiples."""

    axes: Axes
    marks: Sequence[Mark]
    title: str
    outer: tuple[bool, bool]
    """Whether nothing stands at its left, and nothing below it."""


def multiples(
    layout: Layout, found: Sequence[Mark], title: str, finding: str, *, height: float | None = None, foot: float = 0.0
) -> tuple[Figure, list[Panel]]:
    """Make a figure with a panel for each value of the keys of rows and columns.

    Parameters
    ----------
    height
        Of a panel [inch].
    foot
        Kept free below the panels and their labels [inch].
    """
    places = _places(layout)
    across, down = (1 + max(place[side] for place in places) for side in (0, 1))
    wide = (WIDTH - LEFT - MARGIN - GAP * (across - 1)) / across
    tall = height or HEIGHTS.get(across, 2.4)
    figure = Figure(figsize=(WIDTH, TOP + down * tall + (down - 1) * HEADING + FOOT + foot))
    headline(figure, f"{layout.title()}: {title}", finding)
    made = []
    for (column, row), texts in places.items():
        bottom = foot + FOOT + (down - 1 - row) * (tall + HEADING)
        axes = panel(figure, LEFT + column * (wide + GAP), bottom, wide, tall)
        told = [layout.told(layout.keys[place].key, text) for place, text in texts.items()]
        axes.set_title(", ".join(told), fontsize=MEDIUM, loc="left", fontweight="bold")
        inside = [mark for mark in found if all(mark.at[place] == text for place, text in texts.items())]
        outer = (column == 0, (column, row + 1) not in places)
        made.append(Panel(axes=axes, marks=inside, title=", ".join(told), outer=outer))
    return figure, made


def finish(
    figure: Figure, found: Sequence[Mark], groups: Mapping[str, Sequence[Artist]], *, below: float = 0.0
) -> None:
    """Add the legends at the right, *below* [inch] the upper end of the panels, and say what is missing at the foot."""
    height = float(figure.get_figheight())
    grouped_legend(figure, groups, left=1 - (MARGIN - 0.25) / WIDTH, top=1 - (TOP + below) / height)
    said = textwrap.shorten(remark(found), 150, placeholder=" ...")
    figure.text(0.012, 0.12 / height, said, fontsize=SMALL, color=GREY)


def look(number: int) -> tuple[str, str]:
    """Colour and marker of the variant, or value of a key, of that *number*."""
    return SERIES_COLOURS[number % len(SERIES_COLOURS)], MARKERS[number % len(MARKERS)]


def value_ticks(axes: Axes, numbers: Sequence[float], texts: Sequence[str], *, logarithmic: bool) -> None:
    """Put ticks of the x axis at *numbers*, leaving out those that would overlap."""
    if logarithmic:
        axes.set_xscale("log")
    axes.set_xticks([], minor=True)
    low, high = numbers[0], numbers[-1]
    axes.set_xlim(*_room(low, high, logarithmic=logarithmic))
    letters = max(len(text) for text in texts) + 2.5
    least = letters * 0.55 * MEDIUM / 72 / size_of(axes)[0]  # definition: points in an inch
    places = axes.transAxes.inverted().transform(axes.transData.transform([(number, 0.0) for number in numbers]))[:, 0]
    shown = [len(numbers) - 1]
    for number in range(len(numbers) - 2, -1, -1):
        if places[shown[-1]] - places[number] >= least:
            shown.append(number)
    axes.set_xticks([numbers[number] for number in shown], [texts[number] for number in shown])


def number_axis(axes: Axes, side: str, *, logarithmic: bool) -> None:
    """Ticks of a metric along *side*, ``x`` or ``y``; on a logarithmic axis at 1, 2 and 5 of each decade."""
    axes.set(**{f"{side}scale": "log" if logarithmic else "linear"})
    axis = axes.xaxis if side == "x" else axes.yaxis
    if logarithmic:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda number, _: number_text(number)))


def size_of(axes: Axes) -> tuple[float, float]:
    """Width and height [inch]."""
    box = axes.get_window_extent()
    return float(box.width / axes.figure.dpi), float(box.height / axes.figure.dpi)


def labelled(item: Panel, across: str, up: str) -> None:
    """Name the axes of a panel where nothing stands between them and the edge, and set the sizes of type."""
    axes, (left, below) = item.axes, item.outer
    axes.tick_params(axis="x", labelsize=MEDIUM, length=3, labelbottom=below)
    axes.tick_params(axis="y", labelsize=MEDIUM, length=3 * left, labelleft=left)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    inches = size_of(axes)[1]
    if below:
        axes.set_xlabel(across, fontsize=MEDIUM)
    if left:
        axes.set_ylabel(textwrap.fill(up, int(inches / (0.55 * MEDIUM / 72))), fontsize=MEDIUM)  # definition: points


def colour_bar(figure: Figure, scale: ScalarMappable, label: str) -> None:
    """Say at the upper right which colour is which number."""
    axes = panel(figure, WIDTH - MARGIN + 0.25, float(figure.get_figheight()) - TOP - 0.16, MARGIN - 0.6, 0.16)
    bar = figure.colorbar(scale, cax=axes, orientation="horizontal")
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label(textwrap.fill(label, 32), fontsize=SMALL)


def shade_of(scale: ScalarMappable, value: float) -> str:
    """Colour of a number."""
    red, green, blue, _ = (float(channel) for channel in scale.to_rgba(np.asarray([value]))[0])
    return to_hex((red, green, blue))


def handle(label: str, color: str, marker: str, **style: Any) -> Line2D:
    """Entry of a legend for a line with markers."""
    look: dict[str, Any] = {"color": color, "marker": marker, "markersize": 5, "label": label} | style
    return Line2D([], [], **look)


def _room(low: float, high: float, *, logarithmic: bool) -> tuple[float, float]:
    """Limits with a twenty-fifth of the width free at both sides."""
    if low == high:
        return low - 1.0, high + 1.0
    if logarithmic:
        more = (high / low) ** 0.04
        return low / more, high * more
    return low - 0.04 * (high - low), high + 0.04 * (high - low)


def _places(layout: Layout) -> dict[tuple[int, int], dict[str, str]]:
    """Column and row of each panel, and the values of its keys by ``rows`` and ``cols``."""
    rows, cols = (layout.keys[place].texts if place in layout.keys else () for place in ("rows", "cols"))
    if rows:
        return {
            (column, row): {"rows": low} | ({"cols": left} if cols else {})
            for row, low in enumerate(rows)
            for column, left in enumerate(cols or ("",))
        }
    if not cols:
        return {(0, 0): {}}
    down = -(-len(cols) // ACROSS)
    across = -(-len(cols) // down)
    return {(number % across, number // across): {"cols": text} for number, text in enumerate(cols)}
