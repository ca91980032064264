"""Figures: each function returns one and saves nothing.

This is the only room that knows matplotlib; import it when a figure is wanted, not before.  No function touches
``pyplot``, so nothing is kept between calls and no window opens.
"""

from simulator.readings.plots.collective import collective_figure
from simulator.readings.plots.counts import counts_figure
from simulator.readings.plots.curves import curves_figure
from simulator.readings.plots.exposed import exposed_figure
from simulator.readings.plots.footprints import footprints_figure
from simulator.readings.plots.inline import finding_of, inline_svg
from simulator.readings.plots.jitter import jitter_figure
from simulator.readings.plots.maps import best_figure, heatmap_figure
from simulator.readings.plots.memory import memory_figure
from simulator.readings.plots.pareto import pareto_figure
from simulator.readings.plots.parity import parity_figure
from simulator.readings.plots.residuals import residuals_figure
from simulator.readings.plots.sweeps import sweep_figure
from simulator.readings.plots.timeline import timeline_figure
from simulator.readings.plots.topology import topology_figure
from simulator.readings.plots.tornado import tornado_figure
from simulator.readings.plots.waterfall import waterfall_figure

__all__ = [
    "best_figure",
    "collective_figure",
    "counts_figure",
    "curves_figure",
    "exposed_figure",
    "finding_of",
    "footprints_figure",
    "heatmap_figure",
    "inline_svg",
    "jitter_figure",
    "memory_figure",
    "pareto_figure",
    "parity_figure",
    "residuals_figure",
    "sweep_figure",
    "timeline_figure",
    "topology_figure",
    "tornado_figure",
    "waterfall_figure",
]
