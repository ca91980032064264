"""What a sweep varies: keys of the scenario, and the values that they take.

====================== ============================================================
``a,b,c``              these values, each written as in the file
``a..b``               the whole numbers from a to b
``a..b:n``             n values at equal distances
``a..b:n:log``         n values at equal ratios
``a..b:n:whole``       rounded to whole numbers, each once; ``:log:whole`` does both
====================== ============================================================

A unit stands behind the last number, or behind both: ``100..800Gbit/s:8``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.errors import InputError
from simulator.world.measurements.tables import read_table
from simulator.world.overrides import split_override, value_of

__all__ = ["MOST_POINTS", "Axis", "axis", "axis_of_table", "together"]

MOST_POINTS: Final = 1_000_000  # definition: more is a slip of the pen rather than a sweep

EXAMPLE: Final = "write it like 2..64, 100..800Gbit/s:20, 1..1024:11:log or 2,4,8"

_RANGE: Final = re.compile(
    r"""\s* (?P<low>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?) \s* (?P<low_unit>[^\s\d.:]*) \s* \.\.
        \s* (?P<high>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?) \s* (?P<unit>[^\s\d.:]*) \s*
        (?: : (?P<count>\d+) (?P<flags>(?::log|:whole)*) )? \s*""",
    re.VERBOSE | re.ASCII,
)
_MEANT_AS_A_RANGE: Final = re.compile(r"(?:^|,)\s*[-+]?\d(?:[^,/]*\.\.|[^,]*\.\.\s*[-+]?\d)")
"""A number before two dots; ``../a.json`` and ``7b/../a.json`` are paths."""

Point = Mapping[str, Any]
"""Values by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Keys that change together."""

    keys: tuple[str, ...]
    points: tuple[Point, ...]
    """What the keys are at each position; a key that is missing there stays what it is in the scenario."""


def axis(text: str, option: str = "--over") -> Axis:
    """Read ``KEY=VALUES``; *option* is named in errors.

    Raises
    ------
    InputError
        No key, no value, or a range that is none.

    >>> [point["a.b"] for point in axis("a.b=100..400Gbit/s:3").points]
    ['100 Gbit/s', '250 Gbit/s', '400 Gbit/s']
    """
    key, text = split_override(text, option)
    where = f"{option} {key}"
    values = _range(text, where) if _MEANT_AS_A_RANGE.search(text) else value_of(f"[{text}]", where)
    if not values:
        raise InputError("no value", key=where, remedy=EXAMPLE)
    return Axis(keys=(key,), points=tuple({key: value} for value in values))


def together(axes: Sequence[Axis], option: str = "--together") -> Axis:
    """Let *axes* change side by side: the first values of all, then the second ones.

    Raises
    ------
    InputError
        They are not equally long.
    """
    lengths = [len(item.points) for item in axes]
    if len(set(lengths)) > 1:
        told = ", ".join(f"{item.keys[0]} has {len(item.points)}" for item in axes)
        raise InputError(f"expected as many values for every key: {told}", key=option)
    sides = zip(*(item.points for item in axes), strict=True)
    points = tuple({key: value for point in side for key, value in point.items()} for side in sides)
    return Axis(keys=tuple(key for item in axes for key in item.keys), points=points)


def axis_of_table(file: Path) -> Axis:
    """Read points from a comma-separated table: columns are keys, a blank cell leaves the scenario's value.

    Raises
    ------
    InputError
        As :func:`~simulator.world.measurements.tables.read_table`, or a column has no name.
    """
    table = read_table(file)
    if "" in table.columns:
        raise InputError("a column has no name", file=file, remedy="name it after a key, like topology.hosts")
    points = [
        {key: value_of(cell, f"{file}: row {number}, {key}") for key, cell in row.items() if cell}
        for number, row in enumerate(table.rows, start=1)
    ]
    return Axis(keys=tuple(table.rows[0]), points=tuple(points))


def _range(text: str, where: str) -> Sequence[Any]:
    """Values of ``a..b`` in all its forms."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise InputError("not a range", key=where, value=text, remedy=EXAMPLE)
    low, high, flags = float(found["low"]), float(found["high"]), found["flags"] or ""
    if found["low_unit"] not in ("", found["unit"]):
        raise InputError("the ends have different units", key=where, value=text, remedy="write both in one unit")
    if found["count"] is None:
        numbers = _whole(low, high, text, where)
    else:
        numbers = _spread(low, high, _count(found["count"], text, where), "log" in flags, text, where)
    if "whole" in flags:
        numbers = list(dict.fromkeys(float(round(number)) for number in numbers))
    fractions = not (low.is_integer() and high.is_integer())
    return [_written(number, found["unit"], fractions=fractions) for number in numbers]


def _whole(low: float, high: float, text: str, where: str) -> list[float]:
    if not (low.is_integer() and high.is_integer()):
        raise InputError("not whole numbers", key=where, value=text, remedy=f"say how many values: {text}:10")
    if low > high:
        raise InputError("the first number is larger", key=where, value=text, remedy="write the smaller one first")
    _count(str(int(high - low) + 1), text, where)
    return [float(number) for number in range(int(low), int(high) + 1)]


def _count(digits: str, text: str, where: str) -> int:
    if int(digits) > MOST_POINTS:
        raise InputError(f"more than {MOST_POINTS:,} values", key=where, value=text, remedy="use fewer")
    return int(digits)


def _spread(low: float, high: float, count: int, log: bool, text: str, where: str) -> list[float]:
    """*count* numbers from *low* to *high*, both exactly among them."""
    if count < 2:
        raise InputError("a range has two values at least", key=where, value=text, remedy=EXAMPLE)
    if low >= high:
        raise InputError("the first number is not smaller", key=where, value=text, remedy="write the smaller one first")
    if log and low <= 0:
        raise InputError("equal ratios need numbers above zero", key=where, value=text, remedy="leave :log out")
    shares = [position / (count - 1) for position in range(count)]
    inner = [low * (high / low) ** share if log else low + (high - low) * share for share in shares[1:-1]]
    return [low, *inner, high]


def _written(number: float, unit: str, *, fractions: bool) -> Any:
    """Write *number* as a person would: without the last digits of rounding, whole where it is."""
    short = f"{number:.12g}"
    if unit:
        return f"{short} {unit}"
    return float(short) if fractions or not float(short).is_integer() else int(float(short))
