"""Phi 1, 1.5 and 2: attention and feed-forward in parallel behind one norm, biases everywhere, even on the head.

Names, shapes and order as ``PhiForCausalLM`` has them (Hugging Face transformers, ``modeling_phi.py``).  The older
``mixformer-sequential`` and ``phi-msft`` configs describe the same model by other keys.
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
    attention,
    dropout,
    head,
    head_norm,
    head_size,
    kept,
    key_value_heads,
    language_model,
    matrix,
    plain_feed_forward,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "PhiConfig", "phi"]


class PhiConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    intermediate_size: Size | None = None
    """Four times the width without it."""
    num_key_value_heads: Size | None = None
    """As many as query heads without it."""
    qk_layernorm: bool = False
    tie_word_embeddings: bool = False


def phi(config: PhiConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden, vocabulary, sizes = config.hidden_size, config.vocab_size, _sizes(config, sequence_length, element_bytes)
    table = Tensor("model.embed_tokens.weight", (vocabulary, hidden))
    embed, drop = embedding("model.embed_tokens", table, hidden, element_bytes), dropout("model.embed_dropout")
    rotary = Module(name="model.rotary_emb", kind="PhiRotaryEmbedding", has_gradient=False)
    blocks = [_block(config, f"model.layers.{index}", sizes) for index in range(config.num_hidden_layers)]
    last = norm("model.final_layernorm", "LayerNorm", hidden, element_bytes, bias=True)
    trunk = Module(
        name="model",
        kind="PhiModel",
        children=(embed, stack("model.layers", blocks), rotary, drop, last),
        calls=(embed, drop, rotary, *blocks, last),
    )
    top = head((vocabulary, hidden), element_bytes, table if config.tie_word_embeddings else None, bias=True)
    elements = kept(sizes, streams=2) + (sizes.query + sizes.key_value if config.qk_layernorm else 0)
    units = [unit(block, sizes, elements) for block in blocks]
    return language_model("PhiForCausalLM", trunk, (embed,), units, (last, top), sizes)


def _sizes(config: PhiConfig, sequence_length: int, element_bytes: int) -> Sizes:
    heads = config.num_attention_heads
    size, pairs = head_size(config.hidden_size, heads), key_value_heads(heads, config.num_key_value_heads)
    return Sizes(
        hidden=config.hidden_size,
        query=config.hidden_size,
        heads=heads,
        key_value=size * pairs,
        wide=config.intermediate_size or 4 * config.hidden_size,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def _block(config: PhiConfig, name: str, sizes: Sizes) -> Module:
    before = norm(f"{name}.input_layernorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    attended, drop = _attention(config, f"{name}.self_attn", sizes), dropout(f"{name}.resid_dropout")
    parts = "fc1", "activation_fn", "fc2"
    mlp = plain_feed_forward(f"{name}.mlp", "PhiMLP", parts, sizes, activation="NewGELUActivation", bias=True)
    up, act, down = mlp.children
    mlp = replace(mlp, children=(act, up, down))
    return Module(
        name=name,
        kind="PhiDecoderLayer",
        children=(attended, mlp, before, drop),
        calls=(before, attended, drop, mlp, drop),
    )


def _attention(config: PhiConfig, name: str, sizes: Sizes) -> Module:
    def part(which: str, rows: int, columns: int) -> Module:
        return matrix(f"{name}.{which}", (rows, columns), sizes.element_bytes, bias=True)

    def normed(which: str, width: int) -> Module:
        size = config.hidden_size // config.num_attention_heads
        return head_norm(f"{name}.{which}", "LayerNorm", size, width, sizes.element_bytes, bias=True)

    query, key_value = sizes.query, sizes.key_value
    inputs = tuple(
        part(which, rows, sizes.hidden)
        for which, rows in (("q_proj", query), ("k_proj", key_value), ("v_proj", key_value))
    )
    dense = part("dense", sizes.hidden, query)
    norms = (normed("q_layernorm", query), normed("k_layernorm", key_value)) if config.qk_layernorm else ()
    module = Module(name=name, kind="PhiAttention", children=(*inputs, dense, *norms), calls=(*inputs, *norms, dense))
    return attention(module, sizes, rotary=True)


MIXFORMER_KEYS: Final = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_head_kv": "num_key_value_heads",
    "n_inner": "intermediate_size",
}
"""Names here by those in files."""


READERS: Final[Mapping[str, Reader]] = {
    "mixformer-sequential": family(PhiConfig, phi, renamed=MIXFORMER_KEYS),
    "phi": family(PhiConfig, phi),
    "phi-msft": family(PhiConfig, phi, renamed=MIXFORMER_KEYS),
}
"""By ``model_type``."""
