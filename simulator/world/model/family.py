"""A model family as the registry knows it: the keys it reads, and the function that builds its modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from simulator.errors import InputError
from simulator.world.document import convert
from simulator.world.model.assembly import Built

__all__ = ["Reader", "family"]

Reader = Callable[[dict[str, Any], Path, int, int], Built]
"""From the content of a config, its path, the sequence length and the bytes of an element."""

T = TypeVar("T")

NOTHING: Mapping[str, Any] = MappingProxyType({})


def family(
    schema: type[T],
    build: Callable[[T, int, int], Built],
    *,
    renamed: Mapping[str, str] = NOTHING,
    defaults: Mapping[str, Any] = NOTHING,
) -> Reader:
    """Return the reader of a family.

    Parameters
    ----------
    schema
        The section with the keys that decide shapes.
    build
        Takes the section, the sequence length and the bytes of an element.
    renamed
        Name in the section by other names that files use.
    defaults
        Values of keys that are missing, where the files' do not follow the section's.
    """

    def read(raw: dict[str, Any], path: Path, sequence_length: int, element_bytes: int) -> Built:
        named = {**defaults, **{renamed.get(key, key): value for key, value in raw.items()}}
        config = convert({**named, **{key: raw[key] for key in raw if key not in renamed}}, schema, path)
        try:
            return build(config, sequence_length, element_bytes)
        except InputError as error:
            raise InputError(error.problem, file=path, key=error.key, value=error.value, remedy=error.remedy) from None

    return read
