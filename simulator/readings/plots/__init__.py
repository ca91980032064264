"""Figures: each function returns one and saves nothing.

This is the only room that knows matplotlib; import it when a figure is wanted, not before.  No function touches
``pyplot``, so nothing is kept between calls and no window opens.
"""

from simulator.readings.plots.exposed import exposed_figure
from simulator.readings.plots.timeline import timeline_figure
from simulator.readings.plots.topology import topology_figure

__all__ = ["exposed_figure", "timeline_figure", "topology_figure"]
