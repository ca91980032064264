"""Qwen 3.5: gated delta rule in most blocks, gated attention in every fourth, and a tower that sees images.

Names, shapes and order as ``Qwen3_5ForConditionalGeneration`` has them (Hugging Face transformers 5,
``modeling_qwen3_5.py``); the convolution, whose weight its kernel takes, is called like a module.  The block that
predicts a second token (``mtp_num_hidden_layers``) is no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Sizes,
    decoder_layers,
    head,
    head_norm,
    kept,
    matrix,
    stack,
    unit,
)
from simulator.world.model.decoder import Block, embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor, Work
from simulator.world.model.llama import Style, gated_feed_forward, grouped_attention
from simulator.world.model.module import Module
from simulator.world.model.moe import decoder_block
from simulator.world.model.qwen3_5_vision import VisionConfig, tower
from simulator.world.model.recurrent import Scan, convolution, delta_scan, with_scan

__all__ = ["READERS", "Qwen35Config", "qwen3_5"]

Size = Annotated[int, Meta(ge=1)]

PREFIX: Final = "Qwen3_5"
TEXT: Final = "model.language_model"
CHUNK: Final = 64  # source: chunk_gated_delta_rule of flash-linear-attention and of transformers, default
KINDS: Final = ("full_attention", "linear_attention")


class TextConfig(Section, forbid_unknown_fields=False):
    """``text_config``: the keys that decide shapes."""

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    linear_num_key_heads: Size
    linear_num_value_heads: Size
    linear_key_head_dim: Size
    linear_value_head_dim: Size
    linear_conv_kernel_dim: Size = 4
    full_attention_interval: Size = 4
    layer_types: list[str] | None = None
    """Without it every ``full_attention_interval``-th block has full attention."""
    attention_bias: bool = False

    @property
    def kinds(self) -> list[str]:
        """Kind of attention of each block."""
        if self.layer_types is not None:
            return self.layer_types
        every = self.full_attention_interval
        places = range(1, self.num_hidden_layers + 1)
        return ["linear_attention" if place % every else "full_attention" for place in places]

    @property
    def keys(self) -> int:
        """Width of all keys of the delta rule; as many elements are queries."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def values(self) -> int:
        """Width of all values of the delta rule."""
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def channels(self) -> int:
        """What the convolution runs over: queries, keys, values."""
        return 2 * self.keys + self.values

    @property
    def scan(self) -> Scan:
        """Work of the delta rule itself."""
        heads, key, value = self.linear_num_value_heads, self.linear_key_head_dim, self.linear_value_head_dim
        return delta_scan(heads=heads, key=key, value=value, chunk=CHUNK)


class Qwen35Config(Section, forbid_unknown_fields=False):
    """The sections of ``config.json`` that decide shapes."""

    text_config: TextConfig
    vision_config: VisionConfig
    tie_word_embeddings: bool = False


def qwen3_5(config: Qwen35Config, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, vision tower, blocks of text, head.

    Raises
    ------
    InputError
        Kinds of blocks that are not known or not one per layer.
    """
    text, width = config.text_config, element_bytes
    _check(text)
    sizes = Sizes(
        hidden=text.hidden_size,
        query=text.head_dim * text.num_attention_heads,
        heads=text.num_attention_heads,
        key_value=text.head_dim * text.num_key_value_heads,
        wide=text.intermediate_size,
        sequence_length=sequence_length,
        element_bytes=width,
    )
    table = Tensor(f"{TEXT}.embed_tokens.weight", (text.vocab_size, text.hidden_size))
    embed = embedding(f"{TEXT}.embed_tokens", table, text.hidden_size, width)
    visual, images = tower(config.vision_config, sequence_length, width)
    units = [_unit(text, f"{TEXT}.layers.{index}", kind, sizes) for index, kind in enumerate(text.kinds)]
    last = norm(f"{TEXT}.norm", f"{PREFIX}RMSNorm", text.hidden_size, width, bias=False)
    spoken = _language_model(embed, [block.modules[0] for block in units], last)
    both = Module(name="model", kind=f"{PREFIX}Model", children=(visual, spoken), calls=(embed, visual, spoken))
    top = head((text.vocab_size, text.hidden_size), width, table if config.tie_word_embeddings else None)
    root = Module(name="", kind=f"{PREFIX}ForConditionalGeneration", children=(both, top), calls=(both, top))
    return root, decoder_layers((embed,), [*images, *units], (last, top), sizes)


def _check(text: TextConfig) -> None:
    key = "text_config.layer_types"
    for kind in text.kinds:
        if kind not in KINDS:
            raise UnknownNameError("kind of layer", kind, KINDS, key=key)
    if len(text.kinds) != text.num_hidden_layers:
        raise InputError(f"expected {text.num_hidden_layers} entries, one per layer", key=key, value=len(text.kinds))


def _language_model(embed: Module, blocks: Sequence[Module], last: Module) -> Module:
    """The text's half, which is given vectors: its table is looked up before images take their places."""
    rotary = Module(name=f"{TEXT}.rotary_emb", kind=f"{PREFIX}TextRotaryEmbedding", has_gradient=False)
    return Module(
        name=TEXT,
        kind=f"{PREFIX}TextModel",
        children=(embed, stack(f"{TEXT}.layers", blocks), last, rotary),
        calls=(rotary, *blocks, last),
    )


def _unit(text: TextConfig, name: str, kind: str, sizes: Sizes) -> Block:
    style = Style(prefix=PREFIX, head_norms=True, input_bias=text.attention_bias, output_bias=text.attention_bias)
    fed = gated_feed_forward(f"{name}.mlp", sizes, style)
    if kind == "full_attention":
        attended = _gated_attention(text, f"{name}.self_attn", sizes, style)
        # heads in front of their norms, the gate and what it leaves
        more = (sizes.rms + 1) * sizes.query + (sizes.rms - 1) * sizes.key_value
        elements = kept(sizes, streams=2 * sizes.rms, gated=True) + more
        return unit(decoder_block(name, PREFIX, attended, fed, sizes), sizes, elements)
    module = decoder_block(name, PREFIX, _delta_net(text, f"{name}.linear_attn", sizes), fed, sizes)
    inside = 2 * text.channels + 3 * text.values + 2 * text.linear_num_value_heads
    elements = 2 * sizes.rms * sizes.hidden + 4 * sizes.wide + inside
    return replace(unit(module, sizes, elements), attention_flop=text.scan.model_flop)


def _gated_attention(text: TextConfig, name: str, sizes: Sizes, style: Style) -> Module:
    """Attention whose product of queries makes as many gates of the output."""
    module = grouped_attention(name, sizes, style, text.head_dim)
    shape = (2 * sizes.query, sizes.hidden)
    double = matrix(f"{name}.q_proj", shape, sizes.element_bytes, bias=text.attention_bias)
    traffic = 5.0 * sizes.query * sizes.element_bytes

    def swapped(parts: Sequence[Module]) -> tuple[Module, ...]:
        return tuple(double if part.name == double.name else part for part in parts)

    return replace(
        module,
        children=swapped(module.children),
        calls=swapped(module.calls),
        forward=(*module.forward, Work("memory", traffic=traffic)),
        backward=(*module.backward, Work("memory", traffic=2 * traffic)),
    )


def _delta_net(text: TextConfig, name: str, sizes: Sizes) -> Module:
    width, heads, values = sizes.element_bytes, text.linear_num_value_heads, text.values

    def part(which: str, rows: int) -> Module:
        return matrix(f"{name}.{which}", (rows, sizes.hidden), width, bias=False)

    inputs = (
        part("in_proj_qkv", text.channels),
        part("in_proj_z", values),
        part("in_proj_b", heads),
        part("in_proj_a", heads),
    )
    mixed = convolution(f"{name}.conv1d", text.channels, text.linear_conv_kernel_dim, width, bias=False)
    # the norm of the output reads a gate of the same width
    gated = head_norm(f"{name}.norm", f"{PREFIX}RMSNormGated", text.linear_value_head_dim, 2 * values, width)
    out = matrix(f"{name}.out_proj", (sizes.hidden, values), width, bias=False)
    module = Module(
        name=name,
        kind=f"{PREFIX}GatedDeltaNet",
        parameters=(Tensor(f"{name}.dt_bias", (heads,)), Tensor(f"{name}.A_log", (heads,))),
        children=(mixed, gated, out, *inputs),
        calls=(*inputs, mixed, gated, out),
    )
    return with_scan(module, text.scan, width)


READERS: Final[Mapping[str, Reader]] = {
    "qwen3_5": family(Qwen35Config, qwen3_5),
}
"""By ``model_type``."""
