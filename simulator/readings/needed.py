"""Which kernel is the first to need an operation: what is not needed earlier need not come earlier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from simulator.clock.timeline import ClassTimeline, Released, Span
from simulator.schedules.program import Event

__all__ = ["data_of", "needed_by"]

COMPUTE = 0
"""Number of the compute stream."""

NEVER = 1 << 62
"""Later than any position in the compute stream."""


def needed_by(timeline: ClassTimeline) -> list[int]:
    """For each span, the position of the first kernel in the compute stream that needs it, directly or not."""
    needed = [NEVER] * len(timeline.spans)
    in_stream: dict[int, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        in_stream[span.launch.stream].append(span)
    seen: dict[int, int] = defaultdict(int)
    followed: set[Event] = set()
    for position, kernel in enumerate(in_stream[COMPUTE]):
        needed[kernel.number] = position
        events = data_of(kernel.waits)
        while events:
            event = events.pop()
            if event.stream == COMPUTE or event in followed:  # what it leads to was needed earlier
                continue
            followed.add(event)
            happened = timeline.events[event]
            events += data_of(happened.waits)
            queue = in_stream.get(event.stream, [])
            while seen[event.stream] < len(queue) and queue[seen[event.stream]].number <= happened.last_span:
                span = queue[seen[event.stream]]
                seen[event.stream] += 1
                needed[span.number] = position
                events += data_of(span.waits)
    return needed


def data_of(waits: Iterable[Released]) -> list[Event]:
    """Events of the *waits* that are for data."""
    return [wait.event for wait in waits if wait.reason == "data"]
