"""The question how much of a resource is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from simulator import __version__
from simulator.ask.answer import Answer
from simulator.ask.source import AS_IT_IS, Source, each, scenario_of, variants_of
from simulator.errors import InputError, UnknownNameError
from simulator.readings.rendered import lines
from simulator.require import Answer as Needed
from simulator.require import Goal, Knob, default_knobs, goal, knob
from simulator.require import require as needed
from simulator.require.table import needs_table
from simulator.world.scenario import Scenario, Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["GOALS", "Needs", "require"]

GOALS: Final = {"exposed": "exposed", "step_time": "step time", "tokens": "tokens", "mfu": "MFU"}
"""Goals as arguments of :func:`require`, and their names."""


@dataclass(frozen=True, kw_only=True)
class Needs(Answer):
    """The smallest values of knobs with which a goal is reached: ``zerosim require``."""

    scenario: Scenario = field(repr=False)
    goal: Goal
    answers: tuple[Needed, ...] = field(repr=False)

    def tables(self) -> Iterator[Table | str]:
        """Yield a table per variant."""
        yield from (needs_table(answer, self.goal) for answer in self.answers)
        yield from lines(f"{name} cannot run: {reason}" for name, reason in self.content["failures"].items())

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per variant and knob, without the trials; values have the unit that stands beside them."""
        for answer in self.answers:
            for item in answer.requirements:
                rest = asdict(item)
                below = rest.pop("below") or {}
                told = {key: rest[key] for key in ("knob", "unit", "now", "value", "reached")}
                neighbour = {"below": below.get("value"), "below_reached": below.get("reached")}
                yield {"variant": answer.name, **told, **neighbour, "until": item.until}

    def units(self) -> Mapping[str, str]:
        """That of the goal."""
        return dict.fromkeys(("reached", "below_reached"), self.goal.metric.unit)

    def plot(self, knob: str | None = None) -> Figure:
        """Draw the goal's metric over one knob, by default the first that was asked for.

        Raises
        ------
        UnknownNameError
            There is no such knob.
        """
        from simulator.readings.plots import curves_figure

        known = dict.fromkeys(name for answer in self.answers for name in answer.curves)
        asked = next(iter(known)) if knob is None else knob
        if asked not in known:
            raise UnknownNameError("knob", asked, known, key="knob")
        results = [result for answer in self.answers for result in answer.curves.get(asked, ())]
        return curves_figure(results, self.scenario.name, x=asked, y=self.goal.metric.name, goal=self.goal.value)


def require(
    source: Source,
    changes: Mapping[str, Any] = AS_IT_IS,
    *,
    variants: str | Sequence[str] = (),
    knobs: str | Sequence[str] = (),
    span: str | None = None,
    done: Callable[[], None] = lambda: None,
    **goals: str,
) -> Needs:
    """Turn each knob alone until each variant reaches the goal; call *done* after each variant.

    Parameters
    ----------
    knobs
        Names; by default all that a variant has.
    span
        Smallest and largest value of the only knob, as ``100..800 Gbit/s``.
    goals
        One of ``exposed="5%"``, ``step_time="3 s"``, ``tokens="1500"``, ``mfu="45%"``.

    Raises
    ------
    InputError
        The scenario cannot be used, there is no such goal or knob, or no variant can run.
    """
    target = _goal(goals)
    names = [knobs] if isinstance(knobs, str) else list(dict.fromkeys(knobs))
    if span is not None and len(names) != 1:
        raise InputError("is of one knob", key="span", value=span, remedy="say of which one")
    scenario = scenario_of(source, changes)
    answers, failures = each(
        variants_of(scenario, variants),
        lambda variant: needed(scenario, variant, target, list(_knobs(scenario, variant, target, names, span))),
        done,
    )
    if not answers:
        raise next(iter(failures.values()))
    head = {
        "scenario": dict(scenario.raw),
        "version": __version__,
        "goal": {"metric": target.metric.name, "value": target.value, "at_least": target.metric.more_is_better},
        "failures": {name: str(error) for name, error in failures.items()},
    }
    content = head | {"variants": [answer.as_json() for answer in answers]}
    return Needs(content=content, scenario=scenario, goal=target, answers=tuple(answers))


def _goal(said: Mapping[str, str]) -> Goal:
    for name in said:
        if name not in GOALS:
            raise UnknownNameError("goal", name, GOALS)
    if len(said) != 1:
        raise InputError("expected one goal", key=", ".join(GOALS), remedy="for instance exposed 5%")
    ((name, text),) = said.items()
    try:
        return goal(GOALS[name], text)
    except InputError as error:
        error.key = name
        raise


def _knobs(
    scenario: Scenario, variant: Variant, target: Goal, names: Iterable[str], span: str | None
) -> Iterable[Knob]:
    names = list(names)
    if not names:
        return default_knobs(scenario, variant, same_work=target.name == "step time")
    return (knob(scenario, variant, name, span) for name in names)
