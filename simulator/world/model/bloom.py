"""BLOOM: ALiBi in place of positions, a norm behind the table, feed-forward of four times the width, tied head.

Names, shapes and order as ``BloomForCausalLM`` has them (Hugging Face transformers, ``modeling_bloom.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

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
    plain_feed_forward,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "BloomConfig", "bloom"]


class BloomConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    """Also called ``n_embed``."""
    n_layer: Size
    n_head: Size
    vocab_size: Size
    tie_word_embeddings: bool = True


def bloom(config: BloomConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden = config.hidden_size
    head_size(hidden, config.n_head, "n_head")
    sizes = Sizes(
        hidden=hidden,
        query=hidden,
        heads=config.n_head,
        key_value=hidden,
        wide=4 * hidden,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    table = Tensor("transformer.word_embeddings.weight", (config.vocab_size, hidden))
    embed = embedding("transformer.word_embeddings", table, hidden, element_bytes)
    first = norm("transformer.word_embeddings_layernorm", "LayerNorm", hidden, element_bytes, bias=True)
    blocks = [_block(f"transformer.h.{index}", sizes) for index in range(config.n_layer)]
    last = norm("transformer.ln_f", "LayerNorm", hidden, element_bytes, bias=True)
    trunk = Module(
        name="transformer",
        kind="BloomModel",
        children=(embed, first, stack("transformer.h", blocks), last),
        calls=(embed, first, *blocks, last),
    )
    top = head((config.vocab_size, hidden), element_bytes, table if config.tie_word_embeddings else None)
    units = [unit(block, sizes, kept(sizes)) for block in blocks]
    return language_model("BloomForCausalLM", trunk, (embed, first), units, (last, top), sizes)


def _block(name: str, sizes: Sizes) -> Module:
    before = norm(f"{name}.input_layernorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    after = norm(f"{name}.post_attention_layernorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    parts = "query_key_value", "dense"
    attention = joint_attention(
        f"{name}.self_attention", "BloomAttention", parts, sizes, biases=(True, True), rotary=False
    )
    joint, dense = attention.children
    drop = dropout(f"{name}.self_attention.attention_dropout")
    attention = replace(attention, children=(joint, dense, drop), calls=(joint, drop, dense))
    steps = "dense_h_to_4h", "gelu_impl", "dense_4h_to_h"
    mlp = plain_feed_forward(f"{name}.mlp", "BloomMLP", steps, sizes, activation="BloomGelu", bias=True)
    return Module(
        name=name,
        kind="BloomBlock",
        children=(before, attention, after, mlp),
        calls=(before, attention, after, mlp),
    )


BLOOM_KEYS: Final = {"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
"""Names here by those in files."""


READERS: Final[Mapping[str, Reader]] = {
    "bloom": family(BloomConfig, bloom, renamed=BLOOM_KEYS),
}
"""By ``model_type``."""
