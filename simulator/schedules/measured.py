r"""Kernels whose time a table gives instead of the model.

A framework runs a layer as many kernels, and acts between them; a table has one time T for all of them.  It is shared
out as the model sees them: kernel i, which takes :math:`t_i` by the roofline and runs :math:`n_i` times, gets

.. math:: T \frac{t_i}{\sum_j n_j t_j}

and where the model gives no time to any of them, all get the same.  So the shape inside a layer is the model's and
the sum is the table's, and a table of the model's own times changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from simulator.laws.kernels import Kernel, Rates, kernel_time, rates
from simulator.world.model.execution import Execution, with_kernels
from simulator.world.model.layer import Layer
from simulator.world.model.measured import MeasuredLayers
from simulator.world.scenario import Scenario

__all__ = ["measured_kernels", "measured_layer"]

Key = tuple[str, str]
"""Name of a module; forward, recompute or backward."""


def measured_kernels(scenario: Scenario, kernels: Mapping[Key, Kernel], order: Execution) -> Mapping[Key, Kernel]:
    """Return *kernels*, which run in *order*, with the times that the scenario's table gives."""
    if not scenario.measured:
        return kernels
    at, runs, found = _rates(scenario), Counter(_runs(order)), dict(kernels)
    for item in scenario.measured:
        for part in item.parts:
            for direction in ("forward", "recompute", "backward"):
                found |= _shared_out(item, direction, _within(part, direction, kernels), runs, at)
    return found


def measured_layer(scenario: Scenario, layer: Layer, kernel: Kernel, kernels: Mapping[Key, Kernel]) -> Kernel:
    """Return the *kernel* of a whole *layer* with the times that the scenario's table gives.

    Parameters
    ----------
    kernels
        Of all modules of the model.
    """
    inside = _within({module.name for module in scenario.model.modules_of(layer)}, kernel.kind, kernels)
    found = [(item, part) for item in scenario.measured for part in item.parts if not part.isdisjoint(inside)]
    if not found:
        return kernel
    given = math.fsum(item.time(kernel.kind) for item, _ in found)
    rest = (own for module, own in inside.items() if not any(module in part for _, part in found))
    works = tuple(work for own in rest for work in own.works)
    return replace(kernel, works=works, time=None, extra=kernel.extra + given)


def _rates(scenario: Scenario) -> Rates:
    return rates(scenario.accelerator, scenario.compute)


def _runs(order: Execution) -> Iterator[Key]:
    """Each run of a kernel in a micro-batch."""
    for mark in (*order.forward, *order.backward):
        if mark.kind == "enter":
            yield mark.name, "recompute" if mark.recompute else "forward"
    for _, module in with_kernels(order.backward):
        if module is not None:
            yield module, "backward"


def _within(modules: Collection[str], direction: str, kernels: Mapping[Key, Kernel]) -> dict[str, Kernel]:
    """Kernels of *modules* in one direction, by module."""
    return {module: item for (module, kind), item in kernels.items() if kind == direction and module in modules}


def _shared_out(
    measured: MeasuredLayers, direction: str, kernels: Mapping[str, Kernel], runs: Mapping[Key, int], at: Rates
) -> dict[Key, Kernel]:
    """Return *kernels*, those of one part, with their shares of its time."""
    times = {module: kernel_time(item, at).total for module, item in kernels.items() if runs[module, direction]}
    alone = times if any(times.values()) else dict.fromkeys(times, 1.0)
    total = math.fsum(time for module, time in alone.items() for _ in range(runs[module, direction]))
    given = Fraction(measured.time(direction))  # rounded once, so that what is equal stays equal
    return {
        (module, direction): replace(kernels[module], time=float(given * Fraction(time) / Fraction(total)))
        for module, time in alone.items()
    }
