"""Whether a step has reached its periodic state: each micro-batch the same as the one before, only later.

Two programs that differ in nothing but the number of micro-batches differ in a *window* of instructions.  If in the
longer one the window before that window has the same instructions, and all that happens in the later one happens as
long after what happens in the earlier one, then one more window would do the same again: what an instruction waits for
lies in its own window or in the one before, or was over before; nothing older is still running; and nothing depends on
when it is.

The host may run ahead, by more with every micro-batch.  Then it must never be what the device waits for, neither in the
window nor after it, until it next waits for the device itself.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.clock.timeline import ClassTimeline
from simulator.schedules.program import Event, HostWork, Launch, Program, Synchronize, Wait

__all__ = ["Rows", "Track", "Window", "period_of", "periods", "track_of", "windows"]

ROUNDING: Final = 1e-11
"""Relative to an instant: what sums of floats may differ by."""

SAME: Final = 1e-9
"""Relative difference up to which the host is as fast as the device."""

Array = npt.NDArray[np.float64]

Mask = npt.NDArray[np.bool_]

Rows = Sequence[Array] | Array
"""One for each launch, in issue order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """When things happened in one program, in many lanes at once; (lanes,) each [s]."""

    program: Program
    issued: Rows
    """When the host issued each launch."""
    reached: Rows
    """When the stream of each launch got to it."""
    met: Rows
    """When the last rank class had."""
    starts: Rows
    """Of launches."""
    ends: Rows
    """Of launches."""
    events: Mapping[Event, Array | float]
    """Of those that something waited for."""
    blocked: Sequence[tuple[Array | float, Array | float]]
    """From when to when each synchronization held the host up."""


def track_of(played: ClassTimeline) -> Track:
    """What one rank class did, as a track with one lane."""
    spans = [(span.issued_at, span.reached_at, span.met_at, span.start, span.end) for span in played.spans]
    issued, reached, met, starts, ends = np.array(spans).reshape(-1, 5, 1).swapaxes(0, 1)
    return Track(
        program=played.program,
        issued=issued,
        reached=reached,
        met=met,
        starts=starts,
        ends=ends,
        events={event: happened.at for event, happened in played.events.items()},
        blocked=[(wait.start, wait.end) for wait in played.host_waits],
    )


class Window(NamedTuple):
    """The later of two equal stretches of instructions that follow each other, and what of it the program says."""

    first: int
    """Its first instruction."""
    size: int
    before: range
    """Numbers of the launches in the earlier stretch."""
    inside: range
    """Numbers of its own launches."""
    old: tuple[Wait | Synchronize, ...]
    """Waits, from the window on, for what was issued before the earlier stretch."""
    free: int
    """Number of the first launch, from the window on, that is issued after a synchronization."""
    block: int | None
    """Number of that synchronization; None if there is none."""
    blocks_inside: bool
    """Whether it is in the window."""


def windows(shorter: Program, longer: Program) -> list[Window]:
    """Find what *longer* has more than *shorter*, if that is one stretch that stands there twice or more often.

    The last window comes first, then the one before it: what shares links with the last one may be the end of the step.
    """
    size = len(longer.instructions) - len(shorter.instructions)
    if size <= 0 or shorter.streams != longer.streams:
        return []
    some, others = list(_relative(shorter, longer)), list(_relative(longer, longer))
    first = _alike(some, others)
    if first + _alike(some[::-1], others[::-1]) < len(some):
        return []
    return [
        _window(longer, start, size)
        for start in (first, first - size)
        if start >= size and others[start - size : start] == others[start : start + size]
    ]


def _window(program: Program, first: int, size: int) -> Window:
    launched, blocked = (
        list(accumulate((isinstance(item, kind) for item in program.instructions), initial=0))
        for kind in (Launch, Synchronize)
    )
    block = blocked[first] if blocked[first] < blocked[-1] else None
    until = len(program.instructions) if block is None else bisect_right(blocked, block) - 1
    return Window(
        first=first,
        size=size,
        before=range(launched[first - size], launched[first]),
        inside=range(launched[first], launched[first + size]),
        old=tuple(_waits_for_old(program, first, first - size)),
        free=launched[until],
        block=block,
        blocks_inside=block is not None and until < first + size,
    )


def _waits_for_old(program: Program, first: int, oldest: int) -> Iterator[Wait | Synchronize]:
    """Yield waits, from instruction *first* on, for what was issued before the *oldest*."""
    issued: list[list[int]] = [[] for _ in program.streams]
    for index, item in enumerate(program.instructions):
        if isinstance(item, HostWork):
            continue
        if index >= first and not isinstance(item, Launch):
            stream, position = item.event
            if position and issued[stream][position - 1] < oldest:
                yield item
        if not isinstance(item, Synchronize):
            issued[item.stream].append(index)


def _alike(some: Sequence[object], others: Sequence[object]) -> int:
    """How many of the first instructions are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))


def _relative(program: Program, other: Program) -> Iterator[tuple[object, ...]]:
    """Yield instructions so that equal ones are equal wherever they stand; operations as *other* numbers them."""
    numbers = {operation: number for number, operation in enumerate(other.operations)}
    known = [numbers.get(operation, -1) for operation in program.operations]
    lengths = [0] * len(program.streams)
    for item in program.instructions:
        if isinstance(item, HostWork):
            yield (item.time,)
        elif isinstance(item, Launch):
            yield (item.stream, known[item.operation], item.label, item.phase, item.takes, item.gives)
            lengths[item.stream] += 1
        else:
            back = lengths[item.event.stream] - item.event.position
            stream = item.stream if isinstance(item, Wait) else None
            yield (stream, item.event.stream, back, item.reason)
            if isinstance(item, Wait):
                lengths[item.stream] += 1


def periods(track: Track, found: Window) -> Array:
    """By how much one more window before the end would shift all that follows, and change nothing else; (lanes,) [s].

    Not a number in lanes where it would change anything else.
    """
    before, inside = found.before, found.inside
    if not inside:
        return np.full(_lanes(track), np.nan)
    period = track.ends[inside[0]] - track.ends[before[0]]
    ahead = track.issued[inside[0]] - track.issued[before[0]]
    begin = np.asarray(track.starts[inside.start : inside.stop]).min(axis=0)
    same_pace = np.abs(ahead - period) <= SAME * np.maximum(np.abs(ahead), np.abs(period))
    holds = _is_later(track.issued, before, inside, ahead)
    for rows in (track.reached, track.met, track.starts, track.ends):
        holds = holds & _is_later(rows, before, inside, period)
    holds = holds & _is_over(track, found, begin)
    if (holds & ~same_pace).any():
        holds = holds & (same_pace | ((ahead < period) & _never_waits_for_host(track, found)))
    return np.where(holds, period, np.nan)


def _lanes(track: Track) -> int:
    return len(track.ends[0]) if len(track.ends) else 1


def period_of(played: ClassTimeline, found: Sequence[Window]) -> float:
    """Period of one rank class by the first of the windows that repeats [s]; not a number if none does."""
    track = track_of(played)
    times = (float(periods(track, each)[0]) for each in found)
    return next((time for time in times if not math.isnan(time)), math.nan)


def _is_later(rows: Rows, before: range, inside: range, by: Array) -> Mask:
    """Where all that *rows* say of the launches *inside* happened that much later than *before*."""
    some, others = (np.asarray(rows[numbers.start : numbers.stop]) for numbers in (before, inside))
    return _all(np.abs(some + by - others) <= ROUNDING * others)


def _all(rows: Mask) -> Mask:
    """Where all of *rows* hold."""
    holds: Mask = np.logical_and.reduce(rows, axis=0)
    return holds


def _is_over(track: Track, found: Window, begin: Array) -> Mask:
    """Where what was issued before the earlier stretch is over when the window *begins* to run, or to be issued."""
    older, issued = found.before.start, track.issued[found.inside[0]]
    over = _all(np.asarray(track.ends[:older]).reshape(older, -1) <= begin * (1 + ROUNDING))
    for item in found.old:
        over = over & (track.events[item.event] <= (begin if isinstance(item, Wait) else issued) * (1 + ROUNDING))
    return over


def _never_waits_for_host(track: Track, found: Window) -> Mask:
    """Where from the window on no stream waits for the host, until the host has waited for a stream."""
    issued, reached = (np.asarray(rows[found.inside.start : found.free]) for rows in (track.issued, track.reached))
    never = _all(issued < reached)
    if found.block is None:
        return never
    start, end = track.blocked[found.block]
    blocked: Mask = np.logical_and(end > start, not found.blocks_inside)
    return never & blocked
