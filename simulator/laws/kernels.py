r"""How long a kernel runs: the roofline.

A kernel is a sum of pieces of work.  A piece of F FLOP that moves Q bytes takes

.. math:: t = \max\left(\frac{F}{e u P}, \frac{Q}{e_m B}\right)

(Williams et al. 2009, "Roofline", eq. 1) with P the accelerator's peak for the precision, B its memory bandwidth,
efficiencies e (matrix products, attention) and e_m (element-wise kernels) that the catalogue names with their
sources, and u the part of the multiprocessors that a product of its shape uses (:mod:`simulator.laws.tiles`).  A rate
that the user measured (``compute.achieved``) replaces all of it: t = F / achieved, and what does no FLOP is free
because the measurement already contains it.

*Attention that is not fused* multiplies whole matrices of scores, behind the mask as well (forward 2 products,
backward 4 and none of them again), and moves each score through memory: products, mask, softmax in full precision and
the conversions around it, 20 B forward and 32 B backward in 16-bit training (Hugging Face transformers,
``eager_attention_forward``).

*Products in 8 bits* read each operand twice to find its largest element and to convert it, and write it: 5 B per
element of inputs, forward, and of gradients, backward (torchao ``float8_linear.py``, dynamic scaling by tensor).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from simulator.errors import UnknownNameError
from simulator.laws.tiles import utilisation
from simulator.world.catalog import Accelerator, Number, Tiles, tiles
from simulator.world.compute import Compute, ElementWise
from simulator.world.model.layer import Layer, Product, Work

__all__ = ["Kernel", "Rates", "Spent", "activation_bytes", "kernel_time", "rates"]

SCORE_TRAFFIC: Final = {"forward": 20.0, "recompute": 20.0, "backward": 32.0}
"""Memory traffic of attention that is not fused, per score [B]."""
SCORE_BYTES: Final = 6.0
"""What backward needs of a score: the softmax in both precisions [B]."""
QUANTISERS: Final = frozenset({"quantize", "dequantize", "reduce and quantize", "dequantize and reduce"})
"""Kinds of kernels that pack numbers into fewer bits, or unpack them, in groups with a scale each."""
CONVERSION: Final = 5.0
"""Memory traffic of a conversion to 8 bits, per element [B]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One compute or copy operation of a program."""

    kind: str
    """forward, recompute, backward, optimizer, quantize, dequantize, end."""
    works: tuple[Work, ...] = ()
    tokens: int = 0
    """Tokens that the work per token applies to."""
    time: float | None = None
    """Given by the scenario instead of work [s]."""
    is_copy: bool = False
    """Moves bytes for communication instead of computing."""
    extra: float = 0.0
    """Time that neither arithmetic nor memory traffic explains [s]."""
    serves: str = ""
    """Role of the collective that a copy prepares or completes."""
    narrow: bool = False
    """Its matrix products may run in fewer bits than training."""


class Spent(NamedTuple):
    """Time of a kernel by what bounds it [s]."""

    arithmetic: float
    """Arithmetic, or unknown."""
    movement: float
    """Memory traffic."""

    @property
    def total(self) -> float:
        """The kernel alone on the accelerator."""
        return self.arithmetic + self.movement


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one accelerator achieves."""

    flop: Mapping[str, float]
    """By kind of work [FLOP/s]; ``narrow`` for matrix products in fewer bits, if they are asked for."""
    memory: float
    """[B/s]; infinite where traffic is contained in a measured rate."""
    quantize: float
    """Memory traffic of kernels that quantise [B/s]."""
    numbers: Mapping[str, tuple[Number, ...]]
    """The catalogue numbers that the rate of each kind of work rests on."""
    multiprocessors: float = 0.0
    """0 where a measured rate contains the shapes of products."""
    tiles: Tiles | None = None
    element_wise: ElementWise = "kernels"
    scores: bool = False
    """Attention moves its scores through memory."""


def rates(accelerator: Accelerator, compute: Compute) -> Rates:
    """Return the rates of *accelerator* for the kernels of *compute*.

    Raises
    ------
    UnknownNameError
        The accelerator has no peak for one of the precisions.
    """
    if compute.achieved is not None:
        free = float("inf")
        flop = dict.fromkeys(("matrix", "attention"), compute.achieved)
        return Rates(flop=flop, memory=free, quantize=free, numbers={})
    part, peak = accelerator, _peak(accelerator, compute.precision, "training.precision")
    moving = (compute.element_wise == "compiled" and part.fused_efficiency) or part.memory_efficiency
    memory = (part.memory_bandwidth, moving)
    attention = _attention(part, compute)
    flop = {
        "matrix": peak.value * part.matrix_efficiency.value,
        "attention": peak.value * attention.value,
    }
    products: tuple[Number, ...] = (peak, part.matrix_efficiency, *memory, *tiles().numbers)
    if compute.matrix_precision is not None:
        narrow = _peak(part, compute.matrix_precision, "compute.matrix_precision")
        reached = part.narrow_efficiency or part.matrix_efficiency
        flop["narrow"] = narrow.value * reached.value
        products += (narrow, reached)
    return Rates(
        flop=flop,
        memory=part.memory_bandwidth.value * moving.value,
        quantize=part.memory_bandwidth.value * (part.quantize_efficiency or part.memory_efficiency).value,
        numbers={
            "matrix": products,
            "attention": (peak, attention),
            "memory": memory,
        },
        multiprocessors=part.multiprocessors.value,
        tiles=tiles(),
        element_wise=compute.element_wise,
        scores=compute.attention == "naive",
    )


def _attention(part: Accelerator, compute: Compute) -> Number:
    if compute.attention != "flash3":
        return part.attention_efficiency
    if part.flash3_efficiency is None:
        runs = ("flash", "sdpa", "naive")
        raise UnknownNameError(f"attention on {part.name}", "flash3", runs, key="compute.attention")
    return part.flash3_efficiency


def _peak(part: Accelerator, precision: str, key: str) -> Number:
    if precision not in part.peak_flops:
        raise UnknownNameError(f"precision of {part.name}", precision, part.peak_flops, key=key)
    return part.peak_flops[precision]


def activation_bytes(layer: Layer, compute: Compute) -> float:
    """What backward of *layer* needs when nothing is computed again, per token [B]."""
    scores = sum(work.scores for work in layer.forward) if compute.attention == "naive" else 0.0
    less = 0.0 if compute.element_wise == "python" else layer.python_bytes
    return layer.activation_bytes - less + SCORE_BYTES * scores


def kernel_time(kernel: Kernel, at: Rates) -> Spent:
    """Time of *kernel* alone on the accelerator."""
    if kernel.time is not None:
        return Spent(kernel.time, 0.0)
    spent = [_time(work, kernel, at) for work in kernel.works]
    return Spent(sum(item.arithmetic for item in spent) + kernel.extra, sum(item.movement for item in spent))


def _time(work: Work, kernel: Kernel, at: Rates) -> Spent:
    if at.scores and work.scores:
        return _unfused(work, kernel, at)
    arithmetic = work.flop * kernel.tokens / _rate(work, kernel, at) if work.flop else 0.0
    bandwidth = at.quantize if kernel.kind in QUANTISERS else at.memory
    movement = (_traffic(work, at) * kernel.tokens + work.constant_traffic) / bandwidth
    if not _is_narrow(work, kernel, at):
        return Spent(arithmetic, 0.0) if arithmetic >= movement else Spent(0.0, movement)
    return Spent(arithmetic, _conversion(work, kernel) / at.memory)


def _traffic(work: Work, at: Rates) -> float:
    """Of a token [B]."""
    other = {"python": work.python, "kernels": None, "compiled": work.fused}[at.element_wise]
    return work.traffic if other is None else other


def _rate(work: Work, kernel: Kernel, at: Rates) -> float:
    rate = at.flop["narrow" if _is_narrow(work, kernel, at) else work.kind]
    if work.product is None or at.tiles is None:
        return rate
    m, n, k = _sizes(work.product, kernel.tokens)
    return rate * utilisation(m, n, k, at.multiprocessors, at.tiles, work.product.count)


def _sizes(product: Product, tokens: int) -> tuple[float, float, float]:
    """Rows, columns and terms of one product."""
    vectors = max(1.0, tokens * product.per_token / product.count)
    m, n, k = (vectors if size is None else float(size) for size in (product.m, product.n, product.k))
    return m, n, k


def _is_narrow(work: Work, kernel: Kernel, at: Rates) -> bool:
    return kernel.narrow and work.product is not None and "narrow" in at.flop


def _conversion(work: Work, kernel: Kernel) -> float:
    """Traffic of converting the operands of a product that are not yet in 8 bits [B]."""
    assert work.product is not None
    m, _, k = _sizes(work.product, kernel.tokens)
    # gradients of weights reuse what the other products converted
    return CONVERSION * m * k * work.product.count if work.product.m is None else 0.0


def _unfused(work: Work, kernel: Kernel, at: Rates) -> Spent:
    """Attention by products of whole matrices."""
    # behind the mask as well: twice; backward of fused attention counts a fifth product, of what it computes again
    whole = 2.0 if kernel.kind != "backward" else 2.0 * 4 / 5
    arithmetic = whole * work.flop * kernel.tokens / at.flop["matrix"]
    return Spent(arithmetic, SCORE_TRAFFIC[kernel.kind] * work.scores * kernel.tokens / at.memory)
