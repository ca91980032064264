r"""NCCL's own estimate of a collective, and the choice it makes by it.

.. math:: T = \alpha + S / b

with S the payload, :math:`\alpha` the latency of the algorithm's messages and b its algorithmic bandwidth
(``ncclTopoGetAlgoTime`` in NCCL 2.30.7, ``src/graph/tuning.cc``); the pair of algorithm and protocol with the least T
wins (``topoGetAlgoInfo`` in ``src/enqueue.cc``).  It is a model for choosing; what it misses of measured times is added
in
:mod:`simulator.laws.collectives.nccl.measured`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.collectives.nccl.bandwidth import algorithmic_bandwidth
from simulator.laws.collectives.nccl.constants import (
    NVLS_EFFICIENCY,
    PROTOCOLS,
    TREE_CORRECTION,
    Algorithm,
    Protocol,
)
from simulator.laws.collectives.nccl.graphs import AMPERE, BLACKWELL, System
from simulator.laws.collectives.nccl.latency import latency

__all__ = ["Estimate", "candidates", "estimate", "estimates", "smoothed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the tuner thinks of one algorithm with one protocol."""

    algorithm: Algorithm
    protocol: Protocol
    latency: float
    """[s]"""
    bandwidth: float
    """Algorithmic: payload per time [B/s]."""

    def time(self, payload: float) -> float:
        """Time of one call [s]."""
        return self.latency + payload / self.bandwidth


def candidates(kind: CollectiveKind, system: System) -> Iterator[tuple[Algorithm, Protocol]]:
    """Pairs that NCCL considers for *kind* on *system*."""
    for algorithm in system.graphs:
        if _exists(kind, algorithm, system):
            for protocol in PROTOCOLS if algorithm in ("ring", "tree") else ("simple",):
                if protocol != "ll128" or system.ll128:
                    yield algorithm, protocol


def _exists(kind: CollectiveKind, algorithm: Algorithm, system: System) -> bool:
    if kind in ("broadcast", "reduce"):
        return algorithm == "ring"
    several = system.hosts > 1
    reduces = kind == "all_reduce"
    nvls = NVLS_EFFICIENCY[system.generation] > 0 and system.graphs[algorithm].channels >= 2
    return {
        "ring": True,
        "tree": reduces,
        "pat": not reduces and system.pat and system.per_host == 1,
        "nvls": nvls and (not several or system.in_network),
        "nvls_tree": nvls and reduces and several,
        "collnet_direct": several and system.in_network,
        "collnet_chain": several and system.in_network and reduces,
    }[algorithm]


def estimates(kind: CollectiveKind, payload: float, system: System) -> list[Estimate]:
    """Every pair, the fastest first; ties go to the earlier in NCCL's order."""
    found = (estimate(kind, payload, system, *pair) for pair in candidates(kind, system))
    return sorted((item for item in found if item is not None), key=lambda item: item.time(payload))


def estimate(
    kind: CollectiveKind, payload: float, system: System, algorithm: Algorithm, protocol: Protocol
) -> Estimate | None:
    """Latency and bandwidth of one call of *payload*; None if the pair has no bandwidth here."""
    bandwidth = algorithmic_bandwidth(kind, system, algorithm, protocol)
    if bandwidth <= 0:
        return None
    if kind == "all_reduce" and _is_corrected(system, algorithm):
        bandwidth *= _tree_correction(payload, protocol)
    wait = latency(kind, system, algorithm, protocol) * _plateau(kind, payload, system, algorithm, protocol)
    return Estimate(algorithm=algorithm, protocol=protocol, latency=wait, bandwidth=bandwidth)


def _is_corrected(system: System, algorithm: Algorithm) -> bool:
    on_blackwell = algorithm == "nvls_tree" and system.generation >= BLACKWELL and not system.amd_cpu
    return algorithm == "tree" or on_blackwell


def _tree_correction(payload: float, protocol: Protocol) -> float:
    size_class = int(payload // 64).bit_length() - 1
    table = TREE_CORRECTION[protocol]
    return table[size_class] if 0 <= size_class < len(table) else 1.0


def smoothed(payload: float, system: System, chosen: Estimate) -> float:
    """Bandwidth of a tree's all-reduce without the steps of the tuner's table, which are good enough to choose by.

    Between two entries it is interpolated over the logarithm of the payload [B/s].
    """
    if not _is_corrected(system, chosen.algorithm):
        return chosen.bandwidth
    table = (*TREE_CORRECTION[chosen.protocol], 1.0)
    place = min(max(0.0, math.log2(max(payload, 64) / 64)), len(table) - 1.0)
    below = min(int(place), len(table) - 2)
    smooth = table[below] + (place - below) * (table[below + 1] - table[below])
    return chosen.bandwidth / _tree_correction(payload, chosen.protocol) * smooth


def _plateau(kind: CollectiveKind, payload: float, system: System, algorithm: Algorithm, protocol: Protocol) -> float:
    """Factor on the latency of a ring's all-reduce over several hosts ("plateau effect of ring")."""
    if (algorithm, protocol, kind) != ("ring", "simple", "all_reduce") or system.hosts == 1:
        return 1.0
    if payload / (system.graphs["ring"].channels * system.ranks) < 64:
        return 1.0
    return 1.9 if system.generation < AMPERE else 1.4
