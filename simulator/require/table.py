"""What is needed to reach a goal, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.markup import escape
from rich.table import Table

from simulator.readings.table import titled
from simulator.require.answer import Answer, Requirement
from simulator.require.goal import Goal
from simulator.require.search import Floor
from simulator.units import readable

__all__ = ["needs_table"]

WORDS: Final = 3
"""Causes that a floor is told with."""


def needs_table(answer: Answer, goal: Goal) -> Table:
    """One line per knob."""
    table = titled(f"{answer.name}: {goal.label}, now {goal.told(answer.now)}")
    table.add_column("knob", no_wrap=True)
    for heading in ("now", "needed", "reaches", "just below", "reaches"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for item in answer.requirements:
        table.add_row(*(escape(text) for text in _row(item, goal)))
    return table


def _row(item: Requirement, goal: Goal) -> Iterator[str]:
    yield item.knob
    yield "" if item.now is None else item.told(item.now)
    if item.value is None or item.reached is None:
        yield from ("not alone", "", "", "", _floor(item, goal))
        return
    yield from (item.told(item.value), goal.told(item.reached))
    yield from ("", "") if item.below is None else (item.told(item.below.value), _reached(item.below.reached, goal))
    yield "; ".join(_remarks(item, goal))


def _reached(reached: float | None, goal: Goal) -> str:
    return "-" if reached is None else goal.told(reached)


def _remarks(item: Requirement, goal: Goal) -> Iterator[str]:
    if item.below is None:
        yield "the smallest value that was tried"
    elif item.below.problem:
        yield f"below: {item.below.problem}"
    if item.lost is not None and item.until is not None:
        why = item.lost.problem or f"reaches {_reached(item.lost.reached, goal)}"
        yield f"up to {item.told(item.until)}, {item.told(item.lost.value)} {why}"
    if item.earlier:
        yield f"not monotone: also reached from {', '.join(map(item.told, item.earlier))}, and lost again"


def _floor(item: Requirement, goal: Goal) -> str:
    """Why the goal cannot be reached."""
    if item.floor is None:
        return f"with no value: {next(trial.problem for trial in item.trials if trial.problem)}"
    end = "most" if goal.metric.more_is_better else "floor"
    reached, value = goal.told(item.floor.reached), item.told(item.floor.value)
    return f"the {end} is {reached} at {value} because of {_causes(item.floor)}"


def _causes(floor: Floor) -> str:
    causes = ", ".join(f"{name} {readable(time, 's')}" for name, time in list(floor.causes.items())[:WORDS])
    busy = f" ({floor.busiest} busy for {100 * floor.utilisation:.0f} % of the step)" if floor.busiest else ""
    return f"{causes}{busy}"
