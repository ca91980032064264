"""Long gradient accumulation at the price of a short one.

Once every micro-batch is like the one before (:mod:`simulator.clock.periodic`), each further one adds the same to every
reading: a reading of k micro-batches is a straight line in k.  So three short steps are simulated, whose numbers of
micro-batches are a period apart; the longest must be periodic, on the real network and on an infinitely fast one,
and all of their readings must lie on lines.  If not, longer ones are tried, as long as all of them together cost less
than half of the step itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from math import lcm
from typing import Any, Final

from simulator.clock.cast import Stage
from simulator.clock.periodic import Window, period_of, windows
from simulator.clock.recurrence import replayed
from simulator.clock.stage import stage
from simulator.clock.timeline import Timeline
from simulator.played import Read, play
from simulator.schedules.record import record
from simulator.world.scenario import Scenario, Variant

__all__ = ["extended", "is_periodic", "lengths", "read_off", "shortened"]

SHORTEST: Final = 4
"""Micro-batches of the longest of the three steps at first: the first and the last one are unlike the others."""

ROUNDING: Final = 1e-11
"""What second differences of readings may be, relative to them or to the step."""


class _NoLineError(Exception):
    """Readings that do not lie on a line."""


def extended(scenario: Scenario, variant: Variant) -> Read | None:
    """Read a step of *variant*, where it runs, off shorter ones; None if that is not possible or not worth it."""
    for counts in lengths(scenario):
        shorter = [shortened(scenario, count) for count in counts]
        stages = [stage(item, record(item, variant)) for item in shorter]
        played = [play(item, variant, ready) for item, ready in zip(shorter, stages, strict=True)]
        found = [
            windows(*(cast.program for cast in casts))
            for casts in zip(*(ready.classes for ready in stages[-2:]), strict=True)
        ]
        if is_periodic(found, stages[-1], played[-1].timeline):
            read = read_off(scenario, counts, [item.read for item in played])
            if read is not None:
                return read
    return None


def lengths(scenario: Scenario, simulated: int = 3) -> Iterator[tuple[int, int, int]]:
    """Yield numbers of micro-batches, a period apart; nothing where no two are alike, or if that would not be worth it.

    Parameters
    ----------
    simulated
        How many of the three will be simulated, the last ones.
    """
    if scenario.jitter is not None or scenario.place.conditions.faults:
        return
    asked = scenario.training.gradient_accumulation
    period = lcm(*(len(factors) for item in scenario.uneven for factors in item.pace.micro_batches))
    spent, longest = 0, SHORTEST * period + (asked - SHORTEST * period) % period
    while 2 * (spent := spent + sum(longest - number * period for number in range(simulated))) <= asked:
        yield longest - 2 * period, longest - period, longest
        longest = 2 * longest + (asked - 2 * longest) % period


def shortened(scenario: Scenario, micro_batches: int) -> Scenario:
    """Return *scenario* with another number of micro-batches."""
    return replace(scenario, training=replace(scenario.training, gradient_accumulation=micro_batches))


def is_periodic(found: Sequence[Sequence[Window]], ready: Stage, played: Timeline) -> bool:
    """Say whether a step is periodic, also on an infinitely fast network.

    Parameters
    ----------
    found
        For each rank class what it does more than in a step that is a period shorter.
    ready, played
        The step, and what happened.
    """
    ideal = replayed(ready.classes)
    return all(
        not math.isnan(period_of(timeline, of_class))
        for of_class, *timelines in zip(found, played.classes, ideal, strict=True)
        for timeline in timelines
    )


def read_off(scenario: Scenario, counts: Sequence[int], reads: Sequence[Read]) -> Read | None:
    """Read the step off three that have so many micro-batches, the last one periodic; None if they lie on no line."""
    more = (scenario.training.gradient_accumulation - counts[-1]) // (counts[-1] - counts[-2])
    try:
        return _extended(reads, more)
    except _NoLineError:
        return None


def _extended(reads: Sequence[Read], more: int) -> Read:
    """Extend three reads by *more* periods."""
    times = [read.step.time for read in reads]
    line = _Line(more, step=times[-1], period=times[-1] - times[-2])
    steps = [read.step for read in reads]
    busy = [{kind: share * step.time for kind, share in step.links.items()} for step in steps]
    time = line.number(times)
    return Read(
        step=replace(
            steps[-1],
            time=time,
            totals=line.value([step.totals for step in steps]),
            phases=line.value([step.phases for step in steps]),
            links={kind: seconds / time for kind, seconds in line.value(busy).items()},
            peak=replace(
                line.same([replace(step.peak, at=0.0) for step in steps]),
                at=line.instant([step.peak.at for step in steps]),
            ),
            ran=line.same([step.ran for step in steps]),
            classes=line.value([step.classes for step in steps]),
        ),
        traffic=line.value([read.traffic for read in reads]),
        ideal_step=line.number([read.ideal_step for read in reads]),
    )


class _Line:
    """Extends three readings, a period apart each, by *more* periods.

    Parameters
    ----------
    more
        Periods.
    step
        The last of the three steps [s].
    period
        How much longer it is than the one before [s].
    """

    def __init__(self, more: int, *, step: float, period: float) -> None:
        self._more, self._step, self._period = more, step, period

    def value(self, readings: Sequence[Any]) -> Any:
        """Extend numbers in mappings, sequences and dataclasses; everything else must be the same."""
        last = readings[-1]
        if isinstance(last, bool | str) or last is None:
            return self.same(readings)
        if isinstance(last, int | float):
            return self.number(readings)
        if isinstance(last, Mapping):
            names = dict.fromkeys(name for reading in readings for name in reading)
            return {name: self.value([reading.get(name, 0.0) for reading in readings]) for name in names}
        if isinstance(last, tuple):
            if len({len(reading) for reading in readings}) > 1:
                raise _NoLineError
            found = [self.value(items) for items in zip(*readings, strict=True)]
            return type(last)(*found) if hasattr(last, "_fields") else tuple(found)
        return replace(
            last, **{name: self.value([getattr(reading, name) for reading in readings]) for name in _names(last)}
        )

    def number(self, values: Sequence[Any]) -> Any:
        """Extend one number."""
        first, second, last = values
        if not self._is_close(last - second, second - first, last):
            raise _NoLineError
        return last + self._more * (last - second)

    def same(self, readings: Sequence[Any]) -> Any:
        """Return the last of what must be the same, but for rounding."""
        last = readings[-1]
        if is_dataclass(last):
            pairs = [(name, getattr(reading, name)) for reading in readings for name in _names(last)]
            for name in _names(last):
                self.same([value for other, value in pairs if other == name])
        elif isinstance(last, Mapping):
            if any(reading.keys() != last.keys() for reading in readings):
                raise _NoLineError
            for name in last:
                self.same([reading[name] for reading in readings])
        elif not all(
            reading == last or (isinstance(last, float) and self._is_close(reading, last, last)) for reading in readings
        ):
            raise _NoLineError
        return last

    def instant(self, instants: Sequence[float]) -> float:
        """Extend an instant, which either stays where it is or comes a period later with every period."""
        moved = instants[-1] - instants[-2]
        if not any(self._is_close(moved, by, instants[-1]) for by in (0.0, self._period)):
            raise _NoLineError
        return float(self.number(instants))

    def _is_close(self, some: float, other: float, size: float) -> bool:
        return abs(some - other) <= ROUNDING * max(abs(size), self._step)


def _names(reading: Any) -> list[str]:
    return [item.name for item in fields(reading)]
