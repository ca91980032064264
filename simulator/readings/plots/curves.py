"""A metric over a key that a sweep varied, and where another variant becomes the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.readings.crossings import Change, Crossing, Scale, changes, crossings
from simulator.readings.layout import Layout, layout
from simulator.readings.marks import Mark, marks
from simulator.readings.metrics import display_unit
from simulator.readings.plots.canvas import GREY, SMALL
from simulator.readings.plots.multiples import (
    Panel,
    finish,
    handle,
    labelled,
    look,
    multiples,
    number_axis,
    value_ticks,
)
from simulator.readings.varied import number_text

__all__ = ["curves_figure"]

WIDE = 100.0
"""Ratio of largest to smallest height from which on the axis is logarithmic."""

FLAT = 1 / 3
"""Part of the axis that heights must fill for it to begin at zero."""

SEEN = 0.02
"""Part of the axis by which lines must differ somewhere before and after a crossing for it to be marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """What all panels have in common."""

    layout: Layout
    size: float
    """One unit of the y axis, in SI."""
    x: Scale
    y: Scale
    limits: tuple[float, float]
    """Of the y axis."""
    unit: str

    @property
    def tall(self) -> float:
        """Height of the axis, as :meth:`Scale.height` counts."""
        return self.y.height(self.limits[1]) - self.y.height(self.limits[0])

    @property
    def places(self) -> tuple[float, ...]:
        """Places on the x axis."""
        return self.layout.keys["x"].numbers or ()

    def line(self, found: Sequence[Mark], text: str) -> list[Mark | None]:
        """Marks of one line, as many as there are places."""
        by_place = {mark.at["x"]: mark for mark in found if mark.at["color"] == text}
        return [by_place.get(place) for place in self.layout.keys["x"].texts]

    def heights(self, line: Sequence[Mark | None], *, fitting: bool = False) -> list[float]:
        """Heights of *line*; NaN where nothing is known, or with *fitting* where it does not fit in memory."""
        return [
            mark.values["y"] / self.size if mark and mark.values and (mark.fits or not fitting) else nan
            for mark in line
        ]


def curves_figure(
    results: Iterable[Mapping[str, Any]],
    title: str,
    *,
    x: str | None = None,
    y: str | None = None,
    color: str | None = None,
    rows: str | None = None,
    cols: str | None = None,
    goal: float | None = None,
) -> Figure:
    """Metric *y* over the numeric key *x*, a line for each variant or value of the key *color*.

    Where the best line changes, a dotted line says from which value on which one is best; other crossings are small
    rings with their value.  Both are interpolated along the lines as drawn
    (:mod:`simulator.readings.crossings`).  Only what fits in memory can be best.  What does not fit is hollow and on a
    dashed line; a cross on the axis stands where there is no result.

    Parameters
    ----------
    results
        As :func:`simulator.sweep.as_results` gives them.
    title
        What was simulated; who is best where stands below it.
    rows, cols
        Keys with a panel for each value.
    goal
        A height to be marked, in SI.

    Raises
    ------
    InputError
        As :func:`simulator.readings.layout.layout`, or there is nothing to draw.
    """
    results = list(results)
    asked = layout("curves", results, x=x, y=y, color=color, rows=rows, cols=cols)
    found = marks(results, asked)
    drawing = _drawing(asked, found, goal)
    figure, panels = multiples(asked, found, title, _finding(drawing, found))
    for item in panels:
        _draw(item, drawing)
        _frame(item, drawing)
        if goal is not None:
            item.axes.axhline(goal / drawing.size, color="black", linewidth=1.0, linestyle="--", gid="goal")
    finish(figure, found, _legends(drawing, found, [item.axes for item in panels]))
    return figure


def _drawing(asked: Layout, found: Sequence[Mark], goal: float | None) -> _Drawing:
    values = [mark.values["y"] for mark in found if mark.values] + ([] if goal is None else [goal])
    size, unit = display_unit(asked.metrics["y"].unit, values)
    low, high = min(values) / size, max(values) / size
    wide = unit != "%" and low > 0 and high > WIDE * low
    if wide:
        limits = low / 1.3, high * 1.5
    else:
        start = min(0.0, low) if high - low >= FLAT * high else low - 0.1 * (high - low)
        limits = start, high + 0.14 * ((high - start) or 1.0)
    x = Scale(logarithmic=asked.keys["x"].logarithmic)
    return _Drawing(layout=asked, size=size, unit=unit, x=x, y=Scale(logarithmic=wide), limits=limits)


def _fitting(item: Sequence[Mark], drawing: _Drawing) -> dict[str, list[float]]:
    """Heights of every line of a panel where it fits in memory."""
    texts = drawing.layout.keys["color"].texts
    return {text: drawing.heights(drawing.line(item, text), fitting=True) for text in texts}


def _changes(lines: Mapping[str, Sequence[float]], drawing: _Drawing) -> list[Change]:
    upward = drawing.layout.metrics["y"].more_is_better
    return changes(drawing.places, lines, drawing.x, drawing.y, upward=upward)


def _draw(item: Panel, drawing: _Drawing) -> None:
    """Lines, marks and crossings of one panel."""
    level = 0.03
    for number, text in enumerate(drawing.layout.keys["color"].texts):
        shade, marker = look(number)
        line = drawing.line(item.marks, text)
        every, fits = drawing.heights(line), drawing.heights(line, fitting=True)
        item.axes.plot(drawing.places, every, color=shade, linewidth=1.0, linestyle=(0, (2, 2)), marker=marker,
                       markerfacecolor="white", markersize=5)  # fmt: skip
        item.axes.plot(drawing.places, fits, color=shade, linewidth=1.6, marker=marker, markersize=5, label=text)
        missing = [place for place, mark in zip(drawing.places, line, strict=True) if mark and mark.failure]
        item.axes.plot(missing, [level] * len(missing), color=shade, marker="x", linestyle="none",
                       transform=item.axes.get_xaxis_transform())  # fmt: skip
        level += 0.04 * bool(missing)
    lines = _fitting(item.marks, drawing)
    turns = _changes(lines, drawing)
    _mark_changes(item.axes, turns, drawing)
    known = {(turn.at, frozenset((turn.before, turn.after))) for turn in turns}
    meetings = crossings(drawing.places, lines, drawing.x, drawing.y)
    others = [one for one in meetings if (one.at, frozenset(one.lines)) not in known]
    _mark_crossings(item.axes, [one for one in others if _seen(one, lines, drawing)])


def _seen(meeting: Crossing, lines: Mapping[str, Sequence[float]], drawing: _Drawing) -> bool:
    """Whether the lines part at both sides of a crossing so far that a reader sees it."""
    one, other = (lines[name] for name in meeting.lines)
    apart = {
        place: abs(drawing.y.height(a) - drawing.y.height(b))
        for place, a, b in zip(drawing.places, one, other, strict=True)
        if not isnan(a - b)
    }
    before = max((gap for place, gap in apart.items() if place < meeting.at), default=0.0)
    after = max((gap for place, gap in apart.items() if place > meeting.at), default=0.0)
    return min(before, after) >= SEEN * drawing.tall


def _mark_changes(axes: Axes, turns: Sequence[Change], drawing: _Drawing) -> None:
    names = {text: drawing.layout.told(drawing.layout.keys["color"].key, text) for text in _texts(drawing)}
    ends = drawing.x.height(drawing.places[0]), drawing.x.height(drawing.places[-1])
    for number, turn in enumerate(turns):
        side = "right" if drawing.x.height(turn.at) > sum(ends) / 2 else "left"
        axes.axvline(turn.at, color=GREY, linewidth=0.9, linestyle=":", zorder=0)
        axes.text(turn.at, 0.99 - 0.055 * (number % 6), f" {names[turn.after]} from {number_text(turn.at)} ", va="top",
                  ha=side, fontsize=SMALL, transform=axes.get_xaxis_transform(), gid="change")  # fmt: skip


def _mark_crossings(axes: Axes, meetings: Sequence[Crossing]) -> None:
    for meeting in meetings:
        axes.plot([meeting.at], [meeting.height], marker="o", markersize=9, markerfacecolor="none", color="black",
                  markeredgewidth=0.8, linestyle="none", gid="crossing")  # fmt: skip
        axes.annotate(number_text(meeting.at), (meeting.at, meeting.height), (0, -7), textcoords="offset points",
                      ha="center", va="top", fontsize=SMALL, gid="crossing")  # fmt: skip


def _texts(drawing: _Drawing) -> tuple[str, ...]:
    return drawing.layout.keys["color"].texts


def _frame(item: Panel, drawing: _Drawing) -> None:
    """Axes, ticks and labels, the same in every panel."""
    number_axis(item.axes, "y", logarithmic=drawing.y.logarithmic)
    item.axes.set_ylim(*drawing.limits)
    value_ticks(item.axes, drawing.places, drawing.layout.keys["x"].shown(), logarithmic=drawing.x.logarithmic)
    item.axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    labelled(item, drawing.layout.label("x"), f"{drawing.layout.metrics['y'].label} [{drawing.unit}]")


def _finding(drawing: _Drawing, found: Sequence[Mark]) -> str:
    """Who is best where."""
    told = {text: drawing.layout.told(drawing.layout.keys["color"].key, text) for text in _texts(drawing)}
    if not drawing.layout.facets():
        turns = _changes(_fitting(found, drawing), drawing)
        if turns:
            after = [f"{told[turn.after]} from {_place(turn.at, drawing)}" for turn in turns[:3]]
            return f"Best: {told[turns[0].before]}, then {', '.join(after)}{' ...' if turns[3:] else ''}"
    wins = _wins(drawing, found)
    if not wins:
        return "Nothing fits in memory"
    best, count = wins.most_common(1)[0]
    return f"Best: {told[best]}, at {'all' if count == wins.total() else f'{count} of'} {wins.total()} points"


def _wins(drawing: _Drawing, found: Sequence[Mark]) -> Counter[str]:
    """How often each line is the best one of those at the same place that fit."""
    sign = 1 if drawing.layout.metrics["y"].more_is_better else -1
    best: dict[tuple[str, ...], Mark] = {}
    for mark in found:
        place = tuple(text for where, text in mark.at.items() if where != "color")
        if mark.fits and (place not in best or sign * mark.values["y"] > sign * best[place].values["y"]):
            best[place] = mark
    return Counter(mark.at["color"] for mark in best.values())


def _place(number: float, drawing: _Drawing) -> str:
    return f"{number_text(number)} {drawing.layout.keys['x'].unit}".strip()


def _legends(drawing: _Drawing, found: Sequence[Mark], panels: Sequence[Axes]) -> dict[str, list[Artist]]:
    key = drawing.layout.keys["color"]
    lines: list[Artist] = [handle(key.told(text), *look(number)) for number, text in enumerate(key.texts)]
    drawn = {artist.get_gid() for axes in panels for artist in axes.get_children()}
    others: list[Artist] = []
    if "goal" in drawn:
        others.append(handle("goal", "black", "", linestyle="--"))
    if "change" in drawn:
        others.append(handle("another is best from here", GREY, "", linestyle=":"))
    if "crossing" in drawn:
        others.append(handle("lines cross", "black", "o", markersize=8, markerfacecolor="none", linestyle="none"))
    if any(mark.values and not mark.fits for mark in found):
        others.append(handle("does not fit in memory", GREY, "o", markerfacecolor="white", linestyle=(0, (2, 2))))
    if any(mark.failure for mark in found):
        others.append(handle("no result", GREY, "x", linestyle="none"))
    return {drawing.layout.names[key.key]: lines, "marks": others}
