"""A communicator as the tuner sees it: channels of each algorithm, hosts, generation of GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.collectives.nccl.constants import Algorithm, Hop

__all__ = ["AMPERE", "BLACKWELL", "GIGA", "HOPPER", "MICRO", "VOLTA", "Graph", "System", "passes", "ring_steps"]

MICRO: Final = 1e-6
GIGA: Final = 1e9

VOLTA, AMPERE, HOPPER, BLACKWELL = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Channels that the topology search found for one algorithm."""

    channels: int
    intra: float
    """Bandwidth of one channel inside a host [B/s]."""
    inter: float
    """Bandwidth of one channel between hosts [B/s]."""
    balanced: bool = True
    """Whether a tree may spread the load over two devices (patterns BALANCED_TREE and SPLIT_TREE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What the tuner knows of a communicator."""

    ranks: int
    hosts: int
    generation: int
    """0 Volta, 1 Ampere, 2 Hopper, 3 Blackwell; the oldest among the ranks."""
    graphs: Mapping[Algorithm, Graph]
    """An algorithm without a graph is not available."""
    hop: Hop = "nvlink"
    """What a message inside a host crosses."""
    nic_latency: float = 0.0
    """That the network tells NCCL, once per message [s]."""
    network_overhead: float = 1.0
    """Of the proxy per message: 2 us on x86 of AMD, else 1 us (``getNetOverhead``) [us]."""
    amd_cpu: bool = False
    ll128: bool = True
    """Whether LL128 is safe on every path."""
    pat: bool = True
    """Whether PAT may be used; by default only with one rank per host."""
    in_network: bool = False
    """Whether switches of the network reduce (CollNet, SHARP)."""
    intra_scale: float = 1.0
    """Latency of a message inside a host relative to NCCL's constant."""
    inter_scale: float = 1.0
    """Latency of a message between hosts relative to NCCL's constant."""
    device: float = math.inf
    """Bandwidth of a device to the others of its host [B/s]."""

    @property
    def per_host(self) -> float:
        """Ranks on each host."""
        return self.ranks / self.hosts

    @property
    def size_index(self) -> int:
        """Column of the tables: one, two or more hosts."""
        return min(self.hosts, 3) - 1


def passes(kind: CollectiveKind) -> int:
    """Times that each byte goes around."""
    return 2 if kind == "all_reduce" else 1


def ring_steps(kind: CollectiveKind, ranks: int) -> int:
    """Messages that follow each other in a ring (``nsteps``)."""
    return ranks if kind in ("broadcast", "reduce") else passes(kind) * (ranks - 1)
