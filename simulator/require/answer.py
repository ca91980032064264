"""What a variant needs: for each knob the smallest value that reaches the goal, or why none does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from simulator.crowd import Crowd
from simulator.errors import InputError
from simulator.readings.report import Result
from simulator.readings.table import has_room
from simulator.require.goal import Goal
from simulator.require.knobs import Knob, told
from simulator.require.search import Floor, Trial, floor_of, narrowed, rows
from simulator.world.scenario import Scenario, Variant

__all__ = ["Answer", "Requirement", "require"]

TOO_LARGE: Final = "does not fit in memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """How much of one knob is enough."""

    knob: str
    unit: str
    """Of all its values; empty for counts."""
    now: float | None
    value: float | None
    """The smallest from which on the goal is reached; None if none is."""
    reached: float | None
    """The metric there."""
    below: Trial | None
    """The neighbour below, which is not enough; None if nothing below was tried."""
    until: float | None
    """The largest that was simulated up to which it is."""
    lost: Trial | None
    """The neighbour above that, with which it is lost; None if nothing above was tried."""
    earlier: tuple[float, ...]
    """Smaller values from which on the goal is reached for a while, and lost again."""
    floor: Floor | None
    """The best that the knob alone can do where that is not enough."""
    trials: tuple[Trial, ...]
    """All values that were simulated, ascending."""

    def told(self, value: float) -> str:
        """*value* of the knob for people."""
        return told(value, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One variant."""

    name: str
    now: float
    """The metric of the scenario as it is."""
    requirements: tuple[Requirement, ...]
    curves: Mapping[str, tuple[Mapping[str, Any], ...]] = field(repr=False)
    """By knob: results at the values that were looked at first, as a sweep has them; for figures alone."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        requirements = [asdict(item) for item in self.requirements]
        return {"name": self.name, "now": self.now, "requirements": requirements}


def require(scenario: Scenario, variant: Variant, goal: Goal, knobs: Iterable[Knob]) -> Answer:
    """Turn each of *knobs* alone until *variant* reaches *goal*, without jitter.

    Raises
    ------
    InputError
        The variant cannot run as it is, or with no value of a knob.
    """
    crowd = Crowd()
    (now,) = crowd.run([(replace(scenario, jitter=None), variant)])
    if isinstance(now, Exception):
        raise now
    searches = [_Search(crowd, goal, knob) for knob in knobs]
    return Answer(
        name=variant.name,
        now=goal.reached(now.as_json()),
        requirements=tuple(search.requirement() for search in searches),
        curves={search.knob.name: search.curve() for search in searches},
    )


class _Search:
    """Turns one knob."""

    def __init__(self, crowd: Crowd, goal: Goal, knob: Knob) -> None:
        self._crowd, self._goal, self.knob = crowd, goal, knob
        self._results: dict[float, Mapping[str, Any]] = {}
        self._trials = narrowed(knob, self._attempt)
        if all(trial.reached is None for trial in self._trials):
            raise InputError(str(self._trials[0].problem), key=knob.name)

    def requirement(self) -> Requirement:
        """Return the start of the last row of values that are enough."""
        trials, found = self._trials, rows(self._trials)
        row = found[-1] if found else []
        start, end = (trials.index(row[0]), trials.index(row[-1]) + 1) if row else (0, len(trials))
        return Requirement(
            knob=self.knob.name,
            unit=self.knob.unit,
            now=self.knob.now,
            value=row[0].value if row else None,
            reached=row[0].reached if row else None,
            below=trials[start - 1] if start else None,
            until=row[-1].value if row else None,
            lost=trials[end] if end < len(trials) else None,
            earlier=tuple(each[0].value for each in found[:-1]),
            floor=None if row else floor_of(self._goal, trials, self._results),
            trials=tuple(trials),
        )

    def curve(self) -> tuple[Mapping[str, Any], ...]:
        """Return what was looked at first, as results of a sweep."""
        unit, size = ("GB/s", 1e9) if self.knob.unit == "B/s" else (self.knob.unit, 1.0)
        return tuple(
            {**self._results[value], "point": {self.knob.name: f"{value / size:.9g} {unit}" if unit else value}}
            for value in self.knob.first
            if value in self._results
        )

    def _attempt(self, values: Iterable[float]) -> list[Trial]:
        values = list(values)
        asked = [self._asked(value) for value in values]
        ran = iter(self._crowd.run(item for item in asked if not isinstance(item, InputError)))
        found = [item if isinstance(item, InputError) else next(ran) for item in asked]
        self._results |= {
            value: item.as_json() for value, item in zip(values, found, strict=True) if isinstance(item, Result)
        }
        return [_trial(self._goal, value, item) for value, item in zip(values, found, strict=True)]

    def _asked(self, value: float) -> tuple[Scenario, Variant] | InputError:
        try:
            scenario, variant = self.knob.at(value)
        except InputError as error:
            return error
        return replace(scenario, jitter=None), variant


def _trial(goal: Goal, value: float, found: Result | Exception) -> Trial:
    """Judge what was found; a bug of ours is none of the knob's."""
    if isinstance(found, InputError):
        return Trial(value=value, reached=None, met=False, problem=str(found))
    if isinstance(found, Exception):
        raise found
    result = found.as_json()
    reached, fits = goal.reached(result), has_room(result["memory"])
    return Trial(value=value, reached=reached, met=fits and goal.met(reached), problem=None if fits else TOO_LARGE)
