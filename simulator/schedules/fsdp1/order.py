"""What FSDP1 learns about the order of things: units in forward, frees under way, gradients in backward.

The first two are its own bookkeeping (``_exec_order_utils.py``, ``_limiter_utils.py``).  The third is autograd's: a
flat parameter's gradient is put together by the backward of the split that made the views of its parameters.  Autograd
takes nodes made later first, so this happens when backward has done all that forward did after the views were made.
They are made when the weights are gathered: by the unit's own pre-forward hook, or earlier by that of the unit before,
if this prefetches; each reduction then comes one unit later (F1-9 as corrected by the recordings).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from simulator.schedules.fsdp1.flat_param import FlatParamHandle
from simulator.schedules.program import Event
from simulator.world.model.execution import Execution, Mark

__all__ = ["Autograd", "ExecOrderData", "FreeEventQueue"]

MAX_NUM_INFLIGHT_ALL_GATHERS: Final = 2  # source: _limiter_utils.py, _FreeEventQueue


class FreeEventQueue:
    """The rate limiter (F1-6): frees that the host has not waited for."""

    def __init__(self) -> None:
        self._queue: deque[Event] = deque()

    def enqueue(self, event: Event) -> None:
        """Remember the end of a unit's use."""
        self._queue.append(event)

    def dequeue_if_needed(self) -> Event | None:
        """Return one event to wait for if the limit is reached."""
        return self._queue.popleft() if len(self._queue) >= MAX_NUM_INFLIGHT_ALL_GATHERS else None

    def all_came_to_pass(self, past: Event) -> None:
        """Put *past* in place of all events: those of the step before are over when a new program begins."""
        self._queue = deque(past for _ in self._queue)


class ExecOrderData:
    """Order of units in forward: before it, learnt once (F1-5), and after it, anew for each backward (F1-8)."""

    def __init__(self) -> None:
        self._pre_forward: list[FlatParamHandle] = []
        self._post_forward: list[FlatParamHandle] = []
        self._is_first_iteration = True

    def record_pre_forward(self, handle: FlatParamHandle) -> None:
        """Note the first use of *handle* in the first iteration."""
        if self._is_first_iteration and handle.pre_forward_order_index is None:
            handle.pre_forward_order_index = len(self._pre_forward)
            self._pre_forward.append(handle)

    def record_post_forward(self, handle: FlatParamHandle) -> None:
        """Note each use of *handle*; it keeps the place of the first, which FSDP forgets if that is place 0."""
        if not handle.post_forward_index:
            handle.post_forward_index = len(self._post_forward)
        self._post_forward.append(handle)

    def next_iteration(self) -> None:
        """Backward is over."""
        self._is_first_iteration = False
        self._post_forward.clear()

    def handle_to_backward_prefetch(self, current: FlatParamHandle) -> FlatParamHandle | None:
        """The unit whose forward ended before that of *current*."""
        return self._post_forward[current.post_forward_index - 1] if current.post_forward_index else None

    def handle_to_forward_prefetch(self, current: FlatParamHandle) -> FlatParamHandle | None:
        """The unit whose forward began after that of *current* in the first iteration."""
        index = current.pre_forward_order_index
        return self._pre_forward[index + 1] if index is not None and index + 1 < len(self._pre_forward) else None


class Autograd:
    """When the gradients of flat parameters are complete."""

    def __init__(self, execution: Execution) -> None:
        self._entered: dict[str, int] = {}
        for position, mark in enumerate(execution.forward):
            if mark.kind == "enter":
                self._entered.setdefault(mark.name, position)
        self.reached = frozenset(mark.name for mark in execution.backward if mark.kind == "backward")
        """Modules whose output has a gradient."""
        self.without_graph = frozenset(_run_without_graph(execution.backward))
        """Modules whose first forward keeps no graph: what reentrant checkpointing runs again."""
        self._last_of_later = _last_of_later(execution, self._entered)
        self._viewed: set[FlatParamHandle] = set()
        self._due: dict[int, list[FlatParamHandle]] = defaultdict(list)

    def begin(self) -> None:
        """A forward with gradients begins."""
        self._viewed.clear()
        self._due.clear()

    def make_views(self, handle: FlatParamHandle, unit: str) -> None:
        """The pre-forward hook of *unit* made the views of *handle*; if it is used again, the first views decide."""
        if handle.requires_grad and handle not in self._viewed and not self.reached.isdisjoint(handle.modules):
            if handle.modules <= self.without_graph:  # reentrant checkpointing has a backward of its own in backward
                unit = handle.unit
            self._viewed.add(handle)
            self._due[self._position(unit)].append(handle)

    def complete(self, position: int) -> Sequence[FlatParamHandle]:
        """Flat parameters whose gradient is complete after the mark at *position* of backward."""
        return self._due.pop(position, [])[::-1]

    def _position(self, unit: str) -> int:
        """Last mark in backward of what forward began together with *unit* or later."""
        return self._last_of_later[self._entered[unit]]


def _last_of_later(execution: Execution, entered: Mapping[str, int]) -> list[int]:
    """For each mark of forward, the last mark in backward of what forward began together with it or later."""
    last = [-1] * len(execution.forward)
    for position, mark in enumerate(execution.backward):
        if mark.kind != "gradient" and mark.name in entered:
            last[entered[mark.name]] = position
    later = list(accumulate(reversed(last), max))[::-1]
    return [position if position >= 0 else len(execution.backward) - 1 for position in later]


def _run_without_graph(backward: Sequence[Mark]) -> Iterator[str]:
    """Yield what is run again before backward has reached the outermost module that is."""
    reached: set[str] = set()
    depth, is_reentrant = 0, False
    for mark in backward:
        if mark.kind == "backward":
            reached.add(mark.name)
        elif mark.kind == "enter":
            if not depth:
                is_reentrant = mark.name not in reached
            depth += 1
            if is_reentrant:
                yield mark.name
        elif mark.kind in ("leave", "abort"):
            depth -= 1
