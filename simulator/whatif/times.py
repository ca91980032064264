"""Steps on many stages: those that share a program side by side, the others one by one, long ones from short ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from simulator.clock.batch.evaluate import evaluate
from simulator.clock.batch.lanes import lanes_of
from simulator.clock.batch.plan import outline, plan_of
from simulator.clock.batch.track import lane_periods
from simulator.clock.cast import Stage
from simulator.clock.engine import simulate
from simulator.clock.periodic import Window, period_of, windows
from simulator.clock.timeline import Timeline
from simulator.schedules.program import Program
from simulator.steady import lengths
from simulator.world.scenario import Scenario

__all__ = ["step_times"]

FEWEST: Final = 4
"""Stages for which it pays to plan a program."""

SAME: Final = 1e-9
"""Relative difference of periods that are the same."""

Times = dict[int, float]
"""By number of what was asked [s]."""


def step_times(scenario: Scenario, asked: Sequence[Callable[[int], Stage]]) -> list[float]:
    """Return the time of each step that is *asked* [s].

    Of a periodic step (:mod:`simulator.clock.periodic`) few micro-batches are simulated; any other takes a period.

    Parameters
    ----------
    scenario
        Its number of micro-batches is that of all steps.
    asked
        Set a step with so many micro-batches on its stage.

    Raises
    ------
    BrokenLawError
        A step never ends.
    """
    whole, found = scenario.training.gradient_accumulation, Times()
    for _, shorter, longer in lengths(scenario, simulated=1):
        rest = [number for number in range(len(asked)) if number not in found]
        times, periods = _Steps({number: (asked[number](shorter), asked[number](longer)) for number in rest}).run()
        more = (whole - longer) // (longer - shorter)
        found |= {number: times[number] + more * time for number, time in periods.items() if not math.isnan(time)}
    last = {number: each(whole) for number, each in enumerate(asked) if number not in found}
    found |= _Steps({number: (ready, ready) for number, ready in last.items()}).run()[0]
    return [found[number] for number in range(len(asked))]


class _Steps:
    """Many steps, each with one that is a period shorter."""

    def __init__(self, stages: Mapping[int, tuple[Stage, Stage]]) -> None:
        self._stages = stages
        self._windows: dict[tuple[int, int], tuple[Window, ...]] = {}
        self._times, self._periods = Times(), Times()

    def run(self) -> tuple[Times, Times]:
        """Return their times, and their periods; not a number where they have none."""
        for key, numbers in _groups({number: longer for number, (_, longer) in self._stages.items()}).items():
            if key is None or len(numbers) < FEWEST:
                for number in numbers:
                    self._alone(number, simulate(self._stages[number][1]))
            else:
                self._together(numbers)
        return self._times, self._periods

    def _alone(self, number: int, played: Timeline) -> None:
        shorter, longer = self._stages[number]
        periods = [
            period_of(each, self._windows_of(some.program, others.program))
            for each, some, others in zip(played.classes, shorter.classes, longer.classes, strict=True)
        ]
        same = all(math.isclose(periods[0], each, rel_tol=SAME) for each in periods)
        self._times[number], self._periods[number] = played.step_time, periods[0] if same else math.nan

    def _together(self, numbers: Sequence[int]) -> None:
        stages = [self._stages[number][1] for number in numbers]
        cast = stages[0].classes[0]
        for places, part in lanes_of(stages, plan_of(cast.program, cast.communicators)).parts():
            mine, batch = [numbers[place] for place in places], evaluate(part)
            programs = [[ready.classes[0].program for ready in self._stages[number]] for number in mine]
            periods = lane_periods(batch, [self._windows_of(*pair) for pair in programs])
            self._times |= zip(mine, batch.step_time.tolist(), strict=True)
            self._periods |= zip(mine, periods.tolist(), strict=True)

    def _windows_of(self, shorter: Program, longer: Program) -> tuple[Window, ...]:
        key = id(shorter), id(longer)
        if key not in self._windows:
            self._windows[key] = tuple(windows(shorter, longer))
        return self._windows[key]


def _groups(stages: Mapping[int, Stage]) -> dict[object, list[int]]:
    """Numbers of the stages that can be evaluated side by side; under None of those that need the engine."""
    outlines: dict[int, object] = {}
    groups: dict[object, list[int]] = defaultdict(list)
    for number, ready in stages.items():
        if len(ready.classes) > 1 or ready.changes or ready.rivals:
            groups[None].append(number)
            continue
        cast = ready.classes[0]
        if id(cast.program) not in outlines:
            outlines[id(cast.program)] = outline(cast.program)
        groups[outlines[id(cast.program)], cast.communicators].append(number)
    return groups
