"""Mixtral: Llama with a mixture of experts in each block.

Names and order as ``MixtralForCausalLM`` has them (Hugging Face transformers 5, ``modeling_mixtral.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import Built, Sizes, unit
from simulator.world.model.decoder import Block
from simulator.world.model.family import Reader
from simulator.world.model.llama import LlamaConfig, Style, grouped_attention, llama_layers, llama_trunk
from simulator.world.model.module import Module
from simulator.world.model.moe import Experts, bank, decoder_block, kept_sparse, router, sparse_family

__all__ = ["READERS", "MixtralConfig", "mixtral"]

Size = Annotated[int, Meta(ge=1)]


class MixtralConfig(Section, forbid_unknown_fields=False):
    """The keys that Llama does not have."""

    num_local_experts: Size
    num_experts_per_tok: Size


def mixtral(config: LlamaConfig, own: MixtralConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(prefix="Mixtral", tied=bool(config.tie_word_embeddings))
    experts = Experts(count=own.num_local_experts, chosen=own.num_experts_per_tok, wide=config.intermediate_size)
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda _: True)
    size = layers[0].query // config.num_attention_heads

    def block(index: int, sizes: Sizes) -> Block:
        name = f"model.layers.{index}"
        attended = grouped_attention(f"{name}.self_attn", sizes, style, size)
        module = decoder_block(name, style.prefix, attended, _mixture(f"{name}.mlp", sizes, experts), sizes)
        return unit(module, sizes, kept_sparse(sizes, experts))

    units = [block(index, sizes) for index, sizes in enumerate(layers)]
    return llama_trunk(config.vocab_size, style, layers[0], units)


def _mixture(name: str, sizes: Sizes, experts: Experts) -> Module:
    gate = router(f"{name}.gate", "MixtralTopKRouter", sizes, experts)
    inner = bank(f"{name}.experts", "MixtralExperts", sizes, experts)
    return Module(name=name, kind="MixtralSparseMoeBlock", children=(gate, inner), calls=(gate, inner))


READERS: Final[Mapping[str, Reader]] = {
    "mixtral": sparse_family(MixtralConfig, mixtral),
}
"""By ``model_type``."""
