"""Which algorithm carries out a collective.

Rings for the bandwidth collectives, as NCCL does by default for large messages; direct messages for an all-to-all;
two direct hops for a quantised reduce-scatter, as ZeRO++ does (a ring would have to requantise at every step).
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.laws.collectives.base import AbstractAlgorithm, Collective
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.laws.collectives.quantized import Quantized
from simulator.laws.collectives.ring import Ring

__all__ = ["ALGORITHMS", "algorithm_for"]

ALGORITHMS: dict[str, Callable[[], AbstractAlgorithm]] = {
    "ring": Ring,
    "recursive_doubling": RecursiveDoubling,
    "hierarchical": lambda: Hierarchical(Ring(), Ring()),
}
"""What a scenario may ask for; the names are those of ``simulator.world.scenario.ALGORITHMS``."""


def algorithm_for(collective: Collective, preferred: str) -> AbstractAlgorithm:
    """Return the algorithm for *collective*; *preferred* is a key of :data:`ALGORITHMS`."""
    quantization = collective.quantization
    if quantization is not None:
        return Quantized(_exchange_of_quantized(collective, preferred), quantization)
    if collective.kind == "all_to_all":
        return Direct()
    # NCCL has no other algorithm for them (src/graph/tuning.cc)
    return Ring() if collective.kind in ("broadcast", "reduce") else ALGORITHMS[preferred]()


def _exchange_of_quantized(collective: Collective, preferred: str) -> AbstractAlgorithm:
    if collective.kind == "all_gather":
        return ALGORITHMS[preferred]()
    return Hierarchical(Direct(), Direct()) if collective.kind == "reduce_scatter" else Direct()
