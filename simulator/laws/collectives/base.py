"""Collectives, and what an algorithm says about them.

A collective of *payload* S (bytes of the whole array, as nccl-tests counts) over a group of n ranks is carried out
in phases.  For each phase an algorithm states, in terms of the group alone,

* ``sends``: how many bytes each rank sends, and how far (in hosts and in devices of a host);
* ``steps``: how many messages follow each other, inside a host and between hosts - what latency is multiplied by.

:mod:`simulator.laws.collectives.fabric` turns that into usage of links.  Ranks of a group are symmetric: where a real
ring has one rank per host that talks to the network, NCCL builds as many rings as there are rails and each rank has
that part in one of them, so a statement per rank is exact for the sum over rings.

Notation: n ranks, p of them on each of m hosts, n = p m.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

from simulator.world.mesh import Group

__all__ = ["AbstractAlgorithm", "Collective", "CollectiveKind", "Exchange", "Quantization", "Send"]

CollectiveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """Block-wise quantisation of what goes over the wire."""

    bits: int
    """Bits per element."""
    block: int
    """Elements that share one fp32 scale."""

    @property
    def bytes_per_element(self) -> float:
        """Bytes on the wire per element, scales included."""
        return self.bits / 8 + 4 / self.block  # definition: 8 bits in a byte, 4 bytes in an fp32 scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective operation of a program."""

    kind: CollectiveKind
    elements: float
    """Elements of the whole array: output of an all-gather, input of a reduce-scatter."""
    bytes_per_element: float
    """Before quantisation."""
    group: Group
    role: str
    """What it is for, as reports name it: ``forward_all_gather``, ``reduce_scatter``, ..."""
    quantization: Quantization | None = None
    in_place: bool = False
    """A rank's own part already lies where the result will be, so that a gather need not copy it."""
    dtype: str = ""
    """Element type as frameworks name it: bf16, fp16, fp32, fp64, u8, i32, i64."""

    @property
    def payload(self) -> float:
        """Bytes of the whole array before quantisation."""
        return self.elements * self.bytes_per_element

    @property
    def wire_bytes(self) -> float:
        """Bytes of the whole array as it travels, scales included."""
        return self.elements * self.quantization.bytes_per_element if self.quantization else self.payload


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes that each rank of the group sends, and to whom."""

    amount: float
    """Per rank, the mean over the group [B]."""
    hosts: int | None
    """0: own host; k: the rank of the same rail k hosts further on in the group; None: all other hosts alike."""
    devices: int | None = 0
    """On the own host: the rank k members further on; None: all other members on the host alike.  On other hosts: 0 for
    the own rail, None for all members alike."""
    peak: float = 1.0
    """Bytes of the rank that sends most over the mean: its link is the one that the others wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One phase of a collective, before links are known."""

    group: Group
    sends: tuple[Send, ...]
    host_steps: int
    """Messages inside a host that follow each other."""
    network_steps: int
    """Messages between hosts that follow each other."""
    latency: float | None = None
    """Of all messages together where a library knows it [s]; None: steps times the latency of the links they cross."""
    kernel: float = 0.0
    """Time that the kernel needs to send its bytes on links that are fast enough [s]."""
    local: float = 0.0
    """Time of the passes before and after that use no link [s]."""
    overhead: float = 1.0
    """Bytes on the wire per byte of data: flags that a protocol sends along."""
    channels: int = 0
    """Multiprocessors that it holds on each rank."""
    copies: float = 0.0
    """Bytes that a rank reads and writes in its own memory per byte that it sends."""
    algorithm: str = ""
    protocol: str = ""
    """What a library chose, as it calls them."""


class AbstractAlgorithm(abc.ABC):
    """Turns one collective into exchanges.  Subclasses are final; to vary one, wrap it."""

    supports: ClassVar[frozenset[CollectiveKind]]

    @abc.abstractmethod
    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        """Phases in order; none at all if the group is one rank."""


def ring_factor(kind: CollectiveKind) -> int:
    """Passes over the group: an all-reduce is a reduce-scatter followed by an all-gather."""
    return 2 if kind == "all_reduce" else 1
