"""Llama by the keys of torchtitan or the foundation model stack; the feed-forward's width is computed.

Two thirds of four times the width, times ``ffn_dim_multiplier``, or ``hidden_grow_factor`` times the width, rounded up
to a multiple of ``multiple_of``.  Names and order as ``Transformer`` has them (pytorch/torchtitan, ``models/llama3``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Size,
    Sizes,
    attention,
    decoder_layers,
    head,
    head_size,
    kept,
    key_value_heads,
    matrix,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, moved, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "TorchtitanConfig", "feed_forward", "torchtitan"]


class TorchtitanConfig(Section, forbid_unknown_fields=False):
    """The keys that decide shapes."""

    dim: Size
    n_layers: Size
    n_heads: Size
    vocab_size: Size
    n_kv_heads: Annotated[int, Meta(ge=0)] | None = None
    """As many as query heads without it, or with 0."""
    multiple_of: Size = 256
    ffn_dim_multiplier: Annotated[float, Meta(gt=0)] | None = None
    hidden_grow_factor: Annotated[float, Meta(gt=0)] | None = None
    """Of the foundation model stack: the feed-forward's width over that of the model, before rounding."""

    @property
    def wide(self) -> int:
        """Width of the feed-forward."""
        if self.hidden_grow_factor is None:
            width = int((self.ffn_dim_multiplier or 1) * int(2 * (4 * self.dim) / 3))
        else:
            width = int(self.hidden_grow_factor * self.dim)
        return -(-width // self.multiple_of) * self.multiple_of


def torchtitan(config: TorchtitanConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    sizes = _sizes(config, sequence_length, element_bytes)
    table = Tensor("tok_embeddings.weight", (config.vocab_size, config.dim))
    embed = embedding("tok_embeddings", table, config.dim, element_bytes)
    blocks = [_block(f"layers.{index}", sizes) for index in range(config.n_layers)]
    last = norm("norm", "RMSNorm", config.dim, element_bytes, bias=False)
    top = head((config.vocab_size, config.dim), element_bytes, None, name="output")
    root = Module(
        name="",
        kind="Transformer",
        children=(embed, stack("layers", blocks), last, top),
        calls=(embed, *blocks, last, top),
    )
    units = [unit(block, sizes, kept(sizes, streams=2 * sizes.rms, gated=True)) for block in blocks]
    return root, decoder_layers((embed,), units, (last, top), sizes)


def _sizes(config: TorchtitanConfig, sequence_length: int, element_bytes: int) -> Sizes:
    pairs = key_value_heads(config.n_heads, config.n_kv_heads, "n_kv_heads")
    return Sizes(
        hidden=config.dim,
        query=config.dim,
        heads=config.n_heads,
        key_value=head_size(config.dim, config.n_heads, "n_heads") * pairs,
        wide=config.wide,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )


def _block(name: str, sizes: Sizes) -> Module:
    before = norm(f"{name}.attention_norm", "RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    after = norm(f"{name}.ffn_norm", "RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    attended, fed = _attention(f"{name}.attention", sizes), feed_forward(f"{name}.feed_forward", sizes)
    return Module(
        name=name,
        kind="TransformerBlock",
        children=(attended, fed, before, after),
        calls=(before, attended, after, fed),
    )


def _attention(name: str, sizes: Sizes) -> Module:
    hidden, query, key_value = sizes.hidden, sizes.query, sizes.key_value
    shapes = {"wq": (query, hidden), "wk": (key_value, hidden), "wv": (key_value, hidden), "wo": (hidden, query)}
    parts = tuple(matrix(f"{name}.{which}", shape, sizes.element_bytes, bias=False) for which, shape in shapes.items())
    return attention(Module(name=name, kind="Attention", children=parts, calls=parts), sizes, rotary=True)


def feed_forward(name: str, sizes: Sizes) -> Module:
    """Gated feed-forward: ``w1`` behind the activation function, ``w3`` beside it, ``w2`` back to the width."""
    hidden, wide, width = sizes.hidden, sizes.wide, sizes.element_bytes
    gate = matrix(f"{name}.w1", (wide, hidden), width, bias=False)
    down = matrix(f"{name}.w2", (hidden, wide), width, bias=False)
    up = matrix(f"{name}.w3", (wide, hidden), width, bias=False)
    forward, backward = moved(5.0 * wide * width, gated=True)
    return Module(
        name=name,
        kind="FeedForward",
        children=(gate, down, up),
        calls=(gate, up, down),
        forward=forward,
        backward=backward,
    )


FMS_KEYS: Final = {
    "emb_dim": "dim",
    "nlayers": "n_layers",
    "nheads": "n_heads",
    "kvheads": "n_kv_heads",
    "src_vocab_size": "vocab_size",
}
"""Names here by those in files."""


READERS: Final[Mapping[str, Reader]] = {
    "torchtitan": family(TorchtitanConfig, torchtitan, renamed=FMS_KEYS),
}
"""By ``model_type``."""
