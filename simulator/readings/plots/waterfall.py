"""From compute to the step: what each cause of waiting adds, one panel per variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.readings.colours import colour
from simulator.readings.exposure import CAUSES
from simulator.readings.plots.canvas import MEDIUM, SMALL, bare, headline, panel, percent, time_unit
from simulator.units import readable

__all__ = ["waterfall_figure"]

WIDTH, LEFT, BETWEEN = 12.0, 1.15, 0.35
"""Of the figure, of the names at the left and of the space between two columns [inch]."""

HEAD, ROW, TITLE, FOOT = 0.8, 0.25, 0.45, 0.45
"""Heights of the head, of a bar, of the name of a panel and of the foot [inch]."""

SEEN = 1e-4
"""Part of the longest step that a row must reach in some panel to have a place in all."""

FLAT = 0.1
"""Part of the longest step below which what is added would not be seen on an axis from zero."""

Result = Mapping[str, Any]


def waterfall_figure(results: Sequence[Result], title: str) -> Figure:
    """What stands between the compute of each variant and its step, on one axis of time.

    Each bar begins where the one above it ends.  Where little is added the axis does not begin at zero, and says so.

    Parameters
    ----------
    results
        As ``zerosim run --json`` gives them, of variants that ran.
    """
    rows, limits = _rows(results), _limits(results)
    columns = min(2, len(results))
    lines = -(-len(results) // columns)
    tall = ROW * (len(rows) + 2)
    figure = Figure(figsize=(WIDTH, HEAD + lines * (tall + TITLE) + FOOT))
    headline(figure, title, _finding(results))
    wide = (WIDTH - LEFT - BETWEEN * columns) / columns
    for number, result in enumerate(results):
        line, column = divmod(number, columns)
        bottom = FOOT + (lines - 1 - line) * (tall + TITLE)
        axes = panel(figure, LEFT + column * (wide + BETWEEN), bottom, wide, tall)
        _panel(axes, result, rows, limits)
        axes.tick_params(labelleft=column == 0, labelbottom=number + columns >= len(results))
        if number + columns >= len(results):
            axes.set_xlabel(_label(limits), fontsize=MEDIUM)
    return figure


def _added(result: Result) -> dict[str, float]:
    """What makes the step longer than its compute, in order [s]."""
    causes = {cause: float(result["exposed_by_cause"].get(cause, 0.0)) for cause in CAUSES}
    return causes | {"copies": float(result["copy_time"]), "host bound": float(result["host_time"])}


def _rows(results: Sequence[Result]) -> list[str]:
    least = SEEN * max(float(result["step_time"]) for result in results)
    return [name for name in _added(results[0]) if any(_added(result)[name] > least for result in results)]


def _limits(results: Sequence[Result]) -> tuple[float, float]:
    """Start and end of the axis of all panels [s]."""
    longest = max(float(result["step_time"]) for result in results) or 1.0
    least = min(float(result["compute_time"]) for result in results)
    span = longest - least
    left = least - span / 2 if 0 < span < FLAT * longest else 0.0
    return left, left + 1.45 * (longest - left)


def _label(limits: tuple[float, float]) -> str:
    unit = time_unit(limits[1])[1]
    return f"time [{unit}]" + (f"; the axis begins at {readable(limits[0], 's')}" if limits[0] else "")


def _panel(axes: Axes, result: Result, rows: Sequence[str], limits: tuple[float, float]) -> None:
    seconds = time_unit(limits[1])[0]
    step, compute, added = float(result["step_time"]), float(result["compute_time"]), _added(result)
    bars = [("compute", limits[0], compute)]
    for name in rows:
        bars.append((name, bars[-1][2], bars[-1][2] + added[name]))
    bars.append(("step", limits[0], step))
    for row, (name, start, end) in enumerate(bars):
        shade = "black" if name == "step" else colour(name)
        axes.barh(-row, (end - start) / seconds, 0.66, left=start / seconds, color=shade, linewidth=0, label=name)
        length = added.get(name, end)
        text = f" +{readable(length, 's')} ({percent(length, step)})" if name in added else f" {readable(end, 's', 4)}"
        if length:
            axes.text(end / seconds, -row, text, va="center", fontsize=SMALL)
    axes.set_yticks([-row for row in range(len(bars))], [name for name, _, _ in bars])
    axes.set_ylim(-len(bars) + 0.4, 0.6)
    axes.set_xlim(limits[0] / seconds, limits[1] / seconds)
    axes.set_title(str(result["name"]), loc="left", fontsize=MEDIUM, fontweight="bold")
    bare(axes)
    axes.grid(visible=True, axis="x", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def _finding(results: Sequence[Result]) -> str:
    """Which variant waits least, which most, and for what."""
    shares = {number: _share(result) for number, result in enumerate(results)}
    least, most = (results[choice(shares, key=shares.__getitem__)] for choice in (min, max))
    if not _share(most):
        return "Nothing is added to compute"
    told = f"{most['name']}, {_told(most)}"
    if least is most:
        return f"Waiting adds {_told(most)}"
    return f"Waiting adds most with {told}, and least with {least['name']}, {percent(_share(least), 1)}"


def _share(result: Result) -> float:
    step = float(result["step_time"])
    return sum(_added(result).values()) / step if step else 0.0


def _told(result: Result) -> str:
    main = max(_added(result).items(), key=lambda item: item[1])[0]
    return f"{percent(_share(result), 1)} of the step, mainly {main}"
