"""Gemma 1 and 2: Llama with tied, scaled tables; Gemma 2 normalises what blocks return and windows every other one.

Names and order as ``GemmaForCausalLM`` and ``Gemma2ForCausalLM`` have them (Hugging Face transformers,
``modeling_gemma.py``, ``modeling_gemma2.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simulator.world.model.assembly import Built
from simulator.world.model.family import Reader, family
from simulator.world.model.llama import LlamaConfig, Style, llama_layers, llama_like

__all__ = ["READERS", "gemma", "gemma2"]


def gemma(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers of Gemma: embedding, blocks, head."""
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda _: False)
    return llama_like(config, _style(config, "Gemma", output_norms=False), layers)


def gemma2(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers of Gemma 2: embedding, blocks, head."""
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda index: index % 2 == 0)
    return llama_like(config, _style(config, "Gemma2", output_norms=True), layers)


def _style(config: LlamaConfig, prefix: str, *, output_norms: bool) -> Style:
    return Style(
        prefix=prefix,
        activation="GELUTanh",
        table=f"{prefix}TextScaledWordEmbedding",
        input_bias=config.attention_bias,
        output_bias=config.attention_bias,
        tied=config.tie_word_embeddings is not False,
        output_norms=output_norms,
    )


READERS: Final[Mapping[str, Reader]] = {
    "gemma": family(LlamaConfig, gemma),
    "gemma2": family(LlamaConfig, gemma2),
}
"""By ``model_type``."""
