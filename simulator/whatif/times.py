"""Steps on many stages: those that share a program side by side, the others one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from simulator.clock.batch.evaluate import evaluate
from simulator.clock.batch.lanes import lanes_of
from simulator.clock.batch.plan import outline, plan_of
from simulator.clock.cast import Stage
from simulator.clock.engine import simulate

__all__ = ["step_times"]

FEWEST: Final = 4
"""Stages for which it pays to plan a program."""


def step_times(stages: Sequence[Stage]) -> list[float]:
    """Return the time of the step on each of *stages* [s].

    Raises
    ------
    BrokenLawError
        A step never ends.
    """
    found: dict[int, float] = {}
    for key, numbers in _groups(stages).items():
        if key is None or len(numbers) < FEWEST:
            found |= {number: simulate(stages[number]).step_time for number in numbers}
        else:
            times = _together([stages[number] for number in numbers])
            found |= {numbers[place]: time for place, time in times.items()}
    return [found[number] for number in range(len(stages))]


def _groups(stages: Sequence[Stage]) -> dict[object, list[int]]:
    """Numbers of the stages that can be evaluated side by side; under None of those that need the engine."""
    outlines: dict[int, object] = {}
    groups: dict[object, list[int]] = defaultdict(list)
    for number, ready in enumerate(stages):
        if len(ready.classes) > 1 or ready.changes or ready.rivals:
            groups[None].append(number)
            continue
        cast = ready.classes[0]
        if id(cast.program) not in outlines:
            outlines[id(cast.program)] = outline(cast.program)
        groups[outlines[id(cast.program)], cast.communicators].append(number)
    return groups


def _together(stages: Sequence[Stage]) -> dict[int, float]:
    cast = stages[0].classes[0]
    found: dict[int, float] = {}
    for places, part in lanes_of(stages, plan_of(cast.program, cast.communicators)).parts():
        found |= zip(places.tolist(), evaluate(part).step_time.tolist(), strict=True)
    return found
