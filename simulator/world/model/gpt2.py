"""GPT-2: layer norm with bias, learned positions, plain feed-forward of four times the width, tied head.

Names, shapes, order of registration and of calls as ``GPT2LMHeadModel`` has them (Hugging Face transformers,
``modeling_gpt2.py``).
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
    head,
    head_size,
    kept,
    language_model,
    require_positions,
    stack,
    unit,
)
from simulator.world.model.decoder import (
    element_wise,
    embedding,
    linear,
    norm,
    scores,
)
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["READERS", "GPT2Config", "gpt2"]


class GPT2Config(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    n_embd: Size
    n_layer: Size
    n_head: Size
    vocab_size: Size
    n_positions: Size
    n_inner: Size | None = None

    @property
    def wide(self) -> int:
        """Width of the feed-forward."""
        return self.n_inner or 4 * self.n_embd


def gpt2(config: GPT2Config, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embeddings, blocks, head.

    Raises
    ------
    InputError
        More tokens than positions, or heads that do not divide the width.
    """
    require_positions(config.n_positions, sequence_length)
    hidden = config.n_embd
    head_size(hidden, config.n_head, "n_head")
    sizes = Sizes(
        hidden=hidden,
        query=hidden,
        heads=config.n_head,
        key_value=hidden,
        wide=config.wide,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    table = Tensor("transformer.wte.weight", (config.vocab_size, hidden))
    tokens = embedding("transformer.wte", table, hidden, element_bytes)
    places = Tensor("transformer.wpe.weight", (config.n_positions, hidden))
    positions = embedding("transformer.wpe", places, hidden, element_bytes)
    blocks = [_block(config, index, sequence_length, element_bytes) for index in range(config.n_layer)]
    last = norm("transformer.ln_f", "LayerNorm", hidden, element_bytes, bias=True)
    top = head((config.vocab_size, hidden), element_bytes, table)
    drop = element_wise("transformer.drop", "Dropout", 0.0)
    trunk = Module(
        name="transformer",
        kind="GPT2Model",
        children=(tokens, positions, drop, stack("transformer.h", blocks), last),
        calls=(tokens, positions, drop, *blocks, last),
    )
    units = [unit(block, sizes, kept(sizes)) for block in blocks]
    return language_model("GPT2LMHeadModel", trunk, (tokens, positions), units, (last, top), sizes)


def _block(config: GPT2Config, index: int, sequence_length: int, width: int) -> Module:
    name, hidden = f"transformer.h.{index}", config.n_embd
    before = norm(f"{name}.ln_1", "LayerNorm", hidden, width, bias=True)
    after = norm(f"{name}.ln_2", "LayerNorm", hidden, width, bias=True)
    attention, mlp = _attention(config, f"{name}.attn", sequence_length, width), _mlp(config, f"{name}.mlp", width)
    return Module(
        name=name,
        kind="GPT2Block",
        children=(before, attention, after, mlp),
        calls=(before, attention, after, mlp),
    )


def _attention(config: GPT2Config, name: str, sequence_length: int, width: int) -> Module:
    hidden = config.n_embd
    # Conv1D stores its weight with inputs first
    joint = replace(
        linear(f"{name}.c_attn", (hidden, 3 * hidden), width, bias=3 * hidden, inputs_first=True), kind="Conv1D"
    )
    out = replace(linear(f"{name}.c_proj", (hidden, hidden), width, bias=hidden, inputs_first=True), kind="Conv1D")
    dropouts = [element_wise(f"{name}.{which}", "Dropout", 0.0) for which in ("attn_dropout", "resid_dropout")]
    forward, backward, _ = scores(sequence_length, hidden, 0.0, config.n_head)
    return Module(
        name=name,
        kind="GPT2Attention",
        children=(joint, out, *dropouts),
        calls=(joint, out, dropouts[1]),
        forward=forward,
        backward=backward,
    )


def _mlp(config: GPT2Config, name: str, width: int) -> Module:
    hidden, wide = config.n_embd, config.wide
    up = replace(linear(f"{name}.c_fc", (hidden, wide), width, bias=wide, inputs_first=True), kind="Conv1D")
    down = replace(linear(f"{name}.c_proj", (wide, hidden), width, bias=hidden, inputs_first=True), kind="Conv1D")
    activation = element_wise(f"{name}.act", "NewGELUActivation", 2.0 * wide * width)
    dropout = element_wise(f"{name}.dropout", "Dropout", 0.0)
    return Module(
        name=name,
        kind="GPT2MLP",
        children=(up, down, activation, dropout),
        calls=(up, activation, down, dropout),
    )


READERS: Final[Mapping[str, Reader]] = {
    "gpt2": family(GPT2Config, gpt2),
}
"""By ``model_type``."""
