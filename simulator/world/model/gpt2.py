"""GPT-2: layer norm with bias, learned positions, plain feed-forward of four times the width, tied head.

Names, shapes, order of registration and of calls as ``GPT2LMHeadModel`` has them (Hugging Face transformers,
``modeling_gpt2.py``).
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

__all__ = ["GPT2Config", "gpt2"]

Size = Annotated[int, Meta(ge=1)]


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


def gpt2(config: GPT2Config, sequence_length: int, element_bytes: int) -> tuple[Module, tuple[Layer, ...]]:
    """Return the module tree and the layers: embeddings, blocks, head."""
    hidden = config.n_embd
    table = Tensor("transformer.wte.weight", (config.vocab_size, hidden))
    tokens = embedding("transformer.wte", table, hidden, element_bytes)
    places = Tensor("transformer.wpe.weight", (config.n_positions, hidden))
    positions = embedding("transformer.wpe", places, hidden, element_bytes)
    blocks = [_block(config, index, sequence_length, element_bytes) for index in range(config.n_layer)]
    last = norm("transformer.ln_f", "LayerNorm", hidden, element_bytes, bias=True)
    head = linear("lm_head", (config.vocab_size, hidden), element_bytes, tied=table)
    forward, backward = loss(config.vocab_size, element_bytes)
    head = replace(head, forward=head.forward + forward, backward=head.backward + backward)
    drop = element_wise("transformer.drop", "Dropout", 0.0)
    stack = Module(name="transformer.h", kind="ModuleList", children=tuple(blocks))
    trunk = Module(
        name="transformer",
        kind="GPT2Model",
        children=(tokens, positions, drop, stack, last),
        calls=(tokens, positions, drop, *blocks, last),
    )
    root = Module(name="", kind="GPT2LMHeadModel", children=(trunk, head), calls=(trunk, head))
    units = _units(config, (tokens, positions), blocks, (last, head), sequence_length, element_bytes)
    return root, layers_of(units)


def _units(
    config: GPT2Config,
    first: tuple[Module, Module],
    blocks: list[Module],
    last: tuple[Module, Module],
    sequence: int,
    width: int,
) -> list[Block]:
    hidden = config.n_embd
    attention = scores(sequence, hidden, 0.0)[2]
    return [
        Block(name="wte", modules=first, input_bytes=0.0, activation_bytes=0.0, checkpointed=False),
        *(
            Block(
                name=f"h.{index}",
                modules=(block,),
                input_bytes=float(width * hidden),
                activation_bytes=float(width * (8 * hidden + 2 * config.wide)),
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
    joint = replace(linear(f"{name}.c_attn", (hidden, 3 * hidden), width, bias=3 * hidden), kind="Conv1D")
    out = replace(linear(f"{name}.c_proj", (hidden, hidden), width, bias=hidden), kind="Conv1D")
    dropouts = [element_wise(f"{name}.{which}", "Dropout", 0.0) for which in ("attn_dropout", "resid_dropout")]
    forward, backward, _ = scores(sequence_length, hidden, 0.0)
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
    up = replace(linear(f"{name}.c_fc", (hidden, wide), width, bias=wide), kind="Conv1D")
    down = replace(linear(f"{name}.c_proj", (wide, hidden), width, bias=hidden), kind="Conv1D")
    activation = element_wise(f"{name}.act", "NewGELUActivation", 2.0 * wide * width)
    dropout = element_wise(f"{name}.dropout", "Dropout", 0.0)
    return Module(
        name=name,
        kind="GPT2MLP",
        children=(up, down, activation, dropout),
        calls=(up, activation, down, dropout),
    )
