"""Ceilings: what a step would gain at most if one of its costs were not there.

With T the step, S the part of it in which compute is stalled by communication, C the time in which some collective
runs, U the part of C beside which no kernel runs, and R the time of kernels that activation checkpointing runs again:

===============  ==========================================================================================
hidden           1 - U / C of the communication has a kernel beside it
perfect overlap  the step takes T - S, as nothing waits, but never less than C, as the network is busy so long
no recompute     the step takes T - R
===============  ==========================================================================================

MFU grows as the step shrinks.  These are bounds, not predictions: what is hidden behind a recompute comes to light
without it, and activations that are not recomputed must fit in memory.  The accounting is that of
marin-community/marin #8053, where a step has compute, recompute and exposed collectives only.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.readings.exposure import Totals

__all__ = ["Ceilings", "ceilings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Bounds of one step; field names are keys of ``zerosim run --json``."""

    hidden: float | None
    """Fraction of the communication; None where nothing is communicated."""
    perfect_overlap_step_time: float
    """[s]"""
    perfect_overlap_mfu: float
    no_recompute_step_time: float
    """[s]"""
    no_recompute_mfu: float


def ceilings(reading: Totals, step: float, mfu: float) -> Ceilings:
    """Return the ceilings of a step of *step* seconds that reaches *mfu*."""
    overlapped = max(step - reading.stalled, reading.communication)
    computed_once = step - reading.recomputed
    return Ceilings(
        hidden=1 - reading.uncovered / reading.communication if reading.communication else None,
        perfect_overlap_step_time=overlapped,
        perfect_overlap_mfu=mfu * step / overlapped if overlapped else 0.0,
        no_recompute_step_time=computed_once,
        no_recompute_mfu=mfu * step / computed_once if computed_once else 0.0,
    )
