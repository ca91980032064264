"""Bus bandwidth of a collective over the size of its array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.readings.colours import LINK_COLOURS
from simulator.readings.plots.canvas import MEDIUM, SMALL, headline, panel
from simulator.units import binary, readable

__all__ = ["collective_figure"]

WIDTH, HEIGHT, LEGEND = 12.0, 5.6, 3.1
"""[inch]"""

MARKERS: Final = "osD^v<>P"
STYLES: Final = ("-", "--", ":")

GB = 1e9


def collective_figure(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Bus bandwidth over size, one line for each topology.

    Parameters
    ----------
    rows
        As ``zerosim collective --json`` gives them.
    title
        What was timed; which topology is fastest at the largest size stands below it.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT))
    headline(figure, title, _finding(rows))
    axes = panel(figure, 0.85, 0.85, WIDTH - 0.85 - LEGEND - 0.15, HEIGHT - 0.85 - 0.85)
    for number, name in enumerate(_names(rows)):
        mine = [row for row in rows if row["topology"] == name]
        axes.plot(
            [row["payload"] for row in mine],
            [row["busbw"] / GB for row in mine],
            color=LINK_COLOURS[number % len(LINK_COLOURS)],
            linestyle=STYLES[number // len(LINK_COLOURS) % len(STYLES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4.5,
            label=f"{name}\n{_ranks(mine[0])}",
        )
    _size_axis(axes, sorted({float(row["payload"]) for row in rows}))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("bus bandwidth [GB/s]", fontsize=MEDIUM)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, frameon=False, fontsize=SMALL)
    return figure


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(row["topology"]) for row in rows))


def _ranks(row: Mapping[str, Any]) -> str:
    hosts = f"{row['hosts']:,} host" + ("s" if row["hosts"] > 1 else "")
    return f"{row['ranks']:,} GPUs on {hosts}"


def _finding(rows: Sequence[Mapping[str, Any]]) -> str:
    largest = max(row["payload"] for row in rows)
    last = sorted((row for row in rows if row["payload"] == largest), key=lambda row: float(row["busbw"]))
    best = f"{readable(last[-1]['busbw'], 'B/s')} at {binary(largest)} on {last[-1]['topology']}"
    if len(last) == 1:
        return best
    return f"{best}, {last[-1]['busbw'] / last[0]['busbw']:.1f} times that of {last[0]['topology']}"


def _size_axis(axes: Axes, payloads: Sequence[float]) -> None:
    """Label at most a dozen of the sizes, in binary units."""
    axes.set_xscale("log", base=2)
    shown = payloads[:: -max(1, -(-len(payloads) // 12))]
    axes.set_xticks(shown, [binary(size) for size in shown])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("size of the whole array", fontsize=MEDIUM)
    axes.tick_params(labelsize=MEDIUM, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
