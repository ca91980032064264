"""Charges of idle stretches over vectors: the rules of :mod:`simulator.readings.exposure`, all lanes side by side.

Vectors have one element per lane.  Numbers are those of spans; nobody's is -1, and its end lies before all times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.evaluate import Batch
from simulator.clock.batch.lanes import Array, Numbers
from simulator.clock.timeline import ClassTimeline
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.readings.exposure import CAUSES, COMPUTE, TIES
from simulator.readings.needed import needed_by
from simulator.schedules.program import Event, HostWork, Launch, Synchronize, Wait

__all__ = ["Charging"]

Mask = npt.NDArray[np.bool_]

NOBODY = -1
BEFORE_ALL = -np.inf


class _Source(NamedTuple):
    """The span whose end was waited for."""

    number: Numbers
    end: Array


class _Happened(NamedTuple):
    """An event that something waits for."""

    at: Array
    source: _Source


class _Blocked(NamedTuple):
    """The last time that the host was blocked."""

    end: Array
    by_limit: Mask
    """By a bound on what may be gathered ahead."""
    source: _Source


class _Delay(NamedTuple):
    """Something that held a span back until a moment, and need not have."""

    until: Array
    cause: str


class _Trail:
    """What waits were for, found along the program in issue order."""

    def __init__(self, batch: Batch) -> None:
        self._starts, self._ends = batch.starts, batch.ends
        program, count = batch.lanes.plan.program, batch.lanes.count
        self.nobody = _Source(np.full(count, NOBODY), np.full(count, BEFORE_ALL))
        self.events: dict[Event, _Happened] = {}
        self.launches: list[int] = []
        """Instruction of each span."""
        self.issued: list[Array] = []
        """By span."""
        self.blocked: list[_Blocked] = []
        """By span: as it was when the host launched it."""
        self._host = np.zeros(count)
        self._was = _Blocked(self.nobody.end, np.zeros(count, dtype=np.bool_), self.nobody)
        self._tails = [_Happened(self._host, self.nobody) for _ in program.streams]
        self._entries = [0] * len(program.streams)
        awaited = program.awaited()
        for index, item in enumerate(program.instructions):
            self._follow(index, item)
            if isinstance(item, Launch | Wait):
                self._entries[item.stream] += 1
                if (position := self._entries[item.stream]) in awaited[item.stream]:
                    source = self._tails[item.stream].source
                    self.events[Event(item.stream, position)] = _Happened(self._ends[index], source)

    def _follow(self, index: int, item: Launch | Wait | Synchronize | HostWork) -> None:
        if isinstance(item, Launch):
            self.issued.append(self._host)
            self.blocked.append(self._was)
            source = _Source(np.full(len(self._host), len(self.launches)), self._ends[index])
            self._tails[item.stream] = _Happened(self._ends[index], source)
            self.launches.append(index)
        elif isinstance(item, Wait):
            happened, tail = self.events[item.event], self._tails[item.stream]
            self._tails[item.stream] = _later(tail, happened)
        else:
            if isinstance(item, Synchronize) and item.event.position:
                self._block(index, item)
            self._host = self._ends[index]

    def _block(self, index: int, item: Synchronize) -> None:
        """Remember what blocked the host in the lanes in which anything did."""
        end, was, source = self._ends[index], self._was, self.events[item.event].source
        now = end > self._host
        self._was = _Blocked(
            np.where(now, end, was.end),
            np.where(now, item.reason == "prefetch limit", was.by_limit),
            _Source(np.where(now, source.number, was.source.number), np.where(now, source.end, was.source.end)),
        )


def _later(some: _Happened, other: _Happened) -> _Happened:
    """Whichever happened later; *some* if neither did."""
    later = other.at > some.at
    source = _Source(
        np.where(later, other.source.number, some.source.number), np.where(later, other.source.end, some.source.end)
    )
    return _Happened(np.maximum(some.at, other.at), source)


def _latest(sources: Sequence[_Source]) -> _Source:
    """The one that ended last, the first of them if several did."""
    return reduce(lambda some, other: _later(_Happened(some.end, some), _Happened(other.end, other)).source, sources)


def _distinct(numbers: Numbers) -> list[int]:
    """The spans among *numbers*."""
    return [number - 1 for number in np.flatnonzero(np.bincount(numbers + 1)).tolist() if number]


class Charging:
    """Charges the idle stretches of the compute streams of all lanes.

    Parameters
    ----------
    batch
        What happened.
    pattern
        Timeline of any of its lanes; only what the program fixes is read off it.
    """

    def __init__(self, batch: Batch, pattern: ClassTimeline) -> None:
        self._lanes, self._operations = batch.lanes, pattern.program.operations
        self._spans, self._needed, self._trail = pattern.spans, needed_by(pattern), _Trail(batch)
        self._starts = [batch.starts[index] for index in self._trail.launches]
        self._ends = [batch.ends[index] for index in self._trail.launches]
        self._zeros = np.zeros(batch.lanes.count)
        self._met = {
            number: batch.met[index] for number, index in enumerate(self._trail.launches) if index in batch.met
        }
        """When the last member reached each collective, by span, where ranks wait for each other."""
        self._held_back: dict[int, tuple[list[_Delay], _Source]] = {}
        self.host_bound = self._zeros.copy()
        self.by_cause = {cause: self._zeros.copy() for cause in CAUSES}
        self.by_collective: dict[str, Array] = defaultdict(self._zeros.copy)
        self._charge_all()

    def _charge_all(self) -> None:
        idle_from = self._zeros
        for span in self._spans:
            if span.launch.stream != COMPUTE:
                continue
            if isinstance(self._operations[span.launch.operation], Collective | Transfer):
                self._in_line(span.number, idle_from)
            elif np.count_nonzero(idles := self._starts[span.number] > idle_from):
                self._released(span.number, idle_from, idles)
            idle_from = self._ends[span.number]

    def _charge(self, number: int, cause: str, time: Array) -> None:
        """Charge *time* to span *number*."""
        operation = self._operations[self._spans[number].launch.operation]
        role = operation.role if isinstance(operation, Collective | Transfer) else operation.serves or operation.kind
        self.by_cause[cause] += time
        self.by_collective[role] += time

    def _in_line(self, number: int, begin: Array) -> None:
        """Charge a collective in the compute stream: its own time, its place in the queue, what it was issued after."""
        reached = np.maximum(self._trail.issued[number], self._reached(number))
        met = self._met.get(number, reached)
        self._charge_own_time(number, self._ends[number] - self._starts[number])
        self._charge(number, "queueing", self._starts[number] - met)
        self._charge(number, "skew", met - reached)
        self._released(number, begin, reached > begin)

    def _reached(self, number: int) -> Array:
        """When the stream got to a span, if the host had launched it."""
        span = self._spans[number]
        moments = [self._trail.events[wait.event].at for wait in span.waits]
        return reduce(np.maximum, moments, self._ends[span.before] if span.before != NOBODY else self._zeros)

    def _released(self, number: int, begin: Array, idles: Mask) -> None:
        """Charge the time from *begin* to the start of a span, or to when its stream reached it, where it *idles*."""
        last = _latest([self._trail.nobody, *self._sources(number, data_alone=False)])
        issued = self._trail.issued[number]
        late = idles & (issued > last.end)
        if np.count_nonzero(late):
            self._wait_for_host(number, begin, late)
        self._chain(np.where(idles & ~late, last.number, NOBODY), begin)

    def _sources(self, number: int, *, data_alone: bool) -> list[_Source]:
        """What the waits before a span were for."""
        waits = (wait for wait in self._spans[number].waits if wait.reason == "data" or not data_alone)
        return [self._trail.events[wait.event].source for wait in waits]

    def _wait_for_host(self, number: int, begin: Array, idles: Mask) -> None:
        """Charge a launch that came late: the host worked, or was itself blocked until some event."""
        issued, blocked = self._trail.issued[number], self._trail.blocked[number]
        was_blocked = idles & (blocked.end > begin)
        self.host_bound += np.where(idles, issued - np.where(was_blocked, blocked.end, begin), 0.0)
        self._chain(np.where(was_blocked, blocked.source.number, NOBODY), begin)

    def _chain(self, need: Numbers, begin: Array) -> None:
        """Charge the time from *begin* to the end of what each lane *needs*: to it, to what that needed, and so on."""
        while numbers := _distinct(need):
            following = np.full(len(need), NOBODY)
            for number in numbers:
                left = np.where(need == number, np.maximum(self._ends[number] - begin, 0.0), 0.0)
                if self._computes(number):
                    self.host_bound += left
                elif np.count_nonzero(left):
                    before = self._charge_span(number, left)
                    np.copyto(following, before, where=left > 0)
            need = following

    def _charge_span(self, number: int, left: Array) -> Numbers:
        """Charge the time *left* before the end of a span: its delays, then its own time; return what it needed."""
        delays, need = self._delays(number)
        floor = np.maximum(need.end, 0.0)
        latest = reduce(np.maximum, (delay.until for delay in delays), floor)
        copies = isinstance(self._operations[self._spans[number].launch.operation], Transfer)
        for place, (until, cause) in enumerate(delays):
            time = np.clip(left - (latest - until), 0.0, until - self._next(place, delays, floor))
            if copies and cause == "host":
                self.host_bound += time
            else:
                self._charge(number, cause, time)
        ran = self._ends[number] - self._starts[number]
        self._charge_own_time(number, np.minimum(np.maximum(left - (latest - floor), 0.0), ran))
        return need.number

    @staticmethod
    def _next(place: int, delays: Sequence[_Delay], floor: Array) -> Array:
        """When a delay begins to count: at the next earlier one, or *floor*; of two at once the second counts."""
        until, earlier = delays[place].until, floor
        for other, delay in enumerate(delays):
            if other != place:
                is_earlier = delay.until <= until if other > place else delay.until < until
                earlier = np.maximum(earlier, np.where(is_earlier, delay.until, floor))
        return earlier

    def _charge_own_time(self, number: int, time: Array) -> None:
        """Charge *time* that a span ran."""
        operation = self._spans[number].launch.operation
        if isinstance(self._operations[operation], Kernel):
            self._charge(number, "copy", time)
            return
        ran = self._ends[number] - self._starts[number]
        share = np.divide(self._lanes.latency[operation], ran, out=np.zeros_like(ran), where=ran > 0)
        latency = time * np.minimum(share, 1.0)
        self._charge(number, "bandwidth", time - latency)
        self._charge(number, "latency", latency)

    def _delays(self, number: int) -> tuple[list[_Delay], _Source]:
        """What held a span back without need, in the order of causes, and the last thing that it needed."""
        if number not in self._held_back:
            need = _latest(self._needs(number))
            floor = np.maximum(need.end, 0.0)
            found = self._waited_for(number, floor)
            late = [item for item in found if np.count_nonzero(item.until > floor)]
            late.sort(key=lambda item: TIES.index(item.cause))
            self._held_back[number] = [_Delay(np.maximum(until, floor), cause) for until, cause in late], need
        return self._held_back[number]

    def _needs(self, number: int) -> list[_Source]:
        """All that a span waited for because it needed it."""
        span, blocked = self._spans[number], self._trail.blocked[number]
        blocker = np.where(blocked.by_limit, NOBODY, blocked.source.number)
        needs = [_Source(blocker, np.where(blocked.by_limit, BEFORE_ALL, blocked.source.end))]
        needs += self._sources(number, data_alone=True)
        for index in {span.before, span.behind} - {NOBODY}:
            if self._needed[index] <= self._needed[number]:
                needs.append(_Source(np.full(len(self._zeros), index), self._ends[index]))
        return needs

    def _waited_for(self, number: int, floor: Array) -> list[_Delay]:
        """All that a span waited for without need, as far as it ended after *floor*."""
        span, blocked = self._spans[number], self._trail.blocked[number]
        delays = [_Delay(self._trail.issued[number], "host"), *self._late_ranks(number)]
        delays.append(_Delay(np.where(blocked.by_limit, blocked.end, BEFORE_ALL), "prefetch limit"))
        if self._met:
            delays += self._late_blockers(np.where(blocked.by_limit, blocked.source.number, NOBODY), floor)
        delays += [
            _Delay(self._trail.events[wait.event].at, wait.reason) for wait in span.waits if wait.reason != "data"
        ]
        for index in {span.before, span.behind} - {NOBODY}:
            if self._needed[index] > self._needed[number]:
                delays.append(_Delay(self._ends[index], "queueing"))
                delays += self._late_before(index, "queueing", self._ends[index] > floor, floor)
        return delays

    def _late_ranks(self, number: int) -> list[_Delay]:
        """The wait of a span for late ranks."""
        return [_Delay(self._where_late(number, self._met[number]), "skew")] if number in self._met else []

    def _where_late(self, number: int, until: Array) -> Array:
        """*until*, where a span waited for late ranks."""
        reached = np.maximum(self._trail.issued[number], self._reached(number))
        return np.where(self._met[number] > reached, until, BEFORE_ALL)

    def _late_before(self, number: int, cause: str, lanes: Mask, floor: Array) -> list[_Delay]:
        """Waits for late ranks of a span that holds others back by *cause* in *lanes*, and of what it queued for.

        Only what ended after *floor* is looked at, as no wait before that counts.
        """
        delays, held = list[_Delay](), {number: lanes}
        while held:
            number = max(held)  # what it queued for or followed was launched before
            lanes, span = held.pop(number), self._spans[number]
            reached = np.maximum(self._trail.issued[number], self._reached(number))
            met = self._met.get(number, reached)
            for until, of in ((met, "skew"), (reached, cause)) if number in self._met else ():
                delays.append(_Delay(np.where(lanes, self._where_late(number, until), BEFORE_ALL), of))
            queued = self._starts[number] > met
            for follows, where in ((span.behind, queued), (span.before, ~queued)):
                if follows != NOBODY:
                    mine = lanes & where & (self._ends[follows] >= np.maximum(reached, np.nextafter(floor, np.inf)))
                    if np.count_nonzero(mine):
                        held[follows] = held[follows] | mine if follows in held else mine
        return delays

    def _late_blockers(self, numbers: Numbers, floor: Array) -> list[_Delay]:
        """The same of the spans, one for each lane, that a bound on what may be gathered ahead waited for."""
        return [
            delay
            for number in _distinct(numbers)
            for delay in self._late_before(number, "prefetch limit", numbers == number, floor)
        ]

    def _computes(self, number: int) -> bool:
        launch = self._spans[number].launch
        return launch.stream == COMPUTE and isinstance(self._operations[launch.operation], Kernel)
