"""nanoGPT: GPT-2 with ordinary linear layers, biases or none, tied head.

Names and order as ``GPT`` has them (karpathy/nanoGPT, ``model.py``).
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
    decoder_layers,
    dropout,
    head,
    head_size,
    joint_attention,
    kept,
    plain_feed_forward,
    require_positions,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "NanoGPTConfig", "nanogpt"]


class NanoGPTConfig(Section, forbid_unknown_fields=False):
    """The keys that decide shapes."""

    n_embd: Size
    n_layer: Size
    n_head: Size
    vocab_size: Size = 50304
    block_size: Size = 1024
    """Positions."""
    bias: bool = True


def nanogpt(config: NanoGPTConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embeddings, blocks, head."""
    require_positions(config.block_size, sequence_length)
    hidden, name = config.n_embd, "transformer"
    head_size(hidden, config.n_head, "n_head")
    sizes = Sizes(
        hidden=hidden,
        query=hidden,
        heads=config.n_head,
        key_value=hidden,
        wide=4 * hidden,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    table = Tensor(f"{name}.wte.weight", (config.vocab_size, hidden))
    places = Tensor(f"{name}.wpe.weight", (config.block_size, hidden))
    first = (
        embedding(f"{name}.wte", table, hidden, element_bytes),
        embedding(f"{name}.wpe", places, hidden, element_bytes),
    )
    blocks = [_block(f"{name}.h.{index}", sizes, config.bias) for index in range(config.n_layer)]
    last, drop = norm(f"{name}.ln_f", "LayerNorm", hidden, element_bytes, bias=config.bias), dropout(f"{name}.drop")
    # the model calls what the dictionary holds, never the dictionary
    trunk = Module(name=name, kind="ModuleDict", children=(*first, drop, stack(f"{name}.h", blocks), last))
    top = head((config.vocab_size, hidden), element_bytes, table)
    root = Module(name="", kind="GPT", children=(trunk, top), calls=(*first, drop, *blocks, last, top))
    return root, decoder_layers(first, [unit(block, sizes, kept(sizes)) for block in blocks], (last, top), sizes)


def _block(name: str, sizes: Sizes, bias: bool) -> Module:
    before = norm(f"{name}.ln_1", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=bias)
    after = norm(f"{name}.ln_2", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=bias)
    parts = "c_attn", "c_proj"
    attention = joint_attention(f"{name}.attn", "CausalSelfAttention", parts, sizes, biases=(bias, bias), rotary=False)
    drops = dropout(f"{name}.attn.attn_dropout"), dropout(f"{name}.attn.resid_dropout")
    attention = replace(attention, children=(*attention.children, *drops), calls=(*attention.calls, drops[1]))
    steps = "c_fc", "gelu", "c_proj"
    mlp, drop = (
        plain_feed_forward(f"{name}.mlp", "MLP", steps, sizes, activation="GELU", bias=bias),
        dropout(f"{name}.mlp.dropout"),
    )
    mlp = replace(mlp, children=(*mlp.children, drop), calls=(*mlp.calls, drop))
    return Module(
        name=name, kind="Block", children=(before, attention, after, mlp), calls=(before, attention, after, mlp)
    )


READERS: Final[Mapping[str, Reader]] = {
    "nanogpt": family(NanoGPTConfig, nanogpt),
}
"""By ``model_type``."""
