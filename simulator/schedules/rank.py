"""What a rank launches beside its model: asynchronous collectives of process groups, and copies around them."""

from __future__ import annotations

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.kernels import Kernel
from simulator.schedules.job import Job, collective
from simulator.schedules.program import Event, Memory, Operation
from simulator.schedules.tape import COMPUTE
from simulator.world.mesh import Group
from simulator.world.model.layer import Work

__all__ = ["Rank"]


class Rank:
    """Launches for one framework; equal operations are one."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tape = job.tape()
        self._made: dict[tuple[object, ...], Operation] = {}

    def hook(self) -> None:
        """Spend the host's time for a hook."""
        if self.job.costs.hook:
            self.tape.work(self.job.costs.hook)

    def issue(
        self, kind: CollectiveKind, elements: int, dtype: str, role: str, label: str, group: Group | None = None
    ) -> Event:
        """Put a collective into the internal stream of *group*, behind what is in the compute stream now (O-6).

        Parameters
        ----------
        group
            By default the world.
        """
        among = group or self.job.world
        key = (kind, elements, dtype, role, among.name)
        if key not in self._made:
            self._made[key] = collective(kind, elements, dtype, among, role)
        internal = f"nccl {among.name}"
        self.tape.wait(internal, self.tape.record(COMPUTE))
        return self.tape.launch(self._made[key], internal, label=label)

    def move(
        self, kind: str, traffic: float, serves: str, label: str, stream: str = COMPUTE, gives: Memory = ()
    ) -> Event:
        """Launch a kernel that reads and writes *traffic* bytes for a collective."""
        key = (kind, traffic, serves)
        if key not in self._made:
            works = (Work("memory", constant_traffic=traffic),)
            self._made[key] = Kernel(kind=kind, works=works, is_copy=True, serves=serves)
        return self.tape.launch(self._made[key], stream, label=label, gives=gives)

    def read(self) -> None:
        """Block the host until it has copied something from the device."""
        self.tape.synchronize(self.tape.record(COMPUTE), "data")
