"""Llama-family decoders: RMS norm, rotary positions, grouped queries, gated feed-forward.

Names, shapes, order of registration and of calls as ``LlamaForCausalLM`` has them (Hugging Face transformers,
``modeling_llama.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.decoder import (
    FP32,
    Block,
    element_wise,
    embedding,
    layers_of,
    linear,
    loss,
    norm,
    scores,
)
from simulator.world.model.layer import Layer, Tensor
from simulator.world.model.module import Module

__all__ = ["LlamaConfig", "llama"]

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

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return (self.head_dim or self.hidden_size // self.num_attention_heads) * self.num_attention_heads

    @property
    def key_value(self) -> int:
        """Width of all key heads."""
        heads = self.num_key_value_heads or self.num_attention_heads
        return (self.head_dim or self.hidden_size // self.num_attention_heads) * heads


def llama(config: LlamaConfig, sequence_length: int, element_bytes: int) -> tuple[Module, tuple[Layer, ...]]:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden, vocabulary = config.hidden_size, config.vocab_size
    table = Tensor("model.embed_tokens.weight", (vocabulary, hidden))
    embed = embedding("model.embed_tokens", table, hidden, element_bytes)
    blocks = [_block(config, index, sequence_length, element_bytes) for index in range(config.num_hidden_layers)]
    last = norm("model.norm", "LlamaRMSNorm", hidden, element_bytes, bias=False)
    tied = table if config.tie_word_embeddings else None
    head = linear("lm_head", (vocabulary, hidden), element_bytes, tied=tied)
    forward, backward = loss(vocabulary, element_bytes)
    head = replace(head, forward=head.forward + forward, backward=head.backward + backward)
    rotary = Module(name="model.rotary_emb", kind="LlamaRotaryEmbedding", has_gradient=False)
    trunk = Module(
        name="model",
        kind="LlamaModel",
        children=(embed, Module(name="model.layers", kind="ModuleList", children=tuple(blocks)), last, rotary),
        calls=(embed, rotary, *blocks, last),
    )
    root = Module(name="", kind="LlamaForCausalLM", children=(trunk, head), calls=(trunk, head))
    return root, layers_of(_units(config, embed, blocks, (last, head), sequence_length, element_bytes))


def _units(
    config: LlamaConfig, embed: Module, blocks: list[Module], last: tuple[Module, Module], sequence: int, width: int
) -> list[Block]:
    hidden, query, key_value = config.hidden_size, config.query, config.key_value
    attention = scores(sequence, query, 0.0)[2]
    # inputs of each matrix, norm and activation function
    kept = 5 * hidden + 2 * query + 2 * key_value + 4 * config.intermediate_size
    tied = config.tie_word_embeddings
    return [
        Block(
            name="embed_tokens",
            modules=(embed,),
            input_bytes=0.0,
            activation_bytes=0.0,
            checkpointed=False,
            looks_up=not tied,
        ),
        *(
            Block(
                name=f"layers.{index}",
                modules=(block,),
                input_bytes=float(width * hidden),
                activation_bytes=float(width * kept),
                attention_flop=attention,
            )
            for index, block in enumerate(blocks)
        ),
        Block(
            name="lm_head",
            modules=last,
            input_bytes=2.0 * width * hidden,
            activation_bytes=2.0 * width * hidden + (width + FP32) * config.vocab_size,
            checkpointed=False,
        ),
    ]


def _block(config: LlamaConfig, index: int, sequence_length: int, width: int) -> Module:
    name, hidden = f"model.layers.{index}", config.hidden_size
    attention, mlp = _attention(config, f"{name}.self_attn", sequence_length, width), _mlp(config, f"{name}.mlp", width)
    before = norm(f"{name}.input_layernorm", "LlamaRMSNorm", hidden, width, bias=False)
    after = norm(f"{name}.post_attention_layernorm", "LlamaRMSNorm", hidden, width, bias=False)
    return Module(
        name=name,
        kind="LlamaDecoderLayer",
        children=(attention, mlp, before, after),
        calls=(before, attention, after, mlp),
    )


def _attention(config: LlamaConfig, name: str, sequence_length: int, width: int) -> Module:
    def part(which: str, rows: int, columns: int) -> Module:
        return linear(f"{name}.{which}", (rows, columns), width, bias=rows if config.attention_bias else 0)

    hidden, query, key_value = config.hidden_size, config.query, config.key_value
    parts = (
        part("q_proj", query, hidden),
        part("k_proj", key_value, hidden),
        part("v_proj", key_value, hidden),
        part("o_proj", hidden, query),
    )
    forward, backward, _ = scores(sequence_length, query, 2.0 * width * (query + key_value))
    return Module(name=name, kind="LlamaAttention", children=parts, calls=parts, forward=forward, backward=backward)


def _mlp(config: LlamaConfig, name: str, width: int) -> Module:
    hidden, wide = config.hidden_size, config.intermediate_size
    gate = linear(f"{name}.gate_proj", (wide, hidden), width, bias=wide if config.mlp_bias else 0)
    up = linear(f"{name}.up_proj", (wide, hidden), width, bias=wide if config.mlp_bias else 0)
    down = linear(f"{name}.down_proj", (hidden, wide), width, bias=hidden if config.mlp_bias else 0)
    activation = element_wise(f"{name}.act_fn", "SiLU", 5.0 * wide * width)
    return Module(name=name, kind="LlamaMLP", children=(gate, up, down, activation), calls=(gate, activation, up, down))
