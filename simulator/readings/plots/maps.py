"""Two keys that a sweep varied and a colour for each pair of their values: a number, or the best variant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from simulator.readings.layout import Layout, layout
from simulator.readings.marks import Mark, marks
from simulator.readings.metrics import display_unit
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, ink, percent
from simulator.readings.plots.multiples import (
    BAR,
    Panel,
    colour_bar,
    finish,
    labelled,
    look,
    multiples,
    shade_of,
    size_of,
)
from simulator.readings.varied import number_text

__all__ = ["best_figure", "heatmap_figure"]

NOTHING, PALE = "#F2F2F2", "#AAAAAA"
"""Of a cell without a result, and of its hatches."""

COLOURS: Final = "viridis"

CROWDED, FAILED = "////", "xxxx"
"""Hatches."""


def heatmap_figure(
    results: Iterable[Mapping[str, Any]],
    title: str,
    *,
    x: str | None = None,
    y: str | None = None,
    color: str | None = None,
    rows: str | None = None,
    cols: str | None = None,
) -> Figure:
    """Metric *color* over the keys *x* and *y*, a panel for each variant unless *rows* or *cols* say otherwise.

    Cells that do not fit in memory are hatched, cells without a result are light and crossed out, and points that were
    not asked for stay white.

    Parameters
    ----------
    results
        As :func:`simulator.sweep.as_results` gives them.
    title
        What was simulated; where the metric is best stands below it.

    Raises
    ------
    InputError
        As :func:`simulator.readings.layout.layout`, or there is nothing to draw.
    """
    results = list(results)
    asked = layout("heatmap", results, x=x, y=y, color=color, rows=rows, cols=cols)
    found = marks(results, asked)
    values = [mark.values["color"] for mark in found if mark.values]
    size, unit = display_unit(asked.metrics["color"].unit, values)
    scale = ScalarMappable(Normalize(min(values) / size, max(values) / size), colormaps[COLOURS])
    figure, panels = multiples(asked, found, title, _highest(asked, found, size, unit), height=_tall(asked))
    texts = {id(mark): number_text(mark.values["color"] / size) if mark.values else "" for mark in found}
    for item in panels:
        for mark in item.marks:
            shade = shade_of(scale, mark.values["color"] / size) if mark.values else NOTHING
            _cell(item, asked, mark, shade)
        _write(item, asked, texts)
        _frame(item, asked)
    colour_bar(figure, scale, f"{asked.metrics['color'].label} [{unit}]")
    finish(figure, found, {"cells": _hatches(found)}, below=BAR)
    return figure


def best_figure(
    results: Iterable[Mapping[str, Any]],
    title: str,
    *,
    x: str | None = None,
    y: str | None = None,
    color: str | None = None,
    rows: str | None = None,
    cols: str | None = None,
) -> Figure:
    """Which variant is best in the metric *color*, over the keys *x* and *y*.

    In each cell stand the metric of the best variant that fits in memory, and by how much of it the next one is worse.
    Cells in which nothing fits are hatched, cells in which nothing has a result are crossed out.

    Parameters
    ----------
    results
        As :func:`simulator.sweep.as_results` gives them.
    title
        What was simulated; how often which variant is best stands below it.

    Raises
    ------
    InputError
        As :func:`simulator.readings.layout.layout`, or there is nothing to draw.
    """
    results = list(results)
    asked = layout("best", results, x=x, y=y, color=color, rows=rows, cols=cols)
    found = marks(results, asked)
    size, unit = display_unit(asked.metrics["color"].unit, [mark.values["color"] for mark in found if mark.values])
    names = list(dict.fromkeys(mark.variant for mark in found))
    cells = _cells(found, upward=asked.metrics["color"].more_is_better)
    wins = Counter(best.variant for best, *_ in cells if best.fits)
    said = f"{_winners(wins, len(cells))}; in the cells: {asked.metrics['color'].label} [{unit}], lead over the next"
    figure, panels = multiples(asked, [best for best, *_ in cells], title, said, height=_tall(asked))
    leads = {id(cell[0]): _lead(cell, size) for cell in cells}
    for item in panels:
        for best in item.marks:
            shade = look(names.index(best.variant))[0] if best.fits else NOTHING
            _cell(item, asked, best, shade)
        _write(item, asked, leads)
        _frame(item, asked)
    entries: list[Artist] = [Patch(facecolor=look(names.index(name))[0], label=name) for name in names if wins[name]]
    finish(figure, found, {"best variant": entries, "cells": _hatches([best for best, *_ in cells])})
    return figure


def _cells(found: Sequence[Mark], *, upward: bool) -> list[list[Mark]]:
    """Marks at the same place, the best that fits first."""
    cells: dict[tuple[str, ...], list[Mark]] = {}
    for mark in found:
        cells.setdefault(tuple(mark.at.values()), []).append(mark)
    sign = -1 if upward else 1

    def demerit(mark: Mark) -> tuple[bool, bool, float]:
        return not mark.fits, not mark.values, sign * mark.values.get("color", 0.0)

    return [sorted(cell, key=demerit) for cell in cells.values()]


def _lead(cell: Sequence[Mark], size: float) -> str:
    """Metric of the first of *cell*, and by which part of it the second is worse."""
    usable = [mark.values["color"] for mark in cell if mark.fits]
    if not usable:
        return ""
    told = number_text(usable[0] / size)
    return told if len(usable) == 1 else f"{told}\n{percent(abs(usable[0] - usable[1]), abs(usable[0]))}"


def _place(asked: Layout, mark: Mark) -> tuple[int, int]:
    """Column and row of a cell."""
    return asked.keys["x"].texts.index(mark.at["x"]), asked.keys["y"].texts.index(mark.at["y"])


def _cell(item: Panel, asked: Layout, mark: Mark, shade: str) -> None:
    """Colour one cell, and hatch it where the result cannot be used."""
    column, row = _place(asked, mark)
    hatch = None if mark.fits else CROWDED if mark.values else FAILED
    edge = ink(shade) if hatch == CROWDED else PALE
    item.axes.add_patch(
        Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=shade, hatch=hatch, linewidth=0, edgecolor=edge)
    )


def _write(item: Panel, asked: Layout, texts: Mapping[int, str]) -> None:
    """Write into all cells, or into none if there is no room."""
    wide, tall = _inches(item.axes, *(len(asked.keys[place].texts) for place in ("x", "y")))
    lines = [text.split("\n") for text in texts.values()]
    letters, down = max(len(line) for text in lines for line in text), max(len(text) for text in lines)
    if letters * 0.62 * SMALL / 72 > wide or down * 1.3 * SMALL / 72 > tall:  # definition: points in an inch
        return
    shades = [to_hex(patch.get_facecolor()) for patch in item.axes.patches]
    for mark, shade in zip(item.marks, shades, strict=True):
        box = None if mark.fits else {"facecolor": shade, "edgecolor": "none", "pad": 0.8}
        if text := texts[id(mark)]:
            item.axes.text(*_place(asked, mark), text, ha="center", va="center", fontsize=SMALL, color=ink(shade),
                           bbox=box)  # fmt: skip


def _inches(axes: Axes, across: int, up: int) -> tuple[float, float]:
    """Width and height of a cell."""
    width, height = size_of(axes)
    return width / across, height / up


def _frame(item: Panel, asked: Layout) -> None:
    axes = item.axes
    for along, place, limits in ((axes.xaxis, "x", axes.set_xlim), (axes.yaxis, "y", axes.set_ylim)):
        key = asked.keys[place]
        count = len(key.texts)
        limits(-0.5, count - 0.5)
        letters = max(len(text) for text in key.shown()) + 1.5 if place == "x" else 2.0
        inches = _inches(axes, count, count)[0 if place == "x" else 1]
        every = max(1, -(-int(100 * letters * 0.55 * MEDIUM / 72) // max(1, int(100 * inches))))  # definition: points
        along.set_ticks(list(range(count))[::-every], [*key.shown()][::-every])
    labelled(item, asked.label("x"), asked.label("y"))


def _tall(asked: Layout) -> float:
    """Height of a panel [inch]."""
    least = 1.6 if asked.facets() else 3.2
    return min(6.0, max(least, 0.42 * len(asked.keys["y"].texts)))


def _hatches(found: Sequence[Mark]) -> list[Artist]:
    entries: list[Artist] = []
    if any(mark.values and not mark.fits for mark in found):
        entries.append(Patch(facecolor="white", edgecolor=GREY, hatch=CROWDED, label="does not fit in memory"))
    if any(mark.failure for mark in found):
        entries.append(Patch(facecolor=NOTHING, edgecolor=PALE, hatch=FAILED, label="no result"))
    return entries


def _highest(asked: Layout, found: Sequence[Mark], size: float, unit: str) -> str:
    """Where the metric is best of all that fits."""
    usable = [mark for mark in found if mark.fits]
    if not usable:
        return "Nothing fits in memory"
    sign = 1 if asked.metrics["color"].more_is_better else -1
    best = max(usable, key=lambda mark: sign * mark.values["color"])
    places = (asked.told(key.key, best.at[place]) for place, key in asked.keys.items())
    return f"Best: {number_text(best.values['color'] / size)} {unit} at {', '.join(places)}"


def _winners(wins: Mapping[str, int], cells: int) -> str:
    if not wins:
        return "Nothing fits in memory"
    told = [f"{name} at {wins[name]}" for name in sorted(wins, key=lambda name: -wins[name])]
    return f"Best of {cells} points: {', '.join(told[:4])}{' ...' if told[4:] else ''}"
