"""Falcon, formerly RefinedWeb: attention and feed-forward in parallel, one or few heads of keys and values, tied head.

Three generations: *rw* models (ALiBi, blocks in sequence, biases), 7B (one norm, one head of keys), and 40B and 180B
(``new_decoder_architecture``: two norms, groups of queries).  Names, shapes and order as ``FalconForCausalLM`` has
them (Hugging Face transformers, ``modeling_falcon.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

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
    key_value_heads,
    language_model,
    plain_feed_forward,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "FalconConfig", "falcon"]


class FalconConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    num_hidden_layers: Size
    """Also called ``n_layer``."""
    num_attention_heads: Size
    """Also called ``n_head``."""
    vocab_size: Size
    num_kv_heads: Size | None = None
    """Also called ``n_head_kv``; as many as query heads without it."""
    ffn_hidden_size: Size | None = None
    """Four times the width without it."""
    multi_query: bool = True
    new_decoder_architecture: bool = False
    parallel_attn: bool = True
    num_ln_in_parallel_attn: Annotated[int, Meta(ge=1, le=2)] | None = None
    bias: bool = False
    alibi: bool = False
    tie_word_embeddings: bool = True

    @property
    def pairs(self) -> int:
        """Heads of keys and values."""
        if self.multi_query and not self.new_decoder_architecture:
            return 1
        return self.num_kv_heads or self.num_attention_heads

    @property
    def norms(self) -> tuple[str, ...]:
        """Norms of a block in the order of calls."""
        if self.new_decoder_architecture and (self.num_ln_in_parallel_attn or 2) == 2:
            return "ln_attn", "ln_mlp"
        return ("input_layernorm",) if self._parallel else ("input_layernorm", "post_attention_layernorm")

    @property
    def _parallel(self) -> bool:
        return self.new_decoder_architecture or self.parallel_attn

    @property
    def streams(self) -> int:
        """Arrays of the residual's width that backward of a block needs."""
        return len(self.norms) + 1 if self._parallel else 4


def falcon(config: FalconConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden, sizes = config.hidden_size, _sizes(config, sequence_length, element_bytes)
    table = Tensor("transformer.word_embeddings.weight", (config.vocab_size, hidden))
    embed = embedding("transformer.word_embeddings", table, hidden, element_bytes)
    rotary = Module(name="transformer.rotary_emb", kind="FalconRotaryEmbedding", has_gradient=False)
    blocks = [_block(config, f"transformer.h.{index}", sizes) for index in range(config.num_hidden_layers)]
    last = norm("transformer.ln_f", "LayerNorm", hidden, element_bytes, bias=True)
    trunk = Module(
        name="transformer",
        kind="FalconModel",
        children=(embed, stack("transformer.h", blocks), last, rotary),
        calls=(embed, rotary, *blocks, last),
    )
    top = head((config.vocab_size, hidden), element_bytes, table if config.tie_word_embeddings else None)
    units = [unit(block, sizes, kept(sizes, streams=config.streams)) for block in blocks]
    return language_model("FalconForCausalLM", trunk, (embed,), units, (last, top), sizes)


def _sizes(config: FalconConfig, sequence_length: int, element_bytes: int) -> Sizes:
    heads, hidden = config.num_attention_heads, config.hidden_size
    size, pairs = head_size(hidden, heads), key_value_heads(heads, config.pairs, "num_kv_heads")
    return Sizes(
        hidden=hidden,
        query=hidden,
        heads=heads,
        key_value=size * pairs,
        wide=config.ffn_hidden_size or 4 * hidden,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def _block(config: FalconConfig, name: str, sizes: Sizes) -> Module:
    attention = joint_attention(
        f"{name}.self_attention",
        "FalconAttention",
        ("query_key_value", "dense"),
        sizes,
        biases=(config.bias, config.bias),
        rotary=not config.alibi,
        linear_kind="FalconLinear",
    )
    attention = replace(attention, children=(*attention.children, dropout(f"{attention.name}.attention_dropout")))
    mlp = plain_feed_forward(
        f"{name}.mlp",
        "FalconMLP",
        ("dense_h_to_4h", "act", "dense_4h_to_h"),
        sizes,
        activation="GELUActivation",
        bias=config.bias,
        linear_kind="FalconLinear",
    )
    norms = [
        norm(f"{name}.{which}", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True) for which in config.norms
    ]
    sequential = config.streams == 4
    return Module(
        name=name,
        kind="FalconDecoderLayer",
        # blocks in sequence register their second norm first
        children=(attention, mlp, *(reversed(norms) if sequential else norms)),
        calls=(norms[0], attention, norms[1], mlp) if sequential else (*norms, attention, mlp),
    )


FALCON_KEYS: Final = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads"}
"""Names here by those in files."""


READERS: Final[Mapping[str, Reader]] = {
    "RefinedWeb": family(FalconConfig, falcon, renamed=FALCON_KEYS, defaults={"new_decoder_architecture": True}),
    "RefinedWebModel": family(FalconConfig, falcon, renamed=FALCON_KEYS),
    "falcon": family(FalconConfig, falcon, renamed=FALCON_KEYS),
}
"""By ``model_type``."""
