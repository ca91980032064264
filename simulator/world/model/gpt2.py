"""GPT-2: layer norm with bias, learned positions, plain feed-forward of four times the width, tied head.

Names and shapes as ``GPT2LMHeadModel`` registers them (Hugging Face transformers, ``modeling_gpt2.py``).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.decoder import BlockShape, block, embedding, head
from simulator.world.model.layer import Layer, Tensor

__all__ = ["GPT2Config", "gpt2_layers"]


Size = Annotated[int, Meta(ge=1)]


class GPT2Config(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    n_embd: Size
    n_layer: Size
    n_head: Size
    vocab_size: Size
    n_positions: Size
    n_inner: Size | None = None


def gpt2_layers(config: GPT2Config, sequence_length: int, element_bytes: int) -> tuple[Layer, ...]:
    """Return embedding, blocks and head."""
    hidden = config.n_embd
    tables = (
        Tensor("transformer.wte.weight", (config.vocab_size, hidden)),
        Tensor("transformer.wpe.weight", (config.n_positions, hidden)),
    )
    return (
        embedding("wte", tables, hidden, element_bytes),
        *(_block(config, index, sequence_length, element_bytes) for index in range(config.n_layer)),
        head("lm_head", _norm("transformer.ln_f", hidden), hidden, config.vocab_size, element_bytes, tied=True),
    )


def _block(config: GPT2Config, index: int, sequence_length: int, element_bytes: int) -> Layer:
    hidden, prefix = config.n_embd, f"transformer.h.{index}"
    wide = config.n_inner or 4 * hidden
    tensors = (
        *_norm(f"{prefix}.ln_1", hidden),
        *_projection(f"{prefix}.attn.c_attn", hidden, 3 * hidden),
        *_projection(f"{prefix}.attn.c_proj", hidden, hidden),
        *_norm(f"{prefix}.ln_2", hidden),
        *_projection(f"{prefix}.mlp.c_fc", hidden, wide),
        *_projection(f"{prefix}.mlp.c_proj", wide, hidden),
    )
    return block(
        f"h.{index}",
        tensors,
        BlockShape(
            hidden=hidden,
            query=hidden,
            key_value=hidden,
            sequence_length=sequence_length,
            kept_elements=8 * hidden + 2 * wide,
            element_bytes=element_bytes,
        ),
    )


def _norm(name: str, hidden: int) -> tuple[Tensor, ...]:
    return (Tensor(f"{name}.weight", (hidden,)), Tensor(f"{name}.bias", (hidden,)))


def _projection(name: str, inputs: int, outputs: int) -> tuple[Tensor, ...]:
    # Conv1D stores its weight with inputs first
    return (Tensor(f"{name}.weight", (inputs, outputs)), Tensor(f"{name}.bias", (outputs,)))
