r"""The (max, +) recurrence of the engine over vectors, one lane per scenario.

An instruction starts when everything it waits for is done, and takes what it takes alone, for

.. math:: start_i = \max_{j \in after(i)} end_j, \quad end_i = start_i + alone_i

unless it is a kernel beside collectives (:mod:`simulator.clock.batch.slowdown`).  That is the engine's answer as long
as no two transfers share a link; lanes in which they do fall back to the engine (:mod:`simulator.clock.batch.sharing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.lanes import Array, Fallback, Lanes
from simulator.clock.batch.sharing import shares_a_link
from simulator.clock.batch.slowdown import Beside
from simulator.clock.engine import simulate
from simulator.clock.timeline import Timeline
from simulator.schedules.program import HostWork, Launch

__all__ = ["Batch", "evaluate"]

MOST_PASSES = 8
"""After so many, all lanes are left to the engine."""


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

    def reasons(self) -> dict[str, int]:
        """How many lanes fell back, by reason."""
        return {reason.name.lower(): int((self.fallback == reason).sum()) for reason in Fallback if reason}


def evaluate(lanes: Lanes) -> Batch:
    """Replay the program in all lanes."""
    replay = _Replay(lanes)
    unsettled = not replay.comes_to_rest()
    starts, ends = replay.starts(), replay.ends()
    fallback = np.broadcast_to(lanes.at_once[0], lanes.count).copy()
    reasons = ((Fallback.UNSETTLED, unsettled), (Fallback.SHARING, shares_a_link(lanes, starts, ends)))
    for reason, mask in reasons:
        fallback[mask & (fallback == Fallback.NONE)] = reason
    timelines = {int(lane): simulate(lanes.stages[lane]) for lane in np.flatnonzero(fallback)} if lanes.stages else {}
    step_time = np.where(fallback == Fallback.NONE, _last_end(lanes, ends), np.nan)
    for lane, timeline in timelines.items():
        step_time[lane] = timeline.step_time
    return Batch(lanes=lanes, starts=starts, ends=ends, step_time=step_time, fallback=fallback, timelines=timelines)


def _last_end(lanes: Lanes, ends: Sequence[Array]) -> Array:
    """End of the last operation, by lane."""
    steps = zip(lanes.plan.program.instructions, ends, strict=True)
    last = {item.stream: end for item, end in steps if isinstance(item, Launch)}
    return reduce(np.maximum, last.values(), np.zeros(lanes.count))


class _Replay:
    """Starts and ends of all instructions.

    Each is evaluated in its turn, and once more when something has changed that it rests on: what it waits for, or, for
    a kernel, a collective beside it that came later in the order.  It ends with a pass that changes nothing.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._plan = lanes.plan
        size = len(self._plan.order)
        self._starts: list[Array | None] = [None] * size
        self._ends: list[Array | None] = [None] * size
        self._zero = np.zeros(lanes.count)
        self._durations = tuple(_durations(lanes))
        self._slowed = _slowed(lanes)
        self._beside = Beside(lanes, self._starts, self._ends)
        self._place = {index: place for place, index in enumerate(self._plan.order)}

    def comes_to_rest(self) -> bool:
        """Pass over the program until nothing changes; say whether that takes no more than :data:`MOST_PASSES`."""
        return any(not self._changes() for _ in range(MOST_PASSES))

    def starts(self) -> list[Array]:
        """Of all instructions."""
        return [row for row in self._starts if row is not None]

    def ends(self) -> list[Array]:
        """Of all instructions."""
        return [row for row in self._ends if row is not None]

    def _changes(self) -> bool:
        """Evaluate all instructions; say whether any had to be corrected."""
        corrected = False
        for now in range(len(self._plan.order)):
            again = [now]
            while again:
                place = heappop(again)
                index = self._plan.order[place]
                before = self._starts[index], self._ends[index]
                self._evaluate(index)
                if before[1] is None or (before[1] != self._ends[index]).any():
                    corrected |= before[1] is not None
                    for other in {self._place[item] for item in self._resting_on(index, *before)} - {*again}:
                        if other <= now:
                            heappush(again, other)
        return corrected

    def _evaluate(self, index: int) -> None:
        start = end = self._ready(self._plan.after[index])
        if index in self._slowed:
            end = self._beside.end(index, start)
        elif (duration := self._durations[index]) is not None:
            end = start + duration
        self._starts[index], self._ends[index] = start, end

    def _ready(self, needs: Sequence[int]) -> Array:
        """When all of *needs* are done."""
        if not needs:
            return self._zero
        ends = [self._ends[need] for need in needs]
        return reduce(np.maximum, [end for end in ends if end is not None])

    def _resting_on(self, index: int, start: Array | None, end: Array | None) -> Iterator[int]:
        """Yield what has to hear of a change of *index*, which ran from *start* to *end* before."""
        yield from self._plan.followers[index]
        if self._slowed and index in self._plan.heard:
            yield from self._beside.kernels(index, start, end)


def _durations(lanes: Lanes) -> Iterator[Array | None]:
    """Time of each instruction when nothing slows it; None for waits."""
    host = iter(lanes.host)
    for item in lanes.plan.program.instructions:
        if isinstance(item, HostWork):
            yield next(host)
        else:
            yield lanes.alone[item.operation] if isinstance(item, Launch) else None


def _slowed(lanes: Lanes) -> frozenset[int]:
    """Kernels that take time, if anything slows kernels."""
    if not (np.maximum(lanes.held, lanes.moved) * lanes.most).any():
        return frozenset()
    takes_time, instructions = lanes.alone.any(axis=1), lanes.plan.program.instructions
    return frozenset(
        index
        for of_stream in lanes.plan.kernels
        for index in of_stream
        if isinstance(item := instructions[index], Launch) and takes_time[item.operation]
    )
