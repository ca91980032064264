"""From a scenario to its results, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from simulator.clock.batch.ranks import replications
from simulator.clock.cast import Stage
from simulator.clock.stage import stage
from simulator.clock.timeline import Timeline
from simulator.errors import InputError
from simulator.played import Played, play, traffic_of
from simulator.readings.by_link import exposed_by_link
from simulator.readings.critical import CriticalPath, critical_path, exposed_by_layer
from simulator.readings.exposure import Exposure, exposure
from simulator.readings.report import Result, failed, summarise
from simulator.readings.spread import Spread, spread
from simulator.readings.volume import Volume
from simulator.schedules.record import record
from simulator.steady import extended
from simulator.world.scenario import Scenario, Variant

__all__ = ["Failure", "Outcome", "attempt", "compare", "play_staged", "report", "run_variant", "volume_of"]


DETAILS: Final = ("critical_path", "exposed_by_layer", "exposed_by_link")
"""Keys that only single operations can tell."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One variant: what was read off its step, and what happened.

    A long step is read off shorter ones (:mod:`simulator.steady`).  It is simulated when somebody wants to see it.
    """

    variant: Variant
    result: Result
    watch: Callable[[], Played]
    """Simulates the step."""

    @cached_property
    def _played(self) -> Played:
        return self.watch()

    @property
    def timeline(self) -> Timeline:
        """What happened."""
        return self._played.timeline

    @property
    def reading(self) -> Exposure:
        """Of the first rank class."""
        return self._played.reading

    def readings(self) -> list[Exposure]:
        """Of every rank class."""
        return [self.reading, *(exposure(item, self.timeline.step_time) for item in self.timeline.classes[1:])]

    def path(self) -> CriticalPath:
        """Return the critical path of the step."""
        return critical_path(self.timeline.classes, self._played.ready, self.timeline.step_time)

    def details(self) -> dict[str, Any]:
        """Return what only single operations can tell, by :data:`DETAILS`."""
        by_link = exposed_by_link(self.reading, self.timeline.classes[0], self._played.ready)
        return dict(zip(DETAILS, (self.path().as_json(), exposed_by_layer(self.reading), by_link), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A variant that cannot run, and why: its framework refuses the model or the ranks."""

    variant: Variant
    error: InputError


def run_variant(scenario: Scenario, variant: Variant) -> Outcome:
    """Simulate one step of *variant*, and once more on an infinitely fast network; of a long one as much as it takes.

    Raises
    ------
    InputError
        The variant cannot run on this cluster.
    BrokenLawError
        The timeline contradicts a law.
    """
    scenario = scenario.at(variant)
    read = extended(scenario, variant)
    if read is None:
        return play_staged(scenario, variant, stage(scenario, record(scenario, variant)))
    result = summarise(scenario, variant, read.step, read.traffic, read.ideal_step)
    return Outcome(variant=variant, result=result, watch=lambda: _simulated(scenario, variant))


def _simulated(scenario: Scenario, variant: Variant) -> Played:
    return play(scenario, variant, stage(scenario, record(scenario, variant)))


def play_staged(scenario: Scenario, variant: Variant, ready: Stage) -> Outcome:
    """Simulate *variant* where it runs, its program already set on the stage, as :func:`run_variant` does."""
    played = play(scenario, variant, ready)
    jittered = _jittered(scenario, ready, played.timeline)
    read = played.read
    result = summarise(scenario, variant, read.step, read.traffic, read.ideal_step, jittered)
    return Outcome(variant=variant, result=result, watch=lambda: played)


def _jittered(scenario: Scenario, ready: Stage, even: Timeline) -> Spread | None:
    """Steps with random times, if the scenario asks for any; every rank has times of its own, so classes will do."""
    if scenario.jitter is None:
        return None
    if scenario.all_ranks:
        raise InputError("jitter simulates ranks itself", key="run.ranks", value="all", remedy="leave run.ranks out")
    return spread(replications(scenario, scenario.jitter, ready, even))


def volume_of(scenario: Scenario, variant: Variant) -> Volume:
    """Return the traffic of one step of *variant* without simulating it."""
    return traffic_of(scenario.at(variant), record(scenario.at(variant), variant))


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


def report(
    scenario: Scenario, outcomes: Iterable[Outcome | Failure], version: str, *, detail: bool = False
) -> dict[str, Any]:
    """Return what ``--json`` prints; a variant that cannot run is a result with a reason.

    Parameters
    ----------
    detail
        Add what only single operations can tell; long steps are simulated for it.
    """
    return {
        "scenario": dict(scenario.raw),
        "version": version,
        "results": [_result(scenario, item, detail=detail) for item in outcomes],
    }


def _result(scenario: Scenario, item: Outcome | Failure, *, detail: bool) -> dict[str, Any]:
    if isinstance(item, Outcome):
        return item.result.as_json() | (item.details() if detail else {})
    return failed(scenario.at(item.variant), item.variant, str(item.error)) | (dict.fromkeys(DETAILS) if detail else {})
