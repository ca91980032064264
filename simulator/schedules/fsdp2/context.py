"""What the units of one root share: the tape, streams' latest events, buffers in flight (``FSDPCommContext``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simulator.schedules.job import Job
from simulator.schedules.program import Event, Memory, Reason
from simulator.schedules.tape import COMPUTE, Tape

__all__ = ["ALL_GATHER", "ALL_REDUCE", "BUCKETS", "COPY_IN", "REDUCE_SCATTER", "CommContext", "ReduceScatterState"]

COPY_IN: Final = "copy_in"
ALL_GATHER: Final = "all_gather"
REDUCE_SCATTER: Final = "reduce_scatter"
ALL_REDUCE: Final = "all_reduce"

BUCKETS: Final = "reduce buckets"
"""Item of memory."""


class ReduceScatterState(NamedTuple):
    """The input of a reduce-scatter, held until compute has waited for that."""

    event: Event
    size: float
    """[B]"""


@dataclass(kw_only=True)
class CommContext:
    """Shared by all groups."""

    job: Job
    tape: Tape
    reduce_scatter_max_input_buffers: int
    copied_out: Event | None = None
    """``all_gather_state``: the last copy out of a forward, which gathers have yet to wait for (F2-4)."""
    reduce_scatter_states: list[ReduceScatterState] = field(default_factory=list)
    recycled: float = 0.0
    """Bytes of inputs of reduce-scatters that compute has waited for; the next copy in reuses them [B]."""
    last_post_reduce_events: dict[str, Event] = field(default_factory=dict)
    """By stream; a later event of a stream includes those before."""
    all_reduced: Memory = ()
    """Buffers of all-reduces, held until the end of backward."""
    reduce_grads: bool = True
    all_reduce_grads: bool = True
    reshard_after_backward: bool = True

    def gathers_wait(self, event: Event, reason: Reason) -> None:
        """Let both streams of gathers wait (``_wait_all_gather_streams_on_event``)."""
        self.tape.wait(COPY_IN, event, reason)
        self.tape.wait(ALL_GATHER, event, reason)

    def hook(self) -> None:
        """Let a hook occupy the host."""
        if self.job.costs.hook:
            self.tape.work(self.job.costs.hook)

    def recycle_reduce_inputs(self, most: int) -> None:
        """Let compute wait until fewer than *most* inputs of reduce-scatters are in flight (F2-8)."""
        while len(self.reduce_scatter_states) >= most:
            oldest = self.reduce_scatter_states.pop(0)
            self.tape.wait(COMPUTE, oldest.event, "prefetch limit")
            self.recycled += oldest.size

    def finish_reductions(self) -> None:
        """Let compute wait for the rest and give back all buffers, at the end of backward (F2-15)."""
        self.recycle_reduce_inputs(1)
        if self.recycled:
            self.tape.give(REDUCE_SCATTER, ((BUCKETS, self.recycled),))
        if self.all_reduced:
            self.tape.give(ALL_REDUCE, self.all_reduced)
        self.recycled, self.all_reduced = 0.0, ()
