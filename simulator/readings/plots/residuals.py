"""How far a calibrated cluster is from what was measured, over the size of the array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.figure import Figure

from simulator.readings.colours import LINK_COLOURS
from simulator.readings.plots.canvas import GREY, MEDIUM, SMALL, headline, panel
from simulator.units import binary

__all__ = ["residuals_figure"]

WIDTH, HEIGHT, LEGEND = 12.0, 5.6, 3.2
"""[inch]"""

MARKERS: Final = "osD^v<>P"


def residuals_figure(calibrations: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Errors of the catalogue and of the fit, one colour for each table.

    Parameters
    ----------
    calibrations
        As ``zerosim topology calibrate --json`` gives them.
    title
        Of the cluster.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT))
    headline(figure, f"Calibration of {title}", _finding(calibrations))
    axes = panel(figure, 0.85, 0.85, WIDTH - 0.85 - LEGEND - 0.15, HEIGHT - 0.85 - 0.85)
    axes.axhline(0, color=GREY, linewidth=0.8)
    payloads: set[float] = set()
    for number, each in enumerate(calibrations):
        colour, name = LINK_COLOURS[number % len(LINK_COLOURS)], f"{each['kind']}, {each['ranks']} ranks"
        marker = MARKERS[number % len(MARKERS)]
        wrong = [(size, 100 * error) for size, error in each["catalogue_errors"]]
        left = [(size, 100 * error) for size, error in each["residuals"]]
        payloads |= {size for size, _ in wrong}
        axes.plot(*zip(*wrong, strict=True), color=colour, linestyle=":", linewidth=1.2, label=f"{name}: catalogue")
        if left:
            axes.plot(*zip(*left, strict=True), color=colour, marker=marker, markersize=5, label=f"{name}: fit")
    axes.set_xscale("log", base=2)
    shown = sorted(payloads)[:: -(-len(payloads) // 12)]
    axes.set_xticks(shown, [binary(size) for size in shown])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("size of the whole array", fontsize=MEDIUM)
    axes.set_ylabel("predicted over measured time, less one [%]", fontsize=MEDIUM)
    axes.tick_params(labelsize=MEDIUM, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, frameon=False, fontsize=SMALL)
    return figure


def _finding(calibrations: Sequence[Mapping[str, Any]]) -> str:
    residuals = [abs(error) for each in calibrations for _, error in each["residuals"]]
    if not residuals:
        return "too few payloads for a fit; measured times take the model's place"
    return f"alpha + payload / bandwidth leaves at most {100 * max(residuals):.1f} % of what it was fitted to"
