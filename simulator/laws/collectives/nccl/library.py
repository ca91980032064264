"""NCCL: chooses by its tuner, takes what measurements say.

RCCL is NCCL's code with rings through the links of a full mesh; of its own tuner only those are modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final, final

from simulator.errors import InputError
from simulator.laws.collectives.base import AbstractAlgorithm, Collective, CollectiveKind, Exchange
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.nccl.constants import Algorithm, Hop, Protocol
from simulator.laws.collectives.nccl.graphs import System
from simulator.laws.collectives.nccl.measured import cost
from simulator.laws.collectives.nccl.system import SystemReader
from simulator.laws.collectives.nccl.tuning import Estimate, estimates
from simulator.laws.collectives.nvls import CollNet, Nvls, NvlsTree
from simulator.laws.collectives.ring import Ring
from simulator.laws.collectives.tree import Tree
from simulator.world.catalog import adjustment
from simulator.world.mesh import Group
from simulator.world.topology.cluster import Cluster, Forced

__all__ = ["NcclCollectives", "NcclDirect"]

OVERHEAD: Final[dict[Protocol, float]] = {"ll": 2.0, "ll128": 128 / 120, "simple": 1.0}
"""Bytes on the wire per byte of data: LL sends a flag with every 4 bytes, LL128 one of 8 with every 120."""

COPIES: Final[Mapping[CollectiveKind, float]] = {
    "all_gather": 2.0, "broadcast": 2.0, "all_to_all": 2.0, "reduce_scatter": 3.0, "reduce": 3.0, "all_reduce": 2.5,
}  # fmt: skip
"""Bytes that a rank reads and writes per byte that it sends: a copy 2, a reduction 3, an all-reduce half of each."""
DOUBLED: Final = 2
"""Channels in the end per channel of the search (``ncclTopoPostset`` connects each ring twice)."""

LARGEST_ALLOWED_GUESS = 64 * 2**20
"""NCCL's tuner overrates LL128 between hosts; larger messages take Simple there [B]."""


@final
class NcclCollectives(AbstractAlgorithm):
    """All-gather, reduce-scatter, all-reduce, broadcast, reduce."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset(
        {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"}
    )

    def __init__(self, cluster: Cluster, forced: Forced, *, rings_only: bool = False) -> None:
        self._reader = SystemReader(cluster, channels=forced.channels, in_network=forced.sharp)
        self._forced, self._rings_only = forced, rings_only
        self.adjustment = adjustment(cluster.accelerator.generation)
        self._known: dict[Collective, tuple[Exchange, ...]] = {}

    def system(self, group: Group) -> System:
        """Return what the tuner knows of *group*."""
        return self._reader.system(group)

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        if collective not in self._known:
            self._known[collective] = self._exchanges(collective)
        return self._known[collective]

    def _exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        if collective.group.size == 1:
            return ()
        system = self.system(collective.group)
        chosen = self.choose(collective.kind, collective.payload, system)
        taken = cost(collective.kind, collective.payload, system, chosen, self.adjustment)
        return tuple(
            replace(
                exchange,
                latency=taken.latency,
                kernel=taken.kernel,
                local=0.0 if collective.in_place and collective.kind == "all_gather" else taken.local,
                overhead=OVERHEAD[chosen.protocol],
                channels=DOUBLED * system.graphs[chosen.algorithm].channels,
                copies=COPIES[collective.kind],
                algorithm=chosen.algorithm,
                protocol=chosen.protocol,
            )
            for exchange in _at_once(_shape(chosen.algorithm, system).exchanges(collective))
        )

    def choose(self, kind: CollectiveKind, payload: float, system: System) -> Estimate:
        """Return the fastest pair of those that are allowed, by NCCL's estimate.

        Raises
        ------
        InputError
            What the user prescribes does not exist here.
        """
        possible = [item for item in estimates(kind, payload, system) if self._allowed(kind, payload, system, item)]
        if not possible:
            names = sorted({f"{item.algorithm}/{item.protocol}" for item in estimates(kind, payload, system)})
            raise InputError(
                f"NCCL has no such {kind} on {system.ranks} ranks of {system.hosts} hosts",
                key="topology.nccl",
                value="/".join(str(item) for item in (self._forced.algorithm, self._forced.protocol) if item),
                remedy=f"use one of {', '.join(names)}",
            )
        return possible[0]

    def _allowed(self, kind: CollectiveKind, payload: float, system: System, item: Estimate) -> bool:
        forced = self._forced
        chained = kind in ("broadcast", "reduce")
        if forced.algorithm is not None and not chained and item.algorithm != forced.algorithm:
            return False
        if forced.protocol is not None:
            return item.protocol == forced.protocol
        if self._rings_only and item.algorithm != "ring":
            return False
        return not (item.protocol == "ll128" and system.hosts > 1 and payload >= LARGEST_ALLOWED_GUESS)


@final
class NcclDirect(AbstractAlgorithm):
    """All-to-all and its relatives by grouped sends and receives.

    NCCL's tuner has no entry for them.  Measured ones on a host look like one pass over the links at a little less
    than their bandwidth, a copy of the own part, and a few microseconds per peer; small messages use LL and take a
    third of that.  Each doubling of hosts adds a hop.
    """

    supports: ClassVar[frozenset[CollectiveKind]] = Direct.supports

    HOP: Final = 10e-6
    """Per doubling of hosts [s]."""
    LL_UP_TO: Final[Mapping[Hop, int]] = {"nvlink": 32 * 16 * 1024, "pci": 2 * 16 * 1024}
    """Bytes to a peer up to which a host's messages use LL: 16 KiB on each channel that leads to it."""
    LL_CALL: Final = 1 / 3
    """Latency of LL over that of Simple."""

    def __init__(self, collectives: NcclCollectives, *, pxn: bool = True) -> None:
        self._collectives, self._shape = collectives, Direct(pxn=pxn)

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group = collective.group
        if group.size == 1:
            return ()
        system, measured = self._collectives.system(group), self._collectives.adjustment
        own = collective.payload / group.size
        hops = max(0, group.hosts - 1).bit_length()
        protocol: Protocol = "ll" if group.hosts == 1 and own <= self.LL_UP_TO[system.hop] else "simple"
        latency = measured.direct_call.value + measured.direct_peer.value * (group.ranks_per_host - 1)
        latency *= self.LL_CALL if protocol == "ll" else 1.0
        latency += hops * (self.HOP + 2 * system.nic_latency)
        # between hosts and over PCIe the link's own efficiency is all that is lost
        lost = 1 / measured.direct_efficiency.value if group.hosts == 1 and system.hop == "nvlink" else 1.0
        return tuple(
            replace(
                exchange,
                latency=latency,
                local=own / measured.direct_copy.value,
                overhead=OVERHEAD[protocol] * lost,
                channels=DOUBLED * system.graphs["ring"].channels,
                copies=COPIES["all_to_all"],
                algorithm="p2p",
                protocol=protocol,
            )
            for exchange in self._shape.exchanges(collective)
        )


def _at_once(steps: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
    """One exchange for steps that a kernel runs through without a pause; their latency is counted by the tuner."""
    return (replace(steps[0], sends=tuple(send for step in steps for send in step.sends)),)


def _shape(algorithm: Algorithm, system: System) -> AbstractAlgorithm:
    """Who sends what in *algorithm*."""
    match algorithm:
        case "ring":
            return Ring()
        case "tree":
            return Tree()
        case "pat":
            return RecursiveDoubling()
        case "nvls_tree":
            return NvlsTree()
        case "nvls":
            return Nvls() if system.hosts == 1 else CollNet(in_switch=True)
        case _:
            return CollNet()
