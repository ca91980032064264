"""Qwen 1: ``intermediate_size`` is twice the feed-forward's width; the joint product has a bias despite ``no_bias``.

Names and order as ``QWenLMHeadModel`` has them, which is published with the weights (``modeling_qwen.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from simulator.errors import InputError
from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Size,
    Sizes,
    dropout,
    head,
    head_size,
    joint_attention,
    kept,
    language_model,
    matrix,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, moved, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "QwenConfig", "qwen"]


class QwenConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    intermediate_size: Size
    """Twice the width of the feed-forward."""
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    kv_channels: Size | None = None
    """Size of a head."""
    no_bias: bool = True
    tie_word_embeddings: bool = False


def qwen(config: QwenConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden, vocabulary, sizes = config.hidden_size, config.vocab_size, _sizes(config, sequence_length, element_bytes)
    table = Tensor("transformer.wte.weight", (vocabulary, hidden))
    embed, drop = embedding("transformer.wte", table, hidden, element_bytes), dropout("transformer.drop")
    rotary = Module(name="transformer.rotary_emb", kind="RotaryEmbedding", has_gradient=False)
    blocks = [_block(config, f"transformer.h.{index}", sizes) for index in range(config.num_hidden_layers)]
    last = norm("transformer.ln_f", "RMSNorm", hidden, element_bytes, bias=False)
    trunk = Module(
        name="transformer",
        kind="QWenModel",
        children=(embed, drop, rotary, stack("transformer.h", blocks), last),
        calls=(embed, rotary, drop, *blocks, last),
    )
    top = head((vocabulary, hidden), element_bytes, table if config.tie_word_embeddings else None)
    units = [unit(block, sizes, kept(sizes, streams=2 * sizes.rms, gated=True)) for block in blocks]
    return language_model("QWenLMHeadModel", trunk, (embed,), units, (last, top), sizes)


def _sizes(config: QwenConfig, sequence_length: int, element_bytes: int) -> Sizes:
    heads, doubled = config.num_attention_heads, config.intermediate_size
    if doubled % 2:
        raise InputError("twice a width is even", key="intermediate_size", value=doubled, remedy="check it")
    width = heads * (config.kv_channels or head_size(config.hidden_size, heads))
    return Sizes(
        hidden=config.hidden_size,
        query=width,
        heads=heads,
        key_value=width,
        wide=doubled // 2,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def _block(config: QwenConfig, name: str, sizes: Sizes) -> Module:
    before = norm(f"{name}.ln_1", "RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    after = norm(f"{name}.ln_2", "RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    biases = True, not config.no_bias
    attention = joint_attention(
        f"{name}.attn", "QWenAttention", ("c_attn", "c_proj"), sizes, biases=biases, rotary=True
    )
    attention = replace(attention, children=(*attention.children, dropout(f"{name}.attn.attn_dropout")))
    mlp = _feed_forward(f"{name}.mlp", sizes, bias=not config.no_bias)
    return Module(
        name=name,
        kind="QWenBlock",
        children=(before, attention, after, mlp),
        calls=(before, attention, after, mlp),
    )


def _feed_forward(name: str, sizes: Sizes, *, bias: bool) -> Module:
    hidden, wide, width = sizes.hidden, sizes.wide, sizes.element_bytes
    first, second = (matrix(f"{name}.{which}", (wide, hidden), width, bias=bias) for which in ("w1", "w2"))
    last = matrix(f"{name}.c_proj", (hidden, wide), width, bias=bias)
    forward, backward = moved(5.0 * wide * width, gated=True)
    return Module(
        name=name,
        kind="QWenMLP",
        children=(first, second, last),
        calls=(first, second, last),
        forward=forward,
        backward=backward,
    )


READERS: Final[Mapping[str, Reader]] = {
    "qwen": family(QwenConfig, qwen),
}
"""By ``model_type``."""
