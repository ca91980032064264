"""The recorder that schedules write to; its verbs are CUDA's.

>>> from simulator.laws.kernels import Kernel
>>> tape = Tape()
>>> forward = tape.launch(Kernel(kind="forward", time=1.0), "compute", label="layer 0")
>>> tape.wait("all_gather", forward)
>>> [type(item).__name__ for item in tape.program().instructions]
['Launch', 'Wait']
"""

from __future__ import annotations

from simulator.laws.kernels import Kernel
from simulator.schedules.program import (
    Event,
    HostWork,
    Instruction,
    Launch,
    Memory,
    Operation,
    Program,
    Reason,
    Synchronize,
    Wait,
)

__all__ = ["Tape"]

COMPUTE = "compute"


class Tape:
    """Records what a host does; knows no clock.

    Parameters
    ----------
    kernel_time, collective_time
        What launching a kernel or a collective costs the host [s].
    """

    def __init__(self, kernel_time: float = 0.0, collective_time: float = 0.0) -> None:
        self.phase = "forward"
        """Phase that the following launches belong to."""
        self.micro_batch = 0
        """Micro-batch that the following launches belong to."""
        self._kernel_time, self._collective_time = kernel_time, collective_time
        self._streams: dict[str, int] = {COMPUTE: 0}
        self._lengths: list[int] = [0]
        self._operations: dict[Operation, int] = {}
        self._seen: dict[int, tuple[int, Operation]] = {}
        self._instructions: list[Instruction] = []

    def launch(self, operation: Operation, stream: str, *, label: str, takes: Memory = (), gives: Memory = ()) -> Event:
        """Put *operation* into *stream*, with the memory it takes and gives back; the event is its end."""
        time = self._kernel_time if isinstance(operation, Kernel) else self._collective_time
        if time:
            self.work(time)
        number = self._number(stream)
        index = self._index(operation)
        self._instructions.append(Launch(number, index, label, self.phase, self.micro_batch, takes, gives))
        return self._advance(number)

    def record(self, stream: str) -> Event:
        """Return the event that everything now in *stream* is done."""
        number = self._number(stream)
        return Event(number, self._lengths[number])

    def wait(self, stream: str, event: Event, reason: Reason = "data") -> None:
        """Let *stream* wait for *event*."""
        number = self._number(stream)
        if event.stream != number and event.position:
            self._instructions.append(Wait(number, event, reason))
            self._advance(number)

    def synchronize(self, event: Event, reason: Reason = "host") -> None:
        """Block the host until *event*."""
        self._instructions.append(Synchronize(event, reason))

    def work(self, time: float) -> None:
        """Occupy the host for *time* [s]."""
        self._instructions.append(HostWork(time))

    def program(self) -> Program:
        """Return what was recorded."""
        return Program(
            streams=tuple(self._streams),
            operations=tuple(self._operations),
            instructions=tuple(self._instructions),
        )

    def _index(self, operation: Operation) -> int:
        """Number equal operations alike; an object seen before is found without hashing its content (6x faster)."""
        if id(operation) not in self._seen:  # the table keeps the object alive, so nothing else gets its identity
            self._seen[id(operation)] = self._operations.setdefault(operation, len(self._operations)), operation
        return self._seen[id(operation)][0]

    def _number(self, stream: str) -> int:
        if stream not in self._streams:
            self._streams[stream] = len(self._lengths)
            self._lengths.append(0)
        return self._streams[stream]

    def _advance(self, number: int) -> Event:
        self._lengths[number] += 1
        return Event(number, self._lengths[number])
