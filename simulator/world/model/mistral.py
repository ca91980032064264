"""Mistral: Llama whose attention looks back a window of tokens, without biases.

Names and order as ``MistralForCausalLM`` has them (Hugging Face transformers, ``modeling_mistral.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simulator.world.model.assembly import Built
from simulator.world.model.family import Reader, family
from simulator.world.model.llama import LlamaConfig, Style, llama_layers, llama_like

__all__ = ["READERS", "mistral"]


def mistral(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(prefix="Mistral", tied=bool(config.tie_word_embeddings))
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda _: True)
    return llama_like(config, style, layers)


READERS: Final[Mapping[str, Reader]] = {
    "mistral": family(LlamaConfig, mistral),
}
"""By ``model_type``."""
