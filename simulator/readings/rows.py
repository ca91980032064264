"""Results of a sweep as flat rows, and as a table of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from simulator.errors import InputError

__all__ = ["as_frame", "flat_rows"]


def flat_rows(results: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows without nesting: ``exposed.stalled`` for a key inside a key, ``a; b`` for a list.

    >>> next(flat_rows([{"point": {"topology.hosts": 2}, "exposed": {"stalled": 0.5}, "assumed": ["a", "b"]}]))
    {'topology.hosts': 2, 'exposed.stalled': 0.5, 'assumed': 'a; b'}
    """
    for result in results:
        rest = {key: value for key, value in result.items() if key != "point"}
        yield {**result["point"], **dict(_flat(rest, ""))}


def as_frame(results: Iterable[Mapping[str, Any]]) -> Any:
    """Return a ``pandas.DataFrame`` with a row for each of *results*: the varied keys, then those of a result.

    Parameters
    ----------
    results
        As :func:`simulator.sweep.as_results` gives them.

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
    return pandas.DataFrame(list(flat_rows(results)))


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "; ".join(map(str, value)) if isinstance(value, list | tuple) else value
