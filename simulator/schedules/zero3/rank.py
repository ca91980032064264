"""One rank as DeepSpeed's host code sees it: streams, communicators, and the operations put on them.

Streams (Z3-2): compute, which is torch's default stream; one for gathers and one for reductions, which are the default
stream as well if ``overlap_comm`` is off; and, for each communicator, the internal stream of its process group, where
collectives with ``async_op=True`` run once everything that is on the caller's stream at that moment is done (O-6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from simulator.laws.collectives.base import Collective, CollectiveKind
from simulator.laws.kernels import Kernel
from simulator.schedules.job import DTYPE_BYTES, Job, collective
from simulator.schedules.program import Event, Memory, Program
from simulator.schedules.tape import COMPUTE
from simulator.world.mesh import Group
from simulator.world.model.layer import Work
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["Rank"]

BEGIN = Kernel(kind="begin", time=0.0)
"""Takes the memory that is in use when a step begins."""
END = Kernel(kind="end", time=0.0)
"""Waits for everything, so that what is still under way at the end of a step is seen as a wait."""

GATHERS = {"backward": "backward_all_gather", "recompute": "recompute_all_gather", "step": "parameter_all_gather"}


class Rank:
    """Launches operations, with what every launch of DeepSpeed brings along."""

    def __init__(self, job: Job, policy: DeepSpeedPolicy) -> None:
        self.job, self.policy = job, policy
        self.gather_stream = "all_gather" if policy.overlap_comm else COMPUTE
        self.reduce_stream = "reduce_scatter" if policy.overlap_comm else COMPUTE
        self.world = job.world
        self.clone = replace(job.world, name="world clone")
        """The data-parallel group: same ranks, another communicator (O-7)."""
        self.element_bytes = DTYPE_BYTES[job.dtype]
        self.tape = job.tape()
        self._streams: dict[str, None] = {}
        self._internal_streams: dict[str, str] = {}
        self._collectives: dict[tuple[str, float, str, str, str], Collective] = {}
        self._copies: dict[tuple[str, float, str], Kernel] = {}

    def begin(self, held: Memory) -> None:
        """Begin a step on a fresh tape with memory that is in use from before."""
        self.tape = self.job.tape()
        self._streams = dict.fromkeys((COMPUTE, self.gather_stream, self.reduce_stream))
        self.tape.launch(BEGIN, COMPUTE, label="begin of step", takes=held)

    def end(self, held: Memory) -> Program:
        """End the step; memory that stays in use is counted again when the next one begins."""
        for stream in self._streams:
            self.tape.wait(COMPUTE, self.tape.record(stream))
        self.tape.launch(END, COMPUTE, label="end of step", gives=held)
        return self.tape.program()

    @property
    def gather_role(self) -> str:
        """What reports call a gather that is submitted now."""
        return GATHERS.get(self.tape.phase, "forward_all_gather")

    def hook(self) -> None:
        """Spend the host's time of one hook."""
        if self.job.costs.hook:
            self.tape.work(self.job.costs.hook)

    def collective(self, kind: CollectiveKind, elements: float, dtype: str, group: Group, role: str) -> Collective:
        """Return the collective on an array of *elements*; equal ones are one object, which the tape finds faster."""
        key = (kind, elements, dtype, group.name, role)
        if key not in self._collectives:
            self._collectives[key] = collective(kind, elements, dtype, group, role)
        return self._collectives[key]

    def asynchronous(self, operation: Collective, stream: str, label: str, takes: Memory = ()) -> Event:
        """Launch with ``async_op=True`` while *stream* is current; ``wait()`` is to wait for the event."""
        internal = self._internal(operation.group)
        self.tape.wait(internal, self.tape.record(stream))
        event = self.tape.launch(operation, internal, label=label, takes=takes)
        self._logged()
        return event

    def blocking(self, operation: Collective, stream: str, label: str, takes: Memory = ()) -> Event:
        """Launch with ``async_op=False``: the collective runs on *stream* itself and the host goes on."""
        event = self.tape.launch(operation, stream, label=label, takes=takes)
        self._logged()
        return event

    def copy_kernel(self, kind: str, traffic: float, serves: str) -> Kernel:
        """Return the kernel that moves *traffic* bytes for a collective."""
        key = (kind, traffic, serves)
        if key not in self._copies:
            works = (Work("memory", constant_traffic=traffic),)
            self._copies[key] = Kernel(kind=kind, works=works, is_copy=True, serves=serves)
        return self._copies[key]

    def run(self, module: str, direction: str, takes: Memory = ()) -> bool:
        """Launch the own work of *module*; False if it has none."""
        if (module, direction) not in self.job.kernels:
            return False
        self.tape.take(takes)
        self.job.run(self.tape, module, direction)
        return True

    def device_synchronize(self) -> None:
        """Block the host until every stream is empty."""
        for stream in self._streams:
            event = self.tape.record(stream)
            if event.position:
                self.tape.synchronize(event, "host")

    def read(self) -> None:
        """Block the host until a number that it needs has been computed."""
        self.tape.synchronize(self.tape.record(COMPUTE), "data")

    def _internal(self, group: Group) -> str:
        """Stream of the process group of *group*."""
        if group.name not in self._internal_streams:
            self._internal_streams[group.name] = f"nccl {group.name}"
        name = self._internal_streams[group.name]
        self._streams[name] = None
        return name

    def _logged(self) -> None:
        """``comms_logger`` times each collective, for which it empties the device."""
        if self.policy.comms_logger:
            self.device_synchronize()


def label_of(names: Iterable[str]) -> str:
    """Name a batch of tensors by its first and last."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{listed[0]} to {listed[-1]}"
