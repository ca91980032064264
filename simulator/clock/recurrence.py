r"""The (max, +) recurrence: the step of one rank class when no two transfers share a link.

Everything an entry waits for was issued before it, so one pass in issue order finds all times:

.. math:: start = \max(issued, tail_{stream}, events, tail_{communicator}), \quad end = start + duration

With more than one rank class, or with transfers that slow each other down, only the engine gives the answer.  Many
scenarios at once, and kernels that slow down: :mod:`simulator.clock.batch`, which has to prepare a program first.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.clock.cast import NO_COMMUNICATOR, RankClass
from simulator.schedules.program import HostWork, Launch, Synchronize, Wait

__all__ = ["step_time"]


def step_time(cast: RankClass, durations: Sequence[float]) -> float:
    """Time of the step if operation i takes *durations[i]* [s]."""
    host = 0.0
    finished = [[0.0] for _ in cast.program.streams]
    served: dict[int, float] = {}
    for instruction in cast.program.instructions:
        if isinstance(instruction, HostWork):
            host += instruction.time
            continue
        if isinstance(instruction, Synchronize):
            host = max(host, finished[instruction.event.stream][instruction.event.position])
            continue
        stream = finished[instruction.stream]
        end = max(host, stream[-1])
        if isinstance(instruction, Wait):
            end = max(end, finished[instruction.event.stream][instruction.event.position])
        elif isinstance(instruction, Launch):
            communicator = cast.communicators[instruction.operation]
            if communicator != NO_COMMUNICATOR:
                end = max(end, served.get(communicator, 0.0))
            end += durations[instruction.operation]
            if communicator != NO_COMMUNICATOR:
                served[communicator] = end
        stream.append(end)
    return max(stream[-1] for stream in finished)
