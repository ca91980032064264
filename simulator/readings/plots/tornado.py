"""What a step gains from a better resource: one panel per variant, most gain at the top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, bare, headline, panel, percent
from simulator.units import readable

__all__ = ["tornado_figure"]

WIDTH, LEFT, RIGHT = 12.0, 3.6, 0.4
"""Of the page, of the names and of the margin [inch]."""

ROW, BETWEEN, HEAD, FOOT = 0.3, 0.5, 0.8, 0.85
"""Heights of a bar, of the space above a panel, of the head and of the foot [inch]."""

MOST, LEAST = 12, 0.1
"""Bars of a panel, and what the longest of a bar must be to be drawn [% of the step]."""

MENTIONED = 3
"""Variants that the finding names."""

LIGHT, DARK = "#99C7E6", "#0072B2"
"""The larger and the smaller improvement."""

WORSE_LIGHT, WORSE_DARK = "#F2BF99", "#D55E00"
"""The same where the step gets longer."""


def tornado_figure(answers: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Gain of each resource in percent of the step, and what the critical path foresees.

    Parameters
    ----------
    answers
        As ``zerosim whatif --json`` has them under ``variants``.
    """
    rows = [max(1, len(_shown(answer))) for answer in answers]
    height = HEAD + sum(ROW * count + BETWEEN for count in rows) + FOOT
    figure = Figure(figsize=(WIDTH, height))
    headline(figure, title, _finding(answers))
    gains = [(answer, gain) for answer in answers for item in _shown(answer) for gain in item["gains"]]
    shares = [_share(answer, gain["gain"]) for answer, gain in gains]
    shares += [_share(answer, gain["foreseen"]) for answer, gain in gains if gain["holds"] is False]
    lowest, highest = min(shares, default=0.0), max(shares, default=1.0)
    bottom = height - HEAD
    for answer, count in zip(answers, rows, strict=True):
        bottom -= ROW * count + BETWEEN
        axes = panel(figure, LEFT, bottom, WIDTH - LEFT - RIGHT, ROW * count)
        _panel(axes, answer, (min(0.0, 1.05 * lowest), max(1.25 * highest, 0.25 * -lowest, LEAST)))
        axes.tick_params(labelbottom=answer is answers[-1])
        if answer is answers[-1]:
            axes.set_xlabel("gain [% of the step]")
    _legend(figure, answers, height)
    return figure


def _shown(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those that change most, in the order of the table."""
    items = answer["sensitivities"]
    most = sorted(items, key=lambda item: -_longest(answer, item))[:MOST]
    return [item for item in items if item in most and _longest(answer, item) >= LEAST]


def _longest(answer: Mapping[str, Any], item: Mapping[str, Any]) -> float:
    return max(abs(_share(answer, gain["gain"])) for gain in item["gains"])


def _share(answer: Mapping[str, Any], time: float) -> float:
    return 100 * time / float(answer["step_time"])  # definition: per cent


def _panel(axes: Axes, answer: Mapping[str, Any], limits: tuple[float, float]) -> None:
    items = _shown(answer)
    for row, item in enumerate(items):
        first, last = item["gains"][0], item["gains"][-1]
        for gain, better, worse, size in ((last, LIGHT, WORSE_LIGHT, 0.72), (first, DARK, WORSE_DARK, 0.36)):
            share = _share(answer, gain["gain"])
            axes.barh(-row, share, size, color=better if share >= 0 else worse, linewidth=0)
        seen = _elsewhere(answer, last, limits)
        if seen is not None:
            axes.plot([seen], [-row], marker="D", color="black", markersize=5, linewidth=0)
        beyond = _share(answer, first["gain"]) if seen is None else seen + 0.01 * limits[1]
        _write(axes, answer, last["gain"], -row, beyond)
    axes.set_yticks([-row for row in range(len(items))], [_name(item) for item in items])
    axes.set_ylim(-max(1, len(items)) + 0.4, 0.6)
    axes.set_xlim(limits)
    axes.axvline(0, color="black", linewidth=0.8)
    name = f"{answer['name']}: {readable(answer['step_time'], 's', 4)}"
    axes.set_title(name, loc="left", fontsize=MEDIUM, fontweight="bold")
    bare(axes)
    axes.grid(visible=True, axis="x", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def _elsewhere(answer: Mapping[str, Any], gain: Mapping[str, Any], limits: tuple[float, float]) -> float | None:
    """Where the path foresees the end of a bar, if that can be told from where it is [%]."""
    if gain["holds"] is not False:
        return None
    share = _share(answer, gain["foreseen"])
    return share if abs(share - _share(answer, gain["gain"])) > 0.01 * (limits[1] - limits[0]) else None


def _write(axes: Axes, answer: Mapping[str, Any], time: float, row: float, beyond: float) -> None:
    """The larger improvement in words, right of both bars and of the marker."""
    sign = "" if time >= 0 else "-"
    text = f" {sign}{readable(abs(time), 's')} ({sign}{percent(abs(time), answer['step_time'])})"
    axes.text(max(0.0, _share(answer, time), beyond), row, text, va="center", fontsize=SMALL)


def _name(item: Mapping[str, Any]) -> str:
    what = "" if item["change"] == "better" else f", {item['change']}"
    return f"{item['resource']}{what}" + (f"  ({item['now']})" if item["now"] else "")


def _finding(answers: Sequence[Mapping[str, Any]]) -> str:
    """Say which one number saves most of the first few variants."""
    told: dict[str, list[str]] = defaultdict(list)
    for answer in answers[:MENTIONED]:
        items = (item for item in answer["sensitivities"] if not item["resource"].startswith("every"))
        if (item := next(items, None)) is not None and item["gains"][-1]["gain"] > 0:
            saved = percent(item["gains"][-1]["gain"], answer["step_time"])
            told[item["resource"]].append(f"{saved} of {answer['name']}")
    saved = "; ".join(f"{resource} {', '.join(shares)}" for resource, shares in told.items())
    return f"One number twice as good saves at most: {saved}" if told else ""


def _legend(figure: Figure, answers: Sequence[Mapping[str, Any]], height: float) -> None:
    factors = [
        gain["factor"] for answer in answers[:1] for item in answer["sensitivities"][:1] for gain in item["gains"]
    ]
    low, high = (f"{factor:g}x" for factor in (min(factors, default=1.1), max(factors, default=2.0)))
    entries = [
        Patch(facecolor=DARK, label=f"{low} better"),
        Patch(facecolor=LIGHT, label=f"{high} better"),
        Patch(facecolor=WORSE_LIGHT, label="the step gets longer"),
        Line2D([], [], marker="D", color="black", markersize=5, linewidth=0,
               label=f"{high} as the critical path foresees it, where something else happens"),
    ]  # fmt: skip
    figure.legend(
        handles=entries, loc="upper left", bbox_to_anchor=(0.012, 1 - 0.7 / height), ncols=4, frameon=False,
        fontsize=SMALL, labelcolor=GREY, borderaxespad=0, handlelength=1.4,
    )  # fmt: skip
    note = f"Resources that change the step by less than {LEAST:g} % are not drawn"
    figure.text(0.012, 0.12 / height, note, ha="left", va="bottom", fontsize=SMALL, color=GREY)
