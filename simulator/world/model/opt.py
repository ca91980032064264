"""OPT: learned positions behind two unused rows, biases everywhere, ReLU, tied head.

Names, shapes and order as ``OPTForCausalLM`` has them (Hugging Face transformers, ``modeling_opt.py``).
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
    head,
    head_size,
    kept,
    language_model,
    matrix,
    require_positions,
    stack,
    unit,
)
from simulator.world.model.decoder import element_wise, embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "OPTConfig", "opt"]

OFFSET = 2  # rows of the table of positions that no token uses (OPTLearnedPositionalEmbedding)


class OPTConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    ffn_dim: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    max_position_embeddings: Size = 2048
    word_embed_proj_dim: Size | None = None
    """Width of the table of words, if it is not that of the model."""
    do_layer_norm_before: bool = True
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True
    tie_word_embeddings: bool = True

    @property
    def narrow(self) -> int:
        """Width of the table of words."""
        return self.word_embed_proj_dim or self.hidden_size


def opt(config: OPTConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embeddings, blocks, head."""
    require_positions(config.max_position_embeddings, sequence_length)
    head_size(config.hidden_size, config.num_attention_heads)
    sizes = Sizes(
        hidden=config.hidden_size,
        query=config.hidden_size,
        heads=config.num_attention_heads,
        key_value=config.hidden_size,
        wide=config.ffn_dim,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    tables = _tables(config, element_bytes)
    enter, leave = _projections(config, element_bytes)
    norms = (_norm(config, "model.decoder.final_layer_norm", element_bytes),) if config.do_layer_norm_before else ()
    first, last = (*tables, *enter), (*norms, *leave)
    blocks = [_block(config, f"model.decoder.layers.{index}", sizes) for index in range(config.num_hidden_layers)]
    decoder = Module(
        name="model.decoder",
        kind="OPTDecoder",
        children=(*tables, *leave, *enter, *norms, stack("model.decoder.layers", blocks)),
        calls=(*first, *blocks, *last),
    )
    trunk = Module(name="model", kind="OPTModel", children=(decoder,), calls=(decoder,))
    table = tables[0].parameters[0] if config.tie_word_embeddings else None
    top = head((config.vocab_size, config.narrow), element_bytes, table)
    units = [unit(block, sizes, kept(sizes)) for block in blocks]
    root, layers = language_model("OPTForCausalLM", trunk, first, units, (*last, top), sizes)
    # the head calls the decoder without the model around it
    return replace(root, calls=(decoder, top)), layers


def _tables(config: OPTConfig, width: int) -> tuple[Module, Module]:
    """Words and positions."""
    name, hidden, narrow = "model.decoder", config.hidden_size, config.narrow
    words = Tensor(f"{name}.embed_tokens.weight", (config.vocab_size, narrow))
    places = Tensor(f"{name}.embed_positions.weight", (config.max_position_embeddings + OFFSET, hidden))
    positions = embedding(f"{name}.embed_positions", places, hidden, width)
    return (
        embedding(f"{name}.embed_tokens", words, narrow, width),
        replace(positions, kind="OPTLearnedPositionalEmbedding"),
    )


def _projections(config: OPTConfig, width: int) -> tuple[tuple[Module, ...], tuple[Module, ...]]:
    """From the width of the table of words to that of the model, and back, where they differ."""
    name, hidden, narrow = "model.decoder", config.hidden_size, config.narrow
    if narrow == hidden:
        return (), ()
    enter = matrix(f"{name}.project_in", (hidden, narrow), width, bias=False)
    return (enter,), (matrix(f"{name}.project_out", (narrow, hidden), width, bias=False),)


def _norm(config: OPTConfig, name: str, width: int) -> Module:
    module = norm(name, "LayerNorm", config.hidden_size, width, bias=config.enable_bias)
    return module if config.layer_norm_elementwise_affine else replace(module, parameters=())


def _block(config: OPTConfig, name: str, sizes: Sizes) -> Module:
    hidden, wide, width, bias = sizes.hidden, sizes.wide, sizes.element_bytes, config.enable_bias
    attended = _attention(config, f"{name}.self_attn", sizes)
    act = element_wise(f"{name}.activation_fn", "ReLU", 2.0 * wide * width)
    before = _norm(config, f"{name}.self_attn_layer_norm", width)
    up = matrix(f"{name}.fc1", (wide, hidden), width, bias=bias)
    down = matrix(f"{name}.fc2", (hidden, wide), width, bias=bias)
    after = _norm(config, f"{name}.final_layer_norm", width)
    early = before, attended, after, up, act, down
    late = attended, before, up, act, down, after
    return Module(
        name=name,
        kind="OPTDecoderLayer",
        children=(attended, act, before, up, down, after),
        calls=early if config.do_layer_norm_before else late,
    )


def _attention(config: OPTConfig, name: str, sizes: Sizes) -> Module:
    square = sizes.hidden, sizes.hidden
    k, v, q, out = (
        matrix(f"{name}.{which}", square, sizes.element_bytes, bias=config.enable_bias)
        for which in ("k_proj", "v_proj", "q_proj", "out_proj")
    )
    module = Module(name=name, kind="OPTAttention", children=(k, v, q, out), calls=(q, k, v, out))
    return attention(module, sizes, rotary=False)


READERS: Final[Mapping[str, Reader]] = {
    "opt": family(OPTConfig, opt),
}
"""By ``model_type``."""
