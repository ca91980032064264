r"""Kernels beside collectives whose times are known, in all lanes at once.

The instants at which collectives start and end cut the time after the start of a kernel into segments, in each of which
it has one pace s, the time that a second of work takes (:mod:`simulator.laws.interference`).  With w the work that is
left at t, a segment that ends at u does

.. math:: d = \min\left(\frac{\max(u - t, 0)}{s}, w\right), \quad t \leftarrow t + s d, \quad w \leftarrow w - d

and what is left after the last segment runs at full speed.  A lane whose kernel is done has w = 0 and stays where it is,
so lanes need no branches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from simulator.clock.batch.lanes import Array, Lanes
from simulator.schedules.program import Launch

__all__ = ["Beside"]

Segment = tuple[Array, Array | None]
"""End of a segment and the pace of the kernel in it; None where nothing is beside it."""


class Beside:
    """Walks kernels along the collectives beside them.

    Parameters
    ----------
    lanes
        What operations take.
    starts, ends
        Of instructions, None where not yet known; the caller fills them in.
    """

    def __init__(self, lanes: Lanes, starts: Sequence[Array | None], ends: Sequence[Array | None]) -> None:
        self._lanes, self._plan, self._starts, self._ends = lanes, lanes.plan, starts, ends
        launches = [
            (index, item) for index, item in enumerate(lanes.plan.program.instructions) if isinstance(item, Launch)
        ]
        self._operation = {index: item.operation for index, item in launches}
        self._stream = {index: item.stream for index, item in launches}
        self._held, self._moved = (1 / (1 - np.minimum(taken, lanes.most)) for taken in (lanes.held, lanes.moved))
        self._slowest = self._bound()
        self._near: dict[tuple[int, int], int] = defaultdict(int)
        """Where the search began to be right, by stream of kernels and communicator."""

    def _bound(self) -> Array:
        """Return a pace that no kernel exceeds, by lane."""
        bound = np.ones((1, self._lanes.count))
        for taken in (self._lanes.held, self._lanes.moved):
            peak = sum(
                (taken[[self._operation[index] for index in served]].max(axis=0) for served in self._plan.served),
                start=np.zeros(1),
            )
            bound = np.maximum(bound, 1 / (1 - np.minimum(peak, self._lanes.most)))
        return bound[0]

    def end(self, kernel: int, start: Array) -> Array:
        """Return when *kernel*, the number of an instruction, ends if it starts at *start*."""
        operation = self._operation[kernel]
        work, movement = self._lanes.alone[operation], self._lanes.movement[operation]
        latest = start + work * self._slowest
        windows = [list(self._window(kernel, number, start, latest)) for number in range(len(self._plan.served))]
        busy = [window for window in windows if window]
        segments = self._merged(busy, movement) if len(busy) > 1 else self._in_turn(busy, movement)
        return _walked(start, work, segments)

    def kernels(self, collective: int, start: Array | None, end: Array | None) -> Iterator[int]:
        """Yield kernels that a change of *collective*, which ran from *start* to *end* before, can touch."""
        begin, until = self._known(self._starts, collective), self._known(self._ends, collective)
        if start is not None and end is not None:
            begin, until = np.minimum(begin, start), np.maximum(until, end)
        for kernels, heard in zip(self._plan.kernels, self._plan.heard[collective], strict=True):
            first = bisect_left(kernels, True, heard, key=lambda index: not self._is_over(index, begin))
            for index in kernels[first:]:
                reached = self._starts[index]
                if reached is None or (reached >= until).all():
                    break
                yield index

    def _window(self, kernel: int, number: int, start: Array, latest: Array) -> Iterator[int]:
        """Yield the collectives of a communicator that can run in some lane between *start* and *latest*."""
        served, last = self._plan.served[number], self._plan.independent[kernel][number]
        for place in range(self._first_after(kernel, number, last, start), last):
            begin = self._starts[served[place]]
            if begin is None or (begin >= latest).all():
                return
            yield served[place]

    def _first_after(self, kernel: int, number: int, last: int, start: Array) -> int:
        """Place of the first collective, before *last*, that is not over in all lanes at *start*."""
        served, key = self._plan.served[number], (self._stream[kernel], number)
        place = min(self._near[key], last)
        while place and not self._is_over(served[place - 1], start):
            place -= 1
        while place < last and self._is_over(served[place], start):
            place += 1
        self._near[key] = place
        return place

    def _is_over(self, index: int, at: Array) -> bool:
        end = self._ends[index]
        return end is not None and bool((end <= at).all())

    def _in_turn(self, windows: Iterable[list[int]], movement: Array) -> Iterator[Segment]:
        """Yield the segments beside the collectives of one communicator, or of none."""
        for index in (index for window in windows for index in window):
            operation = self._operation[index]
            yield self._known(self._starts, index), None
            held, moved = self._held[operation], self._moved[operation]
            yield self._known(self._ends, index), held + movement * (moved - held)

    def _merged(self, windows: Iterable[list[int]], movement: Array) -> Iterator[Segment]:
        """Yield the segments beside the collectives of several communicators."""
        found = [index for window in windows for index in window]
        edges = np.stack([self._known(rows, index) for rows in (self._starts, self._ends) for index in found])
        order = np.argsort(edges, axis=0)
        held, moved = (self._paces(taken, found, order) for taken in (self._lanes.held, self._lanes.moved))
        for until, slow, slow_moving in zip(np.take_along_axis(edges, order, axis=0), held, moved, strict=True):
            yield until, slow + movement * (slow_moving - slow)

    def _paces(self, taken: Array, found: Sequence[int], order: Array) -> Array:
        """Pace of what *taken* slows before each edge in *order*, which has the starts of *found* before the ends."""
        changes = taken[[self._operation[index] for index in found]]
        sorted_changes = np.take_along_axis(np.concatenate([changes, -changes]), order, axis=0)
        before = np.cumsum(sorted_changes, axis=0) - sorted_changes
        return 1 / (1 - np.minimum(before, self._lanes.most))

    @staticmethod
    def _known(rows: Sequence[Array | None], index: int) -> Array:
        row = rows[index]
        assert row is not None
        return row


def _walked(start: Array, work: Array, segments: Iterable[Segment]) -> Array:
    """Return when *work* is done that starts at *start*."""
    at, left = start.copy(), np.broadcast_to(work, start.shape).copy()
    for until, pace in segments:
        done = np.maximum(until - at, 0.0)
        if pace is not None:
            done /= pace
        np.minimum(done, left, out=done)
        left -= done
        at += done if pace is None else done * pace
    at += left
    return at
