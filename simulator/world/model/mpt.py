"""MPT, by the keys of llm-foundry: ALiBi, rotary or learned positions, one product for queries, keys and values.

Names and order as ``MptForCausalLM`` has them (Hugging Face transformers, ``modeling_mpt.py``); learned positions,
grouped queries and biases, which that one lacks, as in llm-foundry (``models/mpt/modeling_mpt.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Size,
    Sizes,
    dropout,
    head,
    head_norm,
    head_size,
    joint_attention,
    kept,
    key_value_heads,
    language_model,
    plain_feed_forward,
    require_positions,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "MptConfig", "mpt"]


class AttentionSection(Section, forbid_unknown_fields=False):
    """``attn_config``."""

    attn_type: Literal["multihead_attention", "multiquery_attention", "grouped_query_attention"] = "multihead_attention"
    kv_n_heads: Size | None = None
    alibi: bool = False
    rope: bool = False
    qk_ln: bool = False


class FeedForwardSection(Section, forbid_unknown_fields=False):
    """``ffn_config``."""

    ffn_type: Literal["mptmlp"] = "mptmlp"
    ffn_hidden_size: Size | None = None


class MptConfig(Section, forbid_unknown_fields=False):
    """The keys that decide shapes."""

    d_model: Size
    n_heads: Size
    n_layers: Size
    vocab_size: Size
    max_seq_len: Size = 2048
    expansion_ratio: Annotated[float, Meta(gt=0)] = 4
    no_bias: bool = False
    learned_pos_emb: bool = True
    tie_word_embeddings: bool = True
    norm_type: str = "low_precision_layernorm"
    attn_config: AttentionSection = field(default_factory=AttentionSection)
    ffn_config: FeedForwardSection = field(default_factory=FeedForwardSection)

    @property
    def pairs(self) -> int:
        """Heads of keys and values."""
        if self.attn_config.attn_type == "multiquery_attention":
            return 1
        grouped = self.attn_config.attn_type == "grouped_query_attention"
        return (self.attn_config.kv_n_heads if grouped else None) or self.n_heads

    @property
    def learns_positions(self) -> bool:
        """Whether there is a table of positions: neither ALiBi nor rotary positions take its place."""
        return self.learned_pos_emb and not (self.attn_config.alibi or self.attn_config.rope)


def mpt(config: MptConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embeddings, blocks, head."""
    sizes = _sizes(config, sequence_length, element_bytes)
    first = _tables(config, sequence_length, element_bytes)
    blocks = [_block(config, f"transformer.blocks.{index}", sizes) for index in range(config.n_layers)]
    last = _norm(config, "transformer.norm_f", sizes)
    trunk = Module(
        name="transformer",
        kind="MptModel",
        children=(*first, stack("transformer.blocks", blocks), last),
        calls=(*first, *blocks, last),
    )
    table = first[0].parameters[0] if config.tie_word_embeddings else None
    top = head((config.vocab_size, config.d_model), element_bytes, table)
    elements = kept(sizes) + (sizes.query + sizes.key_value if config.attn_config.qk_ln else 0)
    units = [unit(block, sizes, elements) for block in blocks]
    return language_model("MptForCausalLM", trunk, first, units, (last, top), sizes)


def _tables(config: MptConfig, sequence_length: int, width: int) -> tuple[Module, ...]:
    """Words, and positions if they are learned."""
    words = Tensor("transformer.wte.weight", (config.vocab_size, config.d_model))
    first = embedding("transformer.wte", words, config.d_model, width)
    if not config.learns_positions:
        return (first,)
    require_positions(config.max_seq_len, sequence_length)
    places = Tensor("transformer.wpe.weight", (config.max_seq_len, config.d_model))
    return first, embedding("transformer.wpe", places, config.d_model, width)


def _sizes(config: MptConfig, sequence_length: int, element_bytes: int) -> Sizes:
    hidden, heads = config.d_model, config.n_heads
    pairs = key_value_heads(heads, config.pairs, "attn_config.kv_n_heads")
    return Sizes(
        hidden=hidden,
        query=hidden,
        heads=heads,
        key_value=head_size(hidden, heads, "n_heads") * pairs,
        wide=config.ffn_config.ffn_hidden_size or int(config.expansion_ratio * hidden),
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def _norm(config: MptConfig, name: str, sizes: Sizes) -> Module:
    bias = not (config.no_bias or "rms" in config.norm_type)
    return norm(name, "LayerNorm", sizes.hidden, sizes.element_bytes, bias=bias)


def _block(config: MptConfig, name: str, sizes: Sizes) -> Module:
    before, after = _norm(config, f"{name}.norm_1", sizes), _norm(config, f"{name}.norm_2", sizes)
    attention, drop = _attention(config, f"{name}.attn", sizes), dropout(f"{name}.resid_attn_dropout")
    parts = "up_proj", "act", "down_proj"
    ffn = plain_feed_forward(f"{name}.ffn", "MptMLP", parts, sizes, activation="GELU", bias=not config.no_bias)
    return Module(
        name=name,
        kind="MptBlock",
        children=(before, attention, after, ffn, drop),
        calls=(before, attention, drop, after, ffn),
    )


def _attention(config: MptConfig, name: str, sizes: Sizes) -> Module:
    biases = (not config.no_bias,) * 2
    rotary = config.attn_config.rope
    module = joint_attention(name, "MptAttention", ("Wqkv", "out_proj"), sizes, biases=biases, rotary=rotary)
    if not config.attn_config.qk_ln:
        return module
    (joint, out), width = module.children, sizes.element_bytes
    bias = not (config.no_bias or "rms" in config.norm_type)
    norms = (
        head_norm(f"{name}.q_ln", "LayerNorm", sizes.query, sizes.query, width, bias=bias),
        head_norm(f"{name}.k_ln", "LayerNorm", sizes.key_value, sizes.key_value, width, bias=bias),
    )
    return replace(module, children=(joint, *norms, out), calls=(joint, *norms, out))


READERS: Final[Mapping[str, Reader]] = {
    "llm-foundry": family(MptConfig, mpt),
    "mpt": family(MptConfig, mpt, defaults={"no_bias": True, "learned_pos_emb": False}),
}
"""By ``model_type``."""
