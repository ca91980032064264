"""The recorder that schedules write to; its verbs are CUDA's.

>>> from simulator.laws.kernels import Kernel
>>> tape = Tape()
>>> forward = tape.launch(Kernel(kind="forward", time=1.0), "compute", label="layer 0")
>>> tape.wait("all_gather", forward)
>>> [type(item).__name__ for item in tape.program().instructions]
['Launch', 'Wait']
"""

from __future__ import annotations

from collections import defaultdict

from simulator.laws.collectives.base import Collective
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
        What launching a kernel (or a copy to or from the host) or a collective costs the host [s].
    """

    def __init__(self, kernel_time: float = 0.0, collective_time: float = 0.0) -> None:
        self.phase = "forward"
        """Phase that the following launches belong to."""
        self.micro_batch = 0
        """Micro-batch that the following launches belong to."""
        self._kernel_time, self._collective_time = kernel_time, collective_time
        self._streams = _Numbers({COMPUTE: 0})
        self._lengths: dict[int, int] = defaultdict(int)
        self._last: dict[int, int] = {}
        self._allocated: Memory = ()
        self._operations: dict[Operation, int] = {}
        self._seen: dict[int, tuple[int, Operation]] = {}
        self._instructions: list[Instruction] = []
        self._busy = 0.0

    def launch(self, operation: Operation, stream: str, *, label: str, takes: Memory = (), gives: Memory = ()) -> Event:
        """Put *operation* into *stream*, with the memory it takes and gives back; the event is its end."""
        self._busy += self._collective_time if isinstance(operation, Collective) else self._kernel_time
        if self._busy:
            self._flush()
        number = self._streams[stream]
        index, _ = self._seen.get(id(operation)) or self._remember(operation)
        self._last[number] = len(self._instructions)
        takes, self._allocated = self._allocated + takes, ()
        self._instructions.append(Launch(number, index, label, self.phase, self.micro_batch, takes, gives))
        return self._advance(number)

    def take(self, memory: Memory) -> None:
        """Let the next launch take *memory*: the host allocates it now."""
        self._allocated += memory

    def give(self, stream: str, memory: Memory) -> None:
        """Give *memory* back when the last operation that is now in *stream* ends: freeing costs no launch."""
        position = self._last[self._streams[stream]]
        launch = self._instructions[position]
        assert isinstance(launch, Launch)
        self._instructions[position] = launch._replace(gives=launch.gives + memory)

    def record(self, stream: str) -> Event:
        """Return the event that everything now in *stream* is done."""
        number = self._streams[stream]
        return Event(number, self._lengths[number])

    def wait(self, stream: str, event: Event, reason: Reason = "data") -> None:
        """Let *stream* wait for *event*."""
        number = self._streams[stream]
        if event.stream != number and event.position:
            self._flush()
            self._instructions.append(Wait(number, event, reason))
            self._lengths[number] += 1

    def synchronize(self, event: Event, reason: Reason = "host") -> None:
        """Block the host until *event*."""
        self._flush()
        self._instructions.append(Synchronize(event, reason))

    def work(self, time: float) -> None:
        """Occupy the host for *time* [s]."""
        self._busy += time

    def program(self) -> Program:
        """Return what was recorded."""
        self._flush()
        return Program(
            streams=tuple(self._streams),
            operations=tuple(self._operations),
            instructions=tuple(self._instructions),
        )

    def _flush(self) -> None:
        """Let what the host did since it last issued something pass, as one instruction."""
        if self._busy:
            self._instructions.append(HostWork(self._busy))
            self._busy = 0.0

    def _remember(self, operation: Operation) -> tuple[int, Operation]:
        """Number equal operations alike; an object seen before is found without hashing its content (6x faster)."""
        found = self._operations.setdefault(operation, len(self._operations)), operation
        self._seen[id(operation)] = found  # the table keeps the object alive, so nothing else gets its identity
        return found

    def _advance(self, number: int) -> Event:
        self._lengths[number] += 1
        return Event(number, self._lengths[number])


class _Numbers(dict[str, int]):
    """Numbers names in the order in which they first occur."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


class SilentTape(Tape):
    """Gives the same events and keeps nothing: for steps that are only rehearsed."""

    def launch(self, operation: Operation, stream: str, *, label: str, takes: Memory = (), gives: Memory = ()) -> Event:
        """Advance *stream*."""
        return self._advance(self._streams[stream])

    def take(self, memory: Memory) -> None:
        """Take nothing."""

    def give(self, stream: str, memory: Memory) -> None:
        """Give nothing."""

    def wait(self, stream: str, event: Event, reason: Reason = "data") -> None:
        """Wait for nothing."""

    def synchronize(self, event: Event, reason: Reason = "host") -> None:
        """Do not block."""

    def work(self, time: float) -> None:
        """Take no time."""
