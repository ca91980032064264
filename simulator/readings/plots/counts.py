"""On how many GPUs sharded weights pay against a bigger GPU that keeps its weights whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.errors import InputError
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, grouped_legend, headline, panel
from simulator.readings.plots.multiples import handle, look, number_axis, value_ticks

__all__ = ["counts_figure"]

WIDTH, HEIGHT, LEGEND = 12.0, 5.2, 2.5
"""[inch]"""

GBIT_PER_SECOND: Final = 1.25e8
"""[B/s]"""

Row = Mapping[str, Any]


def counts_figure(counts: Sequence[Row], stops: Sequence[Row], title: str) -> Figure:
    """Price of a token relative to the rival's, over the number of GPUs; a line per network, a panel per strategy.

    Above one the bigger GPU is cheaper and at least as fast.  A count without a rival, where no bigger GPU is as fast,
    is not drawn.

    Parameters
    ----------
    counts, stops
        As ``zerosim rent --json`` has them.
    title
        Of the job; who stops paying where stands below it.

    Raises
    ------
    InputError
        There is no rival at all.
    """
    drawn = [count for count in counts if count["rival"] is not None]
    if not drawn:
        raise InputError("nothing to draw: no bigger GPU is a rival to ZeRO-3", key="--plot", remedy="leave it out")
    figure = Figure(figsize=(WIDTH, HEIGHT))
    gpu = drawn[0]["gpu"]
    headline(figure, _finding(stops, gpu), f"{title}, on any number of GPUs")
    strategies = list(dict.fromkeys(count["strategy"] for count in drawn))
    networks = list(dict.fromkeys(count["network"] for count in counts))
    wide = (WIDTH - LEGEND - 0.9) / len(strategies)
    limits = _limits(drawn)
    for number, strategy in enumerate(strategies):
        axes = panel(figure, 0.9 + number * wide, 0.75, wide - 0.3, HEIGHT - 0.75 - 1.15)
        mine = [count for count in drawn if count["strategy"] == strategy]
        _draw(axes, mine, networks, limits)
        axes.set_title(f"{strategy} on {gpu}", fontsize=MEDIUM, loc="left", fontweight="bold")
        if number == 0:
            axes.set_ylabel("price of a token / that on the bigger GPU", fontsize=MEDIUM)
        else:
            axes.tick_params(axis="y", labelleft=False)
    _legend(figure, drawn, networks)
    if len(drawn) < len(counts):
        said = "where a line ends, no bigger GPU on a lower stage is as fast on that network"
        figure.text(0.012, 0.12 / HEIGHT, said, fontsize=SMALL, color=GREY)
    return figure


def _draw(axes: Axes, mine: Sequence[Row], networks: Sequence[float], limits: tuple[float, float]) -> None:
    places = sorted({count["gpus"] for count in mine})
    for number, network in enumerate(networks):
        line = [count for count in mine if count["network"] == network]
        shade, marker = look(number)
        heights = [count["per_billion_tokens"] / count["rival"]["per_billion_tokens"] for count in line]
        axes.plot([count["gpus"] for count in line], heights, color=shade, marker=marker, markersize=5, linewidth=1.6)
    axes.axhline(1.0, color="black", linewidth=1.0)
    axes.axhspan(1.0, limits[1], color="#F3E3E0", zorder=0, linewidth=0)
    axes.text(0.02, 0.98, "bigger GPU cheaper", fontsize=SMALL, color=GREY, va="top", transform=axes.transAxes)
    axes.text(0.02, 0.02, "sharding pays", fontsize=SMALL, color=GREY, va="bottom", transform=axes.transAxes)
    number_axis(axes, "y", logarithmic=True)
    axes.set_ylim(*limits)
    value_ticks(axes, places, [f"{place:,}" for place in places], logarithmic=True)
    axes.set_xlabel("GPUs", fontsize=MEDIUM)
    axes.tick_params(labelsize=MEDIUM)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def _limits(drawn: Sequence[Row]) -> tuple[float, float]:
    ratios = [count["per_billion_tokens"] / count["rival"]["per_billion_tokens"] for count in drawn]
    return min(0.5, 0.8 * min(ratios)), max(2.0, 1.25 * max(ratios))


def _legend(figure: Figure, drawn: Sequence[Row], networks: Sequence[float]) -> None:
    lines = [handle(f"{network / GBIT_PER_SECOND:g} Gbit/s", *look(number)) for number, network in enumerate(networks)]
    rivals = dict.fromkeys(f"{count['rival']['strategy']} on {count['rival']['gpu']}" for count in drawn)
    others = [handle(name, "none", "") for name in rivals]
    groups = {"network per host": lines, "bigger GPU: cheapest as fast": others}
    grouped_legend(figure, groups, left=1 - (LEGEND - 0.05) / WIDTH, top=1 - 1.15 / HEIGHT)


def _finding(stops: Sequence[Row], gpu: str) -> str:
    """Say on which networks the first strategy stops paying, and where first."""
    mine = [stop for stop in stops if stop["strategy"] == stops[0]["strategy"]]
    strategy, most = mine[0]["strategy"], max(stop["tried"][-1] for stop in mine)
    ending = [stop for stop in mine if stop["stops_at"] is not None]
    if not ending:
        return f"{strategy} on {gpu} pays on all of these networks, up to {most:,} GPUs"
    first = min(ending, key=lambda stop: stop["stops_at"])
    told = f"{strategy} on {gpu} stops paying at {first['stops_at']:,} GPUs on {_gbit(first)} per host"
    if len(ending) == len(mine):
        return told
    always = [stop for stop in mine if stop["network"] > max(item["network"] for item in ending)]
    return f"{told}, and pays everywhere from {_gbit(always[0])} on" if always else told


def _gbit(stop: Row) -> str:
    return f"{stop['network'] / GBIT_PER_SECOND:g} Gbit/s"
