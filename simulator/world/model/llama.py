"""Llama-family decoders: RMS norm, rotary positions, grouped queries, gated feed-forward.

Names, shapes, order of registration and of calls as ``LlamaForCausalLM`` has them (Hugging Face transformers,
``modeling_llama.py``).  Families that differ in a detail have their own file and a :class:`Style`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Size,
    Sizes,
    attention,
    head,
    head_norm,
    head_size,
    kept,
    key_value_heads,
    language_model,
    matrix,
    stack,
    unit,
)
from simulator.world.model.decoder import Block, element_wise, embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = [
    "READERS",
    "LlamaConfig",
    "Style",
    "gated_feed_forward",
    "grouped_attention",
    "llama",
    "llama_layers",
    "llama_like",
    "llama_trunk",
]


class LlamaConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    num_key_value_heads: Size | None = None
    """Without it as many as query heads."""
    head_dim: Size | None = None
    """Without it the width divided by the heads."""
    tie_word_embeddings: bool | None = None
    """Without it what the family does by default."""
    attention_bias: bool = False
    mlp_bias: bool = False
    use_bias: bool = True
    """All biases of StarCoder 2."""
    sliding_window: Size | None = None
    """Tokens that attention looks back, in the families and layers that do not look back to the first."""
    use_sliding_window: bool = True
    max_window_layers: Annotated[int, Meta(ge=0)] = 28
    layer_types: list[str] | None = None
    """``sliding_attention`` for layers with a window, ``full_attention`` for those without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Where a family departs from Llama."""

    prefix: str
    """Of the names of its classes."""
    activation: str = "SiLUActivation"
    """Class of the activation function."""
    table: str = "Embedding"
    """Class of the table of words."""
    input_bias: bool = False
    """Queries, keys and values have biases."""
    output_bias: bool = False
    mlp_bias: bool = False
    tied: bool = False
    """Head and table share their weight."""
    head_norms: bool = False
    """Each head of queries and keys is normalised."""
    output_norms: bool = False
    """What attention and feed-forward return is normalised as well."""


def llama(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(
        prefix="Llama",
        activation="SiLU",
        input_bias=config.attention_bias,
        output_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
        tied=bool(config.tie_word_embeddings),
    )
    return llama_like(config, style, llama_layers(config, sequence_length, element_bytes, slides=lambda _: False))


def llama_layers(
    config: LlamaConfig, sequence_length: int, element_bytes: int, slides: Callable[[int], bool]
) -> list[Sizes]:
    """Return the widths of each block.

    Parameters
    ----------
    slides
        Whether the attention of a layer has a window, where the config has no ``layer_types``.

    Raises
    ------
    InputError
        Heads that do not divide what they share, or types of another number of layers.
    """
    sizes, count = _sizes(config, sequence_length, element_bytes), config.num_hidden_layers
    kinds = config.layer_types
    if kinds is not None and len(kinds) != count:
        raise InputError(f"expected {count} entries, one per layer", key="layer_types", value=len(kinds))
    sliding = [slides(index) for index in range(count)] if kinds is None else ["sliding" in kind for kind in kinds]
    return [replace(sizes, window=config.sliding_window if each else None) for each in sliding]


def _sizes(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Sizes:
    """Widths of a block that looks back to the first token.

    Raises
    ------
    InputError
        Heads that do not divide what they share.
    """
    heads = config.num_attention_heads
    pairs = key_value_heads(heads, config.num_key_value_heads)
    size = config.head_dim or head_size(config.hidden_size, heads)
    return Sizes(
        hidden=config.hidden_size,
        query=size * heads,
        heads=heads,
        key_value=size * pairs,
        wide=config.intermediate_size,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def llama_like(config: LlamaConfig, style: Style, layers: Sequence[Sizes]) -> Built:
    """Return the tree and the layers of a family that departs from Llama by *style*.

    Parameters
    ----------
    layers
        Widths of each block.
    """
    size = layers[0].query // config.num_attention_heads
    blocks = [_block(f"model.layers.{index}", sizes, style, size) for index, sizes in enumerate(layers)]
    units = [unit(block, sizes, _kept(sizes, style)) for block, sizes in zip(blocks, layers, strict=True)]
    return llama_trunk(config.vocab_size, style, layers[0], units)


def _kept(sizes: Sizes, style: Style) -> int:
    """Elements per token that backward needs."""
    # what a norm returns is kept where a linear module reads it, so not behind a block's half or of heads
    behind = 2 * sizes.hidden if style.output_norms else 0
    heads = sizes.query + sizes.key_value if style.head_norms else 0
    return kept(sizes, streams=2 * sizes.rms, gated=True) + (sizes.rms - 1) * (behind + heads)


def llama_trunk(vocabulary: int, style: Style, sizes: Sizes, units: Sequence[Block]) -> Built:
    """Return the tree and the layers of a model with these blocks as *units*."""
    hidden, width, prefix = sizes.hidden, sizes.element_bytes, style.prefix
    table = Tensor("model.embed_tokens.weight", (vocabulary, hidden))
    embed = replace(embedding("model.embed_tokens", table, hidden, width), kind=style.table)
    last = norm("model.norm", f"{prefix}RMSNorm", hidden, width, bias=False)
    rotary = Module(name="model.rotary_emb", kind=f"{prefix}RotaryEmbedding", has_gradient=False)
    blocks = [block.modules[0] for block in units]
    trunk = Module(
        name="model",
        kind=f"{prefix}Model",
        children=(embed, stack("model.layers", blocks), last, rotary),
        calls=(embed, rotary, *blocks, last),
    )
    top = head((vocabulary, hidden), width, table if style.tied else None)
    return language_model(f"{prefix}ForCausalLM", trunk, (embed,), units, (last, top), sizes)


def _block(name: str, sizes: Sizes, style: Style, size: int) -> Module:
    def normed(which: str) -> Module:
        return norm(f"{name}.{which}", f"{style.prefix}RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)

    attended = grouped_attention(f"{name}.self_attn", sizes, style, size)
    mlp = gated_feed_forward(f"{name}.mlp", sizes, style)
    before, after = normed("input_layernorm"), normed("post_attention_layernorm")
    block = Module(
        name=name,
        kind=f"{style.prefix}DecoderLayer",
        children=(attended, mlp, before, after),
        calls=(before, attended, after, mlp),
    )
    if not style.output_norms:
        return block
    inner, outer = normed("pre_feedforward_layernorm"), normed("post_feedforward_layernorm")
    calls = (before, attended, after, inner, mlp, outer)
    return replace(block, children=(*block.children, inner, outer), calls=calls)


def grouped_attention(name: str, sizes: Sizes, style: Style, size: int) -> Module:
    """Attention of heads of *size* elements with a product for each of queries, keys, values and output."""

    def part(which: str, rows: int, columns: int, bias: bool) -> Module:
        return matrix(f"{name}.{which}", (rows, columns), sizes.element_bytes, bias=bias)

    def normed(which: str, width: int) -> Module:
        return head_norm(f"{name}.{which}", f"{style.prefix}RMSNorm", size, width, sizes.element_bytes)

    hidden, query, key_value = sizes.hidden, sizes.query, sizes.key_value
    q, k = part("q_proj", query, hidden, style.input_bias), part("k_proj", key_value, hidden, style.input_bias)
    v, o = part("v_proj", key_value, hidden, style.input_bias), part("o_proj", hidden, query, style.output_bias)
    module = Module(name=name, kind=f"{style.prefix}Attention", children=(q, k, v, o), calls=(q, k, v, o))
    if style.head_norms:
        q_norm, k_norm = normed("q_norm", query), normed("k_norm", key_value)
        module = replace(module, children=(q, k, v, o, q_norm, k_norm), calls=(q, q_norm, k, k_norm, v, o))
    return attention(module, sizes, rotary=True)


def gated_feed_forward(name: str, sizes: Sizes, style: Style) -> Module:
    """Feed-forward of three products, one of them behind the activation function."""
    hidden, wide, width = sizes.hidden, sizes.wide, sizes.element_bytes
    gate = matrix(f"{name}.gate_proj", (wide, hidden), width, bias=style.mlp_bias)
    up = matrix(f"{name}.up_proj", (wide, hidden), width, bias=style.mlp_bias)
    down = matrix(f"{name}.down_proj", (hidden, wide), width, bias=style.mlp_bias)
    act = element_wise(f"{name}.act_fn", style.activation, 5.0 * wide * width, gated=True)
    kind = f"{style.prefix}MLP"
    return Module(name=name, kind=kind, children=(gate, up, down, act), calls=(gate, act, up, down))


READERS: Final[Mapping[str, Reader]] = {
    "llama": family(LlamaConfig, llama),
}
"""By ``model_type``."""
