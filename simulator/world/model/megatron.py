"""GPT by the arguments of Megatron-LM: learned or rotary positions, plain or gated feed-forward, biases or none.

Names and order as ``GPTModel`` with local layers has them (NVIDIA/Megatron-LM, ``megatron/core``).  The vocabulary is
taken as it stands; give ``padded_vocab_size`` if Megatron pads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Size,
    Sizes,
    decoder_layers,
    head,
    head_size,
    joint_attention,
    kept,
    key_value_heads,
    matrix,
    require_positions,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, moved, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "MegatronConfig", "megatron"]


class MegatronConfig(Section, forbid_unknown_fields=False):
    """The arguments that decide shapes."""

    num_layers: Size
    hidden_size: Size
    num_attention_heads: Size
    vocab_size: Size
    """Also called ``padded_vocab_size``."""
    ffn_hidden_size: Size | None = None
    """Four times the width without it; two thirds of that, down to a multiple of 64, if it is gated."""
    max_position_embeddings: Size = 2048
    position_embedding_type: Literal["learned_absolute", "rope", "none"] = "learned_absolute"
    kv_channels: Size | None = None
    """Size of a head."""
    num_query_groups: Size | None = None
    """Heads of keys; as many as of queries without it."""
    swiglu: bool = False
    add_bias_linear: bool = True
    add_qkv_bias: bool = False
    normalization: Literal["LayerNorm", "RMSNorm"] = "LayerNorm"
    untie_embeddings_and_output_weights: bool = False

    @property
    def wide(self) -> int:
        """Width of the feed-forward."""
        if self.ffn_hidden_size:
            return self.ffn_hidden_size
        return int(4 * self.hidden_size * 2 / 3) // 64 * 64 if self.swiglu else 4 * self.hidden_size


def megatron(config: MegatronConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embeddings, blocks, head."""
    hidden, vocabulary = config.hidden_size, config.vocab_size
    sizes, first = _sizes(config, sequence_length, element_bytes), _tables(config, sequence_length, element_bytes)
    blocks = [_block(config, f"decoder.layers.{index}", sizes) for index in range(config.num_layers)]
    last = _norm(config, "decoder.final_layernorm", sizes)
    enter = Module(name="embedding", kind="LanguageModelEmbedding", children=first, calls=first)
    decoder = Module(
        name="decoder",
        kind="TransformerBlock",
        children=(stack("decoder.layers", blocks), last),
        calls=(*blocks, last),
    )
    table = None if config.untie_embeddings_and_output_weights else first[0].parameters[0]
    top = head((vocabulary, hidden), element_bytes, table, name="output_layer")
    parts = (enter, decoder, top)
    root = Module(name="", kind="GPTModel", children=parts, calls=parts)
    streams = 2 * sizes.rms if config.normalization == "RMSNorm" else 4
    elements = kept(sizes, streams=streams, gated=config.swiglu)
    return root, decoder_layers(first, [unit(block, sizes, elements) for block in blocks], (last, top), sizes)


def _tables(config: MegatronConfig, sequence_length: int, width: int) -> tuple[Module, ...]:
    """Words, and positions if they are learned."""
    name, hidden = "embedding", config.hidden_size
    words = Tensor(f"{name}.word_embeddings.weight", (config.vocab_size, hidden))
    first = replace(embedding(f"{name}.word_embeddings", words, hidden, width), kind="VocabParallelEmbedding")
    if config.position_embedding_type != "learned_absolute":
        return (first,)
    require_positions(config.max_position_embeddings, sequence_length)
    places = Tensor(f"{name}.position_embeddings.weight", (config.max_position_embeddings, hidden))
    return first, embedding(f"{name}.position_embeddings", places, hidden, width)


def _sizes(config: MegatronConfig, sequence_length: int, element_bytes: int) -> Sizes:
    heads = config.num_attention_heads
    pairs = key_value_heads(heads, config.num_query_groups, "num_query_groups")
    size = config.kv_channels or head_size(config.hidden_size, heads)
    return Sizes(
        hidden=config.hidden_size,
        query=size * heads,
        heads=heads,
        key_value=size * pairs,
        wide=config.wide,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def _norm(config: MegatronConfig, name: str, sizes: Sizes) -> Module:
    kind = config.normalization
    return norm(name, kind, sizes.hidden, sizes.element_bytes, bias=kind == "LayerNorm")


def _block(config: MegatronConfig, name: str, sizes: Sizes) -> Module:
    before, after = _norm(config, f"{name}.input_layernorm", sizes), _norm(config, f"{name}.pre_mlp_layernorm", sizes)
    steps = before, _attention(config, f"{name}.self_attention", sizes), after, _mlp(config, f"{name}.mlp", sizes)
    return Module(name=name, kind="TransformerLayer", children=steps, calls=steps)


def _attention(config: MegatronConfig, name: str, sizes: Sizes) -> Module:
    biases = config.add_bias_linear or config.add_qkv_bias, config.add_bias_linear
    rotary = config.position_embedding_type == "rope"
    module = joint_attention(name, "SelfAttention", ("linear_qkv", "linear_proj"), sizes, biases=biases, rotary=rotary)
    joint, out = module.children
    joint, out = replace(joint, kind="ColumnParallelLinear"), replace(out, kind="RowParallelLinear")
    return replace(module, children=(out, joint), calls=(joint, out))


def _mlp(config: MegatronConfig, name: str, sizes: Sizes) -> Module:
    """The activation function is no module of its own."""
    hidden, wide, width, bias = sizes.hidden, sizes.wide, sizes.element_bytes, config.add_bias_linear
    rows = 2 * wide if config.swiglu else wide
    up = matrix(f"{name}.linear_fc1", (rows, hidden), width, bias=bias, kind="ColumnParallelLinear")
    down = matrix(f"{name}.linear_fc2", (hidden, wide), width, bias=bias, kind="RowParallelLinear")
    forward, backward = moved((5.0 if config.swiglu else 2.0) * wide * width, gated=config.swiglu)
    return Module(
        name=name,
        kind="MLP",
        children=(up, down),
        calls=(up, down),
        forward=forward,
        backward=backward,
    )


MEGATRON_KEYS: Final = {"padded_vocab_size": "vocab_size"}
"""Names here by those in files."""


READERS: Final[Mapping[str, Reader]] = {
    "megatron": family(MegatronConfig, megatron, renamed=MEGATRON_KEYS),
}
"""By ``model_type``."""
