"""How long forward, backward and the optimizer's step take: what frameworks' own timers print.

Such a timer waits until the device is idle before it reads the clock.  Forward ends with its last kernel; backward with
the last operation that it has issued on any stream, because the gradients must be reduced before anybody may read them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from simulator.clock.timeline import ClassTimeline

__all__ = ["phases"]

COMPUTE: Final = 0
"""Number of the compute stream."""

PARTS: Final[Mapping[str, str]] = {
    "forward": "forward",
    "recompute": "backward",
    "backward": "backward",
    "coalesce_exit": "backward",
}
"""Phases of a program and the timer that they count for; the rest of the step is the optimizer's."""


def phases(timeline: ClassTimeline, step_time: float) -> dict[str, float]:
    """Divide the step of one rank into ``forward``, ``backward`` and ``optimizer`` [s]; all micro-batches added up."""
    ends: dict[tuple[int, str], float] = defaultdict(float)
    for span in timeline.spans:
        part = PARTS.get(span.launch.phase)
        if part == "backward" or (part == "forward" and span.launch.stream == COMPUTE):
            key = span.launch.micro_batch, part
            ends[key] = max(ends[key], span.end)
    spent, now = {"forward": 0.0, "backward": 0.0}, 0.0
    for micro_batch, part in sorted(ends, key=lambda key: (key[0], key[1] == "backward")):
        later = max(now, ends[micro_batch, part])
        spent[part] += later - now
        now = later
    return spent | {"optimizer": step_time - now}
