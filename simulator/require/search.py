r"""The smallest value of a knob from which on a goal is reached.

A better resource can make a step longer: transfers share links in another way, a library chooses another algorithm.
So bisection alone proves nothing about a range.  The range is looked at first: at values of equal ratios, or at whole
numbers doubled and halved.  Let :math:`v_0 < v_1 < \ldots` be all values tried, and

.. math:: v_i, v_{i+1}, \ldots, v_j

the last of them that reach the goal, in a row.  While there are values between :math:`v_{i-1}`, which does not, and
:math:`v_i`, some of them are tried and the row is looked for again; likewise between :math:`v_j` and :math:`v_{j+1}`.
In the end :math:`v_i` is the answer, and its neighbour below, within one percent or the whole number before it, is
known not to be enough.  That the goal is lost again at :math:`v_{j+1}` is told, and so are rows before that one.

A value with which the step does not fit in memory, or cannot run, does not reach anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Final

from simulator.require.goal import Goal
from simulator.require.knobs import Knob

__all__ = ["Floor", "Trial", "floor_of", "narrowed", "rows"]

NAMED: Final = 0.01
"""Part of all that remains from which on a cause is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One value of a knob."""

    value: float
    reached: float | None
    """The metric; None if it cannot run."""
    met: bool
    """It reaches the goal and fits in memory."""
    problem: str | None
    """Why it is no answer whatever it reaches: memory, or it cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The best that a knob alone can do."""

    value: float
    reached: float
    causes: Mapping[str, float]
    """What remains there, longest first [s]."""
    busiest: str | None
    """Kind of link that is busy for the largest part of the step."""
    utilisation: float
    """Of that link."""


def narrowed(item: Knob, attempt: Callable[[Iterable[float]], Sequence[Trial]]) -> list[Trial]:
    """Try values of *item* until both ends of the last row that reaches the goal have a neighbour that fails.

    Parameters
    ----------
    attempt
        Tries values.

    Returns
    -------
    All trials, by value.
    """
    trials = list(attempt(item.first))
    while values := [value for low, high in _edges(trials) for value in item.between(low, high)]:
        trials = sorted([*trials, *attempt(values)], key=lambda trial: trial.value)
    return trials


def _edges(trials: Sequence[Trial]) -> Iterator[tuple[float, float]]:
    """Where the last row begins and where it ends: the values on both sides."""
    found = rows(trials)
    if not found:
        return
    values = [trial.value for trial in trials]
    start, end = values.index(found[-1][0].value), values.index(found[-1][-1].value)
    yield from pairwise(values[max(start - 1, 0) : start + 1])
    yield from pairwise(values[end : end + 2])


def rows(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Neighbours that reach the goal, in a row."""
    return [list(group) for met, group in groupby(trials, key=lambda trial: trial.met) if met]


def floor_of(goal: Goal, trials: Iterable[Trial], results: Mapping[float, Mapping[str, Any]]) -> Floor | None:
    """Return the best of *trials*, and why it is no better; None if none of them is a possible answer."""
    possible = [trial for trial in trials if trial.problem is None and trial.reached is not None]
    if not possible:
        return None
    best = max(possible, key=lambda trial: goal.merit(trial.reached or 0.0))
    result = results[best.value]
    causes = dict(sorted(_remains(goal, result).items(), key=lambda item: -item[1]))
    whole = sum(causes.values())
    link, share = next(iter(result["links"].items()), (None, 0.0))
    return Floor(
        value=best.value,
        reached=best.reached or 0.0,
        causes={name: time for name, time in causes.items() if time > NAMED * whole},
        busiest=link,
        utilisation=share,
    )


def _remains(goal: Goal, result: Mapping[str, Any]) -> dict[str, float]:
    """What the step still waits for; for goals that count all of it, what else it does too [s]."""
    causes = dict(result["exposed_by_cause"])
    if goal.name == "exposed":
        return causes
    others = {"compute": "compute_time", "copies": "copy_time", "host bound": "host_time"}
    return causes | {name: float(result[key]) for name, key in others.items()}
