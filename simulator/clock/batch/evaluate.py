r"""The (max, +) recurrence of the engine over vectors, one lane per scenario.

An instruction starts when everything it waits for is done, and takes what it takes alone, for

.. math:: start_i = \max_{j \in after(i)} end_j, \quad end_i = start_i + alone_i

unless it is a kernel beside collectives (:mod:`simulator.clock.batch.slowdown`).  That is the engine's answer as long
as no two transfers share a link; lanes in which they do fall back to the engine (:mod:`simulator.clock.batch.sharing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.lanes import Array, Fallback, Lanes
from simulator.clock.batch.sharing import shares_a_link
from simulator.clock.batch.slowdown import Beside
from simulator.clock.engine import simulate
from simulator.clock.timeline import Timeline
from simulator.schedules.program import HostWork

__all__ = ["Batch", "evaluate"]

MOST_ROUNDS = 8
"""How often instructions may be evaluated on average before all lanes are left to the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What happened in all lanes.  Lists run parallel to the program's instructions; their arrays have (lanes,)."""

    lanes: Lanes
    starts: Sequence[Array]
    """When everything that an instruction waits for was done [s]."""
    ends: Sequence[Array]
    """[s]"""
    step_time: Array
    """[s]; not a number where a lane fell back and there was no stage for the engine."""
    fallback: npt.NDArray[np.int8]
    """Why each lane fell back, as :class:`~simulator.clock.batch.lanes.Fallback`; there only ``timelines`` counts."""
    timelines: Mapping[int, Timeline]
    """Of the lanes that fell back, by the engine."""
    met: Mapping[int, Array]
    """Where lanes are ranks of one job: when the last member had reached each collective, by instruction [s]."""

    def reasons(self) -> dict[str, int]:
        """How many lanes fell back, by reason."""
        return {reason.name.lower(): int((self.fallback == reason).sum()) for reason in Fallback if reason}


def evaluate(lanes: Lanes) -> Batch:
    """Replay the program in all lanes."""
    replay = _Replay(lanes)
    unsettled = np.full(lanes.count, not replay.comes_to_rest())
    starts, ends = replay.starts(), replay.ends()
    fallback = np.broadcast_to(lanes.at_once[0], lanes.count).copy()
    reasons = ((Fallback.UNSETTLED, unsettled), (Fallback.SHARING, shares_a_link(lanes, starts, ends)))
    for reason, mask in reasons:
        fallback[mask & (fallback == Fallback.NONE)] = reason
    timelines = {int(lane): simulate(lanes.stages[lane]) for lane in np.flatnonzero(fallback)} if lanes.stages else {}
    last = _last_end(lanes, ends)
    step_time = np.where(fallback == Fallback.NONE, lanes.meeting.ended(last) if lanes.meeting else last, np.nan)
    for lane, timeline in timelines.items():
        step_time[lane] = timeline.step_time
    return Batch(
        lanes=lanes,
        starts=starts,
        ends=ends,
        step_time=step_time,
        fallback=fallback,
        timelines=timelines,
        met=replay.met,
    )


def _last_end(lanes: Lanes, ends: Sequence[Array]) -> Array:
    """End of the last operation, by lane."""
    last = {stream: end for stream, end in zip(lanes.plan.streams, ends, strict=True) if stream >= 0}
    return reduce(np.maximum, last.values(), np.zeros(lanes.count))


class _Replay:
    """Starts and ends of all instructions.

    Each is evaluated in its turn, and once more when something has changed that it rests on: what it waits for, or, for
    a kernel, a collective beside it that came later in the order.  It ends with a pass that corrects nothing.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._plan = lanes.plan
        size = len(self._plan.order)
        self._starts: list[Array | None] = [None] * size
        self._ends: list[Array | None] = [None] * size
        self._room = np.empty((size, 2, lanes.count))  # one piece: small ones cost as much as all of the arithmetic
        self._zero = np.zeros(lanes.count)
        self._durations = _durations(lanes)
        self._slowed = _slowed(lanes)
        self._beside = Beside(lanes, self._starts, self._ends)
        self._meeting, self.met = lanes.meeting, dict[int, Array]()
        self._corrected = False
        self._left = MOST_ROUNDS * size

    def comes_to_rest(self) -> bool:
        """Pass over the program until nothing is corrected; say whether :data:`MOST_ROUNDS` were enough."""
        while self._corrects():
            if self._left <= 0:
                return False
        return True

    def starts(self) -> list[Array]:
        """Of all instructions."""
        return [row for row in self._starts if row is not None]

    def ends(self) -> list[Array]:
        """Of all instructions."""
        return [row for row in self._ends if row is not None]

    def _corrects(self) -> bool:
        """Evaluate all instructions; say whether any had to be evaluated again to another end."""
        self._corrected = False
        for last, index in enumerate(self._plan.order):
            again = self._places(self._update(index), last)
            while again and self._left > 0:
                place = min(again)  # most of what rests on something comes later
                again.remove(place)
                again |= self._places(self._update(self._plan.order[place]), last)
            self._corrected |= bool(again)  # there is no end of it
        return self._corrected

    def _places(self, touched: Iterable[int], last: int) -> set[int]:
        """Places of *touched* in the order, up to the *last* one evaluated."""
        return {place for index in touched if (place := self._plan.places[index]) <= last}

    def _update(self, index: int) -> Iterator[int]:
        """Evaluate an instruction and yield what rests on it, if it has not happened at that time before."""
        start, end = self._starts[index], self._ends[index]
        self._left -= 1
        now = self._evaluate(index)
        if end is not None:
            if not np.count_nonzero(end != now):
                return
            self._corrected = True
            yield from self._plan.followers[index]
        if self._slowed and index in self._plan.heard:
            yield from self._beside.kernels(index, start, end)

    def _evaluate(self, index: int) -> Array:
        room = self._room[index] if self._ends[index] is None else np.empty_like(self._room[index])
        start = end = self._start(index, room[0])
        if (duration := self._durations[index]) is not None:
            end = np.add(start, duration, out=room[1])
        if index in self._slowed:
            self._beside.prolong(index, start, end)
        self._starts[index], self._ends[index] = start, end
        return end

    def _start(self, index: int, room: Array) -> Array:
        """When everything that an instruction waits for is done, and every rank that it needs is there."""
        arrival = self._plan.arrivals.get(index)
        if self._meeting is None or arrival is None or arrival.communicator not in self._meeting.members:
            return self._ready(self._plan.after[index], room)
        reached = self._ready(arrival.needs, np.empty_like(room))
        met = self.met[index] = self._meeting.met(arrival.communicator, reached, index)
        return self._ready([arrival.behind], room, met) if arrival.behind is not None else met

    def _ready(self, needs: Sequence[int], room: Array, earliest: Array | None = None) -> Array:
        """When all of *needs* are done, not before *earliest*; *room* is for the answer if it is nobody's end."""
        latest = earliest
        for need in needs:
            end = self._ends[need]
            assert end is not None
            latest = end if latest is None else np.maximum(latest, end, out=room)
        return self._zero if latest is None else latest


def _durations(lanes: Lanes) -> list[Array | None]:
    """Time of each instruction when nothing slows it; None for waits."""
    durations = [lanes.alone[operation] if operation >= 0 else None for operation in lanes.plan.operations]
    works = (index for index, item in enumerate(lanes.plan.program.instructions) if isinstance(item, HostWork))
    for index, time in zip(works, lanes.host, strict=True):
        durations[index] = time
    return durations


def _slowed(lanes: Lanes) -> frozenset[int]:
    """Kernels that take time, if anything slows kernels."""
    if not (np.maximum(lanes.held, lanes.moved) * lanes.most).any():
        return frozenset()
    takes_time = {operation for operation, row in enumerate(lanes.alone) if row.any()}
    kernels = (index for of_stream in lanes.plan.kernels for index in of_stream)
    return frozenset(index for index in kernels if lanes.plan.operations[index] in takes_time)
