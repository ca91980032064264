"""The command that asks how much of a resource is enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator import __version__
from simulator.cli.common import PicturePath, chosen, load, print_json, print_tables, progress, scenario_options
from simulator.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.require import Answer, Floor, Goal, Knob, Requirement
    from simulator.world.scenario import Scenario, Variant

__all__ = ["require"]

WORDS = 3
"""Causes that a floor is told with."""


@click.command()
@scenario_options
@click.option("--exposed", metavar="SHARE", help="At most so much exposed communication, like 5%.")
@click.option("--step-time", metavar="TIME", help="A step of at most so long, like '3 s'.")
@click.option("--tokens", metavar="NUMBER", help="At least so many tokens/s per GPU.")
@click.option("--mfu", metavar="SHARE", help="At least so much MFU, like 45%.")
@click.option("--knob", "knobs", multiple=True, metavar="NAME", help="What is turned; may be repeated.  [default: all]")
@click.option("--range", "span", metavar="A..B", help="Smallest and largest value of the knob, like 100..800Gbit/s.")
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("-o", "--output", type=PicturePath(path_type=Path, dir_okay=False),
              help="Draw the variants over the first knob: a .png, .svg or .pdf file.")  # fmt: skip
def require(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool,
    output: Path | None, **asked: Any,
) -> None:  # fmt: skip
    """Say how much bandwidth, prefetch or work per step each variant of SCENARIO needs to reach a goal."""
    goal = _goal(exposed=asked["exposed"], step_time=asked["step_time"], tokens=asked["tokens"], mfu=asked["mfu"])
    if asked["span"] is not None and len(asked["knobs"]) != 1:
        raise InputError("is of one knob", key="--range", value=asked["span"], remedy="say of which: --knob NAME")
    found = load(scenario, overrides, topology)
    answers, failures = _answers(found, chosen(found, names), goal, (asked["knobs"], asked["span"]))
    if output:
        _draw(output, answers, goal, found, asked["knobs"])
    if machine:
        target = {"metric": goal.metric.name, "value": goal.value, "at_least": goal.metric.more_is_better}
        head = {"scenario": dict(found.raw), "version": __version__, "goal": target, "failures": failures}
        print_json(head | {"variants": [answer.as_json() for answer in answers]})
        return
    print_tables(
        *(_table(answer, goal) for answer in answers),
        *(f"{name} cannot run: {reason}" for name, reason in failures.items()),
        *([f"written to {output}"] if output else []),
    )


def _goal(**asked: str | None) -> Goal:
    """Return the one that is asked."""
    from simulator.require import GOALS, goal

    said = {name: text for name, text in zip(GOALS, asked.values(), strict=True) if text is not None}
    options = [f"--{option.replace('_', '-')}" for option in asked]
    if len(said) != 1:
        raise InputError("expected one goal", key=", ".join(options), remedy="for instance --exposed 5%")
    ((name, text),) = said.items()
    try:
        return goal(name, text)
    except InputError as error:
        error.key = options[list(GOALS).index(name)]
        raise


def _answers(
    scenario: Scenario, variants: Sequence[Variant], goal: Goal, asked: tuple[Sequence[str], str | None]
) -> tuple[list[Answer], dict[str, str]]:
    """Answers, and why variants have none; if none has, the reason is an error."""
    from simulator.require import require as ask

    answers: list[Answer] = []
    failures: dict[str, str] = {}
    first: InputError | None = None
    with progress("simulating", len(variants)) as done:
        for variant in variants:
            try:
                answers.append(ask(scenario, variant, goal, list(_knobs(scenario, variant, goal, *asked))))
            except InputError as error:
                first = first or error
                failures[variant.name] = str(error)
            done()
    if first is not None and not answers:
        raise first
    return answers, failures


def _knobs(
    scenario: Scenario, variant: Variant, goal: Goal, names: Sequence[str], span: str | None
) -> Iterable[Knob]:  # fmt: skip
    from simulator.require import default_knobs, knob

    if not names:
        return default_knobs(scenario, variant, same_work=goal.name == "step time")
    return (knob(scenario, variant, name, span) for name in dict.fromkeys(names))


def _draw(output: Path, answers: Sequence[Answer], goal: Goal, scenario: Scenario, names: Sequence[str]) -> None:
    """Draw the metric of the goal over the first knob, by default the bandwidth of the narrowest link."""
    from simulator.readings.files import write_atomically
    from simulator.readings.plots import curves_figure

    narrowest = min(scenario.cluster.links, key=lambda link: link.nominal.value)
    asked = [item.knob for item in answers[0].requirements] if names else [f"{narrowest.name}.bandwidth"]
    results = [result for answer in answers for result in answer.curves.get(asked[0], ())]
    figure = curves_figure(results, scenario.name, x=asked[0], y=goal.metric.name, goal=goal.value)
    write_atomically(output, figure.savefig)


def _table(answer: Answer, goal: Goal) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    title = escape(f"{answer.name}: {goal.label}, now {goal.told(answer.now)}")
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
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
    from simulator.units import readable

    causes = ", ".join(f"{name} {readable(time, 's')}" for name, time in list(floor.causes.items())[:WORDS])
    busy = f" ({floor.busiest} busy for {100 * floor.utilisation:.0f} % of the step)" if floor.busiest else ""
    return f"{causes}{busy}"
