r"""Attention without scores of all pairs: a state per head, updated in chunks by matrix products.

Per token, summed over the heads, with chunks of Q tokens:

===========  ===================================================================================================
Mamba-2      heads of p elements, state of n, g groups of heads that share input and output matrices B and C:
             C B^T 2 Q n g, (C B^T) x 2 Q p H, states B^T x 2 n p H, output C x state 2 n p H FLOP.  Dao and Gu 2024,
             arXiv:2405.21060, section 6; in full, as the mask lies within a chunk, which is one tile of the kernels
gated delta  heads with keys of a and values of b elements: K K^T, W and Q K^T 2 Q a each, U and (Q K^T) V 2 Q b each,
             triangular inverse 2 Q^2 / 3, W x state, Q x state and the update 2 a b each.  Yang et al. 2024,
             arXiv:2406.06484, section 3.2, and arXiv:2412.06464, section 3.3
backward     three times that: gradients of both factors of each product, and the products again, as only the inputs
             are kept.  MFU counts three times the forward in all: no recompute
memory       inputs and outputs once, and a state per head and chunk: written and read in full precision, and again, as
             passed on from chunk to chunk, in that of the model
===========  ===================================================================================================

The convolution over the last tokens that goes in front is short: it reads and writes its channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.world.model.decoder import FP32
from simulator.world.model.layer import Tensor, Work
from simulator.world.model.module import Module

__all__ = ["Scan", "convolution", "delta_scan", "mamba_scan", "with_scan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Work of one token in all heads."""

    flop: float
    """Forward [FLOP]."""
    elements: float
    """Inputs and outputs."""
    states: float
    """Elements of the states that a chunk leaves, over its tokens."""

    @property
    def model_flop(self) -> float:
        """Forward and backward as MFU counts them [FLOP]."""
        return 3 * self.flop


def mamba_scan(*, heads: int, size: int, state: int, groups: int, chunk: int) -> Scan:
    """The scan of Mamba-2 with *heads* of *size* elements, and a *state* of that many vectors of this size each.

    Examples
    --------
    >>> mamba_scan(heads=2, size=3, state=5, groups=1, chunk=4).flop  # 2*4*5 + 2 * (2*4*3 + 4*3*5)
    208.0
    """
    flop = 2 * chunk * state * groups + heads * (2 * chunk * size + 4 * size * state)
    elements = 2 * heads * size + 2 * groups * state + heads
    return Scan(flop=float(flop), elements=float(elements), states=heads * size * state / chunk)


def delta_scan(*, heads: int, key: int, value: int, chunk: int) -> Scan:
    """The gated delta rule with *heads* whose keys and values have these sizes.

    Examples
    --------
    >>> delta_scan(heads=1, key=2, value=3, chunk=6).flop  # 6*6*2 + 4*6*3 + 2*36/3 + 6*2*3
    204.0
    """
    flop = chunk * (6 * key + 4 * value) + 2 * chunk * chunk / 3 + 6 * key * value
    elements = heads * (2 * key + 2 * value + 2)
    return Scan(flop=heads * flop, elements=float(elements), states=heads * key * value / chunk)


def with_scan(module: Module, scan: Scan, element_bytes: int) -> Module:
    """Give *module*, which calls the projections, the work of *scan*."""
    traffic = element_bytes * scan.elements + 2 * (FP32 + element_bytes) * scan.states

    def works(times: float) -> tuple[Work, ...]:
        return Work("attention", flop=times * scan.flop), Work("memory", traffic=times * traffic)

    return replace(module, forward=works(1), backward=works(3))


def convolution(name: str, channels: int, taps: int, element_bytes: int, *, bias: bool) -> Module:
    """A convolution of each channel over the last *taps* tokens, with its activation function."""
    weight = Tensor(f"{name}.weight", (channels, 1, taps))
    traffic = 2.0 * channels * element_bytes
    return Module(
        name=name,
        kind="Conv1d",
        parameters=(weight, Tensor(f"{name}.bias", (channels,))) if bias else (weight,),
        forward=(Work("memory", traffic=traffic),),
        backward=(Work("memory", traffic=2 * traffic),),
    )
