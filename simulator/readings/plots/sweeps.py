"""The figure of a sweep that is called so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from matplotlib.figure import Figure

from simulator.errors import UnknownNameError
from simulator.readings.plots.curves import curves_figure
from simulator.readings.plots.maps import best_figure, heatmap_figure
from simulator.readings.plots.pareto import pareto_figure

__all__ = ["sweep_figure"]

FIGURES: Final[Mapping[str, Callable[..., Figure]]] = {
    "curves": curves_figure,
    "heatmap": heatmap_figure,
    "best": best_figure,
    "pareto": pareto_figure,
}


def sweep_figure(kind: str, results: Iterable[Mapping[str, Any]], title: str, **places: str | None) -> Figure:
    """Draw *results* as *kind*.

    Parameters
    ----------
    places
        What stands at ``x``, ``y``, ``color``, ``rows`` and ``cols``.

    Raises
    ------
    InputError
        There is no such figure, or it has no such place.
    """
    if kind not in FIGURES:
        raise UnknownNameError("figure", kind, FIGURES, key="figure")
    return FIGURES[kind](results, title, **places)
