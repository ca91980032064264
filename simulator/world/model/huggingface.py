"""``config.json`` as Hugging Face writes it: which family, which reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import convert, read_mapping
from simulator.world.model.gpt2 import GPT2Config, gpt2
from simulator.world.model.layer import Layer
from simulator.world.model.llama import LlamaConfig, llama
from simulator.world.model.module import Module

__all__ = ["model_from_config", "model_from_mapping"]

Built = tuple[Module, tuple[Layer, ...]]


def _llama(raw: dict[str, Any], path: Path, sequence_length: int, element_bytes: int) -> Built:
    return llama(convert(raw, LlamaConfig, path), sequence_length, element_bytes)


def _gpt2(raw: dict[str, Any], path: Path, sequence_length: int, element_bytes: int) -> Built:
    config = convert(raw, GPT2Config, path)
    if sequence_length > config.n_positions:
        remedy = f"use at most {config.n_positions}"
        raise InputError(
            "the model has no more positions", key="model.sequence_length", value=sequence_length, remedy=remedy
        )
    return gpt2(config, sequence_length, element_bytes)


FAMILIES: dict[str, Callable[[dict[str, Any], Path, int, int], Built]] = {"llama": _llama, "gpt2": _gpt2}
"""Reader by ``model_type``."""


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
    family = str(raw.get("model_type", ""))
    if family not in FAMILIES:
        raise UnknownNameError("model_type", family, FAMILIES, file=path, key="model_type")
    return FAMILIES[family](raw, path, sequence_length, element_bytes)
