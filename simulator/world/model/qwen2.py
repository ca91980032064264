"""Qwen 2 and 2.5: Llama with biases on queries, keys and values, which no key of the config mentions.

Names and order as ``Qwen2ForCausalLM`` has them (Hugging Face transformers, ``modeling_qwen2.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simulator.world.model.assembly import Built
from simulator.world.model.family import Reader, family
from simulator.world.model.llama import LlamaConfig, Style, llama_layers, llama_like

__all__ = ["READERS", "qwen2"]


def qwen2(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(prefix="Qwen2", input_bias=True, tied=bool(config.tie_word_embeddings))

    def slides(index: int) -> bool:
        return config.use_sliding_window and index >= config.max_window_layers

    return llama_like(config, style, llama_layers(config, sequence_length, element_bytes, slides))


READERS: Final[Mapping[str, Reader]] = {
    "qwen2": family(LlamaConfig, qwen2),
}
"""By ``model_type``."""
