"""What a timeline looks like as bars in lanes, before anything is drawn."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.clock.timeline import ClassTimeline
from simulator.laws.kernels import Kernel
from simulator.readings.critical import CriticalPath
from simulator.readings.exposure import Exposure
from simulator.readings.intervals import merged

__all__ = ["Bar", "Lane", "exposed_lane", "lanes", "liveliest", "memory_held", "path_lane", "shares"]

Array = npt.NDArray[np.float64]

MOST, FEWEST = 14, 4
"""Operations in a window: as many as can carry a name across a slide, and as few as show what is before and after."""


class Bar(NamedTuple):
    """A stretch of a lane [s]."""

    start: float
    end: float
    what: str
    """Kernel kind, role or cause: what its colour says."""
    label: str


class Lane(NamedTuple):
    """A row of bars that do not overlap."""

    name: str
    bars: tuple[Bar, ...]

    def within(self, start: float, end: float) -> list[Bar]:
        """Bars of the lane cut to [*start*, *end*)."""
        cut = (Bar(max(bar.start, start), min(bar.end, end), bar.what, bar.label) for bar in self.bars)
        return [bar for bar in cut if bar.end > bar.start]


def lanes(timeline: ClassTimeline) -> list[Lane]:
    """``compute``, then a lane for each stream that ever ran something, and one for the host if it was blocked."""
    compute, *others = (Lane(name, tuple(_bars(timeline, name))) for name in timeline.program.streams)
    waits = (Bar(wait.start, wait.end, "blocked", wait.reason) for wait in timeline.host_waits if wait.end > wait.start)
    return [compute, *(lane for lane in [*others, Lane("host", tuple(waits))] if lane.bars)]


def exposed_lane(reading: Exposure) -> Lane:
    """What the compute stream waited for, by cause."""
    bars = (Bar(stall.start, stall.end, stall.cause, stall.label) for stall in reading.stalls)
    return Lane("exposed", tuple(bar for bar in bars if bar.end > bar.start))


def path_lane(path: CriticalPath) -> Lane:
    """What the step waited for, in the colours of the lanes where it ran."""
    elsewhere = {"host": "host bound", "skew": "skew"}
    bars: list[Bar] = []
    for piece in path.pieces:
        if piece.after or not bars:
            what = elsewhere.get(piece.kind, piece.operation)
            bars.append(Bar(piece.start, piece.end, what, piece.label))
        else:  # another part of the same operation
            bars[-1] = bars[-1]._replace(end=piece.end)
    return Lane("critical path", tuple(bars))


def _bars(timeline: ClassTimeline, stream: str) -> Iterable[Bar]:
    for span in timeline.stream(stream):
        operation = timeline.program.operations[span.launch.operation]
        what = operation.kind if isinstance(operation, Kernel) else operation.role
        if span.end > span.start:
            yield Bar(span.start, span.end, what, span.launch.label)


def shares(lane: Lane, edges: Array, around: int = 0) -> dict[str, Array]:
    """Which part of each interval between *edges* (n + 1,) the lane was busy with what: (n,) each, 0 to 1.

    With *around*, the part of the interval and of that many at either side: layers that are about as long as an
    interval would otherwise show as a pattern that is not there.
    """
    by_what: dict[str, list[Bar]] = defaultdict(list)
    for bar in lane.bars:
        by_what[bar.what].append(bar)
    begin, end = _widened(edges, around)
    return {what: (_busy(bars, end) - _busy(bars, begin)) / (end - begin) for what, bars in by_what.items()}


def _widened(edges: Array, around: int) -> tuple[Array, Array]:
    """Begin and end of each interval together with *around* others at either side."""
    places = np.arange(len(edges))
    return edges[np.maximum(places[:-1] - around, 0)], edges[np.minimum(places[1:] + around, places[-1])]


def _busy(bars: Sequence[Bar], at: Array) -> Array:
    """Time that *bars* fill before each instant."""
    bounds = np.array([(bar.start, bar.end) for bar in bars])
    filled = np.cumsum(bounds[:, 1] - bounds[:, 0])
    before = np.concatenate(([0.0], filled[:-1]))
    total: Array = np.interp(at, bounds.ravel(), np.column_stack((before, filled)).ravel())
    return total


def memory_held(timeline: ClassTimeline, edges: Array, around: int = 0) -> tuple[dict[str, Array], Array]:
    """Memory by item, averaged as in :func:`shares`, and the peak of its sum in each interval itself [B]."""
    begin, end = _widened(edges, around)
    times = np.array([change.at for change in timeline.memory])
    amounts = np.array([change.amount for change in timeline.memory])
    items = [change.item for change in timeline.memory]
    means: dict[str, Array] = {}
    for item in dict.fromkeys(items):
        own = np.array([name == item for name in items])
        until = [_integral(times[own], amounts[own], at) for at in (begin, end)]
        means[item] = (until[1] - until[0]) / (end - begin)
    total = np.cumsum(amounts)
    peaks = np.zeros(len(edges) - 1)
    settled = np.append(times[1:] > times[:-1], True) if len(times) else np.array([], dtype=bool)
    place = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(peaks) - 1)
    np.maximum.at(peaks, place[settled], total[settled])
    held = np.concatenate(([0.0], total))[np.searchsorted(times, edges[:-1], side="right")]
    return means, np.maximum(peaks, held)


def _integral(times: Array, amounts: Array, at: Array) -> Array:
    """Integral of the held amount from the start to each instant."""
    count = np.searchsorted(times, at, side="right")
    total = np.concatenate(([0.0], np.cumsum(amounts)))
    moment = np.concatenate(([0.0], np.cumsum(amounts * times)))
    return total[count] * at - moment[count]


def liveliest(lane: Lane, operations: int, end: float) -> tuple[float, float]:
    """The window in which *lane* is busy for longest, of a length in which single operations can be read.

    Parameters
    ----------
    lane
        The exposed stretches.
    operations
        How many kernels the step has.
    end
        Length of the step [s].
    """
    stretches = merged((bar.start, bar.end) for bar in lane.bars)
    longest = max((stretch_end - start for start, stretch_end in stretches), default=0.0)
    typical = end / max(operations, 1)
    if operations <= MOST:
        return 0.0, end
    length = min(end, max(1.6 * longest, min(MOST * typical, max(FEWEST * typical, 6 * longest))))
    margin = length / 10
    candidates = [
        *((start + stop - length) / 2 for start, stop in stretches),
        *(start - margin for start, _ in stretches),
        *(stop + margin - length for _, stop in stretches),
    ]
    starts = [min(max(0.0, start), end - length) for start in candidates] or [0.0]
    best = max(
        starts, key=lambda start: round(_covered(stretches, start, start + length) / end, 9)
    )  # the first of equals
    return best, best + length


def _covered(stretches: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Length of *stretches* inside [*start*, *end*)."""
    first = bisect_right(stretches, start, key=lambda stretch: stretch[1])
    last = bisect_left(stretches, end, key=lambda stretch: stretch[0])
    return sum(min(end, stop) - max(start, begin) for begin, stop in stretches[first:last])
