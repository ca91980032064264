"""What happened: spans, waits of the host, memory.  A record; it knows no SimPy and no laws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.laws.collectives.fabric import Link
from simulator.schedules.program import Event, Launch, Program, Reason

__all__ = [
    "ClassTimeline",
    "Happened",
    "HostWait",
    "MemoryChange",
    "Released",
    "Span",
    "Timeline",
    "memory_changes",
    "utilisation",
]


class Released(NamedTuple):
    """A wait of a stream that came to its end."""

    at: float
    """When the event happened, be it before the wait began [s]."""
    event: Event
    reason: Reason


class Happened(NamedTuple):
    """An event that something waited for, when it had happened."""

    at: float
    """[s]"""
    last_span: int
    """Number of the last span of its stream that was then done, -1 for none."""
    source: int
    """Number of the span whose end it was, be it through waits of the stream; -1 for none."""
    waits: tuple[Released, ...]
    """Waits of the stream after that last span."""


class Span(NamedTuple):
    """One launched operation that ran.  All times in seconds from the start of the step."""

    launch: Launch
    number: int
    """Position in :attr:`ClassTimeline.spans`, which is issue order."""
    issued_at: float
    """When the host launched it."""
    before: int
    """Number of the span before it in its stream, -1 for none."""
    waits: tuple[Released, ...]
    """Waits that stood between that span and this one."""
    reached_at: float
    """When its stream got to it, all waits done."""
    met_at: float
    """When the last rank class of its collective had reached it; ``reached_at`` for a kernel."""
    behind: int
    """Number of the span before it on its communicator, -1 for none."""
    start: float
    end: float
    alone: float
    """How long it takes when nothing shares its links."""
    latency: float
    """The part of ``alone`` in which no byte flows."""

    @property
    def queued_behind(self) -> int:
        """Number of the span that it stood behind: on its communicator if that was busy, else in its stream; or -1."""
        return self.behind if self.start > self.met_at else self.before


class HostWait(NamedTuple):
    """The host was blocked until an event."""

    start: float
    end: float
    event: Event
    reason: Reason


class MemoryChange(NamedTuple):
    """Memory taken (positive) or given back."""

    at: float
    item: str
    amount: float
    """[B]"""


def memory_changes(spans: Iterable[Span]) -> tuple[MemoryChange, ...]:
    """What *spans*, in issue order, take and give back, in order of time.

    At one instant issue order counts: whatever an operation waits for was issued before it.
    """
    changes: list[MemoryChange] = []
    for span in spans:
        changes += [MemoryChange(span.reached_at, item, amount) for item, amount in span.launch.takes]
        changes += [MemoryChange(span.end, item, -amount) for item, amount in span.launch.gives]
    return tuple(sorted(changes, key=lambda change: change.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTimeline:
    """What one rank of a class did."""

    name: str
    ranks: int
    program: Program
    spans: tuple[Span, ...]
    """In issue order."""
    events: Mapping[Event, Happened]
    """Every event that something waited for."""
    host_waits: tuple[HostWait, ...]
    memory: tuple[MemoryChange, ...]
    """In order of time, see :func:`memory_changes`."""

    def stream(self, name: str) -> tuple[Span, ...]:
        """Spans of the stream called *name*, in order."""
        if name not in self.program.streams:
            return ()
        number = self.program.streams.index(name)
        return tuple(span for span in self.spans if span.launch.stream == number)

    def at_event(self, event: Event) -> Span | None:
        """Return the span whose end *event* was."""
        number = self.events[event].source
        return self.spans[number] if number >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One simulated step."""

    classes: tuple[ClassTimeline, ...]
    step_time: float
    """[s]"""
    links: tuple[Link, ...]
    """Of the stage."""
    carried: tuple[float, ...]
    """Bytes that each of them carried [B]."""

    def utilisation(self) -> dict[str, float]:
        """Fraction of the step that the busiest link of each kind needs at full rate; unused kinds are left out."""
        return utilisation(self.links, self.carried, self.step_time)


def utilisation(links: Sequence[Link], carried: Sequence[float], step_time: float) -> dict[str, float]:
    """Return what :meth:`Timeline.utilisation` says of *links* that *carried* so many bytes; nothing of no time."""
    busy: dict[str, float] = {}
    for link, amount in zip(links, carried, strict=True):
        if amount and step_time:
            share = amount / link.bandwidth / step_time
            busy[link.kind] = max(busy.get(link.kind, 0.0), share)
    return dict(sorted(busy.items(), key=lambda item: -item[1]))
