"""How much communication is exposed, and why.

The compute stream of a rank is at every moment busy with a kernel, busy with a copy, or idle; it is idle because it
waits for communication (``stalled``) or because the host has not launched its next kernel (``host_bound``):

    compute + stalled + copies + host_bound = step

Four definitions are in use, and all are reported: ``stalled``; ``uncovered`` (communication minus compute, interval
arithmetic, as trace analysers count); ``counterfactual`` (step minus the step on an infinitely fast network);
``skew`` (the part of ``stalled`` that waits for a late rank).

Causes
------
A stall ends when some operation c ends.  It could have been shorter if c had started earlier or run faster, so its
length is charged in this order until used up:

1. to what delayed the start of c beyond what it needs: a bound on what may be gathered ahead (``prefetch limit``), the
   host that launched it late (``host``), a rank that came late (``skew``), or an operation before it on the
   communicator or stream that nothing needed earlier (``queueing``) - each for as long as it was what c waited for
   last; while what c queued for was itself waiting for a late rank, to ``skew``;
2. to the time c ran: the part in which no byte flows (``latency``), the part that sharing links added
   (``contention``), the rest (``bandwidth``); ``copy`` if c only moves bytes on the device;
3. to what c needs: the operation whose data it uses, one that the host was blocked by before it launched c, or one
   before it in the queue that compute needed earlier - by the same rules.

By construction the charges of a stall sum to its length.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple

from simulator.clock.timeline import ClassTimeline, HostWait, Released, Span
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.readings.intervals import length, merged, overlap
from simulator.readings.needed import needed_by

__all__ = ["CAUSES", "COMPUTE", "ROUNDING", "TIES", "Exposure", "Stall", "Totals", "exposure"]

CAUSES = ("bandwidth", "latency", "contention", "queueing", "prefetch limit", "host", "skew", "copy")
"""Why the compute stream waits for communication."""

TIES = ("queueing", "host", "prefetch limit", "skew")
"""Of two things that held something back until the same instant the later one here counts: a host that a bound on
prefetch blocks launches at once when it may."""

COMPUTE = 0
"""Number of the compute stream."""

ROUNDING = 1e-9
"""Relative error that a difference of two instants may have."""


class Stall(NamedTuple):
    """A piece of an idle stretch of the compute stream, charged to one cause.

    The pieces of a stretch lie side by side: what was needed before, what delayed the start, the time it ran.
    """

    start: float
    end: float
    cause: str
    """One of :data:`CAUSES`, or ``host bound`` where no communication was waited for."""
    collective: str
    """Role of the collective that was waited for; empty for ``host bound``."""
    label: str
    """Layer or bucket that it worked for."""
    during: int = -1
    """Number of the span that ran meanwhile, or last: itself, or what held it back; -1 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Where the time of one rank's step went [s]."""

    compute: float
    slowed: float
    """The part of ``compute`` that communication beside it added."""
    recomputed: float
    """The part of ``compute`` that activation checkpointing runs again."""
    stalled: float
    copies: float
    host_bound: float
    uncovered: float
    skew: float
    communication: float
    """Union of the intervals in which some collective ran."""
    stalls: tuple[Stall, ...]

    def by_cause(self) -> dict[str, float]:
        """``stalled`` by cause, in the order of :data:`CAUSES`; every cause is there."""
        total = dict.fromkeys(CAUSES, 0.0)
        for item in self.stalls:
            if item.collective:
                total[item.cause] += item.end - item.start
        return total

    def by_collective(self) -> dict[str, float]:
        """``stalled`` by what was waited for."""
        total: dict[str, float] = defaultdict(float)
        for item in self.stalls:
            if item.collective:
                total[item.collective] += item.end - item.start
        return dict(total)

    def totals(self) -> Totals:
        """Everything but when it was."""
        return Totals(
            **{item.name: getattr(self, item.name) for item in fields(self) if item.name != "stalls"},
            by_cause=self.by_cause(),
            by_collective=self.by_collective(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Where the time of one rank's step went, added up, as :class:`Exposure` [s]."""

    compute: float
    slowed: float
    recomputed: float
    stalled: float
    copies: float
    host_bound: float
    uncovered: float
    skew: float
    communication: float
    by_cause: Mapping[str, float]
    by_collective: Mapping[str, float]


def exposure(timeline: ClassTimeline, step: float | None = None) -> Exposure:
    """Read the exposed communication off what one rank class did.

    Parameters
    ----------
    timeline
        Of the class.
    step
        When the last class was done [s]; a class that was done before waits for it in the next step, which is ``skew``.
    """
    compute_stream = [span for span in timeline.spans if span.launch.stream == COMPUTE]
    is_copy = [isinstance(item, Kernel) and item.is_copy for item in timeline.program.operations]
    communicates = [isinstance(item, Collective | Transfer) for item in timeline.program.operations]
    recomputes = [isinstance(item, Kernel) and item.kind == "recompute" for item in timeline.program.operations]
    kernels = [
        span
        for span in compute_stream
        if not is_copy[span.launch.operation] and not communicates[span.launch.operation]
    ]
    copies = [span for span in compute_stream if is_copy[span.launch.operation]]
    stalls = (*_Charging(timeline).stalls(compute_stream), *_waiting_for_others(timeline, compute_stream, step))
    busy = merged((span.start, span.end) for span in timeline.spans if communicates[span.launch.operation])
    return Exposure(
        compute=sum(span.end - span.start for span in kernels),
        slowed=sum(_longer(span) for span in kernels),
        recomputed=sum(span.end - span.start for span in kernels if recomputes[span.launch.operation]),
        stalled=_total(item for item in stalls if item.collective),
        copies=sum(span.end - span.start for span in copies),
        host_bound=_total(item for item in stalls if not item.collective),
        uncovered=length(busy) - overlap(busy, merged((span.start, span.end) for span in kernels)),
        skew=_total(item for item in stalls if item.cause == "skew"),
        communication=length(busy),
        stalls=stalls,
    )


def _waiting_for_others(timeline: ClassTimeline, stream: Sequence[Span], step: float | None) -> Iterator[Stall]:
    """From the class's own end to that of the last one, charged to the collective where it meets them next."""
    end = stream[-1].end if stream else 0.0
    meets = (item for item in timeline.program.operations if isinstance(item, Collective))
    if step is not None and step > end and (first := next(meets, None)) is not None:
        yield Stall(end, step, "skew", first.role, "next step")


class _Delay(NamedTuple):
    """Something that held a span back until a moment, and need not have."""

    until: float
    cause: str
    by: int = -1
    """Number of the span whose end it waited for, if any."""


class _Charge(NamedTuple):
    """A length of time, what it is charged to, and the span that was waited for."""

    length: float
    cause: str
    span: Span | None
    during: int = -1
    """As of :class:`Stall`."""


class _Charging:
    """Charges the idle stretches of one rank's compute stream."""

    def __init__(self, timeline: ClassTimeline) -> None:
        self._timeline = timeline
        self._needed = needed_by(timeline)
        self._host_waits = [wait for wait in timeline.host_waits if wait.end > wait.start]
        self._host_was_free_at = [wait.end for wait in self._host_waits]

    def stalls(self, compute: Sequence[Span]) -> Iterator[Stall]:
        """Yield the charged pieces in order of time; a collective in the compute stream itself is a stall too."""
        operations = self._timeline.program.operations
        idle_from = 0.0
        for span in compute:
            if isinstance(operations[span.launch.operation], Collective | Transfer):
                yield from self._laid(self._in_line(span, idle_from), idle_from, span.end)
            elif span.start > idle_from:
                yield from self._laid(self._released(span, idle_from), idle_from, span.start)
            idle_from = span.end

    def _in_line(self, span: Span, begin: float) -> Iterator[_Charge]:
        """Charge a collective in the compute stream: its own time, its wait for others, what it was issued after."""
        for share, cause in self._own_time(span):
            yield _Charge(share * (span.end - span.start), cause, span, span.number)
        yield _Charge(span.start - span.met_at, "queueing", span, span.behind)
        yield _Charge(span.met_at - span.reached_at, "skew", span)
        if span.reached_at > begin:
            yield from self._released(span, begin)

    def _laid(self, charged: Iterable[_Charge], begin: float, end: float) -> Iterator[Stall]:
        """Lay charges, which come last moment first, side by side from *begin* to *end*."""
        at = begin
        charges = [charge for charge in charged if charge.length > 0]
        for index, charge in enumerate(reversed(charges)):
            until = end if index == len(charges) - 1 else at + charge.length  # the last one takes up the rounding
            yield Stall(at, until, charge.cause, *self._names(charge.span), charge.during)
            at = until

    def _released(self, span: Span, begin: float) -> Iterator[_Charge]:
        """Charge the time from *begin* to the start of *span*, last moment first."""
        last = _latest(self._sources(span.waits))
        if last is None or span.issued_at > last.end:
            yield from self._host(span.issued_at, begin)
        else:
            yield from self._chain(last, begin)

    def _host(self, until: float, begin: float) -> Iterator[_Charge]:
        """Charge a launch that came late: the host worked, or was itself blocked until some event."""
        wait = self._host_wait(until)
        if wait is not None and wait.end > begin:
            yield _Charge(until - wait.end, "host bound", None)
            yield from self._chain(_latest(self._sources([wait])), begin)
        else:
            yield _Charge(until - begin, "host bound", None)

    def _chain(self, need: Span | None, begin: float) -> Iterator[_Charge]:
        """Charge the time from *begin* to the end of *need*: to it, to what that needed, and so on."""
        while need is not None and need.end > begin:
            if self._computes(need):
                yield _Charge(need.end - begin, "host bound", None)
                return
            span = need
            delays, need = self._delays(span)
            yield from self._ran(span, delays, need.end if need else 0.0, begin)

    def _ran(self, span: Span, delays: list[_Delay], floor: float, begin: float) -> Iterator[_Charge]:
        """Charge the time from *begin* to the end of *span*: its delays after *floor*, then its own time."""
        left = max(0.0, span.end - begin)
        late = []
        copies = isinstance(self._timeline.program.operations[span.launch.operation], Transfer)
        for delay, earlier in pairwise([*delays, _Delay(floor, "")]):
            length = min(left, delay.until - earlier.until)
            # before a copy is launched late the host updates parameters: that is its own time, not the copy's
            worked = copies and delay.cause == "host"
            late.append(_Charge(length, "host bound", None) if worked else _Charge(length, delay.cause, span, delay.by))
            left -= length
        for share, cause in self._own_time(span):
            yield _Charge(share * min(left, span.end - span.start), cause, span, span.number)
        yield from late

    def _delays(self, span: Span) -> tuple[list[_Delay], Span | None]:
        """What held *span* back without need, latest first, and the last thing that it needed."""
        delays = [_Delay(span.issued_at, "host")]
        if span.met_at > span.reached_at:
            delays.append(_Delay(span.met_at, "skew"))
        held = self._host_wait(span.issued_at)
        if held is not None and held.reason == "prefetch limit":
            delays.append(_Delay(held.end, held.reason, self._source(held)))
            delays += [item for other in self._sources([held]) for item in self._held_by(other, held.reason, held.end)]
            needs = []
        else:
            needs = self._blocked_host(span.issued_at)
        needs += self._sources(wait for wait in span.waits if wait.reason == "data")
        delays += [_Delay(wait.at, wait.reason, self._source(wait)) for wait in span.waits if wait.reason != "data"]
        for index in {span.before, span.behind} - {-1}:
            other = self._timeline.spans[index]
            if self._needed[index] <= self._needed[span.number]:
                needs.append(other)
            else:
                delays += self._held_by(other, "queueing", other.end)
        need = _latest(needs)
        floor = need.end if need else 0.0
        late = [delay for delay in delays if delay.until > floor]
        return sorted(late, key=lambda delay: (-delay.until, TIES.index(delay.cause))), need

    def _held_by(self, other: Span, cause: str, until: float) -> list[_Delay]:
        """What it means to be held back by *other*: while that, or what it queued for, waited for a late rank, skew."""
        delays = [_Delay(until, cause, other.number)]
        while True:
            follows = other.queued_behind
            if other.met_at > other.reached_at:
                delays += [_Delay(other.met_at, "skew"), _Delay(other.reached_at, cause, follows)]
            if follows < 0 or self._timeline.spans[follows].end < other.reached_at:
                return delays
            other = self._timeline.spans[follows]

    def _host_wait(self, until: float) -> HostWait | None:
        """Return the last wait of the host that was over at *until*."""
        position = bisect_right(self._host_was_free_at, until)
        return self._host_waits[position - 1] if position else None

    def _blocked_host(self, until: float) -> list[Span]:
        """What the host was last blocked by, at most one."""
        wait = self._host_wait(until)
        return self._sources([wait]) if wait else []

    def _sources(self, waits: Iterable[Released | HostWait]) -> list[Span]:
        """Spans whose ends were waited for.

        An event can happen later than that, when the host has not launched the waits before it; so late was the
        launch of what waits for it, too.
        """
        found = (self._timeline.at_event(wait.event) for wait in waits)
        return [span for span in found if span is not None]

    def _source(self, wait: Released | HostWait) -> int:
        """Number of the span whose end was waited for, -1 for none."""
        return self._timeline.events[wait.event].source

    def _computes(self, span: Span) -> bool:
        operation = self._timeline.program.operations[span.launch.operation]
        return span.launch.stream == COMPUTE and isinstance(operation, Kernel)

    def _own_time(self, span: Span) -> Iterator[tuple[float, str]]:
        """Shares of the time that *span* ran, by cause."""
        ran = span.end - span.start
        if isinstance(self._timeline.program.operations[span.launch.operation], Kernel):
            yield 1.0, "copy"
        elif ran > 0:
            contention = _longer(span) / ran
            latency = min(span.latency / ran, 1 - contention)
            yield contention, "contention"
            yield 1 - contention - latency, "bandwidth"
            yield latency, "latency"

    def _names(self, span: Span | None) -> tuple[str, str]:
        if span is None:
            return "", ""
        operation = self._timeline.program.operations[span.launch.operation]
        if isinstance(operation, Collective | Transfer):
            return operation.role, span.launch.label
        return operation.serves or operation.kind, span.launch.label


def _latest(spans: Sequence[Span]) -> Span | None:
    return max(spans, key=lambda span: span.end, default=None)


def _longer(span: Span) -> float:
    """How much longer *span* ran than it would have alone [s]."""
    ran = span.end - span.start
    longer = ran - span.alone
    return longer if longer > max(ROUNDING * ran, 2 * math.ulp(span.end)) else 0.0


def _total(stalls: Iterable[Stall]) -> float:
    return sum((stall.end - stall.start for stall in stalls), 0.0)
