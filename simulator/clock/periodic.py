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
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from simulator.clock.timeline import ClassTimeline, Span
from simulator.schedules.program import HostWork, Launch, Program, Synchronize, Wait

__all__ = ["Window", "repeats", "windows"]

ROUNDING: Final = 1e-11
"""Relative to an instant: what sums of floats may differ by."""


class Window(NamedTuple):
    """The later of two equal stretches of instructions that follow each other."""

    first: int
    """Its first instruction."""
    size: int


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
        Window(start, size)
        for start in (first, first - size)
        if start >= size and others[start - size : start] == others[start : start + size]
    ]


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


def repeats(played: ClassTimeline, found: Window) -> bool:
    """Say whether one more window before the end would shift all that follows, and change nothing else."""
    first, size = found
    before, inside = _spans(played, first - size, first), _spans(played, first, first + size)
    if not inside:
        return False
    period, ahead = inside[0].end - before[0].end, inside[0].issued_at - before[0].issued_at
    begin = min(span.start for span in inside)
    return (
        all(_is_later(one, other, period, ahead) for one, other in zip(before, inside, strict=True))
        and all(span.end <= begin * (1 + ROUNDING) for span in played.spans[: before[0].number])
        and all(
            played.events[item.event].at <= (begin if isinstance(item, Wait) else inside[0].issued_at) * (1 + ROUNDING)
            for item in _waits_for_old(played.program, found)
        )
        and (math.isclose(ahead, period, rel_tol=1e-9) or (ahead < period and _never_waits_for_host(played, found)))
    )


def _is_later(before: Span, after: Span, period: float, ahead: float) -> bool:
    """Whether *after* happened a period later than *before*, and was issued that much later as the host gets ahead."""
    pairs = [(before.issued_at + ahead, after.issued_at)]
    pairs += [
        (getattr(before, name) + period, getattr(after, name)) for name in ("reached_at", "met_at", "start", "end")
    ]
    return all(abs(some - other) <= ROUNDING * other for some, other in pairs)


def _spans(played: ClassTimeline, first: int, end: int) -> Sequence[Span]:
    """Spans of the instructions from *first* to before *end*."""
    launches = [isinstance(item, Launch) for item in played.program.instructions[:end]]
    return played.spans[sum(launches[:first]) : sum(launches)]


def _waits_for_old(program: Program, found: Window) -> Iterator[Wait | Synchronize]:
    """Yield waits, from the window on, for what was issued before the window before it."""
    issued: list[list[int]] = [[] for _ in program.streams]
    for index, item in enumerate(program.instructions):
        if isinstance(item, Wait | Synchronize) and index >= found.first:
            stream, position = item.event
            if position and issued[stream][position - 1] < found.first - found.size:
                yield item
        if isinstance(item, Launch | Wait):
            issued[item.stream].append(index)


def _never_waits_for_host(played: ClassTimeline, found: Window) -> bool:
    """Whether from the window on no stream waits for the host, until the host has waited for a stream."""
    instructions = played.program.instructions
    launches = iter(played.spans[sum(isinstance(item, Launch) for item in instructions[: found.first]) :])
    waits = iter(played.host_waits[sum(isinstance(item, Synchronize) for item in instructions[: found.first]) :])
    for index, item in enumerate(instructions[found.first :], found.first):
        if isinstance(item, Launch):
            span = next(launches)
            if span.issued_at >= span.reached_at:
                return False
        elif isinstance(item, Synchronize):
            wait = next(waits)
            return index >= found.first + found.size and wait.end > wait.start
    return True
