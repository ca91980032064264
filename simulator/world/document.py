"""Files that people wrote, turned into typed sections or into one clear line about what is wrong.

PyYAML reads the text, msgspec checks it against a schema (a ``msgspec.Struct`` that forbids unknown fields); this
module translates their complaints into :class:`~simulator.errors.InputError`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Hashable, Iterator, Mapping
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

import msgspec
import yaml

from simulator.errors import InputError, UnknownNameError
from simulator.units import Quantity

__all__ = [
    "Section",
    "convert",
    "convert_options",
    "data_directory",
    "find",
    "read_mapping",
    "read_section",
    "yaml_text",
]

T = TypeVar("T")


class Section(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of every section of a file: unknown keys are errors."""


@cache
def data_directory(name: str) -> Path:
    """Return the folder *name* (``topologies`` or ``scenarios``) that ships with the package.

    In a wheel it lies inside the package, in a checkout beside it.
    """
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data" / name
    return installed if installed.is_dir() else package.parent / name


def find(reference: str, beside: Path | None, shipped: str, suffix: str = "") -> Path:
    """Return the file that *reference* names.

    Looked up in this order: relative to the file that holds the reference, relative to the working directory, by
    name in the shipped folder.

    Raises
    ------
    InputError
        No such file.
    """
    places = ([beside.parent] if beside else []) + [Path.cwd(), data_directory(shipped)]
    for place in places:
        for candidate in (place / reference, place / f"{reference}{suffix}"):
            if candidate.is_file():
                return candidate
    if suffix and "/" not in reference and not reference.endswith(suffix):
        known = [path.stem for path in data_directory(shipped).glob(f"*{suffix}") if path.stem != "sources"]
        raise UnknownNameError(f"name in {shipped}/", reference, known, file=beside)
    origin = "this file" if beside else "the working directory"
    raise InputError("no such file", file=beside, value=reference, remedy=f"give a path relative to {origin}")


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file whose top level is a mapping.

    Raises
    ------
    InputError
        The file is missing or unreadable, is not YAML, repeats a key, holds NaN or infinity, or is no mapping.
    """
    return parse_mapping(_text(path), path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("no such file", file=path, remedy="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None


def read_section(path: Path, schema: type[T]) -> T:
    """Read a file and :func:`convert` it; the section is shared and not to be changed.

    Raises
    ------
    InputError
        As :func:`read_mapping` and :func:`convert`.
    """
    found: T = _section(_text(path), path, cast("Hashable", schema))
    return found


@lru_cache(maxsize=64)  # by content, so that a file that changed is read again
def _section(text: str, path: Path, schema: type) -> Any:
    return convert(parse_mapping(text, path), schema, path)


def parse_mapping(text: str, path: object) -> dict[str, Any]:
    """Parse *text* as :func:`read_mapping` does; *path* is only named in errors."""
    try:
        content = deepcopy(_loaded(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"not valid YAML{line}: {problem}", file=path) from None
    if not isinstance(content, dict):
        found = type(content).__name__ if content is not None else "nothing"
        raise InputError(f"expected a mapping of keys to values, found {found}", file=path)
    for key, value in _numbers(content):
        if not math.isfinite(value):
            raise InputError("not a finite number", file=path, key=key, value=value)
    return content


@lru_cache(maxsize=256)  # by content, so that a file that changed is parsed again
def _loaded(text: str) -> object:
    return yaml.load(text, _Loader)  # noqa: S506 - _Loader derives from the safe loader


def convert(raw: object, schema: type[T], file: object, key: str = "") -> T:
    """Check *raw* against *schema* and return the typed section.

    Raises
    ------
    InputError
        With file, dotted key, value, and what was expected.
    """
    try:
        return msgspec.convert(raw, schema, dec_hook=_quantity)
    except msgspec.ValidationError as error:
        raise _translated(error, raw, schema, file, key) from None


def convert_options(raw: Mapping[str, Any], options: type[T], file: object, key: str) -> T:
    """Check *raw* against the fields of the dataclass *options*.

    Raises
    ------
    InputError
        An unknown option or a value of the wrong type.
    """
    known = [field.name for field in dataclasses.fields(options)]  # type: ignore[arg-type]
    for name in raw:
        if name not in known:
            raise UnknownNameError("option", str(name), known, file=file, key=key)
    return convert(dict(raw), options, file, key)


def _quantity(kind: type, value: object) -> object:
    if issubclass(kind, Quantity):
        return kind.parse(value)
    raise NotImplementedError(kind)


def _translated(error: msgspec.ValidationError, raw: object, schema: type, file: object, key: str) -> InputError:
    message, _, path = str(error).partition(" - at `$")
    steps = _steps(path.rstrip("`"))
    where = ".".join([*([key] if key else []), *steps])
    unknown = re.search(r"unknown field `(.*)`", message)
    if unknown:
        return UnknownNameError("key", unknown[1], _field_names(schema, steps), file=file, key=where)
    missing = re.search(r"missing required field `(.*)`", message)
    if missing:
        return InputError(f"the key {missing[1]!r} is missing", file=file, key=where)
    cause = error.__cause__
    if isinstance(cause, InputError):
        return InputError(cause.problem, file=file, key=where, value=cause.value, remedy=cause.remedy)
    if message.startswith("Invalid enum value"):
        return UnknownNameError("choice", str(_value_at(raw, steps)), _choices(schema, steps), file=file, key=where)
    expected = message.replace("`", "").replace("object", "mapping").replace("array", "list")
    return InputError(expected[0].lower() + expected[1:], file=file, key=where, value=_value_at(raw, steps))


def _steps(path: str) -> list[str]:
    return [step for step in re.split(r"[.\[\]]+", path) if step and step != "..."]


def _value_at(raw: object, steps: list[str]) -> object:
    for step in steps:
        if isinstance(raw, list):
            raw = raw[int(step)]
        elif isinstance(raw, Mapping):
            raw = raw.get(step)
    return None if isinstance(raw, dict | list) else raw


def _field_names(schema: Any, steps: list[str]) -> list[str]:
    """Names of the fields of the section that *steps* lead to."""
    for step in steps:
        if not step.isdigit():
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(schema)}
            schema = fields.get(step, schema)
        schema = _section_in(schema)
    return [field.encode_name for field in msgspec.structs.fields(schema)]


def _choices(schema: Any, steps: list[str]) -> list[str]:
    """Values that the field that *steps* lead to can have."""
    for step in steps:
        if not step.isdigit():
            schema = typing.get_type_hints(_section_in(schema))[step]
    return [str(choice) for choice in _literals(schema)]


def _literals(kind: Any) -> Iterator[object]:
    if typing.get_origin(kind) is typing.Literal:
        yield from typing.get_args(kind)
    else:
        for inner in typing.get_args(kind):
            yield from _literals(inner)


def _section_in(kind: Any) -> Any:
    """Return the section type inside ``X | None``, ``tuple[X, ...]`` or ``dict[str, X]``."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is not None:
        for inner in typing.get_args(kind):
            found = _section_in(inner)
            if isinstance(found, type) and issubclass(found, msgspec.Struct):
                return found
    return kind


def _numbers(content: object, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _numbers(value, f"{key}.{name}" if key else str(name))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from _numbers(value, f"{key}[{index}]")
    elif isinstance(content, float):
        yield key, content


MERGE: Final = "tag:yaml.org,2002:merge"
"""The key ``<<``, which takes over another mapping."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Safe YAML that refuses a key given twice and reads ``1e9`` as a number and a date as text, as JSON does."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:  # what stands beside it comes first
                continue
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return dict(super().construct_mapping(node, deep=deep))


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return *content* as the text of a file that :func:`read_mapping` reads."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=110)
