"""What a question is about: a scenario by name or path, its content, or one that is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from simulator.errors import InputError
from simulator.world.overrides import replace_key
from simulator.world.scenario import Scenario, Variant, read_scenario, resolve_scenario

__all__ = ["AS_IT_IS", "Source", "content_of", "each", "scenario_of", "variants_of"]

T = TypeVar("T")

Source = str | Path | Mapping[str, Any] | Scenario

AS_IT_IS: Final[Mapping[str, Any]] = MappingProxyType({})
"""No changes."""

IN_PLACE: Final = Path("scenario")
"""What errors call content that is in no file; paths in it start in the working directory."""


def content_of(source: Source, changes: Mapping[str, Any] = AS_IT_IS) -> tuple[dict[str, Any], Path]:
    """Return content of a scenario with *changes*, and the file.

    Raises
    ------
    InputError
        There is no such file, or a key leads nowhere.
    """
    if isinstance(source, Scenario):
        raw, file = deepcopy(dict(source.raw)), source.file
    elif isinstance(source, Mapping):
        raw, file = deepcopy(dict(source)), IN_PLACE
    else:
        raw, file = read_scenario(source)
    for key, value in changes.items():
        replace_key(raw, key, deepcopy(value), file, "changes:")
    return raw, file


def scenario_of(source: Source, changes: Mapping[str, Any] = AS_IT_IS) -> Scenario:
    """Load *source* with *changes*.

    Raises
    ------
    InputError
        As :func:`~simulator.world.scenario.load_scenario`.
    """
    return source if isinstance(source, Scenario) and not changes else resolve_scenario(*content_of(source, changes))


def variants_of(scenario: Scenario, names: str | Sequence[str]) -> tuple[Variant, ...]:
    """Return the variants called *names*, all without names.

    Raises
    ------
    UnknownNameError
        There is no such variant.
    """
    asked = [names] if isinstance(names, str) else names
    return tuple(scenario.variant(name) for name in dict.fromkeys(asked)) or scenario.variants


def each(
    variants: Iterable[Variant], answer: Callable[[Variant], T], done: Callable[[], None]
) -> tuple[list[T], dict[str, InputError]]:
    """Answer for each variant; also return why some have no answer."""
    answers: list[T] = []
    failures: dict[str, InputError] = {}
    for variant in variants:
        try:
            answers.append(answer(variant))
        except InputError as error:
            failures[variant.name] = error
        done()
    return answers, failures
