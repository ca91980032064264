r"""How long the critical path of a step would be at other prices, if it stayed the path.

A step is the longest of many chains of operations.  Let d be the times of all operations and P the chain that is
longest at d.  At other times d' the chain P takes

.. math:: L_P(d') = \sum_{i \in P} d'_i, \qquad T(d') \ge L_P(d'), \qquad
          \frac{\partial T}{\partial \log r} = \sum_{i \in P} \frac{\partial d_i}{\partial \log r}

(the envelope theorem for a maximum of sums), and T(d') = L_P(d') for as long as no other chain becomes longer.  So what
a better resource r gains at once can be read off the path without simulating anything, and where a simulation gains
something else, the path has switched.

That holds exactly where an operation takes what it takes alone.  What sharing links added to a collective is kept in
proportion to it, although it depends on the others as well.  What communication added to a kernel is in proportion to
the kernel where it ran beside collectives from start to end, and else to the collectives beside it, which decide how
long it was slowed.  A wait for a class that is not looked at stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from simulator.clock.cast import RankClass, Stage
from simulator.clock.timeline import ClassTimeline, Span
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.exposure import ROUNDING
from simulator.readings.released import Stretch, added
from simulator.schedules.program import HostWork, Operation, Program

__all__ = ["held_path"]


def held_path(
    path: Sequence[Stretch], classes: Sequence[ClassTimeline], prices: Stage, *, slowdown: float = 1.0
) -> float:
    """Length of *path* where operations take what they take in *prices* [s].

    Parameters
    ----------
    path
        What the step waited for.
    classes
        What rank classes did; the programs of *prices* may have other times of the host, but the same instructions.
    slowdown
        Part that is left of what communication adds to kernels.
    """
    touched = {item.rank_class for item in path}
    held = {number: _Held(classes[number], prices.classes[number], slowdown) for number in touched}
    return sum(held[item.rank_class].length(item) for item in path)


class _Held:
    """What one rank class did, at other prices."""

    def __init__(self, played: ClassTimeline, cast: RankClass, slowdown: float) -> None:
        self._played, self._cast, self._slowdown = played, cast, slowdown
        self._worked = _worked(cast.program)
        self._is_kernel = [isinstance(item, Kernel) for item in cast.program.operations]
        beside = (span for span in played.spans if isinstance(self._operation(span), Collective))
        self._collectives = sorted((span for span in beside if span.end > span.start), key=lambda span: span.start)
        self._ends = list(accumulate((span.end for span in self._collectives), max))

    def length(self, item: Stretch) -> float:
        """Of a stretch [s]."""
        if item.doing == "wait":
            return item.end - item.start
        if item.doing == "work":
            first, last = item.work
            return self._worked[last] - self._worked[first]
        span = self._played.spans[item.span]
        longer = added(span)
        if longer and self._is_kernel[span.launch.operation]:
            return self._alone(span) + longer * self._slowdown * self._change_of_neighbours(span)
        return (span.end - span.start) * self._change(span)

    def _operation(self, span: Span) -> Operation:
        return self._played.program.operations[span.launch.operation]

    def _alone(self, span: Span) -> float:
        operation = span.launch.operation
        if self._is_kernel[operation]:
            return self._cast.times[operation]
        return sum(phase.duration for phase in self._cast.phases[operation])

    def _change(self, span: Span) -> float:
        """What *span* takes over what it took."""
        return self._alone(span) / span.alone if span.alone else 1.0

    def _change_of_neighbours(self, kernel: Span) -> float:
        """What decides how long *kernel* was slowed, over what it was: itself, or the collectives beside it."""
        first = bisect_right(self._ends, kernel.start)
        last = bisect_left(self._collectives, kernel.end, key=lambda span: span.start)
        beside = [
            (min(span.end, kernel.end) - max(span.start, kernel.start), self._change(span))
            for span in self._collectives[first:last]
            if span.end > kernel.start
        ]
        total = sum(length for length, _ in beside)
        if not total or total >= (kernel.end - kernel.start) * (1 - ROUNDING):
            return self._change(kernel)
        return sum(length * change for length, change in beside) / total


def _worked(program: Program) -> list[float]:
    """What the host has worked before each instruction [s]."""
    times = (item.time if isinstance(item, HostWork) else 0.0 for item in program.instructions)
    return list(accumulate(times, initial=0.0))
