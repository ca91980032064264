"""Fewer bits on the wire, whatever the algorithm.

The payload shrinks from b bytes to ``bits / 8`` per element plus one fp32 scale per block.  The kernels that quantise
before and restore after are separate operations of the program, because they occupy a stream and not a link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

from simulator.laws.collectives.base import AbstractAlgorithm, Collective, CollectiveKind, Exchange, Quantization

__all__ = ["Quantized"]


@final
@dataclass(frozen=True, slots=True)
class Quantized(AbstractAlgorithm):
    """*inner* on an array of *quantization*'s bytes per element."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset(
        {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"}
    )

    inner: AbstractAlgorithm
    quantization: Quantization

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        return self.inner.exchanges(
            replace(collective, bytes_per_element=self.quantization.bytes_per_element, quantization=None)
        )
