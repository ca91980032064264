"""GPT-NeoX (Pythia, RedPajama): one product for queries, keys and values, halves of a block in parallel or not.

Names, shapes and order as ``GPTNeoXForCausalLM`` has them (Hugging Face transformers, ``modeling_gpt_neox.py``).
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

__all__ = ["READERS", "GPTNeoXConfig", "gpt_neox"]


class GPTNeoXConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    attention_bias: bool = True
    use_parallel_residual: bool = True
    """Attention and feed-forward read the same input."""
    tie_word_embeddings: bool = False


def gpt_neox(config: GPTNeoXConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden, vocabulary = config.hidden_size, config.vocab_size
    head_size(hidden, config.num_attention_heads)
    sizes = Sizes(
        hidden=hidden,
        query=hidden,
        heads=config.num_attention_heads,
        key_value=hidden,
        wide=config.intermediate_size,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    table = Tensor("gpt_neox.embed_in.weight", (vocabulary, hidden))
    embed = embedding("gpt_neox.embed_in", table, hidden, element_bytes)
    drop = dropout("gpt_neox.emb_dropout")
    rotary = Module(name="gpt_neox.rotary_emb", kind="GPTNeoXRotaryEmbedding", has_gradient=False)
    blocks = [_block(config, f"gpt_neox.layers.{index}", sizes) for index in range(config.num_hidden_layers)]
    last = norm("gpt_neox.final_layer_norm", "LayerNorm", hidden, element_bytes, bias=True)
    trunk = Module(
        name="gpt_neox",
        kind="GPTNeoXModel",
        children=(embed, drop, stack("gpt_neox.layers", blocks), last, rotary),
        calls=(embed, drop, rotary, *blocks, last),
    )
    top = head((vocabulary, hidden), element_bytes, table if config.tie_word_embeddings else None)
    elements = kept(sizes, streams=3 if config.use_parallel_residual else 4)
    units = [unit(block, sizes, elements) for block in blocks]
    return language_model("GPTNeoXForCausalLM", trunk, (embed,), units, (last, top), sizes)


def _block(config: GPTNeoXConfig, name: str, sizes: Sizes) -> Module:
    before = norm(f"{name}.input_layernorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    after = norm(f"{name}.post_attention_layernorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    drops = dropout(f"{name}.post_attention_dropout"), dropout(f"{name}.post_mlp_dropout")
    attention = joint_attention(
        f"{name}.attention",
        "GPTNeoXAttention",
        ("query_key_value", "dense"),
        sizes,
        biases=(config.attention_bias, config.attention_bias),
        rotary=True,
    )
    parts = "dense_h_to_4h", "act", "dense_4h_to_h"
    mlp = plain_feed_forward(f"{name}.mlp", "GPTNeoXMLP", parts, sizes, activation="GELUActivation", bias=True)
    up, act, down = mlp.children
    mlp = replace(mlp, children=(up, down, act))
    return Module(
        name=name,
        kind="GPTNeoXLayer",
        children=(before, after, *drops, attention, mlp),
        calls=(before, attention, drops[0], after, mlp, drops[1]),
    )


READERS: Final[Mapping[str, Reader]] = {
    "gpt_neox": family(GPTNeoXConfig, gpt_neox),
}
"""By ``model_type``."""
