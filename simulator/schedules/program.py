"""A program: what one rank's host does in one step, as data.

The host issues instructions in order.  Launches, waits, allocations and frees go to the end of a stream, which works
them off first in, first out; ``HostWork`` and ``Synchronize`` occupy the host itself.  An :class:`Event` is a place in
a stream - the semantics of CUDA: to wait for a stream means to wait for what is in it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel

__all__ = [
    "Allocate",
    "Event",
    "Free",
    "HostWork",
    "Instruction",
    "Launch",
    "Operation",
    "Program",
    "Reason",
    "Synchronize",
    "Wait",
]

Operation = Kernel | Collective

Reason = Literal["data", "prefetch limit", "host"]
"""Why a wait is there: for what it needs, to bound the memory of what runs ahead, or to hold the host back."""


class Event(NamedTuple):
    """Everything that stood in a stream at some moment."""

    stream: int
    position: int
    """Number of entries of the stream that must be done."""


class Launch(NamedTuple):
    """Put an operation into a stream."""

    stream: int
    operation: int
    """Index into :attr:`Program.operations`."""
    label: str
    """Layer or bucket it works for."""
    phase: str
    """forward, backward, step."""
    micro_batch: int


class Wait(NamedTuple):
    """Let a stream wait for an event; the host goes on."""

    stream: int
    event: Event
    reason: Reason


class Synchronize(NamedTuple):
    """Block the host until an event."""

    event: Event
    reason: Reason


class HostWork(NamedTuple):
    """Occupy the host."""

    time: float
    """[s]"""


class Allocate(NamedTuple):
    """Take memory when the stream gets there."""

    stream: int
    item: str
    amount: float
    """[B]"""


class Free(NamedTuple):
    """Give memory back when the stream gets there."""

    stream: int
    item: str
    amount: float
    """[B]"""


Instruction = Launch | Wait | Synchronize | HostWork | Allocate | Free


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Instructions in the order in which the host issues them."""

    streams: tuple[str, ...]
    """Names; the first is ``compute``."""
    operations: tuple[Operation, ...]
    """Distinct operations; launches refer to them by index."""
    instructions: tuple[Instruction, ...]

    def awaited(self) -> tuple[frozenset[int], ...]:
        """For each stream, the positions that something waits for."""
        positions: list[set[int]] = [set() for _ in self.streams]
        for item in self.instructions:
            if isinstance(item, Wait | Synchronize):
                positions[item.event.stream].add(item.event.position)
        return tuple(frozenset(found) for found in positions)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches, in issue order."""
        return tuple(item for item in self.instructions if isinstance(item, Launch))
