"""BERT: an encoder; attention looks both ways, norms come behind what they normalise, a pooler ends it.

The model is ``BertModel``, whatever the file's ``architectures`` put on top: names, shapes and order are those of
Hugging Face transformers 5, ``modeling_bert.py``.  The pooler sees the first token of a sequence alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Sizes,
    head_size,
    kept,
    matrix,
    require_positions,
    stack,
    unit,
)
from simulator.world.model.decoder import Block, element_wise, embedding, layers_of, norm
from simulator.world.model.encoder import attends, per_token
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "BertConfig", "bert"]

Size = Annotated[int, Meta(ge=1)]

ACTIVATIONS: Final = {"gelu": "GELUActivation", "gelu_new": "NewGELUActivation", "relu": "ReLU"}


class BertConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    hidden_act: str = "gelu"


def bert(config: BertConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embeddings, blocks, pooler.

    Raises
    ------
    InputError
        Sequences longer than the table of positions, or heads that do not divide the width.
    """
    require_positions(config.max_position_embeddings, sequence_length)
    hidden = config.hidden_size
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
    first, last = _embeddings(config, sizes), _pooler(sizes)
    activation = ACTIVATIONS.get(config.hidden_act, config.hidden_act)
    blocks = [_block(f"encoder.layer.{index}", sizes, activation) for index in range(config.num_hidden_layers)]
    encoder = Module(
        name="encoder", kind="BertEncoder", children=(stack("encoder.layer", blocks),), calls=tuple(blocks)
    )
    parts = (first, encoder, last)
    root = Module(name="", kind="BertModel", children=parts, calls=parts)
    units = (unit(block, sizes, kept(sizes)) for block in blocks)
    return root, layers_of((_end(first, 2 * sizes.hidden * element_bytes), *units, _end(last, 0)))


def _end(module: Module, kept_bytes: int) -> Block:
    """A unit that activation checkpointing leaves alone."""
    name, size = module.name, float(kept_bytes)
    return Block(name=name, modules=(module,), input_bytes=size, activation_bytes=size, checkpointed=False)


def _embeddings(config: BertConfig, sizes: Sizes) -> Module:
    hidden, width = sizes.hidden, sizes.element_bytes

    def table(which: str, rows: int) -> Module:
        name = f"embeddings.{which}_embeddings"
        return embedding(name, Tensor(f"{name}.weight", (rows, hidden)), hidden, width)

    words = table("word", config.vocab_size)
    positions, kinds = table("position", config.max_position_embeddings), table("token_type", config.type_vocab_size)
    normed = norm("embeddings.LayerNorm", "LayerNorm", hidden, width, bias=True)
    drop = element_wise("embeddings.dropout", "Dropout", 0.0)
    return Module(
        name="embeddings",
        kind="BertEmbeddings",
        children=(words, positions, kinds, normed, drop),
        calls=(words, kinds, positions, normed, drop),
        buffers=2 * config.max_position_embeddings,
    )


def _block(name: str, sizes: Sizes, activation: str) -> Module:
    hidden, wide, width = sizes.hidden, sizes.wide, sizes.element_bytes
    attended = _self_attention(f"{name}.attention.self", sizes)
    gathered = _output(f"{name}.attention.output", "BertSelfOutput", sizes, hidden)
    both = (attended, gathered)
    attention = Module(name=f"{name}.attention", kind="BertAttention", children=both, calls=both)
    up = matrix(f"{name}.intermediate.dense", (wide, hidden), width, bias=True)
    act = element_wise(f"{name}.intermediate.intermediate_act_fn", activation, 2.0 * wide * width)
    inner = Module(name=f"{name}.intermediate", kind="BertIntermediate", children=(up, act), calls=(up, act))
    parts = (attention, inner, _output(f"{name}.output", "BertOutput", sizes, wide))
    return Module(name=name, kind="BertLayer", children=parts, calls=parts)


def _self_attention(name: str, sizes: Sizes) -> Module:
    shape = (sizes.hidden, sizes.hidden)
    parts = tuple(
        matrix(f"{name}.{which}", shape, sizes.element_bytes, bias=True) for which in ("query", "key", "value")
    )
    drop = element_wise(f"{name}.dropout", "Dropout", 0.0)
    module = Module(name=name, kind="BertSelfAttention", children=(*parts, drop), calls=parts)
    return attends(module, sizes.sequence_length, sizes.query)


def _output(name: str, kind: str, sizes: Sizes, columns: int) -> Module:
    """Product, dropout, and the norm of its sum with the residual."""
    dense = matrix(f"{name}.dense", (sizes.hidden, columns), sizes.element_bytes, bias=True)
    normed = norm(f"{name}.LayerNorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    drop = element_wise(f"{name}.dropout", "Dropout", 0.0)
    return Module(name=name, kind=kind, children=(dense, normed, drop), calls=(dense, drop, normed))


def _pooler(sizes: Sizes) -> Module:
    hidden, width = sizes.hidden, sizes.element_bytes
    dense = matrix("pooler.dense", (hidden, hidden), width, bias=True)
    act = element_wise("pooler.activation", "Tanh", 2.0 * hidden * width)
    module = Module(name="pooler", kind="BertPooler", children=(dense, act), calls=(dense, act))
    return per_token(module, 1 / sizes.sequence_length)


READERS: Final[Mapping[str, Reader]] = {
    "bert": family(BertConfig, bert),
}
"""By ``model_type``."""
