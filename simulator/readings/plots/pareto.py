"""What nothing beats: results in two or three metrics, and the front of those that no other one dominates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from simulator.readings.front import front
from simulator.readings.layout import Layout, layout
from simulator.readings.marks import Mark, marks
from simulator.readings.metrics import display_unit
from simulator.readings.plots.canvas import GREY, SMALL
from simulator.readings.plots.multiples import (
    BAR,
    MARKERS,
    Panel,
    colour_bar,
    finish,
    handle,
    labelled,
    look,
    multiples,
    number_axis,
    shade_of,
)
from simulator.readings.varied import VARIANT, number_text

__all__ = ["pareto_figure"]

LISTED, ROW = 12, 0.185
"""Members of the front that are listed; height of a line [inch]."""

MORE = 0.07
"""Of the axes, left free at each end."""

WIDE = 15.0
"""Ratio of the ends from which on an axis is logarithmic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """What all panels have in common."""

    layout: Layout
    units: Mapping[str, tuple[float, str]]
    """By place of a metric: size in SI, and name."""
    scale: ScalarMappable | None
    """Colours of the third metric."""
    variants: Sequence[str]
    limits: Mapping[str, tuple[float, float]]
    """Of the axes."""
    wide: set[str]
    """Places of logarithmic ones."""

    def value(self, mark: Mark, place: str) -> float:
        """Metric of *mark* in its unit."""
        return mark.values[place] / self.units[place][0]

    def label(self, place: str) -> str:
        """Metric and unit of an axis."""
        return f"{self.layout.metrics[place].label} [{self.units[place][1]}]"

    def look(self, mark: Mark) -> tuple[str, str]:
        """Colour and marker."""
        marker = MARKERS[self.variants.index(mark.variant) % len(MARKERS)]
        if self.scale is not None:
            return shade_of(self.scale, self.value(mark, "color")), marker
        return look(self.layout.keys["color"].texts.index(mark.at["color"]))[0], marker


def pareto_figure(
    results: Iterable[Mapping[str, Any]],
    title: str,
    *,
    x: str | None = None,
    y: str | None = None,
    color: str | None = None,
    rows: str | None = None,
    cols: str | None = None,
) -> Figure:
    """Metrics *x* and *y* of all results, and the front: what no other result beats in all of them.

    With a metric as *color* it counts as the third, and the front is a surface of which the members are ringed; with a
    key, or nothing, the front is a line.  Members are numbered from the best *x* on and listed.  Only what fits in
    memory can be a member; what does not is hollow, and what has no result is counted below.

    Parameters
    ----------
    results
        As :func:`simulator.sweep.as_results` gives them.
    title
        What was simulated; how many are on the front stands below it.

    Raises
    ------
    InputError
        As :func:`simulator.readings.layout.layout`, or there is nothing to draw.
    """
    results = list(results)
    asked = layout("pareto", results, x=x, y=y, color=color, rows=rows, cols=cols)
    found = marks(results, asked)
    drawing = _drawing(asked, found)
    members = [] if asked.facets() else _members(found, asked)
    lines = _listed(members, drawing)
    foot = ROW * len(lines)
    figure, panels = multiples(asked, found, title, _finding(found, asked), foot=foot)
    for item in panels:
        _draw(item, drawing, numbered=len(panels) == 1)
    if drawing.scale is not None:
        colour_bar(figure, drawing.scale, drawing.label("color"))
    finish(figure, found, _legends(drawing, found), below=0.0 if drawing.scale is None else BAR)
    height = float(figure.get_figheight())
    figure.text(0.012, (foot + 0.3) / height, "\n".join(lines), va="top", fontsize=SMALL, linespacing=1.4)
    return figure


def _finding(found: Sequence[Mark], asked: Layout) -> str:
    groups: dict[tuple[str | None, ...], list[Mark]] = {}
    for mark in found:
        groups.setdefault((mark.at.get("rows"), mark.at.get("cols")), []).append(mark)
    members, usable = sum(len(_members(group, asked)) for group in groups.values()), sum(mark.fits for mark in found)
    return f"On the front: {members} of {usable} results that fit in memory" + (
        ", each panel by itself" * (len(groups) > 1)
    )


def _drawing(asked: Layout, found: Sequence[Mark]) -> _Drawing:
    values = {place: [mark.values[place] for mark in found if mark.values] for place in asked.metrics}
    units = {place: display_unit(item.unit, values[place]) for place, item in asked.metrics.items()}
    ends = {place: (min(of) / units[place][0], max(of) / units[place][0]) for place, of in values.items()}
    wide = {place: low > 0 and high > WIDE * low for place, (low, high) in ends.items()}
    norm = LogNorm if wide.get("color") else Normalize
    return _Drawing(
        layout=asked,
        units=units,
        scale=ScalarMappable(norm(*ends["color"]), colormaps["viridis"]) if "color" in ends else None,
        variants=list(dict.fromkeys(mark.variant for mark in found)),
        wide={place for place, is_wide in wide.items() if is_wide},
        limits={place: _limits(low, high, logarithmic=wide[place]) for place, (low, high) in ends.items()},
    )


def _limits(low: float, high: float, *, logarithmic: bool) -> tuple[float, float]:
    if logarithmic:
        return low * (low / high) ** MORE, high * (high / low) ** MORE
    more = MORE * (high - low or 1.0)
    return low - more, high + more


def _members(found: Sequence[Mark], asked: Layout) -> list[Mark]:
    """Return the front, what is best in the first metric first."""
    usable = [mark for mark in found if mark.fits]
    signs = {place: -1 if item.more_is_better else 1 for place, item in asked.metrics.items()}
    best = front([[sign * mark.values[place] for place, sign in signs.items()] for mark in usable])
    return sorted((usable[number] for number in best), key=lambda mark: signs["x"] * mark.values["x"])


def _draw(item: Panel, drawing: _Drawing, *, numbered: bool) -> None:
    alike: dict[tuple[str, bool], list[Mark]] = {}
    for mark in item.marks:
        if mark.values:
            alike.setdefault((drawing.look(mark)[1], mark.fits), []).append(mark)
    for (marker, fits), found in alike.items():  # a call for each of thousands of results would take a minute
        shades = [drawing.look(mark)[0] for mark in found]
        across, up = ([drawing.value(mark, place) for mark in found] for place in ("x", "y"))
        faces = shades if fits else "white"
        item.axes.scatter(across, up, s=25, marker=marker, facecolors=faces, edgecolors=shades, zorder=2)
    members = _members(item.marks, drawing.layout)
    if drawing.scale is None:
        _step(item.axes, members, drawing)
    for number, (mark, *_) in enumerate(_alike(members), start=1):
        place = drawing.value(mark, "x"), drawing.value(mark, "y")
        item.axes.plot(*place, marker="o", markersize=9, markerfacecolor="none", color="black", linestyle="none",
                       gid="front")  # fmt: skip
        if numbered:
            item.axes.annotate(str(number), place, (5, 4), textcoords="offset points", fontsize=SMALL)
    item.axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    number_axis(item.axes, "x", logarithmic="x" in drawing.wide)
    number_axis(item.axes, "y", logarithmic="y" in drawing.wide)
    item.axes.set(xlim=drawing.limits["x"], ylim=drawing.limits["y"])
    labelled(item, drawing.label("x"), drawing.label("y"))


def _step(axes: Axes, members: Sequence[Mark], drawing: _Drawing) -> None:
    """Draw the border of what is beaten: y stays that of the member that is better in x until the next one."""
    across, up = ([drawing.value(mark, place) for mark in members] for place in ("x", "y"))
    axes.step(across, up, where="post", color="black", linewidth=0.9, label="front")


def _legends(drawing: _Drawing, found: Sequence[Mark]) -> dict[str, list[Artist]]:
    groups: dict[str, list[Artist]] = {}
    key = drawing.layout.keys.get("color")
    if key is not None and key.key != VARIANT:
        groups[drawing.layout.names[key.key]] = [
            handle(key.told(text), look(number)[0], "o", linestyle="none") for number, text in enumerate(key.texts)
        ]
    groups[VARIANT] = [
        handle(name, look(number)[0] if key and key.key == VARIANT else GREY, look(number)[1], linestyle="none")
        for number, name in enumerate(drawing.variants)
    ]
    others: list[Artist] = [handle("front", "black", "o", markersize=8, markerfacecolor="none", linestyle="none")]
    if any(mark.values and not mark.fits for mark in found):
        others.append(handle("does not fit in memory", GREY, "o", markerfacecolor="white", linestyle="none"))
    return groups | {"marks": others}


def _alike(members: Sequence[Mark]) -> list[list[Mark]]:
    """Members by what they reach: those with the same metrics, to nine digits, are one."""
    groups: dict[tuple[str, ...], list[Mark]] = {}
    for mark in members:
        groups.setdefault(tuple(f"{value:.9g}" for value in mark.values.values()), []).append(mark)
    return list(groups.values())


def _listed(members: Sequence[Mark], drawing: _Drawing) -> list[str]:
    """Say which results are on the front."""
    groups = _alike(members)
    lines = [
        f"{number}  {_told(first, drawing)}" + (f"  (the same: {len(others)} more)" if others else "")
        for number, (first, *others) in enumerate(groups[:LISTED], start=1)
    ]
    return [*lines, *([f"and {len(groups) - LISTED} more"] if groups[LISTED:] else [])]


def _told(mark: Mark, drawing: _Drawing) -> str:
    """Which result it is, and its metrics."""
    asked = drawing.layout
    keys = (key for key, item in asked.varied.items() if key != VARIANT and len(item.texts) > 1)
    point = (asked.told(key, str(mark.point[key])) for key in keys if key in mark.point)
    values = (f"{number_text(drawing.value(mark, place))} {drawing.units[place][1]}" for place in asked.metrics)
    return f"{', '.join((mark.variant, *point))}:  {',  '.join(values)}"
