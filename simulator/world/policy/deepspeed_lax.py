"""How DeepSpeed's own schema (pydantic, not strict) turns what stands in a file into numbers and booleans.

``"500000000"``, ``5e8`` and ``true`` are integers there, ``"5e8"`` and 5.5 are not; ``"yes"`` and 1 are booleans.
What cannot be turned is refused here with a line that says how to write it.
"""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from simulator.errors import InputError

__all__ = ["AUTO", "relaxed"]

AUTO: Final = "auto"
"""Left for a trainer to fill in; DeepSpeed alone drops the key."""

_WHOLE: Final = re.compile(r"[-+]?\d+(?:_\d+)*(?:\.0+)?", re.ASCII)
_TRUE: Final = ("1", "true", "t", "yes", "y", "on")
_FALSE: Final = ("0", "false", "f", "no", "n", "off")


def relaxed(
    raw: Mapping[str, Any], schema: type[msgspec.Struct], file: object, key: str, *, auto: bool = True
) -> dict[str, Any]:
    """Return *raw* with every value that *schema* knows turned into the type it asks for.

    Parameters
    ----------
    auto
        Leave out keys whose value is ``"auto"``.

    Raises
    ------
    InputError
        A value that DeepSpeed would not take for a number or a boolean.
    """
    known = _kinds(schema)
    return {
        name: _value(value, known[name], file, f"{key}.{name}" if key else name) if name in known else value
        for name, value in raw.items()
        if not auto or value != AUTO or _takes_auto(known.get(name))
    }


@cache
def _kinds(schema: type[msgspec.Struct]) -> dict[str, Any]:
    kinds = typing.get_type_hints(schema)
    return {field.encode_name: kinds[field.name] for field in msgspec.structs.fields(schema)}


def _takes_auto(kind: Any) -> bool:
    return any(AUTO in typing.get_args(inner) for inner in typing.get_args(kind))


def _value(value: Any, kind: Any, file: object, key: str) -> Any:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if value is None or _takes_auto(kind):
            return value
        kinds = [inner for inner in typing.get_args(kind) if inner is not type(None)]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind in _READERS:
        return _READERS[kind](value, file, key)
    if typing.get_origin(kind) is tuple and isinstance(value, str):
        return [value]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if not isinstance(value, Mapping):
            remedy = "leave the key out" if value is False else None
            raise _error("expected a mapping", value, file, key, remedy)
        return relaxed(value, kind, file, key)
    return value


def _boolean(value: Any, file: object, key: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    raise _error("expected true or false", value, file, key)


def _integer(value: Any, file: object, key: str) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    remedy = None
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+(\.\d*)?[eE]\+?\d+\s*", value):
        remedy = f"DeepSpeed refuses it as a string; write {value.strip()} without the quotes"
    raise _error("expected a whole number", value, file, key, remedy)


def _real(value: Any, file: object, key: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise _error("expected a finite number", value, file, key)
    return number


def _error(problem: str, value: object, file: object, key: str, remedy: str | None = None) -> InputError:
    found = ", found null" if value is None else ""
    return InputError(problem + found, file=file, key=key, value=value, remedy=remedy)


_READERS: Final[Mapping[type, Callable[[Any, object, str], object]]] = {bool: _boolean, int: _integer, float: _real}
