"""How the step differs from one time to the next, and what makes the slowest steps slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simulator.readings.colours import colour, known_order
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, bare, headline, panel, patches, percent, time_unit
from simulator.units import readable

__all__ = ["jitter_figure"]

Result = Mapping[str, Any]

WIDTH, ROW, FOOT, LEGEND = 12.0, 0.5, 0.65, 0.6
"""[inch]"""

BANDS: Final = (
    ("p0", "p100", "#E3E7EC", "all steps"),
    ("p5", "p95", "#B7C4D3", "90 %"),
    ("p25", "p75", "#7F97B2", "50 %"),
)
"""From and up to which quantile, in which colour, and what it is called."""


def jitter_figure(results: Sequence[Result], title: str) -> Figure:
    """How much longer steps take with random times at the left, and what the slowest of them lose at the right.

    Parameters
    ----------
    results
        As ``zerosim run --json`` gives them; those without ``jitter`` are left out.
    title
        What was simulated; it stands below the finding.
    """
    shown = [result for result in results if not result["failure"] and result["jitter"]]
    left = min(3.5, 0.4 + 0.09 * max((len(result["name"]) for result in shown), default=0))
    width, rows = (WIDTH - left - 0.3) / 2, ROW * max(1, len(shown)) + 0.2
    figure = Figure(figsize=(WIDTH, 0.75 + LEGEND + rows + FOOT))
    headline(figure, _finding(shown), title)
    for number, draw in enumerate((_steps, _tails)):
        axes = panel(figure, left + number * (width + 0.2), FOOT, width - 0.1, rows)
        draw(axes, shown)
        axes.set_yticks([-row for row in range(len(shown))], [result["name"] for result in shown])
        axes.set_ylim(-len(shown) + 0.4, 0.6)
        bare(axes)
        axes.grid(visible=True, axis="x", color="#E4E4E4", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelleft=number == 0)
    return figure


def _finding(results: Sequence[Result]) -> str:
    """Say which variants lose least and most."""
    if not results:
        return "No step has random times"
    more = {result["name"]: _longer(result, "mean") for result in results}
    least, most = min(more, key=lambda name: more[name]), max(more, key=lambda name: more[name])
    if least == most:
        return f"On average steps take {more[least]:+.1f} % longer than without jitter"
    return (
        f"On average steps take longer than without jitter: {more[least]:+.1f} % with {least}, "
        f"{more[most]:+.1f} % with {most}"
    )


def _longer(result: Result, key: str) -> float:
    """How much longer than the step without jitter a mean or quantile is [%]."""
    step = result["jitter"]["step_time"]
    return float(100 * (step[key] / step["even"] - 1)) if step["even"] else 0.0  # definition: per cent


def _steps(axes: Axes, results: Sequence[Result]) -> None:
    """Draw nested bands of quantiles for each of *results*, first at the top."""
    for row, result in enumerate(results):
        for first, last, shade, _ in BANDS:
            start, end = _longer(result, first), _longer(result, last)
            axes.barh(-row, end - start, 0.44, left=start, color=shade, linewidth=0)
        axes.plot([_longer(result, "p50")] * 2, [-row - 0.22, -row + 0.22], color="black", linewidth=1.5)
        text = f" {readable(result['jitter']['step_time']['mean'], 's', 4)} {_longer(result, 'mean'):+.1f} %"
        axes.text(max(0.0, _longer(result, "p100")), -row, text, va="center", fontsize=SMALL)
    axes.axvline(0, color=GREY, linewidth=1, linestyle="--")
    start, end = axes.get_xlim()
    axes.set_xlim(start, end + 0.4 * (end - start))
    axes.set_xlabel("longer than the step without jitter [%]", fontsize=MEDIUM)
    marks = [Line2D([], [], color="black", linewidth=1.5), Line2D([], [], color=GREY, linewidth=1, linestyle="--")]
    names = ["median", "no jitter", *(name for *_, name in BANDS)]
    shades = [Patch(facecolor=shade) for *_, shade, _ in BANDS]
    _legend(axes, [*marks, *shades], names, "steps, and their mean")


def _tails(axes: Axes, results: Sequence[Result]) -> None:
    """Draw what the slowest steps of each of *results* take longer than the mean; less is at the left."""
    tails = [result["jitter"]["tail"] for result in results]
    seconds, unit = time_unit(max((tail["longer"] for tail in tails), default=0.0))
    for row, (result, tail) in enumerate(zip(results, tails, strict=True)):
        reached = {True: 0.0, False: 0.0}
        for name, time in sorted(tail["by_cause"].items(), key=lambda part: known_order(part[0])):
            axes.barh(-row, time / seconds, 0.44, left=reached[time > 0], color=colour(name), linewidth=0)
            reached[time > 0] += time / seconds
        text = f" {readable(tail['longer'], 's')} ({percent(tail['longer'], result['jitter']['step_time']['mean'])})"
        axes.text(reached[True], -row, text, va="center", fontsize=SMALL)
    start, end = axes.get_xlim()
    axes.set_xlim(start, end + 0.4 * (end - start))
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_xlabel(f"longer than the mean step [{unit}]", fontsize=MEDIUM)
    names = _visible(tails)
    _legend(axes, patches(names), names, "the slowest 5 %, because of")


def _visible(tails: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the causes that are wide enough to be seen in some bar."""
    widest: dict[str, float] = {}
    for tail in tails:
        for name, time in tail["by_cause"].items():
            widest[name] = max(widest.get(name, 0.0), abs(time))
    longest = max(widest.values(), default=0.0)
    return sorted((name for name, time in widest.items() if time > 0.01 * longest), key=known_order)


def _legend(axes: Axes, handles: Sequence[Any], names: Sequence[str], title: str) -> None:
    axes.legend(
        handles, names, title=title, alignment="left", ncols=5, loc="lower left", fontsize=SMALL, frameon=False,
        bbox_to_anchor=(0.0, 1.0), columnspacing=1.2, handlelength=1.3, borderpad=0.2,
        title_fontproperties={"weight": "bold", "size": MEDIUM},
    )  # fmt: skip
