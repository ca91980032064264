r"""What measured times need beyond the tuner's estimate.

The tuner chooses well and predicts optimistically: by 5 to 10 % on H100, 10 to 30 % on A100.  It leaves out:

* *A local pass.*  The kernel of an out-of-place all-gather also copies the rank's own part, that of a reduce-scatter
  and an all-reduce ends with a pass that reduces and stores without sending (NCCL ``src/device/all_gather.h``,
  ``reduce_scatter.h``, ``all_reduce.h``).  The same threads do it before or after they send, so it adds

  .. math:: \frac{S}{n} \cdot \frac{1}{C}

  with C the rate at which they copy.  It explains why bus bandwidth grows with the number of ranks n.
* *Calls and messages* take longer than NCCL's constants by a few microseconds that depend on the generation.
* *Chains.*  A broadcast or reduce hands chunks from rank to rank, and the tuner counts one message however many ranks
  there are.  The last rank has nothing before the first chunk has come through all others: with h and H a message
  inside a host and between hosts, c channels with chunks of k bytes, and b and B the bandwidths there,

  .. math:: T = \alpha + (n - m) \left(h + \frac{c k}{b}\right) + (m - 1) \left(H + \frac{c k}{B}\right) + \frac{S}{B}

  (a pipelined chain: van de Geijn and Watts 1997, "SUMMA", Concurrency 9(4)).  Under Simple a rank passes a chunk on
  when all of it is there: a slot of its buffer, 4 MiB in 8 slots per channel (``BROADCAST_CHUNKSTEPS`` and
  ``REDUCE_CHUNKSTEPS`` are 1 in NCCL ``src/include/collectives.h``), or all of a smaller message.  LL and LL128 pass
  each line on at once.
* *NVLS* sets up each rank of a host as its chunks begin to flow; below 8 MiB there are fewer of them.
* *Trees between hosts* take twice NCCL's constant for a network step (all-reduces of 4 to 32 hosts of 8 H100 under
  ``NCCL_ALGO=NVLSTree``), and under LL and LL128 reach 0.7 of their bandwidth (the
  same hosts, and 2 hosts of 8 A100, 1 to 16 MiB).

The numbers are those of :class:`simulator.world.catalog.Adjustment`, one set per generation of GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.collectives.nccl.graphs import System, passes, ring_steps
from simulator.laws.collectives.nccl.latency import hop_between, hop_inside, levels
from simulator.laws.collectives.nccl.tuning import Estimate, estimate, smoothed
from simulator.world.catalog import Adjustment

__all__ = ["Cost", "cost"]

TREE_STEP = 2.0
"""Time of a network step of a tree over NCCL's constant."""
TREE_FULL = 4 * 2**20
"""Payload from which it takes that long; the smallest all-reduces take NCCL's constant [B]."""
NVLS_FULL = 8 * 2**20
"""Payload from which NVLS has all its chunks in flight [B]."""
CHUNK = 4 * 2**20 // 8
"""Slot of a channel's buffer: ``DEFAULT_BUFFSIZE`` over ``NCCL_STEPS`` [B]."""
LL128_MESSAGES = 15
"""Messages of a pass that take longer than NCCL's constant under LL128: seen on up to 16 ranks."""
FLAGGED_TREE = 0.7
"""Bandwidth of trees between hosts under LL and LL128 over NCCL's estimate."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a collective takes if links are fast enough."""

    latency: float
    """Before and between bytes [s]."""
    kernel: float
    """While bytes flow [s]."""
    local: float = 0.0
    """Of the pass over the own part [s]."""


def cost(kind: CollectiveKind, payload: float, system: System, chosen: Estimate, adjustment: Adjustment) -> Cost:
    """Latency and kernel time of *chosen*, as measured."""
    if chosen.algorithm in ("nvls", "nvls_tree"):
        return _nvls(kind, payload, system, chosen, adjustment)
    latency = chosen.latency + _calls(kind, system, chosen, adjustment)
    # between hosts the network is what limits, and its efficiency is the link's
    bandwidth = smoothed(payload, system, chosen) if kind == "all_reduce" else chosen.bandwidth
    speed = bandwidth * (adjustment.efficiency.value if system.hosts == 1 else 1.0)
    if chosen.algorithm == "tree" and system.hosts > 1:
        latency += _slow_steps(payload, TREE_FULL) * 2 * levels(system) * hop_between(system, "tree", chosen.protocol)
        speed *= 1.0 if chosen.protocol == "simple" else FLAGGED_TREE
    if kind in ("broadcast", "reduce"):
        latency += _chained(payload, system, chosen)
    has_pass = chosen.algorithm == "ring" and chosen.protocol == "simple" and kind not in ("broadcast", "reduce")
    return Cost(latency, payload / speed, payload / system.ranks / adjustment.copy.value if has_pass else 0.0)


def _chained(payload: float, system: System, chosen: Estimate) -> float:
    """Time of a chain until its last rank has the first chunk, beyond the one message that the tuner counts [s]."""
    ring = system.graphs["ring"]
    chunks = min(payload, ring.channels * CHUNK) if chosen.protocol == "simple" else 0.0
    inside = hop_inside(system, "ring", chosen.protocol) + chunks / system.device
    if system.hosts == 1:
        return (system.ranks - 1) * inside - hop_inside(system, "ring", chosen.protocol)
    hop = hop_between(system, "tree" if system.per_host == 1 else "ring", chosen.protocol)
    between = (system.hosts - 1) * (hop + chunks / (ring.channels * ring.inter))
    return (system.ranks - system.hosts) * inside + between - hop


def _calls(kind: CollectiveKind, system: System, chosen: Estimate, adjustment: Adjustment) -> float:
    messages = _messages(kind, system) if chosen.algorithm == "ring" else 0
    if chosen.protocol == "simple":
        return adjustment.simple_call.value + messages * adjustment.simple_message.value
    if chosen.protocol == "ll128":
        return min(messages, passes(kind) * LL128_MESSAGES) * adjustment.ll128_message.value
    return adjustment.ll_call.value + messages * adjustment.ll_message.value


def _messages(kind: CollectiveKind, system: System) -> int:
    return 1 if kind in ("broadcast", "reduce") else ring_steps(kind, system.ranks)


def _slow_steps(payload: float, full: float) -> float:
    """What a network step of a tree takes beyond NCCL's constant, as a part of it; chunks make it longer."""
    return (TREE_STEP - 1) * min(1.0, payload / full)


def _nvls(kind: CollectiveKind, payload: float, system: System, chosen: Estimate, adjustment: Adjustment) -> Cost:
    graph = system.graphs[chosen.algorithm]
    # on one host the tuner also applies a bandwidth between hosts, which measured all-reduces exceed
    inter = graph.inter if system.hosts > 1 else math.inf
    real = replace(graph, intra=graph.intra * adjustment.nvls_efficiency.value, inter=inter)
    found = estimate(kind, payload, replace(system, graphs={chosen.algorithm: real}), chosen.algorithm, "simple")
    assert found is not None
    inside = hop_inside(system, chosen.algorithm, "simple")
    latency = found.latency + _slow_steps(payload, NVLS_FULL) * (found.latency - inside)
    latency += system.per_host * adjustment.nvls_rank.value * min(1.0, payload / NVLS_FULL)
    return Cost(latency, payload / smoothed(payload, system, found))
