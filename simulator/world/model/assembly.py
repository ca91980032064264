"""What decoders have in common: attention, feed-forward, head, and how their blocks become layers.

A family's file says which modules there are, in which order they are registered and called; the pieces here say what
each of them costs.  Per token of a block, in elements, backward needs the inputs of every norm, matrix and activation
function, and the queries, keys and values:

    streams x h + 2 q + 2 v + 2 f        (4 f where the activation is gated)

with *streams* the arrays of width h: 4 where attention and feed-forward follow each other, each with its norm; 2 where
they run in parallel behind one norm, 3 behind two.  Attention is fused, so that no s x s matrix is kept; its
log-sum-exp, 4 B per head and token, is below a thousandth of the rest and left out.

A LayerNorm keeps its input and its output.  An RMS norm written in Python, as those of the Llama families are, works
in fp32: in 16 bits it keeps its input in fp32 (two arrays), what it made of that before the weight, and its output;
in fp32 its input is the residual itself, three arrays in all.  One fused into a kernel keeps as little as LayerNorm.
(Counted with ``torch.autograd.graph.saved_tensors_hooks``, torch 2.13.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.model.decoder import (
    FP32,
    PYTHON_NORM,
    Block,
    element_wise,
    is_python,
    layers_of,
    linear,
    loss,
    norm,
    scores,
)
from simulator.world.model.layer import Layer, Tensor, Work
from simulator.world.model.module import Module

__all__ = [
    "Built",
    "Size",
    "Sizes",
    "attention",
    "decoder_layers",
    "dropout",
    "head",
    "head_norm",
    "head_size",
    "joint_attention",
    "kept",
    "key_value_heads",
    "language_model",
    "matrix",
    "plain_feed_forward",
    "require_positions",
    "rms_arrays",
    "stack",
    "unit",
]

Size = Annotated[int, Meta(ge=1)]
"""A width or a number, as configs give it."""

Built = tuple[Module, tuple[Layer, ...]]
"""The module tree, and the layers in the order of the forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Widths of a block, in elements, and what a token costs."""

    hidden: int
    """h, width of the residual stream."""
    query: int
    """q, all query heads."""
    heads: int
    """Of queries."""
    key_value: int
    """v, all key heads; as many elements are values."""
    wide: int
    """f, inside of the feed-forward."""
    sequence_length: int
    element_bytes: int
    window: int | None = None
    """Tokens that attention looks back; None for all."""

    @property
    def rms(self) -> int:
        """Arrays of its width that an RMS norm keeps."""
        return rms_arrays(self.element_bytes)

    @property
    def reach(self) -> int:
        """Tokens that the last token of a sequence attends to."""
        return min(self.window or self.sequence_length, self.sequence_length)


def rms_arrays(element_bytes: int) -> int:
    """Arrays of its width that an RMS norm in Python keeps."""
    return 3 if element_bytes == FP32 else 4


def head_size(hidden: int, heads: int, key: str = "num_attention_heads") -> int:
    """Return the size of one attention head.

    Raises
    ------
    InputError
        The width does not divide into that many heads.
    """
    if hidden % heads:
        raise InputError(f"does not divide the width of {hidden}", key=key, value=heads, remedy="check both")
    return hidden // heads


def key_value_heads(heads: int, pairs: int | None, key: str = "num_key_value_heads") -> int:
    """Return the heads of keys, and of values: *pairs*, or without it as many as the *heads* of queries.

    Raises
    ------
    InputError
        Not every head of keys would serve equally many of queries.
    """
    if pairs and heads % pairs:
        raise InputError(f"does not divide the {heads} query heads", key=key, value=pairs, remedy="check both")
    return pairs or heads


def require_positions(known: int, sequence_length: int) -> None:
    """Refuse sequences that are longer than a table of positions.

    Raises
    ------
    InputError
        With the longest possible sequence.
    """
    if sequence_length > known:
        remedy = f"use at most {known}"
        raise InputError(
            "the model has no more positions", key="model.sequence_length", value=sequence_length, remedy=remedy
        )


def matrix(name: str, shape: tuple[int, int], element_bytes: int, *, bias: bool, kind: str = "Linear") -> Module:
    """A matrix product from ``shape[1]`` to ``shape[0]`` elements, of class *kind*."""
    return replace(linear(name, shape, element_bytes, bias=shape[0] if bias else 0), kind=kind)


def head_norm(name: str, kind: str, size: int, width: int, element_bytes: int, *, bias: bool = False) -> Module:
    """A norm of heads of *size* elements, *width* elements in all; no residual is added here."""
    module = norm(name, kind, size, element_bytes, bias=bias)
    moved = float(width * element_bytes)
    python = [times * moved for times in PYTHON_NORM] if is_python(kind) else (None, None)
    return replace(
        module,
        forward=(Work("memory", traffic=2 * moved, python=python[0]),),
        backward=(Work("memory", traffic=4 * moved, python=python[1], fused=3 * moved),),
    )


def attention(module: Module, sizes: Sizes, *, rotary: bool) -> Module:
    """Give *module*, which calls the projections, the work of attention itself, and of *rotary* positions."""
    rotated = float(sizes.element_bytes * (sizes.query + sizes.key_value)) if rotary else 0.0
    forward, backward, _ = scores(sizes.sequence_length, sizes.query, rotated, sizes.heads)
    seen = sizes.reach / sizes.sequence_length
    # a causal window of w tokens leaves s w - w w / 2 of the s s / 2 scores of a whole sequence
    part = 2 * seen - seen * seen
    return replace(module, forward=_scaled(forward, part), backward=_scaled(backward, part))


def _scaled(works: tuple[Work, ...], part: float) -> tuple[Work, ...]:
    return tuple(replace(work, flop=work.flop * part, scores=work.scores * part) for work in works)


def joint_attention(
    name: str,
    kind: str,
    parts: tuple[str, str],
    sizes: Sizes,
    *,
    biases: tuple[bool, bool],
    rotary: bool,
    linear_kind: str = "Linear",
) -> Module:
    """Attention with one product for queries, keys and values, and one for the output.

    Parameters
    ----------
    parts, biases
        Of these two: their names, whether they have a bias.
    """
    width, joint = sizes.element_bytes, sizes.query + 2 * sizes.key_value
    first = matrix(f"{name}.{parts[0]}", (joint, sizes.hidden), width, bias=biases[0], kind=linear_kind)
    last = matrix(f"{name}.{parts[1]}", (sizes.hidden, sizes.query), width, bias=biases[1], kind=linear_kind)
    return attention(Module(name=name, kind=kind, children=(first, last), calls=(first, last)), sizes, rotary=rotary)


def plain_feed_forward(
    name: str,
    kind: str,
    parts: tuple[str, str, str],
    sizes: Sizes,
    *,
    activation: str,
    bias: bool,
    linear_kind: str = "Linear",
) -> Module:
    """A feed-forward of two products around an activation function.

    Parameters
    ----------
    parts
        Names of the three modules in the order of calls, which is that of registration as well.
    activation
        Class of the activation function.
    """
    first, middle, last = (f"{name}.{part}" for part in parts)
    up = matrix(first, (sizes.wide, sizes.hidden), sizes.element_bytes, bias=bias, kind=linear_kind)
    act = element_wise(middle, activation, 2.0 * sizes.wide * sizes.element_bytes)
    down = matrix(last, (sizes.hidden, sizes.wide), sizes.element_bytes, bias=bias, kind=linear_kind)
    return Module(name=name, kind=kind, children=(up, act, down), calls=(up, act, down))


def kept(sizes: Sizes, *, streams: int = 4, gated: bool = False) -> int:
    """Return the elements per token that backward of a block needs."""
    return streams * sizes.hidden + 2 * sizes.query + 2 * sizes.key_value + (4 if gated else 2) * sizes.wide


def unit(module: Module, sizes: Sizes, elements: int) -> Block:
    """Return the block *module*, whose backward needs *elements* per token."""
    across = (item for item in module.walk() if item.normalises and item.parameters[0].elements == sizes.hidden)
    norms = sum(is_python(item.kind) for item in across)
    return Block(
        name=".".join(module.name.split(".")[-2:]),
        modules=(module,),
        input_bytes=float(sizes.element_bytes * sizes.hidden),
        activation_bytes=float(sizes.element_bytes * elements),
        python_bytes=float(sizes.element_bytes * norms * (sizes.rms - 2) * sizes.hidden),
        attention_flop=3 * 4.0 * sizes.reach * sizes.query,
    )


def dropout(name: str) -> Module:
    """A dropout that is switched off: hooks see it, kernels do not."""
    return Module(name=name, kind="Dropout")


def stack(name: str, blocks: Sequence[Module], kind: str = "ModuleList") -> Module:
    """Return the list of *blocks*, which is never called itself."""
    return Module(name=name, kind=kind, children=tuple(blocks))


def head(
    shape: tuple[int, int],
    element_bytes: int,
    tied: Tensor | None,
    *,
    bias: bool = False,
    name: str = "lm_head",
) -> Module:
    """The product with the vocabulary, ``shape[0]`` words, and the loss; *tied* is the table it shares."""
    module = linear(name, shape, element_bytes, bias=shape[0] if bias else 0, tied=tied)
    forward, backward = loss(shape[0], element_bytes)
    return replace(module, forward=module.forward + forward, backward=module.backward + backward, logits=shape[0])


def language_model(
    kind: str,
    trunk: Module,
    first: Sequence[Module],
    blocks: Sequence[Block],
    last: Sequence[Module],
    sizes: Sizes,
) -> Built:
    """Return the tree of class *kind* over *trunk* and the head, and its layers.

    Parameters
    ----------
    first, last
        Modules in front of the blocks, the table of words first, and behind them, the head last.
    """
    top = last[-1]
    root = Module(name="", kind=kind, children=(trunk, top), calls=(trunk, top))
    return root, decoder_layers(first, blocks, last, sizes)


def decoder_layers(
    first: Sequence[Module], blocks: Sequence[Block], last: Sequence[Module], sizes: Sizes
) -> tuple[Layer, ...]:
    """Return the layers: tables, *blocks*, norm and head."""
    width, hidden, tied = sizes.element_bytes, sizes.hidden, last[-1].parameters[0] in first[0].parameters
    normed = width * hidden * (sizes.rms if "RMSNorm" in last[0].kind else 2)
    begin = Block(
        name=first[0].name.rpartition(".")[2],
        modules=tuple(first),
        input_bytes=0.0,
        activation_bytes=0.0,
        checkpointed=False,
        looks_up=not tied,
    )
    end = Block(
        name=last[-1].name,
        modules=tuple(last),
        input_bytes=float(normed),
        activation_bytes=float(normed),
        checkpointed=False,
    )
    return layers_of((begin, *blocks, end))
