"""What carries out collectives: a textbook algorithm at all sizes, or a communication library as it behaves.

Whatever the library, a quantised reduce-scatter takes two direct hops, as ZeRO++ does (a ring would have to requantise
at every step), and quantised parameters are gathered like any others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from simulator.laws.collectives.base import AbstractAlgorithm, Collective, Exchange
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.laws.collectives.nccl.library import NcclCollectives, NcclDirect
from simulator.laws.collectives.quantized import Quantized
from simulator.laws.collectives.ring import Ring
from simulator.world.topology.cluster import Cluster, Forced
from simulator.world.topology.cluster import Library as LibraryName

__all__ = ["TEXTBOOK", "Library", "library"]

TEXTBOOK: Mapping[LibraryName, AbstractAlgorithm] = {
    "ring": Ring(),
    "recursive_doubling": RecursiveDoubling(),
    "hierarchical": Hierarchical(Ring(), Ring()),
}
"""Algorithms that a scenario may ask for at all sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Algorithms by what they are for."""

    plain: AbstractAlgorithm
    """All-gather, reduce-scatter, all-reduce."""
    chained: AbstractAlgorithm
    """Broadcast, reduce."""
    direct: AbstractAlgorithm
    """All-to-all."""

    def algorithm(self, collective: Collective) -> AbstractAlgorithm:
        """Return the algorithm for *collective*."""
        quantization = collective.quantization
        if quantization is not None:
            return Quantized(self._of_quantized(collective), quantization)
        if collective.kind == "all_to_all":
            return self.direct
        return self.chained if collective.kind in ("broadcast", "reduce") else self.plain

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        """Phases of *collective*, in order."""
        return self.algorithm(collective).exchanges(collective)

    def _of_quantized(self, collective: Collective) -> AbstractAlgorithm:
        if collective.kind == "all_gather":
            return self.plain
        return Hierarchical(self.direct, self.direct) if collective.kind == "reduce_scatter" else self.direct


@lru_cache(maxsize=16)  # pricing and the volume ask for the same
def library(cluster: Cluster, name: LibraryName, forced: Forced) -> Library:
    """Return the library *name* on *cluster*; *forced* is what a user prescribes to NCCL or RCCL."""
    if name in TEXTBOOK:
        # NCCL has no other algorithm for broadcast and reduce (src/graph/tuning.cc)
        return Library(plain=TEXTBOOK[name], chained=Ring(), direct=Direct())
    collectives = NcclCollectives(cluster, forced, rings_only=name == "rccl")
    direct = NcclDirect(collectives, pxn=forced.pxn)
    return Library(
        plain=collectives,
        chained=collectives,
        direct=Hierarchical(direct, direct) if forced.two_hop else direct,
    )
