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

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.lanes import Array, Fallback, Lanes
from simulator.clock.batch.sharing import shares_a_link
from simulator.clock.batch.slowdown import Beside
from simulator.clock.engine import simulate
from simulator.clock.stage import NO_COMMUNICATOR
from simulator.clock.timeline import Timeline
from simulator.schedules.program import HostWork, Launch

__all__ = ["Batch", "evaluate"]

MOST_PASSES = 32
"""After so many, lanes that still change are left to the engine."""


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
    passes = _Passes(lanes)
    settled = passes.until_settled()
    starts, ends = passes.starts(), passes.ends()
    fallback = np.broadcast_to(lanes.at_once[0], lanes.count).copy()
    for reason, mask in ((Fallback.UNSETTLED, ~settled), (Fallback.SHARING, shares_a_link(lanes, starts, ends))):
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


class _Passes:
    """Starts and ends of all instructions, pass by pass."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes, self._plan = lanes, lanes.plan
        size = len(self._plan.program.instructions)
        self._starts: list[Array | None] = [None] * size
        self._ends: list[Array | None] = [None] * size
        self._zero = np.zeros(lanes.count)
        self._durations = tuple(_durations(lanes))
        interferes = bool((np.maximum(lanes.held, lanes.moved) * lanes.most).any())
        self._slowed = _slowed(lanes) if interferes else {}

    def until_settled(self) -> npt.NDArray[np.bool_]:
        """Evaluate until nothing changes; say for each lane whether it came to rest."""
        self._evaluate()
        if self._plan.one_pass or not self._slowed:
            return np.ones(self._lanes.count, dtype=np.bool_)
        changed = np.ones(self._lanes.count, dtype=np.bool_)
        for _ in range(MOST_PASSES):
            changed = self._evaluate()
            if not changed.any():
                break
        return ~changed

    def starts(self) -> list[Array]:
        """Of all instructions."""
        return [row for row in self._starts if row is not None]

    def ends(self) -> list[Array]:
        """Of all instructions."""
        return [row for row in self._ends if row is not None]

    def _evaluate(self) -> npt.NDArray[np.bool_]:
        """Evaluate all instructions once; say in which lanes a kernel ends at another time than before."""
        changed = np.zeros(self._lanes.count, dtype=np.bool_)
        beside = Beside(self._lanes, self._starts, self._ends)
        for index in self._plan.order:
            start = end = self._ready(self._plan.after[index])
            if index in self._slowed:
                end, before = beside.end(self._slowed[index], start), self._ends[index]
                if before is not None:
                    changed |= end != before
            elif (duration := self._durations[index]) is not None:
                end = start + duration
            self._starts[index], self._ends[index] = start, end
        return changed

    def _ready(self, needs: Sequence[int]) -> Array:
        """When all of *needs* are done."""
        if not needs:
            return self._zero
        ends = [self._ends[need] for need in needs]
        return reduce(np.maximum, [end for end in ends if end is not None])


def _durations(lanes: Lanes) -> Iterator[Array | None]:
    """Time of each instruction when nothing slows it; None for waits."""
    host = iter(lanes.host)
    for item in lanes.plan.program.instructions:
        if isinstance(item, HostWork):
            yield next(host)
        else:
            yield lanes.alone[item.operation] if isinstance(item, Launch) else None


def _slowed(lanes: Lanes) -> dict[int, Launch]:
    """Launches of kernels that take time, by instruction."""
    takes_time = lanes.alone.any(axis=1)
    return {
        index: item
        for index, item in enumerate(lanes.plan.program.instructions)
        if isinstance(item, Launch)
        and lanes.plan.communicators[item.operation] == NO_COMMUNICATOR
        and takes_time[item.operation]
    }
