"""Results as flat rows, and as a table of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from simulator.errors import InputError
from simulator.readings.metrics import unit_of

__all__ = ["as_frame", "flat_rows"]


def flat_rows(results: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows without nesting: ``exposed.stalled`` for a key inside a key, ``a; b`` for a list.

    >>> next(flat_rows([{"point": {"topology.hosts": 2}, "exposed": {"stalled": 0.5}, "assumed": ["a", "b"]}]))
    {'topology.hosts': 2, 'exposed.stalled': 0.5, 'assumed': 'a; b'}
    """
    for result in results:
        rest = {key: value for key, value in result.items() if key != "point"}
        yield {**result.get("point", {}), **dict(_flat(rest, ""))}


def as_frame(results: Iterable[Mapping[str, Any]], units: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Return a ``pandas.DataFrame`` with a row for each of *results*: the varied keys, then those of a result.

    ``attrs["units"]`` has the units of the columns that are numbers with one.

    Parameters
    ----------
    results
        As :func:`simulator.sweep.as_results` gives them.
    units
        Of columns that no key of a result is called.

    Raises
    ------
    InputError
        pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        remedy = "install the extra: pip install 'zerosim[pandas]'"
        raise InputError("a DataFrame needs pandas", remedy=remedy) from None
    frame = pandas.DataFrame(list(flat_rows(results)))
    known = {column: units.get(column) or unit_of(column) for column in frame.columns}
    frame.attrs["units"] = {column: unit for column, unit in known.items() if unit}
    return frame


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "; ".join(map(str, value)) if isinstance(value, list | tuple) else value
