"""Exposed communication by the kind of link that was waited for.

A link is waited for while its bytes are: while what compute waits for sends them itself, and while an operation does
that held it back - one before it on its communicator or stream, or one that a bound on prefetch waits for.  What such
an operation stood behind counts in turn.  Nobody's bytes are waited for while latencies pass, the host works, a rank
comes late, something is copied on the device, or what is ahead in a queue waits for its own data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulator.clock.cast import Stage
from simulator.clock.timeline import ClassTimeline, Span
from simulator.readings.critical import busiest, summed
from simulator.readings.exposure import ROUNDING, Exposure, Stall

__all__ = ["NO_LINK", "exposed_by_link"]

NO_LINK: Final = "no link"
"""Where the exposed time goes in which no link's bytes are waited for."""


def exposed_by_link(reading: Exposure, played: ClassTimeline, ready: Stage) -> dict[str, float]:
    """``stalled`` by the kind of link whose bytes were waited for, or :data:`NO_LINK`, most first [s].

    Parameters
    ----------
    played
        The first rank class of *ready*, which *reading* is of.
    """
    bounding = [busiest(phases, ready.links) for phases in ready.classes[0].phases]
    return summed(
        (link or NO_LINK, time)
        for item in reading.stalls
        if item.collective
        for link, time in _by_link(item, played.spans, bounding)
    )


def _by_link(stall: Stall, spans: Sequence[Span], bounding: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Divide a *stall*; the kind of link is empty where there is none.

    Parameters
    ----------
    bounding
        Kind of the link that bounds each operation.
    """
    left = whole = stall.end - stall.start
    if stall.cause in ("bandwidth", "contention"):
        yield bounding[spans[stall.during].launch.operation], left
        return
    if stall.cause in ("queueing", "prefetch limit"):
        for span, time in _ran(stall, spans):
            if link := bounding[span.launch.operation]:
                sent = time * (1 - span.latency / (span.end - span.start))
                left -= sent
                yield link, sent
    if left > ROUNDING * whole:
        yield "", left


def _ran(stall: Stall, spans: Sequence[Span]) -> Iterator[tuple[Span, float]]:
    """Yield what ran in a *stall*, back from what held up last, and for how long."""
    number, until = stall.during, stall.end
    while number >= 0 and until > stall.start:
        span = spans[number]
        begin = max(span.start, stall.start)
        if (end := min(span.end, until)) > begin:
            yield span, end - begin
        number, until = span.queued_behind, min(until, begin)
