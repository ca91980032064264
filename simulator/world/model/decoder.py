r"""The work of a decoder-only transformer, module by module, whatever its family.

Notation: h width, q query width (heads x head size), v key/value width, f feed-forward width, V vocabulary,
s sequence length, W elements of a weight matrix.

============  ==================================================================================================
matrices      2 W FLOP forward, 4 W backward (gradients of inputs and of weights)
attention     scores and weighted sum: 4 s q FLOP per token, executed half because of the causal mask; backward
              recomputes the scores: 5 instead of 2 products (Dao 2023, arXiv:2307.08691, section 3.1)
MFU           6 W + 12 s q, attention not halved (Chowdhery et al. 2022, arXiv:2204.02311, appendix B)
memory        elements read and written by element-wise kernels: norm with residual addition 5 h, rotary positions
              2 (q + v), gated activation 5 f, plain activation 2 f, loss 2 V in both precisions; twice that backward
============  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.world.model.layer import Layer, Tensor, Work
from simulator.world.model.module import Module

__all__ = ["Block", "element_wise", "embedding", "layers_of", "linear", "norm", "scores"]

FP32 = 4  # definition: bytes; the loss is computed on a copy of the logits in full precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What activation checkpointing and memory know about a unit of the model."""

    name: str
    modules: tuple[Module, ...]
    """Whose parameters and work the unit has."""
    input_bytes: float
    """Kept by full checkpointing, per token [B]."""
    activation_bytes: float
    """Kept without, per token [B]."""
    attention_flop: float = 0.0
    """Forward and backward FLOP of attention per token as MFU counts them."""
    checkpointed: bool = True
    looks_up: bool = False
    """An embedding of its own: MFU counts its parameters although nothing is multiplied."""


def linear(
    name: str, shape: tuple[int, int], element_bytes: int, *, bias: int = 0, tied: Tensor | None = None
) -> Module:
    """A matrix product, with *bias* elements of bias; *tied* is the tensor it shares instead of having its own."""
    weight = tied or Tensor(f"{name}.weight", shape)
    elements = float(shape[0] * shape[1])
    read = element_bytes * elements
    return Module(
        name=name,
        kind="Linear",
        parameters=(weight, Tensor(f"{name}.bias", (bias,))) if bias else (weight,),
        forward=(Work("matrix", flop=2 * elements, constant_traffic=read),),
        backward=(Work("matrix", flop=4 * elements, constant_traffic=2 * read),),
    )


def norm(name: str, kind: str, hidden: int, element_bytes: int, *, bias: bool) -> Module:
    """A normalisation with the addition of the residual that goes with it."""
    weight = Tensor(f"{name}.weight", (hidden,))
    traffic = 5.0 * hidden * element_bytes
    return Module(
        name=name,
        kind=kind,
        parameters=(weight, Tensor(f"{name}.bias", (hidden,))) if bias else (weight,),
        forward=(Work("memory", traffic=traffic),),
        backward=(Work("memory", traffic=2 * traffic),),
        normalises=True,
    )


def element_wise(name: str, kind: str, traffic: float) -> Module:
    """A module without parameters that moves *traffic* bytes per token; none at all if it is switched off."""
    if not traffic:
        return Module(name=name, kind=kind)
    forward, backward = (Work("memory", traffic=traffic),), (Work("memory", traffic=2 * traffic),)
    return Module(name=name, kind=kind, forward=forward, backward=backward)


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


def scores(sequence_length: int, query: int, traffic: float) -> tuple[tuple[Work, ...], tuple[Work, ...], float]:
    """Forward and backward work of attention itself, and its FLOP as MFU counts them.

    Parameters
    ----------
    traffic
        Bytes per token that element-wise kernels move before the scores [B].
    """
    whole = 4.0 * sequence_length * query
    forward = (Work("attention", flop=whole / 2), Work("memory", traffic=traffic))
    backward = (Work("attention", flop=whole / 2 * 5 / 2), Work("memory", traffic=2 * traffic))
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
        checkpointed=block.checkpointed,
    )


def _sum(works: Iterable[Work]) -> tuple[Work, ...]:
    """One piece of work of each kind."""
    total: dict[str, Work] = {}
    for work in works:
        so_far = total.get(work.kind, Work(work.kind))
        total[work.kind] = Work(
            work.kind,
            flop=so_far.flop + work.flop,
            traffic=so_far.traffic + work.traffic,
            constant_traffic=so_far.constant_traffic + work.constant_traffic,
        )
    return tuple(total.values())
