"""Qwen 3 with experts: normalised heads, and a mixture of many small experts in all or some blocks.

Names and order as ``Qwen3MoeForCausalLM`` has them (Hugging Face transformers 5, ``modeling_qwen3_moe.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, field

from simulator.world.document import Section
from simulator.world.model.assembly import Built, Sizes, kept, unit
from simulator.world.model.decoder import Block
from simulator.world.model.family import Reader
from simulator.world.model.llama import (
    LlamaConfig,
    Style,
    gated_feed_forward,
    grouped_attention,
    llama_layers,
    llama_trunk,
)
from simulator.world.model.module import Module
from simulator.world.model.moe import Experts, bank, decoder_block, kept_sparse, router, sparse_family

__all__ = ["READERS", "Qwen3MoeConfig", "qwen3_moe"]

Size = Annotated[int, Meta(ge=1)]


class Qwen3MoeConfig(Section, forbid_unknown_fields=False):
    """The keys that Llama does not have."""

    num_experts: Size
    num_experts_per_tok: Size
    moe_intermediate_size: Size
    decoder_sparse_step: Size = 1
    """Every how many blocks one has experts."""
    mlp_only_layers: list[int] = field(default_factory=list)
    """Blocks that have none all the same."""
    use_sliding_window: bool = False

    def is_sparse(self, index: int) -> bool:
        """Whether block *index* has experts."""
        return index not in self.mlp_only_layers and (index + 1) % self.decoder_sparse_step == 0


def qwen3_moe(config: LlamaConfig, own: Qwen3MoeConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(
        prefix="Qwen3Moe",
        input_bias=config.attention_bias,
        output_bias=config.attention_bias,
        tied=bool(config.tie_word_embeddings),
        head_norms=True,
    )
    experts = Experts(count=own.num_experts, chosen=own.num_experts_per_tok, wide=own.moe_intermediate_size)
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda _: own.use_sliding_window)
    size = layers[0].query // config.num_attention_heads

    def block(index: int, sizes: Sizes) -> Block:
        name = f"model.layers.{index}"
        attended = grouped_attention(f"{name}.self_attn", sizes, style, size)
        normed = sizes.query + sizes.key_value
        if own.is_sparse(index):
            fed, elements = _mixture(f"{name}.mlp", sizes, experts), kept_sparse(sizes, experts)
        else:
            fed = gated_feed_forward(f"{name}.mlp", sizes, style)
            elements = kept(sizes, streams=2 * sizes.rms, gated=True)
        return unit(decoder_block(name, style.prefix, attended, fed, sizes), sizes, elements + normed)

    units = [block(index, sizes) for index, sizes in enumerate(layers)]
    return llama_trunk(config.vocab_size, style, layers[0], units)


def _mixture(name: str, sizes: Sizes, experts: Experts) -> Module:
    inner = bank(f"{name}.experts", "Qwen3MoeExperts", sizes, experts)
    gate = router(f"{name}.gate", "Qwen3MoeTopKRouter", sizes, experts)
    return Module(name=name, kind="Qwen3MoeSparseMoeBlock", children=(inner, gate), calls=(gate, inner))


READERS: Final[Mapping[str, Reader]] = {
    "qwen3_moe": sparse_family(Qwen3MoeConfig, qwen3_moe),
}
"""By ``model_type``."""
