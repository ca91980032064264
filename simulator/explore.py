"""From a scenario to its results, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from simulator.clock.batch.ranks import replications
from simulator.clock.cast import Stage
from simulator.clock.engine import simulate
from simulator.clock.recurrence import step_time
from simulator.clock.stage import infinitely_fast_network, stage
from simulator.clock.timeline import Timeline
from simulator.errors import InputError
from simulator.laws.collectives.library import library
from simulator.readings.exposure import Exposure, exposure
from simulator.readings.report import Result, failed, states_of, summarise
from simulator.readings.spread import Spread, spread
from simulator.readings.step import step_of
from simulator.readings.volume import Volume, volume
from simulator.schedules.program import Program
from simulator.schedules.record import record
from simulator.world.scenario import Scenario, Variant
from simulator.world.training import ELEMENT_BYTES

__all__ = ["Failure", "Outcome", "attempt", "compare", "play", "report", "run_variant", "traffic_of", "volume_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One variant: what happened, and what was read off it."""

    variant: Variant
    timeline: Timeline
    reading: Exposure
    """Of the first rank class."""
    result: Result

    def readings(self) -> list[Exposure]:
        """Of every rank class."""
        return [self.reading, *(exposure(item, self.timeline.step_time) for item in self.timeline.classes[1:])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A variant that cannot run, and why: its framework refuses the model or the ranks."""

    variant: Variant
    error: InputError


def run_variant(scenario: Scenario, variant: Variant) -> Outcome:
    """Simulate one step of *variant*, and once more on an infinitely fast network.

    Raises
    ------
    InputError
        The variant cannot run on this cluster.
    BrokenLawError
        The timeline contradicts a law.
    """
    scenario = scenario.at(variant)
    return play(scenario, variant, stage(scenario, record(scenario, variant)))


def play(scenario: Scenario, variant: Variant, ready: Stage) -> Outcome:
    """Simulate *variant* where it runs, its program already set on the stage, as :func:`run_variant` does."""
    timeline = simulate(ready)
    reading = exposure(timeline.classes[0], timeline.step_time)
    read = step_of(timeline, reading, states_of(scenario, variant))
    traffic = traffic_of(scenario, ready.classes[0].program)
    jittered = _jittered(scenario, ready, timeline)
    result = summarise(scenario, variant, read, traffic, _ideal_step(ready), jittered)
    return Outcome(variant=variant, timeline=timeline, reading=reading, result=result)


def _jittered(scenario: Scenario, ready: Stage, even: Timeline) -> Spread | None:
    """Steps with random times, if the scenario asks for any; every rank has times of its own, so classes will do."""
    if scenario.jitter is None:
        return None
    if scenario.all_ranks:
        raise InputError("jitter simulates ranks itself", key="run.ranks", value="all", remedy="leave run.ranks out")
    return spread(replications(scenario, scenario.jitter, ready, even))


def _ideal_step(ready: Stage) -> float:
    """Step time on an infinitely fast network: nothing is shared, so one class needs no engine."""
    if len(ready.classes) == 1:
        return step_time(ready.classes[0], ready.classes[0].times)
    return simulate(infinitely_fast_network(ready)).step_time


def volume_of(scenario: Scenario, variant: Variant) -> Volume:
    """Return the traffic of one step of *variant* without simulating it."""
    return traffic_of(scenario.at(variant), record(scenario.at(variant), variant))


def traffic_of(scenario: Scenario, program: Program) -> Volume:
    """Return the traffic of *program* where the scenario runs it."""
    model_bytes = scenario.model.elements * ELEMENT_BYTES[scenario.training.precision]
    collectives = library(scenario.cluster, scenario.place.library, scenario.place.forced)
    return volume(program, collectives, scenario.mesh, float(model_bytes))


def compare(
    scenario: Scenario, variants: Iterable[Variant] | None = None, done: Callable[[], None] = lambda: None
) -> tuple[Outcome, ...]:
    """Simulate *variants* (default: all of the scenario); call *done* after each."""
    outcomes = []
    for variant in scenario.variants if variants is None else variants:
        outcomes.append(run_variant(scenario, variant))
        done()
    return tuple(outcomes)


def attempt(
    scenario: Scenario, variants: Iterable[Variant] | None = None, done: Callable[[], None] = lambda: None
) -> tuple[Outcome | Failure, ...]:
    """Do what :func:`compare` does, but go on after a variant that cannot run.

    Raises
    ------
    InputError
        None of them can run.
    """
    attempts: list[Outcome | Failure] = []
    for variant in scenario.variants if variants is None else variants:
        try:
            attempts.append(run_variant(scenario, variant))
        except InputError as error:
            attempts.append(Failure(variant=variant, error=error))
        done()
    failures = [item for item in attempts if isinstance(item, Failure)]
    if failures and len(failures) == len(attempts):
        raise InputError(f"{failures[0].variant.name} cannot run: {failures[0].error}")
    return tuple(attempts)


def report(scenario: Scenario, outcomes: Iterable[Outcome | Failure], version: str) -> dict[str, Any]:
    """Return what ``--json`` prints; a variant that cannot run is a result with a reason."""
    return {
        "scenario": dict(scenario.raw),
        "version": version,
        "results": [_result(scenario, item) for item in outcomes],
    }


def _result(scenario: Scenario, item: Outcome | Failure) -> dict[str, Any]:
    if isinstance(item, Outcome):
        return item.result.as_json()
    return failed(scenario.at(item.variant), item.variant, str(item.error))
