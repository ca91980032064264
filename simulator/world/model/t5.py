"""T5: an encoder, and a decoder that attends to what it made; positions are biases of the scores.

A scenario's ``sequence_length`` is that of sources and of targets: a token stands for one of each.  Names, shapes and
order as ``T5ForConditionalGeneration`` has them (Hugging Face transformers 5, ``modeling_t5.py``).  There both halves
have their own module with the one table of words; here the module that registered the table looks up the sources, so
that its gradient is complete where backward meets it last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import Built, Sizes, attention, head, matrix, stack, unit
from simulator.world.model.decoder import Block, element_wise, embedding, layers_of, norm
from simulator.world.model.encoder import attends
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "T5Config", "t5"]

Size = Annotated[int, Meta(ge=1)]

ACTIVATIONS: Final = {"relu": "ReLU", "gelu": "NewGELUActivation", "gelu_new": "NewGELUActivation"}


class T5Config(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    d_model: Size
    d_kv: Size
    d_ff: Size
    num_layers: Size
    num_heads: Size
    vocab_size: Size
    num_decoder_layers: Size | None = None
    """Without it as many as in the encoder."""
    relative_attention_num_buckets: Size = 32
    feed_forward_proj: str = "relu"
    """The activation function, with ``gated-`` in front where it gates."""
    tie_word_embeddings: bool = True
    """False in files of T5 v1.1, whose checkpoints have a head of their own."""

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward has three products."""
        return self.feed_forward_proj.startswith("gated-")


def t5(config: T5Config, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: table, encoder, decoder, head."""
    inner = config.num_heads * config.d_kv
    sizes = Sizes(
        hidden=config.d_model,
        query=inner,
        heads=config.num_heads,
        key_value=inner,
        wide=config.d_ff,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    table = Tensor("shared.weight", (config.vocab_size, config.d_model))
    words = embedding("shared", table, config.d_model, element_bytes)
    encoder = _stack(config, "encoder", sizes, table)
    decoder = _stack(config, "decoder", sizes, table)
    top = head((config.vocab_size, config.d_model), element_bytes, table if config.tie_word_embeddings else None)
    parts = (words, encoder, decoder, top)
    root = Module(name="", kind="T5ForConditionalGeneration", children=parts, calls=parts)
    return root, layers_of(_units(config, parts, sizes))


def _units(config: T5Config, parts: tuple[Module, ...], sizes: Sizes) -> list[Block]:
    words, encoder, decoder, top = parts
    hidden, width = sizes.hidden, sizes.element_bytes

    def outside(name: str, modules: tuple[Module, ...], arrays: int) -> Block:
        """A unit that activation checkpointing leaves alone; it keeps *arrays* of the width."""
        size = float(arrays * hidden * width)
        return Block(name=name, modules=modules, input_bytes=size, activation_bytes=size, checkpointed=False)

    def blocks(half: Module) -> list[Block]:
        return [_unit(config, block, sizes) for block in half.children[1].children]

    first = replace(outside("shared", (words,), 0), looks_up=not config.tie_word_embeddings)
    between = outside("decoder.embed_tokens", (encoder.children[2], decoder.children[0]), 1)
    last = outside("lm_head", (decoder.children[2], top), 2)
    return [first, *blocks(encoder), between, *blocks(decoder), last]


def _unit(config: T5Config, block: Module, sizes: Sizes) -> Block:
    """A block, with inputs of norms and matrices, activation functions and attention as what backward needs."""
    attentions = len(block.children[0].children) - 1
    per_attention = sizes.rms * sizes.hidden + 2 * sizes.query + 2 * sizes.key_value
    elements = attentions * per_attention + sizes.rms * sizes.hidden + (4 if config.is_gated else 2) * sizes.wide
    flop = attentions * 3 * 4.0 * sizes.sequence_length * sizes.query
    return replace(unit(block, sizes, elements), name=block.name, attention_flop=flop)


def _stack(config: T5Config, name: str, sizes: Sizes, table: Tensor) -> Module:
    decodes = name == "decoder"
    count = (config.num_decoder_layers if decodes else None) or config.num_layers
    embed = embedding(f"{name}.embed_tokens", table, sizes.hidden, sizes.element_bytes)
    blocks = [_block(config, f"{name}.block.{index}", sizes, decodes=decodes) for index in range(count)]
    last = norm(f"{name}.final_layer_norm", "T5LayerNorm", sizes.hidden, sizes.element_bytes, bias=False)
    drop = element_wise(f"{name}.dropout", "Dropout", 0.0)
    called = (embed,) if decodes else ()
    return Module(
        name=name,
        kind="T5Stack",
        children=(embed, stack(f"{name}.block", blocks), last, drop),
        calls=(*called, drop, *blocks, last, drop),
    )


def _block(config: T5Config, name: str, sizes: Sizes, *, decodes: bool) -> Module:
    parts = [_sublayer(f"{name}.layer.0", "T5LayerSelfAttention", _self(config, name, sizes, decodes=decodes), sizes)]
    if decodes:
        across = _attention(f"{name}.layer.1.EncDecAttention", sizes)
        across = attends(across, sizes.sequence_length, sizes.query)
        parts.append(_sublayer(f"{name}.layer.1", "T5LayerCrossAttention", across, sizes))
    place = f"{name}.layer.{len(parts)}"
    parts.append(_sublayer(place, "T5LayerFF", _feed_forward(config, f"{place}.DenseReluDense", sizes), sizes))
    return Module(name=name, kind="T5Block", children=(stack(f"{name}.layer", parts),), calls=tuple(parts))


def _sublayer(name: str, kind: str, inner: Module, sizes: Sizes) -> Module:
    """A norm, what it feeds, and a dropout before the residual is added."""
    before = norm(f"{name}.layer_norm", "T5LayerNorm", sizes.hidden, sizes.element_bytes, bias=False)
    drop = element_wise(f"{name}.dropout", "Dropout", 0.0)
    return Module(name=name, kind=kind, children=(inner, before, drop), calls=(before, inner, drop))


def _self(config: T5Config, block: str, sizes: Sizes, *, decodes: bool) -> Module:
    """Attention within a sequence; the first block's holds the biases of all blocks of its half."""
    name = f"{block}.layer.0.SelfAttention"
    module = _attention(name, sizes)
    if block.endswith(".block.0"):
        where, heads = f"{name}.relative_attention_bias", config.num_heads
        table = Tensor(f"{where}.weight", (config.relative_attention_num_buckets, heads))
        bias = embedding(where, table, heads, sizes.element_bytes)
        *projections, out = module.calls
        module = replace(module, children=(*module.children, bias), calls=(*projections, bias, out))
    if decodes:
        return attention(module, sizes, rotary=False)
    return attends(module, sizes.sequence_length, sizes.query)


def _attention(name: str, sizes: Sizes) -> Module:
    hidden, inner, width = sizes.hidden, sizes.query, sizes.element_bytes
    into = (matrix(f"{name}.{which}", (inner, hidden), width, bias=False) for which in "qkv")
    parts = (*into, matrix(f"{name}.o", (hidden, inner), width, bias=False))
    return Module(name=name, kind="T5Attention", children=parts, calls=parts)


def _feed_forward(config: T5Config, name: str, sizes: Sizes) -> Module:
    hidden, wide, width = sizes.hidden, sizes.wide, sizes.element_bytes
    function = config.feed_forward_proj.removeprefix("gated-")
    kind = ACTIVATIONS.get(function, function)
    ups = [
        matrix(f"{name}.{which}", (wide, hidden), width, bias=False)
        for which in (("wi_0", "wi_1") if config.is_gated else ("wi",))
    ]
    down = matrix(f"{name}.wo", (hidden, wide), width, bias=False)
    drop = element_wise(f"{name}.dropout", "Dropout", 0.0)
    act = element_wise(f"{name}.act", kind, (5.0 if config.is_gated else 2.0) * wide * width, gated=config.is_gated)
    return Module(
        name=name,
        kind="T5DenseGatedActDense" if config.is_gated else "T5DenseActDense",
        children=(*ups, down, drop, act),
        calls=(ups[0], act, *ups[1:], drop, down),
    )


READERS: Final[Mapping[str, Reader]] = {
    "t5": family(T5Config, t5),
}
"""By ``model_type``."""
