"""Llama-Nemotron (DeciLM): Llama whose blocks, found by a search, differ: narrower, or without one of their halves.

``block_configs`` has one entry per block.  Attention and feed-forward are each there, replaced by one product of the
width, or missing with their norm.  ``ffn_mult`` gives the feed-forward's width: two thirds of it times the width of
the model, rounded up to a multiple of 256.  Names as ``DeciLMForCausalLM`` has them, which is published with the
weights (``modeling_decilm.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.document import Section
from simulator.world.model.assembly import Built, Size, Sizes, head_size, matrix, unit
from simulator.world.model.decoder import Block, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.llama import Style, gated_feed_forward, grouped_attention, llama_trunk
from simulator.world.model.module import Module

__all__ = ["READERS", "NemotronNasConfig", "nemotron_nas"]

MULTIPLE = 256  # of the feed-forward's width (modeling_decilm.py, _ffn_mult_to_intermediate_size)


class AttentionSection(Section, forbid_unknown_fields=False):
    """``attention`` of a block."""

    no_op: bool = False
    replace_with_linear: bool = False
    n_heads_in_group: Size | None = None
    """Query heads that share a head of keys."""


class FeedForwardSection(Section, forbid_unknown_fields=False):
    """``ffn`` of a block."""

    no_op: bool = False
    replace_with_linear: bool = False
    ffn_mult: Annotated[float, Meta(gt=0)] | None = None


class BlockSection(Section, forbid_unknown_fields=False):
    """An entry of ``block_configs``."""

    attention: AttentionSection
    ffn: FeedForwardSection


class NemotronNasConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    block_configs: list[BlockSection]
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False


def nemotron_nas(config: NemotronNasConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    if len(config.block_configs) != config.num_hidden_layers:
        expected = f"expected {config.num_hidden_layers} entries, one per layer"
        raise InputError(expected, key="block_configs", value=len(config.block_configs))
    style = Style(
        prefix="DeciLM",
        input_bias=config.attention_bias,
        output_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
        tied=config.tie_word_embeddings,
    )
    layers = [_sizes(config, index, sequence_length, element_bytes) for index in range(config.num_hidden_layers)]
    units = [_unit(config, index, sizes, style) for index, sizes in enumerate(layers)]
    return llama_trunk(config.vocab_size, style, layers[0], units)


def _sizes(config: NemotronNasConfig, index: int, sequence_length: int, element_bytes: int) -> Sizes:
    """Widths of a block; none of what is missing or replaced."""
    key, block = f"block_configs[{index}]", config.block_configs[index]
    heads, shared, mult = config.num_attention_heads, block.attention.n_heads_in_group, block.ffn.ffn_mult
    size = head_size(config.hidden_size, heads)
    attends = not (block.attention.no_op or block.attention.replace_with_linear)
    feeds = not (block.ffn.no_op or block.ffn.replace_with_linear)
    if attends and (shared is None or heads % shared):
        expected = f"expected a divisor of the {heads} query heads"
        raise InputError(expected, key=f"{key}.attention.n_heads_in_group", value=shared)
    if feeds and mult is None:
        raise InputError("the key 'ffn_mult' is missing", key=f"{key}.ffn")
    return Sizes(
        hidden=config.hidden_size,
        query=config.hidden_size if attends else 0,
        heads=heads if attends else 0,
        key_value=size * (heads // shared) if attends and shared else 0,
        wide=_wide(mult, config.hidden_size) if feeds and mult else 0,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def _wide(mult: float, hidden: int) -> int:
    return -(-int(2 * mult * hidden / 3) // MULTIPLE) * MULTIPLE


def _unit(config: NemotronNasConfig, index: int, sizes: Sizes, style: Style) -> Block:
    name, block = f"model.layers.{index}", config.block_configs[index]
    halves: list[tuple[Module, Module]] = []
    if not block.attention.no_op:
        halves.append((_norm(f"{name}.input_layernorm", sizes), _attention(config, f"{name}.self_attn", sizes, style)))
    if not block.ffn.no_op:
        halves.append((_norm(f"{name}.post_attention_layernorm", sizes), _feed_forward(f"{name}.mlp", sizes, style)))
    steps = tuple(module for half in halves for module in half)
    module = Module(name=name, kind="DeciLMDecoderLayer", children=steps, calls=steps)
    return unit(module, sizes, _kept(sizes, len(halves)))


def _kept(sizes: Sizes, halves: int) -> int:
    """Elements per token that backward needs: a Llama block's, less those of the half that is missing."""
    return halves * sizes.rms * sizes.hidden + 2 * sizes.query + 2 * sizes.key_value + 4 * sizes.wide


def _norm(name: str, sizes: Sizes) -> Module:
    return norm(name, "DeciLMRMSNorm", sizes.hidden, sizes.element_bytes, bias=False)


def _attention(config: NemotronNasConfig, name: str, sizes: Sizes, style: Style) -> Module:
    if sizes.query:
        return grouped_attention(name, sizes, style, config.hidden_size // config.num_attention_heads)
    square = sizes.hidden, sizes.hidden
    linear = matrix(f"{name}.linear_attn", square, sizes.element_bytes, bias=config.attention_bias)
    return Module(name=name, kind="DeciLMLinearAttention", children=(linear,), calls=(linear,))


def _feed_forward(name: str, sizes: Sizes, style: Style) -> Module:
    if sizes.wide:
        return gated_feed_forward(name, sizes, style)
    linear = matrix(f"{name}.linear_mlp", (sizes.hidden, sizes.hidden), sizes.element_bytes, bias=False)
    return Module(name=name, kind="DeciLMLinearMLP", children=(linear,), calls=(linear,))


READERS: Final[Mapping[str, Reader]] = {
    "nemotron-nas": family(NemotronNasConfig, nemotron_nas),
}
"""By ``model_type``."""
