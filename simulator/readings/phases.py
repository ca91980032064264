"""How long forward, backward and the optimizer's step take: what frameworks' own timers print.

Such a timer waits until the device is idle before it reads the clock.  Forward ends with its last kernel; backward with
the last operation that it has issued on any stream, because the gradients must be reduced before anybody may read them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from simulator.clock.timeline import ClassTimeline
from simulator.schedules.program import Launch

__all__ = ["divided", "phases", "timed"]

T = TypeVar("T", float, npt.NDArray[np.float64])

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
        if (key := timed(span.launch)) is not None:
            ends[key] = max(ends[key], span.end)
    return {name: float(time) for name, time in divided(ends, step_time).items()}


def timed(launch: Launch) -> tuple[int, str] | None:
    """Micro-batch and timer that *launch* counts for, if any."""
    part = PARTS.get(launch.phase)
    counts = part == "backward" or (part == "forward" and launch.stream == COMPUTE)
    return (launch.micro_batch, part) if part and counts else None


def divided(ends: Mapping[tuple[int, str], T], step_time: T) -> dict[str, T]:
    """Turn the *ends* of what each micro-batch's timers count, numbers or one for each lane, into times [s]."""
    spent: dict[str, Any] = {"forward": 0.0 * step_time, "backward": 0.0 * step_time}
    now = spent["forward"]
    for micro_batch, part in sorted(ends, key=lambda key: (key[0], key[1] == "backward")):
        later = np.maximum(now, ends[micro_batch, part])
        spent[part] = spent[part] + (later - now)
        now = later
    return spent | {"optimizer": step_time - now}
