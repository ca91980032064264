r"""Algorithmic bandwidth of each algorithm: payload per time, as the tuner has it.

All of it follows ``ncclTopoTuneModel`` (NCCL 2.30.7, ``src/graph/tuning.cc``).  Notation: c channels of bandwidth b,
n ranks; a ring that needs s steps turns its bus bandwidth c b into n/s of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.collectives.nccl.constants import (
    LL_CAP,
    NVLS_EFFICIENCY,
    NVLS_TREE_CAP,
    RING_LL128_CAP,
    TREE_LL128_CAP,
    TREE_SIMPLE_CAP,
    Algorithm,
    Protocol,
)
from simulator.laws.collectives.nccl.graphs import GIGA, HOPPER, Graph, System, ring_steps

__all__ = ["algorithmic_bandwidth"]


def algorithmic_bandwidth(kind: CollectiveKind, system: System, algorithm: Algorithm, protocol: Protocol) -> float:
    """Payload per time, without latency [B/s]; 0 where the pair does not exist."""
    return _OF[algorithm](kind, system, system.graphs[algorithm], protocol)


def _bus(system: System, graph: Graph) -> float:
    """All channels together; on one or two hosts NCCL counts with the bandwidth inside."""
    return graph.channels * (graph.intra if system.hosts <= 2 else graph.inter)


def _ll_cap(system: System) -> float:
    return LL_CAP[system.generation if system.hosts == 1 else int(system.amd_cpu)][system.size_index] * GIGA


def _ring(kind: CollectiveKind, system: System, graph: Graph, protocol: Protocol) -> float:
    bus = _bus(system, graph)
    if protocol == "ll":
        bus = min(_ll_cap(system), 0.5 * bus)
    elif protocol == "ll128":
        cap = RING_LL128_CAP[system.generation][system.size_index] * GIGA
        bus = min(0.92 * bus, graph.channels * cap)
    return bus * system.ranks / ring_steps(kind, system.ranks)


def _tree(_kind: CollectiveKind, system: System, graph: Graph, protocol: Protocol) -> float:
    generation, size, channels = system.generation, system.size_index, graph.channels
    bus = min(0.92 * _bus(system, graph), channels * TREE_SIMPLE_CAP[generation][size] * GIGA)
    if protocol == "ll":
        bus = min(bus / 3.8, _ll_cap(system))
    elif protocol == "ll128":
        factor = 7 / 9 if system.hosts == 1 else 120 / 128
        bus = min(factor * bus, channels * TREE_LL128_CAP[generation][size] * GIGA)
    return 0.5 * (bus if graph.balanced else 0.85 * bus)


def _nvls(kind: CollectiveKind, system: System, graph: Graph, _protocol: Protocol) -> float:
    return _in_switch(kind, system, graph, graph.inter, math.inf)


def _nvls_tree(kind: CollectiveKind, system: System, graph: Graph, _protocol: Protocol) -> float:
    between = graph.inter * (2 if system.hosts <= 2 else 1)
    return _in_switch(kind, system, graph, between, NVLS_TREE_CAP[system.generation][system.size_index] * GIGA)


def _in_switch(kind: CollectiveKind, system: System, graph: Graph, between: float, cap: float) -> float:
    inside = graph.intra * NVLS_EFFICIENCY[system.generation] * (graph.channels - 1) / graph.channels
    if kind == "all_reduce":
        bus = graph.channels * min(2 * inside, between, cap)
        return bus * system.ranks / ring_steps(kind, system.ranks)
    return graph.channels * min(inside * (system.per_host - 1) / system.per_host, between, cap)


def _pat(_kind: CollectiveKind, system: System, graph: Graph, _protocol: Protocol) -> float:
    return 0.75 * _bus(system, graph)


def _collnet_direct(kind: CollectiveKind, system: System, graph: Graph, _protocol: Protocol) -> float:
    if kind != "all_reduce":
        return system.per_host * min(graph.intra, 0.9 * graph.inter)
    per_channel = system.per_host / graph.channels
    bus = graph.channels * graph.intra / (per_channel - (per_channel - 1) / 2)
    return 0.5 * (bus * 0.85 if system.generation >= HOPPER else bus)


def _collnet_chain(_kind: CollectiveKind, _system: System, graph: Graph, _protocol: Protocol) -> float:
    return 0.5 * graph.channels * graph.intra


_OF: Final[Mapping[Algorithm, Callable[[CollectiveKind, System, Graph, Protocol], float]]] = {
    "ring": _ring,
    "tree": _tree,
    "nvls": _nvls,
    "nvls_tree": _nvls_tree,
    "pat": _pat,
    "collnet_direct": _collnet_direct,
    "collnet_chain": _collnet_chain,
}
