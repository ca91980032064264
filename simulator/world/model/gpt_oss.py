"""GPT-OSS: every other block looks back over a window only, each head has a sink, experts have biases.

A file whose experts are quantised to MXFP4 describes the same parameters: training needs them whole.  Names and order
as ``GptOssForCausalLM`` has them (Hugging Face transformers 5, ``modeling_gpt_oss.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import Built, Sizes, unit
from simulator.world.model.decoder import Block
from simulator.world.model.family import Reader
from simulator.world.model.layer import Tensor
from simulator.world.model.llama import LlamaConfig, Style, grouped_attention, llama_layers, llama_trunk
from simulator.world.model.module import Module
from simulator.world.model.moe import Experts, bank, decoder_block, kept_sparse, router, sparse_family

__all__ = ["GPT_OSS_DEFAULTS", "READERS", "GptOssConfig", "gpt_oss"]

Size = Annotated[int, Meta(ge=1)]

GPT_OSS_DEFAULTS: Final[dict[str, Any]] = {"attention_bias": True, "sliding_window": 128, "head_dim": 64}
"""source: ``GptOssConfig`` of Hugging Face transformers 5."""


class GptOssConfig(Section, forbid_unknown_fields=False):
    """The keys that Llama does not have."""

    num_local_experts: Size
    num_experts_per_tok: Size


def gpt_oss(config: LlamaConfig, own: GptOssConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(
        prefix="GptOss",
        input_bias=config.attention_bias,
        output_bias=config.attention_bias,
        tied=bool(config.tie_word_embeddings),
    )
    experts = Experts(count=own.num_local_experts, chosen=own.num_experts_per_tok, wide=config.intermediate_size)
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda index: index % 2 == 0)
    heads = config.num_attention_heads

    def block(index: int, sizes: Sizes) -> Block:
        name = f"model.layers.{index}"
        attended = grouped_attention(f"{name}.self_attn", sizes, style, sizes.query // heads)
        attended = replace(attended, parameters=(Tensor(f"{name}.self_attn.sinks", (heads,)),))
        module = decoder_block(name, style.prefix, attended, _mixture(f"{name}.mlp", sizes, experts), sizes)
        return unit(module, sizes, kept_sparse(sizes, experts))

    units = [block(index, sizes) for index, sizes in enumerate(layers)]
    return llama_trunk(config.vocab_size, style, layers[0], units)


def _mixture(name: str, sizes: Sizes, experts: Experts) -> Module:
    gate = router(f"{name}.router", "GptOssTopKRouter", sizes, experts, bias=True)
    tensors = _tensors(f"{name}.experts", sizes.hidden, experts)
    inner = bank(f"{name}.experts", "GptOssExperts", sizes, experts, tensors=tensors, activation=None)
    return Module(name=name, kind="GptOssMLP", children=(gate, inner), calls=(gate, inner))


def _tensors(name: str, hidden: int, experts: Experts) -> tuple[Tensor, ...]:
    """Weights with inputs in front of outputs, and a bias for each output."""
    count, wide = experts.count, experts.wide
    return (
        Tensor(f"{name}.gate_up_proj", (count, hidden, 2 * wide)),
        Tensor(f"{name}.gate_up_proj_bias", (count, 2 * wide)),
        Tensor(f"{name}.down_proj", (count, wide, hidden)),
        Tensor(f"{name}.down_proj_bias", (count, hidden)),
    )


READERS: Final[Mapping[str, Reader]] = {
    "gpt_oss": sparse_family(GptOssConfig, gpt_oss, defaults=GPT_OSS_DEFAULTS),
}
"""By ``model_type``."""
