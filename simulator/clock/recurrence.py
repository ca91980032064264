r"""The (max, +) recurrence: the step of one rank class when no two transfers share a link.

Everything an entry waits for was issued before it, so one pass in issue order finds all times:

.. math:: start = \max(issued, tail_{stream}, events, tail_{communicator}), \quad end = start + duration

With more than one rank class, or with transfers that slow each other down, only the engine gives the answer.  Many
scenarios at once, and kernels that slow down: :mod:`simulator.clock.batch`, which has to prepare a program first.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.clock.cast import NO_COMMUNICATOR, RankClass
from simulator.clock.timeline import ClassTimeline, Happened, HostWait, Span
from simulator.schedules.program import Event, HostWork, Synchronize, Wait

__all__ = ["replayed", "step_time"]

NOBODY = -1


def step_time(cast: RankClass, durations: Sequence[float]) -> float:
    """Time of the step if operation i takes *durations[i]* [s]."""
    return max((span.end for span in replayed(cast, durations).spans), default=0.0)


def replayed(cast: RankClass, durations: Sequence[float]) -> ClassTimeline:
    """What happens if operation i takes *durations[i]* [s]; nothing is told of what released what."""
    host, spans, host_waits = 0.0, list[Span](), list[HostWait]()
    finished = [[0.0] for _ in cast.program.streams]
    served: dict[int, float] = {}
    for item in cast.program.instructions:
        if isinstance(item, HostWork):
            host += item.time
        elif isinstance(item, Synchronize):
            end = max(host, finished[item.event.stream][item.event.position])
            host_waits.append(HostWait(host, end, item.event, item.reason))
            host = end
        elif isinstance(item, Wait):
            stream = finished[item.stream]
            stream.append(max(host, stream[-1], finished[item.event.stream][item.event.position]))
        else:
            stream = finished[item.stream]
            start = reached = max(host, stream[-1])
            communicator, taken = cast.communicators[item.operation], durations[item.operation]
            if communicator != NO_COMMUNICATOR:
                start = max(start, served.get(communicator, 0.0))
                served[communicator] = start + taken
            stream.append(start + taken)
            spans.append(
                Span(item, len(spans), host, NOBODY, (), reached, reached, NOBODY, start, start + taken, taken, 0.0)
            )
    events = {
        Event(stream, position): Happened(finished[stream][position], NOBODY, NOBODY, ())
        for stream, positions in enumerate(cast.program.awaited())
        for position in positions
    }
    return ClassTimeline(
        name=cast.name,
        ranks=cast.ranks,
        program=cast.program,
        spans=tuple(spans),
        events=events,
        host_waits=tuple(host_waits),
        memory=(),
    )
