"""What a step is to reach: a metric of its result, at most or at least so much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.errors import InputError
from simulator.readings.metrics import Metric, metric
from simulator.units import Duration, Share, readable

__all__ = ["GOALS", "Goal", "goal"]

ROUNDING: Final = 1e-9
"""Relative error of sums of times, by which a goal may be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on a metric."""

    name: str
    """One of :data:`GOALS`."""
    metric: Metric
    value: float
    """Of the metric, at least if more of it is better, else at most."""

    def reached(self, result: Mapping[str, Any]) -> float:
        """Value of the metric; a step that takes no time exposes nothing."""
        return self.metric.of(result) or 0.0

    def met(self, reached: float) -> bool:
        """Whether *reached* is enough."""
        if self.metric.more_is_better:
            return reached >= self.value * (1 - ROUNDING)
        return reached <= self.value * (1 + ROUNDING)

    def merit(self, reached: float) -> float:
        """Larger where *reached* is better."""
        return reached if self.metric.more_is_better else -reached

    def told(self, reached: float) -> str:
        """*reached* for people."""
        if self.metric.unit == "1":
            return f"{100 * reached:.4g} %"
        return readable(reached, "s", 4) if self.metric.unit == "s" else f"{reached:,.4g} {self.metric.unit}"

    @property
    def label(self) -> str:
        """What is asked, for people."""
        bound = "at least" if self.metric.more_is_better else "at most"
        return f"{self.name} {bound} {self.told(self.value)}"


GOALS: Final = {
    "exposed": "exposed.stalled/step_time",
    "step time": "step_time",
    "tokens": "tokens_per_second_per_gpu",
    "MFU": "mfu",
}
"""Goals by name: the metrics."""


def goal(name: str, text: str) -> Goal:
    """Read a goal, one of :data:`GOALS`, as it is written: ``5%``, ``3 s``, ``1500``.

    Raises
    ------
    InputError
        *text* has no unit, another one, or is no number.

    >>> goal("exposed", "5%").label, goal("tokens", "1500").label
    ('exposed at most 5 %', 'tokens at least 1,500 tokens/s per GPU')
    """
    asked = metric(GOALS[name])
    kinds = {"1": Share, "s": Duration}
    value = float(kinds[asked.unit].parse(text)) if asked.unit in kinds else _number(text)
    return Goal(name=name, metric=asked, value=value)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise InputError("expected tokens per second and GPU", value=text, remedy="write it like 1500")
    return value
