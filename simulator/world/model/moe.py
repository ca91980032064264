r"""Mixture of experts: a router sends each token to a few of many gated feed-forwards.

All experts are gathered, reduced and optimised; a token only works with the chosen ones.  Notation: h width, E experts
of inner width f, k of them chosen.

==========  ====================================================================================================
matrices    router h E, experts 3 k h f: 2 FLOP each forward, 4 backward; so MFU counts active parameters only
weights     of all E experts, read once per pass: a micro-batch has enough tokens to reach each of them
memory      tokens into the order of experts and back, weighted and summed: 7 k h + h; gated activation 5 k f;
            router 3 E in full precision (scores, softmax, choice)
kept        k (2 h + 4 f) + E: copies of the input, inside of the experts, their outputs, scores
==========  ====================================================================================================

Experts are equally busy and no token is dropped: what the loss that balances them aims at (Fedus et al. 2022,
arXiv:2101.03961, section 2.2).  All experts of a block are one module with tensors of three dimensions, as Hugging
Face transformers 5 registers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from simulator.errors import InputError
from simulator.world.document import convert
from simulator.world.model.assembly import Built, Sizes, kept, matrix
from simulator.world.model.decoder import FP32, element_wise, norm
from simulator.world.model.family import NOTHING, Reader, family
from simulator.world.model.layer import Product, Tensor, Work
from simulator.world.model.llama import LlamaConfig
from simulator.world.model.module import Module

__all__ = ["Experts", "bank", "decoder_block", "kept_sparse", "router", "sparse_family"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The feed-forwards that a router chooses from."""

    count: int
    """E."""
    chosen: int
    """k, per token."""
    wide: int
    """f, inside of one."""

    def __post_init__(self) -> None:
        if self.chosen > self.count:
            remedy = f"use at most {self.count}"
            raise InputError(
                "more experts per token than there are", key="num_experts_per_tok", value=self.chosen, remedy=remedy
            )


def sparse_family(
    schema: type[T],
    build: Callable[[LlamaConfig, T, int, int], Built],
    *,
    renamed: Mapping[str, str] = NOTHING,
    defaults: Mapping[str, Any] = NOTHING,
) -> Reader:
    """Return the reader of a family that has Llama's keys and those of *schema*; else as :func:`family`."""

    def read(raw: dict[str, Any], path: Path, sequence_length: int, element_bytes: int) -> Built:
        own = convert(raw, schema, path)

        def built(config: LlamaConfig, tokens: int, width: int) -> Built:
            return build(config, own, tokens, width)

        reader = family(LlamaConfig, built, renamed=renamed, defaults=defaults)
        return reader(raw, path, sequence_length, element_bytes)

    return read


def router(name: str, kind: str, sizes: Sizes, experts: Experts, *, bias: bool = False) -> Module:
    """The product that scores experts, and the choice of the best."""
    module = matrix(name, (experts.count, sizes.hidden), sizes.element_bytes, bias=bias, kind=kind)
    traffic = 3.0 * FP32 * experts.count
    return replace(
        module,
        forward=(*module.forward, Work("memory", traffic=traffic)),
        backward=(*module.backward, Work("memory", traffic=2 * traffic)),
    )


def bank(
    name: str,
    kind: str,
    sizes: Sizes,
    experts: Experts,
    *,
    tensors: tuple[Tensor, ...] = (),
    activation: str | None = "SiLUActivation",
) -> Module:
    """All experts of a block.

    Parameters
    ----------
    tensors
        Parameters, where they are not two tensors with outputs in front of inputs.
    activation
        Class of the activation function; None where it is no module.
    """
    hidden, wide, width = sizes.hidden, experts.wide, sizes.element_bytes
    moved = width * (7.0 * experts.chosen + 1) * hidden
    activated = 5.0 * width * experts.chosen * wide
    act = () if activation is None else (element_wise(f"{name}.act_fn", activation, activated, gated=True),)
    moved += 0.0 if act else activated
    return Module(
        name=name,
        kind=kind,
        parameters=tensors or _tensors(name, hidden, experts),
        children=act,
        calls=act,
        forward=(*_products(hidden, experts, width), Work("memory", traffic=moved)),
        backward=(*_gradients(hidden, experts, width), Work("memory", traffic=2 * moved)),
    )


def _shapes(hidden: int, experts: Experts) -> tuple[tuple[int, int], tuple[int, int]]:
    """Outputs and inputs of the two products of an expert: gate and up together, down."""
    return (2 * experts.wide, hidden), (hidden, experts.wide)


def _products(hidden: int, experts: Experts, width: int) -> tuple[Work, ...]:
    return tuple(_product(experts, width, out, into) for out, into in _shapes(hidden, experts))


def _gradients(hidden: int, experts: Experts, width: int) -> tuple[Work, ...]:
    """Of inputs, and of weights."""
    shapes = _shapes(hidden, experts)
    of_inputs = (_product(experts, width, into, out) for out, into in shapes)
    of_weights = (
        replace(work, product=Product(m=out, n=into, count=experts.count, per_token=experts.chosen))
        for work, (out, into) in zip(_products(hidden, experts, width), shapes, strict=True)
    )
    return (*of_inputs, *of_weights)


def _product(experts: Experts, width: int, out: int, into: int) -> Work:
    """Tokens times *into* x *out* weights, in all experts."""
    return Work(
        "matrix",
        flop=2.0 * experts.chosen * out * into,
        constant_traffic=float(width * experts.count * out * into),
        product=Product(n=out, k=into, count=experts.count, per_token=experts.chosen),
        result=experts.chosen * out,
    )


def _tensors(name: str, hidden: int, experts: Experts) -> tuple[Tensor, ...]:
    return (
        Tensor(f"{name}.gate_up_proj", (experts.count, 2 * experts.wide, hidden)),
        Tensor(f"{name}.down_proj", (experts.count, hidden, experts.wide)),
    )


def kept_sparse(sizes: Sizes, experts: Experts) -> int:
    """Elements per token that backward of a block with *experts* for its feed-forward needs."""
    outside = kept(replace(sizes, wide=0), streams=2 * sizes.rms)
    return outside + experts.chosen * (2 * sizes.hidden + 4 * experts.wide) + experts.count


def decoder_block(name: str, prefix: str, attended: Module, fed: Module, sizes: Sizes) -> Module:
    """A block of attention and feed-forward, each behind its norm; *prefix* is that of the classes' names."""

    def normed(which: str) -> Module:
        return norm(f"{name}.{which}", f"{prefix}RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)

    before, after = normed("input_layernorm"), normed("post_attention_layernorm")
    return Module(
        name=name,
        kind=f"{prefix}DecoderLayer",
        children=(attended, fed, before, after),
        calls=(before, attended, after, fed),
    )
