r"""Kernels beside collectives whose times are known, in all lanes at once.

A kernel that starts at t and would end at E runs with pace s, the time that a second of work takes
(:mod:`simulator.laws.interference`), while something is beside it from a to b.  Before a' = max(a, t) nothing holds it
back, so E - a' of its work is left then.  It either ends in time and has taken (s - 1)(E - a') longer, or does
(b - a') / s of its work until b and loses the rest of that time:

.. math:: E \leftarrow E + \max\left(0, \min\left((s - 1)(E - a'),\ (1 - 1/s)(b - a')\right)\right)

Both terms are negative where the interval lies behind the kernel or before it.  Intervals are taken in order of time
and do not overlap: collectives of one communicator are such a sequence; those of several are cut at every start and
end, and between two cuts their shares add up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.lanes import Array, Lanes

__all__ = ["Beside"]

Rows = Sequence[Array | None]
"""One per instruction, None while it is not known."""


class _Loss(NamedTuple):
    """What a kernel loses beside something, by lane."""

    of_work: Array
    """s - 1"""
    of_time: Array
    """1 - 1/s"""


class Beside:
    """Prolongs kernels by the collectives beside them.

    Parameters
    ----------
    lanes
        What operations take.
    starts, ends
        Of instructions; the caller fills them in.
    """

    def __init__(self, lanes: Lanes, starts: Rows, ends: Rows) -> None:
        self._lanes, self._plan, self._starts, self._ends = lanes, lanes.plan, starts, ends
        self._takes = {operation for operation, shares in enumerate(lanes.held + lanes.moved) if shares.any()}
        self._greedy = [
            number
            for number, served in enumerate(lanes.plan.served)
            if any(lanes.plan.operations[index] in self._takes for index in served)
        ]
        """Communicators whose collectives take anything; copy engines do not."""
        self._losses: dict[tuple[int, int], _Loss] = {}
        self._near: dict[tuple[int, int], int] = defaultdict(int)
        """First collective that was not over at the last kernel's start, by stream of kernels and communicator."""

    def prolong(self, kernel: int, start: Array, end: Array) -> None:
        """Let *end*, when *kernel* would end alone if it starts at *start*, grow by what it loses."""
        if len(self._greedy) == 1:
            self._lose_in_turn(kernel, self._window(kernel, self._greedy[0], start, end), start, end)
            return
        latest = start + (end - start) * self._slowest
        found = [list(self._window(kernel, number, start, latest)) for number in self._greedy]
        windows = [window for window in found if window]
        if len(windows) == 1:
            self._lose_in_turn(kernel, windows[0], start, end)
        elif windows:
            self._lose_together(kernel, [index for window in windows for index in window], start, end)

    def kernels(self, collective: int, start: Array | None, end: Array | None) -> Iterator[int]:
        """Yield kernels that a change of *collective*, which ran from *start* to *end* before, can touch."""
        if self._plan.operations[collective] not in self._takes:
            return
        begin, until = _known(self._starts, collective), _known(self._ends, collective)
        if start is not None and end is not None:
            begin, until = np.minimum(begin, start), np.maximum(until, end)
        for kernels, heard in zip(self._plan.kernels, self._plan.heard[collective], strict=True):
            if heard < len(kernels) and self._ends[kernels[heard]] is not None:
                first = bisect_left(kernels, True, heard, key=lambda index: not self._is_over(index, begin))
                yield from takewhile(lambda index: self._has_begun(index, until), kernels[first:])

    def _window(self, kernel: int, number: int, start: Array, end: Array) -> Iterator[int]:
        """Yield the collectives of a communicator that run in some lane between *start* and *end*, which may grow."""
        served, last = self._plan.served[number], self._plan.independent[kernel][number]
        for place in range(self._first_after(kernel, number, last, start), last):
            if not self._has_begun(served[place], end):
                return
            yield served[place]

    def _first_after(self, kernel: int, number: int, last: int, start: Array) -> int:
        """Place of the first collective, before *last*, that is not over in all lanes at *start*."""
        served, key = self._plan.served[number], (self._plan.streams[kernel], number)
        place = min(self._near[key], last)
        if self._ends[kernel] is not None:  # once more: later kernels have been here
            while place and not self._is_over(served[place - 1], start):
                place -= 1
        while place < last and self._is_over(served[place], start):
            place += 1
        self._near[key] = place
        return place

    def _is_over(self, index: int, at: Array) -> bool:
        """Say whether an instruction has ended in all lanes."""
        end = self._ends[index]
        return end is not None and not np.count_nonzero(end > at)

    def _has_begun(self, index: int, at: Array) -> bool:
        """Say whether an instruction has started in some lane."""
        start = self._starts[index]
        return start is not None and bool(np.count_nonzero(start < at))

    def _lose_in_turn(self, kernel: int, beside: Iterable[int], start: Array, end: Array) -> None:
        """Let *end* grow by what *kernel* loses to collectives *beside* it, one after another."""
        for index in beside:
            loss = self._loss(self._plan.operations[kernel], self._plan.operations[index])
            _lose(end, np.maximum(_known(self._starts, index), start), _known(self._ends, index), loss)

    def _loss(self, kernel: int, collective: int) -> _Loss:
        key = kernel, collective
        if key not in self._losses:
            held, moved = self._lanes.held[collective], self._lanes.moved[collective]
            self._losses[key] = self._loss_to(held, moved, self._lanes.movement[kernel])
        return self._losses[key]

    def _loss_to(self, held: Array, moved: Array, movement: Array) -> _Loss:
        """Loss of kernels with *movement* to everything that takes these shares."""
        held, moved = np.minimum(held, self._lanes.most[0]), np.minimum(moved, self._lanes.most[0])
        pace = (1 - movement) / (1 - held) + movement / (1 - moved)
        return _Loss(pace - 1, 1 - 1 / pace)

    def _lose_together(self, kernel: int, beside: Sequence[int], start: Array, end: Array) -> None:
        """Let *end* grow by what *kernel* loses to collectives of several communicators."""
        edges = np.stack([_known(rows, index) for rows in (self._starts, self._ends) for index in beside])
        order = np.argsort(edges, axis=0)
        cuts = np.maximum(np.take_along_axis(edges, order, axis=0), start)
        collectives = [self._plan.operations[index] for index in beside]
        held, moved = (_sums(taken[collectives], order) for taken in (self._lanes.held, self._lanes.moved))
        loss = self._loss_to(held, moved, self._lanes.movement[self._plan.operations[kernel]])
        for place, (begin, until) in enumerate(pairwise(cuts)):
            _lose(end, begin, until, _Loss(loss.of_work[place], loss.of_time[place]))

    @cached_property
    def _slowest(self) -> Array:
        """A pace that no kernel exceeds, by lane: the most greedy collectives of all communicators at once."""
        operations = [[self._plan.operations[index] for index in self._plan.served[number]] for number in self._greedy]
        peaks = [
            [taken[of_one].max(axis=0) for of_one in operations] for taken in (self._lanes.held, self._lanes.moved)
        ]
        bounds = [1 / (1 - np.minimum(np.sum(peak, axis=0), self._lanes.most[0])) for peak in peaks]
        slowest: Array = np.maximum(*bounds)
        return slowest


def _lose(end: Array, begin: Array, until: Array, loss: _Loss) -> None:
    """Let *end* grow by what is lost from *begin*, not before the kernel's start, to *until*."""
    time = until - begin
    time *= loss.of_time
    work = end - begin
    work *= loss.of_work
    np.minimum(time, work, out=time)
    np.maximum(time, 0.0, out=time)
    end += time


def _sums(taken: Array, order: npt.NDArray[np.intp]) -> Array:
    """Sum of what is *taken* after each edge in *order*, which has all starts before all ends."""
    changes = np.broadcast_to(np.concatenate([taken, -taken]), order.shape)
    sums: Array = np.cumsum(np.take_along_axis(changes, order, axis=0), axis=0)
    return sums


def _known(rows: Rows, index: int) -> Array:
    row = rows[index]
    assert row is not None
    return row
