"""One rank's step: all of it above, the stretch that matters below.

A step of forty layers and eight micro-batches has thousands of spans, most of them thinner than a pixel.  The view of
the whole step therefore shows *how much* of each short interval a stream was busy, and with what - a stream that is
half idle is half a lane high - while the window shows every span as a bar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from simulator.clock.timeline import ClassTimeline
from simulator.readings.colours import CAUSE_COLOURS, ROLE_COLOURS, colour, known_order
from simulator.readings.critical import CriticalPath
from simulator.readings.exposure import Exposure
from simulator.readings.plots.canvas import (
    GREY,
    MEDIUM,
    SMALL,
    bare,
    grouped_legend,
    headline,
    ink,
    patches,
    stacked,
    time_unit,
)
from simulator.readings.plots.lanes import (
    Array,
    Bar,
    Lane,
    exposed_lane,
    lanes,
    liveliest,
    memory_held,
    path_lane,
    shares,
)
from simulator.units import readable

__all__ = ["timeline_figure"]

WIDTH = 12.0
"""[inch]"""

LEFT, RIGHT = 0.105, 0.82
"""Edges of the panels; right of them stands the legend."""

INTERVALS = 320
"""Of the view of the whole step."""

BAR = 0.82
"""Height of a lane's bars; lanes are 1 apart."""

CHARACTER = 0.6 * SMALL / 72
"""Width of a character [inch]."""


def timeline_figure(
    timeline: ClassTimeline,
    reading: Exposure,
    title: str,
    window: tuple[float, float] | None = None,
    path: CriticalPath | None = None,
) -> Figure:
    """What one rank did in a step, where its communication is exposed and why.

    Parameters
    ----------
    title
        The headline, best a finding such as "zero3: 4.8 s of the 65.1 s step is exposed communication (7.3 %)".
    window
        Start and end of the enlarged part [s]; by default the one with the most exposed time.
    path
        Of the step; without it there is no lane for it.
    """
    end = max((span.end for span in timeline.spans), default=0.0) or 1.0
    rows, exposed = lanes(timeline), exposed_lane(reading)
    start, stop = window or liveliest(exposed, len(rows[0].bars), end)
    rows += [path_lane(path)] if path else []
    figure = Figure(figsize=(WIDTH, sum(_heights(len(rows)))))
    headline(figure, title)
    streams, causes, memory, enlarged = _panels(figure, _heights(len(rows)))
    edges = np.linspace(0.0, end, INTERVALS + 1)
    around = 1 if len(timeline.spans) > INTERVALS else 0
    _whole_streams(streams, rows, edges, around)
    _whole_causes(causes, exposed, edges, around)
    _whole_memory(memory, timeline, edges, around)
    _share_time([streams, causes, memory], end, (start, stop))
    _window(enlarged, [*rows, exposed], (start, stop), end)
    grouped_legend(figure, _legend(rows, exposed, timeline), left=RIGHT + 0.018, top=streams.get_position().y1)
    return figure


def _heights(streams: int) -> tuple[float, ...]:
    """Heights of space and panel in turn, from the top of the page to its bottom [inch]."""
    lane = 0.46
    return (0.8, lane * streams, 0.1, 0.85, 0.16, 1.1, 0.92, lane * (streams + 1), 0.55)


def _panels(figure: Figure, heights: Sequence[float]) -> list[Axes]:
    """Divide the page: streams, causes and memory of the whole step close together, the window further down."""
    tops = [1 - top / sum(heights) for top in accumulate(heights)]
    spans = zip(tops[1::2], tops[0::2], strict=False)
    return [figure.add_axes((LEFT, bottom, RIGHT - LEFT, top - bottom)) for bottom, top in spans]


def _whole_streams(axes: Axes, rows: Sequence[Lane], edges: Array, around: int) -> None:
    for row, lane in enumerate(rows):
        base = -row - BAR / 2
        axes.add_patch(Rectangle((edges[0], base), edges[-1] - edges[0], BAR, facecolor="#F6F6F4", linewidth=0))
        stacked(axes, shares(lane, edges, around), edges, base, BAR)
    _name_lanes(axes, rows)
    axes.set_title("Whole step: how much of the time each stream is busy", loc="left", fontsize=MEDIUM, color=GREY)


def _whole_causes(axes: Axes, exposed: Lane, edges: Array, around: int) -> None:
    layers = {cause: 100 * share for cause, share in shares(exposed, edges, around).items()}
    stacked(axes, layers, edges, 0.0, 1.0)
    highest = float(np.sum(list(layers.values()), axis=0).max()) if layers else 0.0
    axes.set_ylim(0, 1.12 * highest or 1.0)
    axes.set_ylabel("exposed\n[% of time]")


def _whole_memory(axes: Axes, timeline: ClassTimeline, edges: Array, around: int) -> None:
    """Averages as areas, peaks as a line: what comes and goes within an interval must not be hidden."""
    means, peaks = memory_held(timeline, edges, around)
    giga = 1e9  # definition: bytes in a GB
    stacked(axes, {item: mean / giga for item, mean in means.items()}, edges, 0.0, 1.0)
    axes.plot(np.repeat(edges, 2)[1:-1], np.repeat(peaks, 2) / giga, color="black", linewidth=0.8, label="peak")
    axes.set_ylim(0, 1.12 * float(peaks.max()) / giga or 1.0)
    axes.set_ylabel("memory of\nthe step [GB]")


def _share_time(panels: Sequence[Axes], end: float, window: tuple[float, float]) -> None:
    """Give the panels of the whole step one axis of time, below the last, and mark the window in each."""
    seconds, unit = time_unit(end)
    for axes in panels:
        bare(axes)
        axes.set_xlim(0, end)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / seconds:g}")
        axes.yaxis.set_label_coords(-0.055, 0.5)
        if window[1] - window[0] < end:
            axes.vlines(window, 0, 1, transform=axes.get_xaxis_transform(), color="black", linewidth=1, linestyle="--")
        axes.tick_params(labelbottom=axes is panels[-1])
        for tick in axes.get_yticklabels():
            tick.set_fontsize(MEDIUM if axes is panels[0] else SMALL)
    panels[0].spines["bottom"].set_visible(False)
    panels[0].tick_params(axis="x", length=0)
    panels[-1].set_xlabel(f"time [{unit}]")


def _window(axes: Axes, rows: Sequence[Lane], window: tuple[float, float], whole: float) -> None:
    """Draw every span inside *window* as a bar, with its name where it fits."""
    start, end = window
    inches = WIDTH * (RIGHT - LEFT) / (end - start)
    for row, lane in enumerate(rows):
        bars = lane.within(start, end)
        for what in sorted({bar.what for bar in bars}, key=known_order):
            axes.broken_barh(
                [(bar.start, bar.end - bar.start) for bar in bars if bar.what == what], (-row - BAR / 2, BAR),
                facecolor=colour(what), edgecolor="white", linewidth=0.5 if len(bars) < 200 else 0.0, label=what,
            )  # fmt: skip
        for bar in bars:
            _write(axes, bar, row, inches * (bar.end - bar.start), exposed=lane.name == "exposed")
    bare(axes)
    seconds, unit = time_unit(end)
    axes.set_xlim(start, end)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / seconds:.10g}")
    axes.set_xlabel(f"time [{unit}]")
    _name_lanes(axes, rows)
    what = "Whole step" if end - start >= whole else "Enlarged between the dashed lines"
    axes.set_title(
        f"{what}, span by span; numbers are layers, and durations in the last lane",
        loc="left",
        fontsize=MEDIUM,
        color=GREY,
    )


def _write(axes: Axes, bar: Bar, row: int, width: float, *, exposed: bool) -> None:
    """Write into a bar of *width* [inch] what it works for, or how long it waits; shorter, or not, if need be."""
    texts = [readable(bar.end - bar.start, "s", 2)] if exposed else [bar.label, _short(bar.label)]
    fitting = [text for text in texts if text and (len(text) + 1) * CHARACTER < width]
    if fitting:
        middle = (bar.start + bar.end) / 2
        axes.text(middle, -row, fitting[0], ha="center", va="center", fontsize=SMALL, color=ink(colour(bar.what)))


def _short(label: str) -> str:
    """Numbers of the layers in a label.

    >>> _short("layers.39 to layers.38"), _short("layers.7"), _short("embed_tokens")
    ('39-38', '7', '')
    """
    return "-".join(re.findall(r"\.(\d+)\b", label))


def _name_lanes(axes: Axes, rows: Sequence[Lane]) -> None:
    axes.set_yticks([-row for row in range(len(rows))], [lane.name.replace("_", " ") for lane in rows])
    axes.set_ylim(-len(rows) + 0.45, 0.55)


def _legend(rows: Sequence[Lane], exposed: Lane, timeline: ClassTimeline) -> dict[str, Sequence[Artist]]:
    """Entries for what occurs, by group."""
    ran = {bar.what for lane in rows for bar in lane.bars}
    roles = ran & ROLE_COLOURS.keys() | {bar.what for lane in rows[1:] for bar in lane.bars if "_" in bar.what}
    causes = {bar.what for bar in exposed.bars} | ran & CAUSE_COLOURS.keys()  # the path knows host and skew, too
    items = {change.item for change in timeline.memory if change.amount}
    named = {"host bound": "host bound: no comm."}
    return {
        "kernels": patches(sorted(ran - roles - causes, key=known_order)),
        "communication": patches(sorted(roles, key=known_order)),
        "exposed because of": patches([cause for cause in CAUSE_COLOURS if cause in causes], named),
        "memory": [
            *patches(sorted(items, key=known_order)), Line2D([], [], color="black", linewidth=0.8, label="peak"),
        ] if items else [],
    }  # fmt: skip
