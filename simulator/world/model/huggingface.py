"""``config.json`` as Hugging Face writes it: which family, which reader.

A family's file is imported when a model needs it: all of them together would take longer than a small simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from simulator.errors import UnknownNameError
from simulator.world.document import read_mapping
from simulator.world.model.assembly import Built
from simulator.world.model.family import Reader
from simulator.world.model.meta import available, from_transformers, knows

__all__ = ["FAMILIES", "model_from_config", "model_from_mapping", "reader"]

FAMILIES: Final[Mapping[str, str]] = {
    "INTERNLM": "internlm",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "bert": "bert",
    "bloom": "bloom",
    "deepseek_v3": "deepseek",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gpt2": "gpt2",
    "gpt_neox": "gpt_neox",
    "gpt_oss": "gpt_oss",
    "llama": "llama",
    "llm-foundry": "mpt",
    "megatron": "megatron",
    "mistral": "mistral",
    "mixformer-sequential": "phi",
    "mixtral": "mixtral",
    "mpt": "mpt",
    "nanogpt": "nanogpt",
    "nemotron-nas": "nemotron_nas",
    "nemotron_h": "nemotron_h",
    "opt": "opt",
    "phi": "phi",
    "phi-msft": "phi",
    "phi3": "phi3",
    "qwen": "qwen",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_5": "qwen3_5",
    "qwen3_moe": "qwen3_moe",
    "starcoder2": "starcoder2",
    "t5": "t5",
    "torchtitan": "torchtitan",
}
"""File of this folder by ``model_type``."""

SIGNS: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("llm-foundry", frozenset({"d_model", "n_heads", "n_layers"})),
    ("torchtitan", frozenset({"dim", "n_heads", "n_layers"})),
    ("torchtitan", frozenset({"emb_dim", "nheads", "nlayers"})),
    ("nanogpt", frozenset({"n_embd", "n_head", "n_layer"})),
    ("megatron", frozenset({"hidden_size", "num_attention_heads", "num_layers"})),
)
"""Keys by which a family is known whose files have no ``model_type``."""


def model_from_config(path: Path, sequence_length: int, element_bytes: int) -> Built:
    """Read a ``config.json``; return the module tree and the layers.

    Raises
    ------
    InputError
        Not a config, a family that is not known, or a size that is missing.
    """
    return model_from_mapping(read_mapping(path), path, sequence_length, element_bytes)


def model_from_mapping(raw: dict[str, Any], path: Path, sequence_length: int, element_bytes: int) -> Built:
    """Read the content of a ``config.json``; *path* is named in errors."""
    return _built(msgspec.json.encode(raw), path, sequence_length, element_bytes)


@lru_cache(maxsize=32)  # a tree of thousands of modules, the same at most points of a sweep
def _built(content: bytes, path: Path, sequence_length: int, element_bytes: int) -> Built:
    raw = msgspec.json.decode(content)
    name = str(raw.get("model_type") or _recognised(raw))
    if name in FAMILIES:
        return reader(name)(raw, path, sequence_length, element_bytes)
    if knows(name):
        return from_transformers(raw, path, sequence_length, element_bytes)
    more = "" if available() else " (the extra zerosim[torch] adds those of transformers)"
    raise UnknownNameError(f"model_type{more}", name, FAMILIES, file=path, key="model_type")


def reader(model_type: str) -> Reader:
    """Return the reader of a family of :data:`FAMILIES`."""
    readers: Mapping[str, Reader] = import_module(f"simulator.world.model.{FAMILIES[model_type]}").READERS
    return readers[model_type]


def _recognised(raw: dict[str, Any]) -> str:
    """Return the family of a config that does not name it; empty if its keys are nobody's."""
    return next((name for name, keys in SIGNS if keys <= raw.keys()), "")
