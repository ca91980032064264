"""Predictions against measurements: on the diagonal they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from simulator.readings.colours import LINK_COLOURS
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, headline, panel, percent

__all__ = ["parity_figure"]

WIDTH, HEIGHT, LEGEND = 12.0, 6.4, 3.9
"""[inch]"""

MARKERS: Final = "osD^v<>P"

UNITS: Final = {
    "time": ("time of a call [s]", 1.0),
    "busbw": ("bus bandwidth [GB/s]", 1e9),
    "tokens_per_s_per_gpu": ("throughput [tokens/s per GPU]", 1.0),
    "tokens_per_s": ("throughput [tokens/s]", 1.0),
    "mfu": ("MFU", 1.0),
    "mfu_pct": ("MFU [%]", 1.0),
    "step_time_s": ("time of a step [s]", 1.0),
    "hw_tflops_per_gpu": ("executed [TFLOP/s per GPU]", 1.0),
    "micro_step_time_s_derived": ("time of a micro-step [s]", 1.0),
}
"""Metric: what the axes say, and how much one of their units is in SI."""

BAND = 0.1
"""Shaded around the diagonal: errors up to this."""


def parity_figure(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Predicted over measured values, a panel for each metric that is needed, a colour and marker for each source.

    A source that gives several metrics of its runs says the same in all of them, and is drawn in one.

    Parameters
    ----------
    rows
        As ``zerosim validate --json`` gives them.
    title
        What was compared; how good it is stands below it.
    """
    metrics = _needed(rows)
    rows = [row for row in rows if row["metric"] in metrics]
    figure = Figure(figsize=(WIDTH, HEIGHT))
    headline(figure, title, _finding(rows))
    looks = {name: number for number, name in enumerate(dict.fromkeys(str(row["source"]) for row in rows))}
    width = (WIDTH - LEGEND - 0.2) / max(1, len(metrics))
    handles: dict[str, Any] = {}
    for number, metric in enumerate(metrics):
        axes = panel(figure, 0.85 + number * width, 0.8, width - 0.85, HEIGHT - 0.8 - 0.95)
        handles |= _scatter(axes, [row for row in rows if row["metric"] == metric], metric, looks)
    if handles:
        figure.legend(
            handles=[handles[name] for name in looks], loc="upper left", frameon=False, fontsize=SMALL - 1,
            bbox_to_anchor=(1 - LEGEND / WIDTH, 1 - 0.9 / HEIGHT), borderaxespad=0, handletextpad=0.2,
        )  # fmt: skip
    return figure


def _needed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Metrics in which all sources are drawn, those of most sources first."""
    sources: dict[str, set[str]] = {}
    for row in rows:
        sources.setdefault(str(row["metric"]), set()).add(str(row["source"]))
    needed: list[str] = []
    drawn: set[str] = set()
    for metric in sorted(sources, key=lambda name: -len(sources[name])):
        # a call is a row of one metric, a run has a row for each of its metrics
        if metric in ("time", "busbw") or sources[metric] - drawn:
            needed.append(metric)
            drawn |= sources[metric]
    return needed


def _finding(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "No row could be predicted"
    close = sum(abs(row["error"]) <= BAND for row in rows)
    mean = sum(abs(row["error"]) for row in rows) / len(rows)
    good, band, error = percent(close, len(rows)), percent(BAND, 1), percent(mean, 1)
    return f"{len(rows):,} rows, {good} of them within {band}; mean absolute error {error}"


def _scatter(axes: Axes, rows: Sequence[Mapping[str, Any]], metric: str, looks: Mapping[str, int]) -> dict[str, Any]:
    """Draw one panel; returns the marks of each source for the legend."""
    label, unit = UNITS.get(metric, (metric, 1.0))
    marks = {}
    for name in dict.fromkeys(str(row["source"]) for row in rows):
        mine = [row for row in rows if row["source"] == name]
        marks[name] = axes.scatter(
            [row["measured"] / unit for row in mine],
            [row["predicted"] / unit for row in mine],
            s=14,
            alpha=0.75,
            linewidth=0,
            color=LINK_COLOURS[looks[name] % len(LINK_COLOURS)],
            marker=MARKERS[looks[name] // len(LINK_COLOURS) % len(MARKERS)],
            label=_short(name),
        )
    values = [row[key] / unit for row in rows for key in ("measured", "predicted")]
    _diagonal(axes, 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values))))
    axes.set_xlabel(f"measured {label}", fontsize=MEDIUM)
    axes.set_ylabel(f"predicted {label}", fontsize=MEDIUM)
    return marks


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"{name[:41]}..."


def _diagonal(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    ends = [low, high]
    axes.fill_between(
        ends, [(1 - BAND) * end for end in ends], [(1 + BAND) * end for end in ends], color="#E4E4E4", zorder=0
    )
    axes.plot(ends, ends, color=GREY, linewidth=0.8, zorder=0)
    axes.text(
        0.03, 0.97, f"shaded: within {percent(BAND, 1)}", transform=axes.transAxes, va="top", fontsize=SMALL, color=GREY
    )
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())  # within one decade they would overlap
    axes.tick_params(labelsize=MEDIUM, length=3)
    axes.spines[["top", "right"]].set_visible(False)
