"""One simulated step, and all that a report is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.clock.cast import Stage
from simulator.clock.engine import simulate
from simulator.clock.recurrence import step_time
from simulator.clock.timeline import Timeline
from simulator.laws.collectives.library import library
from simulator.readings.exposure import Exposure, exposure
from simulator.readings.report import states_of
from simulator.readings.step import Step, step_of
from simulator.readings.volume import Volume, volume
from simulator.schedules.program import Program
from simulator.world.scenario import Scenario, Variant
from simulator.world.training import ELEMENT_BYTES

__all__ = ["Played", "Read", "play", "traffic_of"]


class Read(NamedTuple):
    """What a report is made of."""

    step: Step
    traffic: Volume
    ideal_step: float
    """Step time on an infinitely fast network [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What happened, and what was read off it."""

    ready: Stage
    timeline: Timeline
    reading: Exposure
    """Of the first rank class."""
    read: Read


def play(scenario: Scenario, variant: Variant, ready: Stage) -> Played:
    """Simulate *variant*, its program already set on the stage where it runs, and on an infinitely fast network."""
    timeline = simulate(ready)
    reading = exposure(timeline.classes[0], timeline.step_time)
    read = Read(
        step=step_of(timeline, reading, states_of(scenario, variant)),
        traffic=traffic_of(scenario, ready.classes[0].program),
        ideal_step=step_time(ready.classes),
    )
    return Played(ready=ready, timeline=timeline, reading=reading, read=read)


def traffic_of(scenario: Scenario, program: Program) -> Volume:
    """Return the traffic of *program* where the scenario runs it."""
    model_bytes = scenario.model.elements * ELEMENT_BYTES[scenario.training.precision]
    collectives = library(scenario.cluster, scenario.place.library, scenario.place.forced)
    return volume(program, collectives, scenario.mesh, float(model_bytes))
