r"""Latency of each algorithm: its base and the messages that follow each other.

All of it follows ``ncclTopoTuneModel`` (NCCL 2.30.7, ``src/graph/tuning.cc``).  With h the hop inside a host, H the hop
between hosts, N hosts of p ranks, n = N p:

* ring: :math:`(s - s_N) \max(h, o) + s_N H` of s steps, s_N of them between hosts, o the proxy's overhead;
* tree: :math:`2 ((p - 1) h + \lfloor \log_2 N \rfloor H)`;
* PAT: :math:`\lfloor \log_2 N \rfloor H / 3.5 + 2.8\,\mu s \cdot n`.

A message of protocol Simple also waits for a flush, so a network that adds latency adds it twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.collectives.nccl.constants import BASE, HOP, Algorithm, Protocol
from simulator.laws.collectives.nccl.graphs import MICRO, System, passes, ring_steps

__all__ = ["hop_between", "hop_inside", "latency", "levels"]


def latency(kind: CollectiveKind, system: System, algorithm: Algorithm, protocol: Protocol) -> float:
    """Latency of one call [s]."""
    return BASE[algorithm][protocol] * MICRO + _OF[algorithm](kind, system, protocol)


def hop_inside(system: System, algorithm: Algorithm, protocol: Protocol) -> float:
    """One message inside a host [s]."""
    return HOP[algorithm][system.hop][protocol] * system.intra_scale * MICRO


def hop_between(system: System, algorithm: Algorithm, protocol: Protocol) -> float:
    """One message between hosts [s]."""
    flush = 2 if protocol == "simple" else 1
    return HOP[algorithm]["net"][protocol] * system.inter_scale * MICRO + flush * system.nic_latency


def levels(system: System) -> int:
    """Levels of a tree of hosts."""
    return math.floor(math.log2(system.hosts))


def _ring(kind: CollectiveKind, system: System, protocol: Protocol) -> float:
    hop = hop_inside(system, "ring", protocol)
    away = hop_between(system, "tree" if system.per_host == 1 else "ring", protocol)
    if kind in ("broadcast", "reduce"):  # chunks follow each other so closely that NCCL counts one hop
        return hop if system.hosts == 1 else away
    overhead = 0.0 if system.hosts == 1 else system.network_overhead * (3 if protocol == "simple" else 1) * MICRO
    between = passes(kind) * (system.hosts - 1)
    return (ring_steps(kind, system.ranks) - between) * max(hop, overhead) + between * away


def _tree(_kind: CollectiveKind, system: System, protocol: Protocol) -> float:
    inside = (system.per_host - 1) * hop_inside(system, "tree", protocol)
    return 2 * (inside + levels(system) * hop_between(system, "tree", protocol))


def _nvls(_kind: CollectiveKind, system: System, protocol: Protocol) -> float:
    return hop_inside(system, "nvls", protocol) + (hop_between(system, "nvls", protocol) if system.hosts > 1 else 0.0)


def _nvls_tree(_kind: CollectiveKind, system: System, protocol: Protocol) -> float:
    return hop_inside(system, "nvls_tree", protocol) + 2 * levels(system) * hop_between(system, "nvls_tree", protocol)


def _pat(_kind: CollectiveKind, system: System, protocol: Protocol) -> float:
    return levels(system) * hop_between(system, "pat", protocol) / 3.5 + 2.8 * MICRO * system.ranks


def _collnet_direct(_kind: CollectiveKind, system: System, protocol: Protocol) -> float:
    peers = system.per_host - 1
    inside = min(1, peers) * hop_inside(system, "collnet_direct", protocol) + 0.4 * MICRO * peers
    return 2 * inside + hop_between(system, "collnet_direct", protocol)


def _collnet_chain(_kind: CollectiveKind, system: System, protocol: Protocol) -> float:
    inside = (system.per_host - 1) * hop_inside(system, "collnet_chain", protocol)
    return 2 * inside + hop_between(system, "collnet_chain", protocol)


_OF: Final[Mapping[Algorithm, Callable[[CollectiveKind, System, Protocol], float]]] = {
    "ring": _ring,
    "tree": _tree,
    "nvls": _nvls,
    "nvls_tree": _nvls_tree,
    "pat": _pat,
    "collnet_direct": _collnet_direct,
    "collnet_chain": _collnet_chain,
}
