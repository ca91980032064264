"""Back from the end of a step through what released each thing.

Everything began when the last of what it waited for was over:

* a kernel or copy: its launch, the operation before it in its stream, or an event that its stream waited for;
* a collective: the same in the rank class that reached it last, or the collective before it on its communicator;
* an event: the end of an operation, or the moment at which the host put it into its stream;
* a launch: what the host did since it was last blocked, and before that what it was blocked by.

The engine hands instants on and never recomputes them, so "was over when it began" is equality of floats.  Where two
things were over at once both chains are as long, and one is told: waits before the stream before the host.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from simulator.clock.cast import Stage
from simulator.clock.timeline import ClassTimeline, HostWait, Span
from simulator.readings.exposure import ROUNDING
from simulator.schedules.program import Event, Launch, Program, Synchronize, Wait

__all__ = ["Stretch", "added", "stretches"]


class Stretch(NamedTuple):
    """What the step waited for in one stretch of time."""

    start: float
    end: float
    doing: Literal["run", "work", "wait"]
    """A span ran, the host worked, or a collective waited for a rank class that is not looked at."""
    rank_class: int
    """Number of the class that it happened in."""
    span: int
    """Number of the span that ran or waited, or that the host launched next."""
    work: tuple[int, int]
    """From which instruction of the program to which the host worked; (0, 0) where it did not."""
    after: str
    """What it waited for last: ``start`` of the step, ``launch``, ``stream``, ``communicator``, ``rank``, or the reason
    of a wait."""


class _Node(NamedTuple):
    """The end of a span, or the host at an instruction."""

    rank_class: int
    span: int | None
    instruction: int
    at: float


def added(span: Span) -> float:
    """Time that others added to what *span* takes alone: sharing of links, communication beside a kernel [s]."""
    ran = span.end - span.start
    longer = ran - span.alone
    return longer if longer > max(ROUNDING * ran, 2 * math.ulp(span.end)) else 0.0


def stretches(classes: Sequence[ClassTimeline], ready: Stage, step: float) -> list[Stretch]:
    """Return the chain that is as long as the step, in order of time; nothing of it takes no time.

    Parameters
    ----------
    classes
        Those that are looked at: the first ones of *ready*, or all.
    step
        When the last of all classes was done [s].
    """
    found = [item for item in _Walk(classes, ready).back(step) if item.end > item.start]
    return found[::-1]


class _Places:
    """Where the things that a timeline numbers stand among the instructions of its program."""

    def __init__(self, program: Program, waits: Sequence[HostWait]) -> None:
        self.launches: list[int] = []
        self._entries: list[list[int]] = [[] for _ in program.streams]
        blocks = []
        for index, item in enumerate(program.instructions):
            if isinstance(item, Launch):
                self.launches.append(index)
            if isinstance(item, Launch | Wait):
                self._entries[item.stream].append(index)
            elif isinstance(item, Synchronize):
                blocks.append(index)
        blocked = [(index, wait) for index, wait in zip(blocks, waits, strict=True) if wait.end > wait.start]
        self._blocks, self._waits = [index for index, _ in blocked], [wait for _, wait in blocked]

    def of(self, event: Event) -> int:
        """Return the instruction that put the last entry of *event* into its stream."""
        return self._entries[event.stream][event.position - 1]

    def launched_by(self, instruction: int) -> int:
        """Number of the span that is launched at *instruction* or next; of the last one if there is none."""
        return min(bisect_left(self.launches, instruction), len(self.launches) - 1)

    def last_wait(self, instruction: int) -> tuple[int, HostWait | None]:
        """Return what the host was last blocked by before *instruction*, and where."""
        place = bisect_left(self._blocks, instruction) - 1
        return (self._blocks[place], self._waits[place]) if place >= 0 else (0, None)


class _Walk:
    """From the end of a step to its start."""

    def __init__(self, classes: Sequence[ClassTimeline], ready: Stage) -> None:
        self._classes, self._ready = classes, ready
        self._known: dict[int, _Places] = {}
        self._late = self._last_to_come() if len(classes) > 1 else {}

    def back(self, step: float) -> Iterator[Stretch]:
        """Yield the stretches, the last one first."""
        last = [(max(item.spans, key=lambda span: span.end), number)
                for number, item in enumerate(self._classes) if item.spans]  # fmt: skip
        if not last:
            return
        span, number = max(last, key=lambda item: item[0].end)
        yield Stretch(span.end, step, "wait", number, span.number, (0, 0), "rank")
        node: _Node | None = self._end_of(number, span.number)
        while node is not None and node.at > 0:
            here: _Node = node
            found, node = self._worked(here) if here.span is None else self._ran(here.rank_class, here.span)
            yield from found

    def _places(self, number: int) -> _Places:
        """Of a class; of many ranks the path touches few."""
        if number not in self._known:
            self._known[number] = _Places(self._classes[number].program, self._classes[number].host_waits)
        return self._known[number]

    def _ran(self, number: int, index: int) -> tuple[list[Stretch], _Node | None]:
        """Of a span: when it ran, perhaps what it waited for before that, and what released it."""
        span = self._classes[number].spans[index]
        if span.start > span.met_at:
            ran = _stretch(span.start, span.end, "run", number, index, "communicator")
            return [ran], self._end_of(number, span.behind)
        late = self._late.get(self._meeting(number, span)) if span.met_at > span.reached_at else None
        if late is not None:
            return [_stretch(span.start, span.end, "run", number, index, "rank")], self._arrived(*late)[1]
        after, node = self._arrived(number, span)
        if span.met_at == span.reached_at:
            return [_stretch(span.start, span.end, "run", number, index, after)], node
        waited = _stretch(span.reached_at, span.met_at, "wait", number, index, after)
        return [_stretch(span.start, span.end, "run", number, index, "rank"), waited], node

    def _arrived(self, number: int, span: Span) -> tuple[str, _Node | None]:
        """What let the stream of *span* get to it."""
        at = span.reached_at
        if not at:
            return "start", None
        for wait in span.waits:
            if wait.at == at:
                return wait.reason, self._happened(number, wait.event, at)
        if span.before >= 0 and self._classes[number].spans[span.before].end == at:
            return "stream", self._end_of(number, span.before)
        return self._launched(number, self._places(number).launches[span.number], at)

    def _launched(self, number: int, instruction: int, at: float) -> tuple[str, _Node | None]:
        """What let the host get to *instruction*: its own work, or what it had been blocked by."""
        _, wait = self._places(number).last_wait(instruction)
        if wait is not None and wait.end == at:
            return wait.reason, self._happened(number, wait.event, at)
        return "launch", _Node(number, None, instruction, at)

    def _end_of(self, number: int, index: int) -> _Node:
        return _Node(number, index, 0, self._classes[number].spans[index].end)

    def _happened(self, number: int, event: Event, at: float) -> _Node:
        """What made *event* happen *at* that instant."""
        played = self._classes[number]
        source = played.at_event(event)
        if source is not None and source.end == at:
            return _Node(number, source.number, 0, at)
        for wait in played.events[event].waits:
            if wait.at == at:
                return self._happened(number, wait.event, at)
        return _Node(number, None, self._places(number).of(event), at)

    def _worked(self, node: _Node) -> tuple[list[Stretch], _Node | None]:
        """Of the host at an instruction: what it did since it was last blocked, and what blocked it."""
        number, _, instruction, at = node
        places = self._places(number)
        first, wait = places.last_wait(instruction)
        since, after = (wait.end, wait.reason) if wait else (0.0, "start")
        span = places.launched_by(instruction)
        found = [Stretch(since, at, "work", number, span, (first, instruction), after)]
        return found, self._happened(number, wait.event, since) if wait else None

    def _meeting(self, number: int, span: Span) -> tuple[int, float, float]:
        """What is the same of a collective in all rank classes that meet there."""
        return self._ready.classes[number].communicators[span.launch.operation], span.met_at, span.end

    def _last_to_come(self) -> dict[tuple[int, float, float], tuple[int, Span]]:
        """For each collective, a class that reached it last."""
        return {
            self._meeting(number, span): (number, span)
            for number, item in enumerate(self._classes)
            for span in item.spans
            if span.reached_at == span.met_at
        }


def _stretch(
    start: float, end: float, doing: Literal["run", "wait"], rank_class: int, span: int, after: str
) -> Stretch:
    return Stretch(start, end, doing, rank_class, span, (0, 0), after)
