"""Llama-family decoders: RMS norm, rotary positions, grouped queries, gated feed-forward.

Names and shapes as ``LlamaForCausalLM`` registers them (Hugging Face transformers, ``modeling_llama.py``).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.decoder import BlockShape, block, embedding, head
from simulator.world.model.layer import Layer, Tensor

__all__ = ["LlamaConfig", "llama_layers"]


Size = Annotated[int, Meta(ge=1)]


class LlamaConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False


def llama_layers(config: LlamaConfig, sequence_length: int, element_bytes: int) -> tuple[Layer, ...]:
    """Return embedding, blocks and head."""
    hidden, vocabulary = config.hidden_size, config.vocab_size
    table = Tensor("model.embed_tokens.weight", (vocabulary, hidden))
    norm = Tensor("model.norm.weight", (hidden,))
    last = (norm,) if config.tie_word_embeddings else (norm, Tensor("lm_head.weight", (vocabulary, hidden)))
    return (
        embedding("embed_tokens", (table,), hidden, element_bytes),
        *(_block(config, index, sequence_length, element_bytes) for index in range(config.num_hidden_layers)),
        head("lm_head", last, hidden, vocabulary, element_bytes, tied=config.tie_word_embeddings),
    )


def _block(config: LlamaConfig, index: int, sequence_length: int, element_bytes: int) -> Layer:
    size = config.head_dim or config.hidden_size // config.num_attention_heads
    query = size * config.num_attention_heads
    key_value = size * (config.num_key_value_heads or config.num_attention_heads)
    hidden, wide = config.hidden_size, config.intermediate_size
    kept = 5 * hidden + 2 * query + 2 * key_value + 4 * wide  # inputs of each matrix, norm and activation function
    return block(
        f"layers.{index}",
        _tensors(config, f"model.layers.{index}", query, key_value),
        BlockShape(
            hidden=hidden,
            query=query,
            key_value=key_value,
            sequence_length=sequence_length,
            kept_elements=kept,
            element_bytes=element_bytes,
        ),
    )


def _tensors(config: LlamaConfig, prefix: str, query: int, key_value: int) -> tuple[Tensor, ...]:
    hidden, wide = config.hidden_size, config.intermediate_size
    attention = (("q_proj", query, hidden), ("k_proj", key_value, hidden), ("v_proj", key_value, hidden))
    tensors = []
    for name, rows, columns in (*attention, ("o_proj", hidden, query)):
        tensors += _linear(f"{prefix}.self_attn.{name}", rows, columns, bias=config.attention_bias)
    for name, rows, columns in (("gate_proj", wide, hidden), ("up_proj", wide, hidden), ("down_proj", hidden, wide)):
        tensors += _linear(f"{prefix}.mlp.{name}", rows, columns, bias=config.mlp_bias)
    norms = ("input_layernorm", "post_attention_layernorm")
    return (*tensors, *(Tensor(f"{prefix}.{norm}.weight", (hidden,)) for norm in norms))


def _linear(name: str, rows: int, columns: int, *, bias: bool) -> list[Tensor]:
    weight = Tensor(f"{name}.weight", (rows, columns))
    return [weight, Tensor(f"{name}.bias", (rows,))] if bias else [weight]
