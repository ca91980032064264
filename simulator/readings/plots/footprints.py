"""Memory of each variant at its peak, by item, against what the device has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.readings.colours import colour, known_order
from simulator.readings.plots.canvas import MEDIUM, SMALL, bare, headline, panel, patches

__all__ = ["footprints_figure"]

WIDTH = 12.0
"""[inch]"""

HEAD, ROW, FOOT, LINE = 0.8, 0.4, 0.6, 0.22
"""Heights of the head, of a bar, of the foot and of a line of the legend [inch]."""

COLUMNS = 5
"""Of the legend."""

BESIDE = "context, communicators, holes"
"""What a process holds beside its arrays."""

RED = "#B00020"

GIGA = 1e9  # definition: bytes in a GB


def footprints_figure(results: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """One stacked bar for each variant, and a mark where its device is full.

    Parameters
    ----------
    results
        As ``zerosim run --json`` gives them, of variants that ran.
    """
    memories = {str(result["name"]): result["memory"] for result in results}
    items = sorted({item for memory in memories.values() for item in _items(memory)}, key=known_order)
    legend = LINE * (1 + -(-(len(items) + 1) // COLUMNS))
    rows = ROW * len(memories) + 0.1
    left = min(3.5, 0.4 + 0.09 * max(map(len, memories)))
    figure = Figure(figsize=(WIDTH, HEAD + legend + rows + FOOT))
    headline(figure, title, _finding(memories))
    axes = panel(figure, left, FOOT, WIDTH - left - 0.3, rows)
    for row, memory in enumerate(memories.values()):
        _bar(axes, memory, -row)
    axes.set_yticks([-row for row in range(len(memories))], list(memories))
    axes.set_ylim(-len(memories) + 0.4, 0.6)
    axes.set_xlim(0, 1.25 * max(max(memory["needed"], memory["capacity"]) for memory in memories.values()) / GIGA)
    axes.set_xlabel("memory at the peak [GB]", fontsize=MEDIUM)
    bare(axes)
    full = Line2D([], [], color=RED, linewidth=2, label="capacity")
    axes.legend(handles=[*patches(items), full], loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=COLUMNS,
                frameon=False, fontsize=SMALL, handlelength=1.3, columnspacing=1.2, borderpad=0.2)  # fmt: skip
    return figure


def _items(memory: Mapping[str, Any]) -> dict[str, float]:
    """What is needed, by item [B]."""
    items = {item: float(size) for item, size in memory["items"].items() if size}
    return items | {BESIDE: float(memory["needed"]) - sum(items.values())}


def _bar(axes: Axes, memory: Mapping[str, Any], row: float) -> None:
    reached, items = 0.0, _items(memory)
    for item in sorted(items, key=known_order):
        axes.barh(row, items[item] / GIGA, 0.62, left=reached, color=colour(item), linewidth=0, label=item)
        reached += items[item] / GIGA
    capacity = memory["capacity"] / GIGA
    axes.vlines(capacity, row - 0.42, row + 0.42, color=RED, linewidth=2)
    text = f" {reached:.1f} of {capacity:.0f} GB" + ("" if memory["fits"] else ", does not fit")
    axes.text(max(reached, capacity), row, text, va="center", fontsize=SMALL)


def _finding(memories: Mapping[str, Mapping[str, Any]]) -> str:
    """How many fit, and which needs most of what it has."""
    fitting = [name for name, memory in memories.items() if memory["fits"]]
    most = max(memories, key=lambda name: memories[name]["needed"] / memories[name]["capacity"])
    memory = memories[most]
    item, size = next(iter(memory["items"].items()), ("nothing", 0.0))
    told = f"{memory['needed'] / GIGA:.1f} of {memory['capacity'] / GIGA:.0f} GB, {size / GIGA:.1f} of them {item}"
    return f"{len(fitting)} of {len(memories)} fit into the device; {most} needs most: {told}"
