"""How much communication each variant exposes: in what, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.readings.colours import colour, known_order
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, bare, headline, panel, patches, percent, time_unit
from simulator.units import readable

__all__ = ["exposed_figure"]

Result = Mapping[str, object]

WIDTH = 12.0
"""[inch]"""

PANELS = (("exposed_by_collective", "waiting for"), ("exposed_by_cause", "because of"))
"""Key of a result, and what its parts say."""


def exposed_figure(results: Sequence[Result], title: str) -> Figure:
    """Exposed communication of each variant, by collective at the left and by cause at the right.

    Parameters
    ----------
    results
        As ``zerosim run --json`` gives them; a variant with a ``failure`` is a row with the reason.
    title
        What was simulated; the finding stands below it.
    """
    left = min(3.5, 0.4 + 0.09 * max((len(_name(result)) for result in results), default=0))
    width = (WIDTH - left - 0.3) / 2
    parts = [_visible(results, key) for key, _ in PANELS]
    legend = 0.4 + 0.2 * max(-(-len(names) // _columns(names, width)) for names in parts)
    rows, foot = 0.46 * len(results) + 0.2, 0.9
    figure = Figure(figsize=(WIDTH, 0.75 + legend + rows + foot))
    headline(figure, title, _finding(results))
    longest = max((sum(_parts(result, key).values()) for result in results for key, _ in PANELS), default=0.0)
    for number, (key, says) in enumerate(PANELS):
        axes = panel(figure, left + number * (width + 0.2), foot, width, rows)
        _bars(axes, results, key, longest)
        _reasons(axes, results if number == 0 else [], width)
        _legend(axes, parts[number], f"exposed time, {says}", _columns(parts[number], width))
        axes.tick_params(labelleft=number == 0)
    if any(_crowded(result) for result in results):
        figure.text(0.012, 0.15 / figure.get_figheight(), "* does not fit in memory", fontsize=SMALL, color=GREY)
    return figure


def _finding(results: Sequence[Result]) -> str:
    """Say which variants expose least and most."""
    running = [result for result in results if _step(result)]
    if not running:
        return "No variant runs"
    usable = [result for result in running if not _crowded(result)] or running
    shares = {str(result["name"]): _exposed(result) / _step(result) for result in usable}
    least, most = min(shares, key=lambda name: shares[name]), max(shares, key=lambda name: shares[name])
    if least == most:
        return f"{percent(shares[least], 1)} of the step is exposed communication"
    return (
        f"Exposed least with {least}, {percent(shares[least], 1)} of the step, "
        f"and most with {most}, {percent(shares[most], 1)}"
    )


def _parts(result: Result, key: str) -> dict[str, float]:
    """Seconds by name; empty for a variant that did not run."""
    parts = result.get(key)
    if not isinstance(parts, Mapping):
        return {}
    return {str(name): float(time) for name, time in parts.items() if time}


def _step(result: Result) -> float:
    step = result.get("step_time")
    return float(step) if isinstance(step, int | float) and not result.get("failure") else 0.0


def _exposed(result: Result) -> float:
    return sum(_parts(result, "exposed_by_cause").values())


def _bars(axes: Axes, results: Sequence[Result], key: str, longest: float) -> None:
    """One stacked bar for each of *results*, first at the top."""
    seconds, unit = time_unit(longest)
    for row, result in enumerate(results):
        reached = 0.0
        for name, time in sorted(_parts(result, key).items(), key=lambda part: known_order(part[0])):
            axes.barh(-row, time / seconds, 0.62, left=reached, color=colour(name), linewidth=0, label=name)
            reached += time / seconds
        if _step(result):
            text = f" {readable(reached * seconds, 's')} ({percent(reached * seconds, _step(result))})"
            axes.text(reached, -row, text, va="center", fontsize=SMALL)
    axes.set_yticks([-row for row in range(len(results))], [_name(result) for result in results])
    axes.set_ylim(-len(results) + 0.4, 0.6)
    axes.set_xlim(0, 1.32 * longest / seconds or 1.0)
    axes.set_xlabel(f"exposed time of a step [{unit}]")
    bare(axes)
    axes.spines["left"].set_visible(True)
    axes.grid(visible=True, axis="x", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def _reasons(axes: Axes, results: Sequence[Result], width: float) -> None:
    """Write into a row of *width* [inch] that has no bar why it has none."""
    for row, result in enumerate(results):
        if failure := result.get("failure"):
            letters = int(width / (0.58 * SMALL / 72))  # definition: points in an inch
            text = textwrap.fill(f"does not run: {failure}", letters, max_lines=2, placeholder=" ...")
            axes.text(0, -row, textwrap.indent(text, " "), va="center", fontsize=SMALL, fontstyle="italic", color=GREY)


def _name(result: Result) -> str:
    return f"{result['name']}{'*' if _crowded(result) else ''}"


def _crowded(result: Result) -> bool:
    """Say whether the variant would need more memory than there is."""
    memory = result.get("memory")
    return isinstance(memory, Mapping) and memory.get("fits") is False


def _visible(results: Sequence[Result], key: str) -> list[str]:
    """Names of the parts that are wide enough to be seen in some bar."""
    widest: dict[str, float] = {}
    for result in results:
        for name, time in _parts(result, key).items():
            widest[name] = max(widest.get(name, 0.0), time)
    longest = max(widest.values(), default=0.0)
    return sorted((name for name, time in widest.items() if time > 1e-6 * longest), key=known_order)


def _columns(names: Sequence[str], width: float) -> int:
    """Columns of a legend of *names* that fit into *width* [inch]."""
    letters = max((len(name) for name in names), default=1)
    return max(1, int(width / (0.42 + letters * 0.56 * SMALL / 72)))  # definition: points in an inch


def _legend(axes: Axes, names: Sequence[str], title: str, columns: int) -> None:
    axes.legend(
        handles=patches(names), title=title, alignment="left", ncols=columns, loc="lower left", fontsize=SMALL,
        bbox_to_anchor=(0.0, 1.0), frameon=False, columnspacing=1.2, handlelength=1.3, borderpad=0.2,
        title_fontproperties={"weight": "bold", "size": MEDIUM},
    )  # fmt: skip
