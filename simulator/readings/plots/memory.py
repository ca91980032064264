"""Memory over a step, by item: what is full when, and how much is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simulator.clock.timeline import ClassTimeline
from simulator.readings.colours import colour, known_order
from simulator.readings.footprint import fullest
from simulator.readings.plots.canvas import (
    GREY,
    MEDIUM,
    SMALL,
    bare,
    grouped_legend,
    headline,
    panel,
    patches,
    stacked,
    time_unit,
)
from simulator.readings.plots.lanes import lanes, shares
from simulator.units import readable

__all__ = ["memory_figure"]

WIDTH = 12.0
LEFT, RIGHT = 0.85, 2.75
"""Margins, the right one with the legend [inch]."""

INTERVALS = 320
"""Of the lane of the compute stream."""

ROOM = 2.0
"""Times the peak that the picture is high at most."""

VISIBLE = 0.01
"""Part of the step that a kind of kernel must fill to be named."""

RED = "#B00020"

GIGA = 1e9  # definition: bytes in a GB


def memory_figure(
    played: ClassTimeline, memory: Mapping[str, Any], curve: Mapping[str, Any], title: str, finding: str
) -> Figure:
    """What one rank holds over a step, what of it makes up the peak, and the capacity.

    Parameters
    ----------
    memory
        As ``zerosim run --json`` has it.
    curve
        As ``zerosim memory --json`` has it under ``timeline``.
    title, finding
        Headline and the line below it.
    """
    figure = Figure(figsize=(WIDTH, 6.2))
    headline(figure, title, finding)
    width = WIDTH - LEFT - RIGHT
    held, compute = panel(figure, LEFT, 1.15, width, 4.15), panel(figure, LEFT, 0.75, width, 0.25)
    end = float(curve["time"][-1]) or 1.0
    _areas(held, curve)
    _peak(held, memory, end)
    _capacity(held, memory, end)
    ran = _compute(compute, played, end)
    bare(held)
    held.set_xlim(0, end)
    held.tick_params(labelbottom=False)
    held.set_ylabel("allocated [GB]")
    legend: dict[str, Sequence[Artist]] = {
        "at the peak": _items(curve, memory),
        "kernels": patches(sorted(ran, key=known_order)),
    }
    grouped_legend(figure, legend, left=1 - (RIGHT - 0.25) / WIDTH, top=held.get_position().y1)
    return figure


def _areas(axes: Axes, curve: Mapping[str, Any]) -> None:
    """Items on top of each other; what stays is at the bottom.  Between two moments nothing changes."""
    times = np.asarray(curve["time"], dtype=float)
    floor = np.zeros(len(times))
    for item in _order(curve["items"]):
        top = floor + np.asarray(curve["items"][item]) / GIGA
        axes.fill_between(times, floor, top, step="post", color=colour(item), linewidth=0, label=item)
        floor = top
    axes.step(times, floor, where="post", color="black", linewidth=0.8)


def _order(items: Mapping[str, Sequence[float]]) -> list[str]:
    """What stays through the whole step first, then what changes, each in the order of the colours."""
    present = [item for item, sizes in items.items() if max(sizes) > 0]
    return sorted(present, key=lambda item: (min(items[item]) < max(items[item]), known_order(item)))


def _peak(axes: Axes, memory: Mapping[str, Any], end: float) -> None:
    """Mark and name the fullest moment."""
    at, size = memory["peak_at"], memory["peak"] / GIGA
    late = at > end / 2
    axes.plot([at], [size], marker="o", color="black", markersize=6, zorder=5, clip_on=False)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2}
    axes.annotate(
        f"peak {size:.1f} GB after {readable(at, 's', 3)}:\n{fullest(memory)}",
        (at, size), xytext=(-10 if late else 10, 8), textcoords="offset points", ha="right" if late else "left",
        va="bottom", fontsize=MEDIUM, zorder=6, bbox=box,
    )  # fmt: skip


def _capacity(axes: Axes, memory: Mapping[str, Any], end: float) -> None:
    """Draw the capacity, or name it at the upper edge where it would press the memory flat."""
    capacity, top = memory["capacity"] / GIGA, ROOM * memory["peak"] / GIGA
    left = memory["peak_at"] > end / 2
    shown = capacity < top
    text = f"capacity {capacity:.0f} GB" + ("" if shown else ", above this picture")
    if shown:
        axes.axhline(capacity, color=RED, linewidth=1.5, linestyle="--")
    axes.text(
        0.01 if left else 0.99, capacity if shown else top, text, transform=axes.get_yaxis_transform(),
        ha="left" if left else "right", va="bottom" if shown else "top", fontsize=MEDIUM, color=RED,
    )  # fmt: skip
    axes.set_ylim(0, 1.08 * max(capacity, memory["peak"] / GIGA) if shown else top)


def _compute(axes: Axes, played: ClassTimeline, end: float) -> set[str]:
    """Draw what the compute stream did, and return the kinds of kernels that one can see."""
    layers = shares(lanes(played)[0], edges := np.linspace(0.0, end, INTERVALS + 1))
    stacked(axes, layers, edges, 0.0, 1.0)
    bare(axes)
    seconds, unit = time_unit(end)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.5], ["compute"], fontsize=SMALL, color=GREY)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / seconds:g}")
    axes.set_xlabel(f"time [{unit}]")
    return {kind for kind, share in layers.items() if share.mean() >= VISIBLE}


def _items(curve: Mapping[str, Any], memory: Mapping[str, Any]) -> list[Artist]:
    """One entry for each item, from the top of the stack down, with its size at the peak."""
    return [
        Patch(facecolor=colour(item), label=f"{item}  {memory['items'].get(item, 0.0) / GIGA:.1f} GB")
        for item in reversed(_order(curve["items"]))
    ]
