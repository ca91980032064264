"""What is read off one step of a rank: the numbers that a report is made of, and nothing that needs spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from simulator.clock.timeline import Timeline
from simulator.readings.exposure import Exposure, Totals, exposure
from simulator.readings.footprint import Peak, allocated_on, peak, what_ran
from simulator.readings.phases import phases
from simulator.schedules.program import Program

__all__ = ["ClassTotals", "Step", "step_of"]


class ClassTotals(NamedTuple):
    """Where the time of one rank class went."""

    name: str
    ranks: int
    totals: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the ranks of a class."""

    program: Program
    time: float
    """Until the last class is done [s]."""
    totals: Totals
    phases: Mapping[str, float]
    """As :func:`~simulator.readings.phases.phases`."""
    links: Mapping[str, float]
    """Utilisation by kind of link, busiest first."""
    peak: Peak
    ran: tuple[str, str]
    """Phase and module that compute ran at the peak of memory."""
    classes: tuple[ClassTotals, ...]
    """All rank classes, this one first; empty if each rank was simulated."""


def step_of(timeline: Timeline, reading: Exposure, states: Mapping[str, float]) -> Step:
    """Read the first rank class of *timeline*; *states* are the bytes that it keeps from step to step, by item."""
    played = timeline.classes[0]
    found = peak(states, played.memory, allocated_on(played.program))
    return Step(
        program=played.program,
        time=timeline.step_time,
        totals=reading.totals(),
        phases=phases(played, timeline.step_time),
        links=timeline.utilisation(),
        peak=found,
        ran=what_ran(played, found.at),
        classes=_classes(timeline, reading),
    )


def _classes(timeline: Timeline, first: Exposure) -> tuple[ClassTotals, ...]:
    if len(timeline.classes) > 1 and all(item.ranks == 1 for item in timeline.classes):
        return ()
    others = [exposure(item, timeline.step_time) for item in timeline.classes[1:]]
    return tuple(
        ClassTotals(item.name, item.ranks, reading.totals())
        for item, reading in zip(timeline.classes, [first, *others], strict=True)
    )
