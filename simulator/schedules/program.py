"""A program: what one rank's host does in one step, as data.

The host issues instructions in order.  Launches and waits go to the end of a stream, which works them off first in,
first out; ``HostWork`` and ``Synchronize`` occupy the host itself.  Memory is taken and given back by launches.  An
:class:`Event` is a place in a stream - the semantics of CUDA: to wait for a stream means to wait for what is in it
now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer

__all__ = [
    "Event",
    "HostWork",
    "Instruction",
    "Launch",
    "Memory",
    "Operation",
    "Program",
    "Reason",
    "Synchronize",
    "Wait",
]

Operation = Kernel | Collective | Transfer

Reason = Literal["data", "prefetch limit", "host"]
"""Why a wait is there: for what it needs, to bound the memory of what runs ahead, or to hold the host back."""


class Event(NamedTuple):
    """Everything that stood in a stream at some moment."""

    stream: int
    position: int
    """Number of entries of the stream that must be done."""


Memory = tuple[tuple[str, float], ...]
"""Items and their bytes [B]."""


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
    takes: Memory = ()
    """Memory taken when the stream gets there."""
    gives: Memory = ()
    """Memory given back when the operation ends."""


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


Instruction = Launch | Wait | Synchronize | HostWork


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
