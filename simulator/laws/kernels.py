r"""How long a kernel runs: the roofline.

A kernel is a sum of pieces of work.  A piece of F FLOP that moves Q bytes takes

.. math:: t = \max\left(\frac{F}{e P}, \frac{Q}{e_m B}\right)

(Williams et al. 2009, "Roofline", eq. 1) with P the accelerator's peak for the precision, B its memory bandwidth, and
efficiencies e (matrix products, attention) and e_m (element-wise kernels) that the catalogue names with their
sources.  A rate that the user measured (``compute.achieved``) replaces all of it: t = F / achieved, and what does no
FLOP is free because the measurement already contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.errors import UnknownNameError
from simulator.world.catalog import Accelerator, Number
from simulator.world.model.layer import Work

__all__ = ["Kernel", "Rates", "kernel_time", "rates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One compute or copy operation of a program."""

    kind: str
    """forward, recompute, backward, optimizer, quantize, dequantize, end."""
    works: tuple[Work, ...] = ()
    tokens: int = 0
    """Tokens that the work per token applies to."""
    time: float | None = None
    """Given by the scenario instead of work [s]."""
    is_copy: bool = False
    """Moves bytes for communication instead of computing."""
    extra: float = 0.0
    """Time that neither arithmetic nor memory traffic explains [s]."""
    serves: str = ""
    """Role of the collective that a copy prepares or completes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one accelerator achieves."""

    flop: Mapping[str, float]
    """By kind of work [FLOP/s]."""
    memory: float
    """[B/s]; infinite where traffic is contained in a measured rate."""
    numbers: Mapping[str, tuple[Number, ...]]
    """The catalogue numbers that the rate of each kind of work rests on."""


def rates(accelerator: Accelerator, precision: str, achieved: float | None = None) -> Rates:
    """Return the rates of *accelerator* at *precision*, or the single *achieved* rate.

    Raises
    ------
    UnknownNameError
        The accelerator has no peak for this precision.
    """
    if achieved is not None:
        return Rates(flop={"matrix": achieved, "attention": achieved}, memory=float("inf"), numbers={})
    if precision not in accelerator.peak_flops:
        raise UnknownNameError(
            f"precision of {accelerator.name}", precision, accelerator.peak_flops, key="training.precision"
        )
    peak = accelerator.peak_flops[precision]
    memory = (accelerator.memory_bandwidth, accelerator.memory_efficiency)
    return Rates(
        flop={
            "matrix": peak.value * accelerator.matrix_efficiency.value,
            "attention": peak.value * accelerator.attention_efficiency.value,
        },
        memory=accelerator.memory_bandwidth.value * accelerator.memory_efficiency.value,
        numbers={
            "matrix": (peak, accelerator.matrix_efficiency, *memory),
            "attention": (peak, accelerator.attention_efficiency),
            "memory": memory,
        },
    )


def kernel_time(kernel: Kernel, at: Rates) -> float:
    """Time of *kernel* alone on the accelerator [s]."""
    if kernel.time is not None:
        return kernel.time
    return sum(_time(work, kernel.tokens, at) for work in kernel.works) + kernel.extra


def _time(work: Work, tokens: int, at: Rates) -> float:
    arithmetic = work.flop * tokens / at.flop[work.kind] if work.flop else 0.0
    movement = (work.traffic * tokens + work.constant_traffic) / at.memory
    return max(arithmetic, movement)
