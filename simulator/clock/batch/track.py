"""When things happened in all lanes of a batch, to tell whether a step is periodic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.clock.batch.evaluate import Batch
from simulator.clock.batch.lanes import Array
from simulator.clock.periodic import Track, Window, period_of, periods
from simulator.schedules.program import Event, HostWork, Launch, Wait

__all__ = ["lane_periods", "track_of"]


def track_of(batch: Batch) -> Track:
    """Go through the program in issue order; lanes that fell back mean nothing."""
    program = batch.lanes.plan.program
    host = np.zeros(batch.lanes.count)
    entries: list[list[Array]] = [[host] for _ in program.streams]
    issued, reached, launched = [], [], []
    blocked: list[tuple[Array | float, Array | float]] = []
    events: dict[Event, Array | float] = {}
    for index, (item, end) in enumerate(zip(program.instructions, batch.ends, strict=True)):
        if isinstance(item, Launch):
            issued.append(host)
            reached.append(np.maximum(host, entries[item.stream][-1]))
            launched.append(index)
        elif not isinstance(item, HostWork):
            events[item.event] = entries[item.event.stream][item.event.position]
        if isinstance(item, Launch | Wait):
            entries[item.stream].append(end)
            continue
        if not isinstance(item, HostWork):
            blocked.append((host, end))
        host = end
    return Track(
        program=program,
        issued=issued,
        reached=reached,
        met=[batch.met.get(index, at) for index, at in zip(launched, reached, strict=True)],
        starts=[batch.starts[index] for index in launched],
        ends=[batch.ends[index] for index in launched],
        events=events,
        blocked=blocked,
    )


def lane_periods(batch: Batch, found: Sequence[tuple[Window, ...]]) -> Array:
    """Period of each lane by the first of its windows that repeats, (lanes,) [s]; not a number if none does."""
    track, result = track_of(batch), np.full(batch.lanes.count, np.nan)
    for each in dict.fromkeys(found):
        mine = np.array([other == each for other in found])
        for window in each:
            result = np.where(mine & np.isnan(result), periods(track, window), result)
    for lane, timeline in batch.timelines.items():
        result[lane] = period_of(timeline.classes[0], found[lane])
    return result
