"""From a variant to its program: which schedule function records it."""

from __future__ import annotations

from simulator.schedules.program import Program
from simulator.schedules.textbook import textbook
from simulator.world.scenario import Scenario, Variant

__all__ = ["record"]

_SCHEDULES = {"textbook": textbook}


def record(scenario: Scenario, variant: Variant) -> Program:
    """Record one step of one rank of *variant*."""
    return _SCHEDULES[variant.schedule](scenario, variant.policy)
