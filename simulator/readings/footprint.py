r"""Memory of a rank over the step: what it keeps, what comes and goes, the peak and what makes it up.

Three numbers, from small to large:

=========  =====================================================================  ================================
number     what it is                                                             who reports it
=========  =====================================================================  ================================
peak       arrays that are alive at the same time                                 ``torch.cuda.max_memory_allocated``
reserved   what the allocator has taken from the device for them                  ``torch.cuda.max_memory_reserved``
device     that, CUDA's context and NCCL's buffers                                ``nvidia-smi``
=========  =====================================================================  ================================

The allocator keeps what was freed, and gives it to arrays of the *same stream* only (``c10/cuda/CUDACachingAllocator``,
blocks belong to a stream).  So it reserves at least the sum over streams of the peak of each:

.. math:: R = \sum_s \max_t M_s(t) \ge \max_t \sum_s M_s(t)

When the device is full it returns what it keeps unused and tries again, which costs time, not memory.  A step fits if
its peak does, with a margin for holes that cannot be used and with what is not the allocator's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from simulator.clock.timeline import ClassTimeline, MemoryChange
from simulator.schedules.program import Program
from simulator.schedules.tape import COMPUTE

__all__ = [
    "Beside",
    "Footprint",
    "Moment",
    "Peak",
    "allocated_on",
    "fullest",
    "largest_first",
    "over_time",
    "peak",
    "what_ran",
]

MOMENTS: Final = 500
"""That a curve has at most."""


class Beside(NamedTuple):
    """What a process holds beside its arrays."""

    fixed: float = 0.0
    """Context and communicators [B]."""
    fragmentation: float = 0.0
    """Part of the arrays that holes add."""


NOTHING: Final = Beside()


class Moment(NamedTuple):
    """What is held at a moment."""

    at: float
    """[s]"""
    total: float
    """[B]"""
    items: Mapping[str, float]
    """[B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment at which a rank uses most memory."""

    peak: float
    """[B]"""
    at: float
    """When [s]."""
    items: Mapping[str, float]
    """What makes up the peak [B], largest first."""
    reserved: float
    """Sum over streams of the most that each held [B]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a step needs of a device."""

    most: Peak
    capacity: float
    """Of the accelerator [B]."""
    beside: Beside = NOTHING
    hole: float = 0.0
    """That the allocator reserves and does not use at the peak [B]."""

    @property
    def reserved(self) -> float:
        """What the allocator takes from the device when nothing forces it to return any [B]."""
        return self.most.reserved + self.hole

    @property
    def device(self) -> float:
        """What the device shows as used [B]."""
        return self.reserved + self.beside.fixed

    @property
    def needed(self) -> float:
        """The least that the device must have [B]."""
        return self.most.peak * (1 + self.beside.fragmentation) + self.beside.fixed

    @property
    def fits(self) -> bool:
        """Whether what is needed is within the capacity."""
        return self.needed <= self.capacity


def peak(
    states: Mapping[str, float], changes: Iterable[MemoryChange], streams: Mapping[str, str] | None = None
) -> Peak:
    """Find the moment at which most is held.

    Parameters
    ----------
    states
        Bytes kept through the whole step, by item [B].
    changes
        Memory taken and given back, in order of time.
    streams
        On which stream an item is allocated, if it is not compute.
    """
    stream_of = streams or {}
    held, total = dict(states), sum(states.values())
    most, most_at, at_most = total, 0.0, dict(held)
    pools: dict[str, float] = defaultdict(float, {COMPUTE: total})
    largest = dict(pools)
    for change in changes:
        held[change.item] = held.get(change.item, 0.0) + change.amount
        total += change.amount
        if total > most:
            most, most_at, at_most = total, change.at, dict(held)
        stream = stream_of.get(change.item, COMPUTE)
        pools[stream] += change.amount
        largest[stream] = max(largest.get(stream, 0.0), pools[stream])
    return Peak(peak=most, at=most_at, items=largest_first(at_most), reserved=sum(largest.values()))


def largest_first(items: Mapping[str, float]) -> dict[str, float]:
    """Those of *items* that there are any bytes of."""
    ordered = sorted(items.items(), key=lambda item: -item[1])
    return {name: size for name, size in ordered if size > 0}


def allocated_on(program: Program) -> dict[str, str]:
    """Stream on which each item is allocated: that of the first launch that takes it."""
    found: dict[str, str] = {}
    for launch in program.launches:
        for item, _ in launch.takes:
            found.setdefault(item, program.streams[launch.stream])
    return found


def what_ran(played: ClassTimeline, at: float) -> tuple[str, str]:
    """Phase and module of the kernel that the compute stream ran at a moment, or was about to run."""
    for span in played.stream(COMPUTE):
        if span.end > at:
            return span.launch.phase, span.launch.label
    return "step", "end of step"


def fullest(memory: Mapping[str, Any]) -> str:
    """Say what runs at the peak of *memory*, which is as ``zerosim run --json`` has it."""
    module = str(memory["peak_module"])
    return module if memory["peak_phase"] == "step" else f"{memory['peak_phase']} of {module}"


def over_time(states: Mapping[str, float], changes: Sequence[MemoryChange], end: float) -> list[Moment]:
    """What is held from the start to *end* [s]: every change, or of each of 500 intervals the fullest moment."""
    moments = list(_settled(states, changes, end))
    if len(moments) <= MOMENTS:
        return moments
    fullest: dict[int, Moment] = {}
    for moment in moments[1:-1]:
        interval = min(int(moment.at / end * MOMENTS), MOMENTS - 1)
        if interval not in fullest or moment.total > fullest[interval].total:
            fullest[interval] = moment
    return [moments[0], *(fullest[interval] for interval in sorted(fullest)), moments[-1]]


def _settled(states: Mapping[str, float], changes: Iterable[MemoryChange], end: float) -> Iterator[Moment]:
    """Yield the start, of every instant with changes the fullest moment and the last, and the end."""
    held = dict(states)
    last = fullest = Moment(0.0, sum(states.values()), dict(states))
    yield last
    for change in changes:
        if change.at > last.at:
            yield from _instant(fullest, last)
            fullest = Moment(change.at, 0.0, {})
        held[change.item] = held.get(change.item, 0.0) + change.amount
        last = Moment(change.at, last.total + change.amount, dict(held))
        fullest = max(fullest, last, key=lambda moment: moment.total)
    yield from _instant(fullest, last)
    yield Moment(end, last.total, last.items)


def _instant(fullest: Moment, last: Moment) -> tuple[Moment, ...]:
    return (last,) if fullest.total == last.total else (fullest, last)
