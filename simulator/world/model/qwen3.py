"""Qwen 3, dense: Llama whose heads of queries and keys are normalised, with a head size of its own.

Names and order as ``Qwen3ForCausalLM`` has them (Hugging Face transformers, ``modeling_qwen3.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simulator.world.model.assembly import Built
from simulator.world.model.family import Reader, family
from simulator.world.model.llama import LlamaConfig, Style, llama_layers, llama_like

__all__ = ["READERS", "qwen3"]


def qwen3(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(
        prefix="Qwen3",
        input_bias=config.attention_bias,
        output_bias=config.attention_bias,
        tied=bool(config.tie_word_embeddings),
        head_norms=True,
    )

    def slides(index: int) -> bool:
        return config.use_sliding_window and index >= config.max_window_layers

    return llama_like(config, style, llama_layers(config, sequence_length, element_bytes, slides))


READERS: Final[Mapping[str, Reader]] = {
    "qwen3": family(LlamaConfig, qwen3),
}
"""By ``model_type``."""
