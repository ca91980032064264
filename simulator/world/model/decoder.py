r"""The work of a decoder-only transformer, module by module, whatever its family.

Notation: h width, q query width (heads x head size), v key/value width, f feed-forward width, V vocabulary,
s sequence length, W elements of a weight matrix.

============  ==================================================================================================
matrices      2 W FLOP forward, backward 2 W for gradients of inputs and 2 W for those of weights
attention     scores and weighted sum: 4 s q FLOP per token, executed half because of the causal mask; backward
              recomputes the scores: 5 instead of 2 products (Dao 2023, arXiv:2307.08691, section 3.1)
MFU           6 W + 12 s q, attention not halved (Chowdhery et al. 2022, arXiv:2204.02311, appendix B)
memory        elements read and written by element-wise kernels: norm with residual addition 5 h, rotary positions
              2 (q + v), gated activation 5 f, plain activation 2 f, loss 2 V in both precisions; twice that backward
Python        RMS norms square, average, scale and weight one kernel after the other: with residual addition 10 h
              forward, 22 h backward (fms ``LayerNormParameterized``; models that convert to full precision move up
              to twice as much); rotary positions in full precision 6 (q + v) each way
compiled      neighbours are one kernel: norm with residual addition 4 h forward, 5 h backward, gated activation 3 f
              and 5 f, rotary positions 2 (q + v) each way
============  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from simulator.world.model.layer import Layer, Product, Tensor, Work
from simulator.world.model.module import Module

__all__ = [
    "Block",
    "element_wise",
    "embedding",
    "is_python",
    "layers_of",
    "linear",
    "moved",
    "multiplied",
    "norm",
    "normalised",
    "scores",
]

PYTHON_NORM = (10.0, 22.0)
"""Elements that an RMS norm in Python moves, forward and backward."""
FP32 = 4  # definition: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What activation checkpointing and memory know about a unit of the model."""

    name: str
    modules: tuple[Module, ...]
    """Whose parameters and work the unit has."""
    input_bytes: float
    """Kept by full checkpointing, per token [B]."""
    activation_bytes: float
    """Kept without, per token, beside what the loss keeps [B]."""
    python_bytes: float = 0.0
    """The part of these that norms in Python keep, and norms of one kernel do not [B]."""
    attention_flop: float = 0.0
    """Forward and backward FLOP of attention per token as MFU counts them."""
    checkpointed: bool = True
    looks_up: bool = False
    """An embedding of its own: MFU counts its parameters although nothing is multiplied."""


def linear(
    name: str,
    shape: tuple[int, int],
    element_bytes: int,
    *,
    bias: int = 0,
    tied: Tensor | None = None,
    inputs_first: bool = False,
) -> Module:
    """A matrix product.

    Parameters
    ----------
    shape
        Of the weight: outputs, inputs.
    bias
        Elements of bias.
    tied
        The tensor it shares instead of having its own.
    inputs_first
        The weight is stored the other way round.
    """
    weight = tied or Tensor(f"{name}.weight", shape)
    out, into = reversed(shape) if inputs_first else shape
    forward, backward = multiplied(out, into, element_bytes)
    return Module(
        name=name,
        kind="Linear",
        parameters=(weight, Tensor(f"{name}.bias", (bias,))) if bias else (weight,),
        forward=forward,
        backward=backward,
    )


def multiplied(out: int, into: int, element_bytes: int) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Forward and backward work of a product with *out* x *into* weights: gradients of inputs, and of weights."""
    flop, read = 2.0 * out * into, float(element_bytes * out * into)
    forward = Work("matrix", flop=flop, constant_traffic=read, product=Product(n=out, k=into), result=out)
    of_inputs = Work("matrix", flop=flop, constant_traffic=read, product=Product(n=into, k=out))
    of_weights = Work("matrix", flop=flop, constant_traffic=read, product=Product(m=out, n=into))
    return (forward,), (of_inputs, of_weights)


def norm(name: str, kind: str, hidden: int, element_bytes: int, *, bias: bool) -> Module:
    """A normalisation with the addition of the residual that goes with it."""
    weight = Tensor(f"{name}.weight", (hidden,))
    forward, backward = normalised(kind, float(hidden * element_bytes))
    return Module(
        name=name,
        kind=kind,
        parameters=(weight, Tensor(f"{name}.bias", (hidden,))) if bias else (weight,),
        forward=forward,
        backward=backward,
        normalises=True,
    )


def normalised(kind: str, width: float) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Forward and backward work of a norm of class *kind* over *width* bytes, with the residual addition."""
    python = PYTHON_NORM if is_python(kind) else (5.0, 10.0)
    forward = Work("memory", traffic=5 * width, python=python[0] * width, fused=4 * width)
    backward = Work("memory", traffic=10 * width, python=python[1] * width, fused=5 * width)
    return (forward,), (backward,)


def is_python(norm_kind: str) -> bool:
    """Whether a norm is written in Python instead of being one of PyTorch's kernels: RMS norms are."""
    return "RMS" in norm_kind or norm_kind.startswith("T5")


def element_wise(name: str, kind: str, traffic: float, *, gated: bool = False) -> Module:
    """A module without parameters that moves *traffic* bytes per token; none at all if it is switched off.

    Parameters
    ----------
    gated
        It multiplies with a second input, which can be fused.
    """
    if not traffic:
        return Module(name=name, kind=kind)
    forward, backward = moved(traffic, gated=gated)
    return Module(name=name, kind=kind, forward=forward, backward=backward)


def moved(traffic: float, *, gated: bool = False) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Forward and backward work of element-wise kernels; one that multiplies with a second input can be fused."""
    fused = (3 / 5 * traffic, traffic) if gated else (traffic, 2 * traffic)
    return (Work("memory", traffic=traffic, fused=fused[0]),), (Work("memory", traffic=2 * traffic, fused=fused[1]),)


def embedding(name: str, table: Tensor, hidden: int, element_bytes: int) -> Module:
    """A table: a gather forward, a scatter backward, no matrix product, and no gradient for token numbers."""
    moved = 2.0 * element_bytes * hidden
    return Module(
        name=name,
        kind="Embedding",
        parameters=(table,),
        forward=(Work("memory", traffic=moved),),
        backward=(Work("memory", traffic=2 * moved),),
        takes_numbers=True,
    )


def scores(
    sequence_length: int, query: int, rotated: float, heads: int = 0
) -> tuple[tuple[Work, ...], tuple[Work, ...], float]:
    """Forward and backward work of attention itself, and its FLOP as MFU counts them.

    Parameters
    ----------
    rotated
        Bytes per token of queries and keys that are rotated to their positions [B].
    heads
        Of queries.
    """
    whole, elements = 4.0 * sequence_length * query, float(heads * sequence_length)
    turn = Work("memory", traffic=2 * rotated, python=6 * rotated)
    forward = (Work("attention", flop=whole / 2, result=query, scores=elements), turn)
    backward = (Work("attention", flop=whole / 2 * 5 / 2, scores=elements), turn)
    return forward, backward, 3 * whole


def loss(vocabulary: int, element_bytes: int) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Forward and backward work of the loss over the vocabulary."""
    traffic = 2.0 * (element_bytes + FP32) * vocabulary
    return (Work("memory", traffic=traffic),), (Work("memory", traffic=traffic),)


def layers_of(blocks: Iterable[Block]) -> tuple[Layer, ...]:
    """Units of the model as layers: parameters and work of their modules added up.

    A tensor that several units share belongs to the first of them.
    """
    taken: set[str] = set()
    return tuple(_layer(block, taken) for block in blocks)


def _layer(block: Block, taken: set[str]) -> Layer:
    below = [module for top in block.modules for module in top.walk()]
    every = {tensor.name: tensor for module in below for tensor in module.parameters}
    tensors = {name: tensor for name, tensor in every.items() if name not in taken}
    taken.update(tensors)
    forward = _sum(work for module in below for work in module.forward)
    matrix = sum(work.flop for work in forward if work.kind == "matrix")
    elements = sum(tensor.elements for tensor in tensors.values())
    return Layer(
        name=block.name,
        modules=tuple(module.name for module in block.modules),
        tensors=tuple(tensors.values()),
        forward=forward,
        backward=_sum(work for module in below for work in module.backward),
        model_flop=(6.0 * elements if block.looks_up else 3.0 * matrix) + block.attention_flop,
        input_bytes=block.input_bytes,
        activation_bytes=block.activation_bytes,
        python_bytes=block.python_bytes,
        logits=sum(module.logits for module in below),
        checkpointed=block.checkpointed,
    )


def _sum(works: Iterable[Work]) -> tuple[Work, ...]:
    """Matrix products one by one, and one piece of work of each other kind."""
    total: dict[str, Work] = {}
    products = []
    for work in works:
        if work.product:
            products.append(work)
        else:
            total[work.kind] = _added(total[work.kind], work) if work.kind in total else work
    return (*products, *total.values())


def _added(one: Work, other: Work) -> Work:
    return Work(
        one.kind,
        flop=one.flop + other.flop,
        traffic=one.traffic + other.traffic,
        constant_traffic=one.constant_traffic + other.constant_traffic,
        python=_both(one, other, "python"),
        fused=_both(one, other, "fused"),
        result=one.result + other.result,
        scores=one.scores + other.scores,
    )


def _both(one: Work, other: Work, how: Literal["python", "fused"]) -> float | None:
    """Traffic of two pieces of work done that way; None where that is no different."""
    each = [getattr(work, how) for work in (one, other)]
    if each == [None, None]:
        return None
    return sum(work.traffic if moved is None else moved for work, moved in zip((one, other), each, strict=True))
