"""The order in which hooks of modules fire, learnt in one micro-batch and used in the following ones (Z3-8, Z3-9).

While a trace is recorded nothing is prefetched and everything is freed.  Once complete it says which parameters come
next, and how far away the next use of a parameter is: the elements of all modules in between (Z3-26).

Source: DeepSpeed ``runtime/zero/partitioned_param_coordinator.py``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from itertools import accumulate

from simulator.schedules.zero3.parameters import HookedModule, ShardedParameter

__all__ = ["Trace", "TraceMode"]


class TraceMode(Enum):
    """What the coordinator knows of the order of modules."""

    RECORD = "is being recorded"
    COMPLETE = "is used"
    INVALID = "does not fit"


class Trace:
    """A complete trace; step s is the s-th fetch of a micro-batch, forward and backward."""

    def __init__(self, modules: Sequence[HookedModule] = ()) -> None:
        self.modules = tuple(modules)
        self.uses = tuple(
            (parameter, step) for step, module in enumerate(self.modules) for parameter in module.parameters
        )
        """Parameters in the order in which they are needed, each with the step that needs it."""
        self._distances: dict[bool, _Distances] = {}

    def is_reused(self, parameter: ShardedParameter, step: int, max_distance: int, *, below: bool) -> bool:
        """Whether *parameter* is used at or after *step* before *max_distance* elements have passed.

        Parameters
        ----------
        below
            Count modules with everything below them, as the release of a leaf does (Z3-26b).
        """
        if below not in self._distances:
            self._distances[below] = _Distances(self.modules, below=below)
        distance = self._distances[below].to_next_use(parameter, step)
        return distance is not None and distance < max_distance


class _Distances:
    """Elements between steps, without walking the trace for every question."""

    def __init__(self, modules: Sequence[HookedModule], *, below: bool) -> None:
        self._traversed = list(accumulate((module.elements(below=below) for module in modules), initial=0))
        self._steps: dict[ShardedParameter, list[int]] = defaultdict(list)
        for step, module in enumerate(modules):
            for parameter in module.below if below else module.direct:
                self._steps[parameter].append(step)

    def to_next_use(self, parameter: ShardedParameter, step: int) -> int | None:
        """Elements of the modules from *step* up to the next that uses *parameter*; None if there is none."""
        steps = self._steps.get(parameter, [])
        position = bisect_left(steps, step)
        return None if position == len(steps) else self._traversed[steps[position]] - self._traversed[step]
