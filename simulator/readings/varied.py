"""Keys that a sweep varied: their values in order, as numbers with a unit where they are numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from simulator.errors import InputError
from simulator.units import quantity

__all__ = ["VARIANT", "Dimension", "dimensions", "number_text", "place_of", "short_names", "spread_evenly_in_ratios"]

VARIANT: Final = "variant"
"""Stands beside the keys: which variant of the scenario."""

UNSAID: Final = "(scenario)"
"""Value of a key where a point leaves it as it is in the scenario."""

SI_UNITS: Final = ("s", "B", "B/s", "FLOP", "FLOP/s", "USD/h")

_WRITTEN: Final = re.compile(r"\s*([-+]?[\d._]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A key that a sweep varied, or the variant."""

    key: str
    texts: tuple[str, ...]
    """Its values as written: ascending if they are numbers, else in the order in which they are met."""
    numbers: tuple[float, ...] | None
    """The same in ``unit``; None if they are not all numbers of one kind."""
    unit: str

    @property
    def label(self) -> str:
        """Return the key and the unit, for an axis."""
        return f"{self.key} [{self.unit}]" if self.unit else self.key

    @property
    def logarithmic(self) -> bool:
        """Whether the numbers lie more evenly on a logarithmic axis."""
        return self.numbers is not None and spread_evenly_in_ratios(self.numbers)

    def shown(self) -> tuple[str, ...]:
        """Values for the ticks of an axis that has the unit."""
        return self.texts if self.numbers is None else tuple(number_text(number) for number in self.numbers)

    def told(self, text: str) -> str:
        """Value *text* with its unit, rounded for people."""
        shown = self.shown()[self.texts.index(text)]
        return f"{shown} {self.unit}" if self.unit else shown


def place_of(row: Mapping[str, Any], key: str) -> str:
    """Value of *key*, as written, in a result or in a point of one."""
    return str(row["name"]) if key == VARIANT else str(row["point"].get(key, UNSAID))


def dimensions(rows: Iterable[Mapping[str, Any]]) -> dict[str, Dimension]:
    """Every key of the points of *rows*, and the variant as the first.

    >>> found = dimensions({"name": "zero1", "point": {"speed": speed}} for speed in ("2 Gbit/s", "500 Mbit/s"))
    >>> found["speed"].texts, found["speed"].numbers, found["speed"].label
    (('500 Mbit/s', '2 Gbit/s'), (0.5, 2.0), 'speed [Gbit/s]')
    """
    rows = list(rows)
    keys = dict.fromkeys(key for row in rows for key in row["point"])
    values = {key: {place_of(row, key): row["point"].get(key) for row in rows} for key in keys}
    variants = tuple(dict.fromkeys(place_of(row, VARIANT) for row in rows))
    first = Dimension(key=VARIANT, texts=variants, numbers=None, unit="")
    return {VARIANT: first, **{key: _dimension(key, found) for key, found in values.items()}}


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """The last words of each key that tell it from all others.

    >>> short_names(["topology.links.network.bandwidth", "topology.links.bus.bandwidth", "training.micro_batch"])
    {'topology.links.network.bandwidth': 'network.bandwidth', \
'topology.links.bus.bandwidth': 'bus.bandwidth', 'training.micro_batch': 'micro_batch'}
    """
    keys = list(keys)

    def tail(key: str, words: int) -> str:
        return ".".join(key.split(".")[-words:])

    def shortest(key: str) -> str:
        lengths = range(1, key.count(".") + 2)
        alone = (words for words in lengths if sum(tail(other, words) == tail(key, words) for other in keys) == 1)
        return tail(key, next(alone, lengths[-1]))

    return {key: shortest(key) for key in keys}


def spread_evenly_in_ratios(numbers: Sequence[float]) -> bool:
    """Whether the ratios of ascending *numbers* vary less than their differences.

    >>> [spread_evenly_in_ratios(some) for some in ([1, 2, 4, 8], [1, 2, 5, 10], [1, 2, 3, 4], [0, 1, 10], [1, 9])]
    [True, True, False, False, False]
    """
    numbers = sorted(set(numbers))
    if len(numbers) < 3 or numbers[0] <= 0:
        return False
    differences = [after - before for before, after in pairwise(numbers)]
    ratios = [math.log(after / before) for before, after in pairwise(numbers)]
    return max(ratios) / min(ratios) < max(differences) / min(differences)


def number_text(number: float) -> str:
    """*number* with three digits that say something.

    >>> [number_text(number) for number in (39.685, 1024, 0.25, 4, 1e-5, 3.2e12)]
    ['39.7', '1,024', '0.25', '4', '1e-05', '3.2e+12']
    """
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e7 else f"{number:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """A number as written: its kind by the SI unit, what it is in that, and what one of the written unit is."""

    kind: str
    value: float
    unit: str
    size: float


def _dimension(key: str, values: Mapping[str, Any]) -> Dimension:
    amounts = {text: _amount(value) for text, value in values.items()}
    known = {text: amount for text, amount in amounts.items() if amount is not None}
    if len(known) < len(amounts) or len({amount.kind for amount in known.values()}) > 1:
        return Dimension(key=key, texts=tuple(values), numbers=None, unit="")
    texts = sorted(known, key=lambda text: known[text].value)
    largest = known[texts[-1]]
    numbers = tuple(known[text].value / largest.size for text in texts)
    return Dimension(key=key, texts=tuple(texts), numbers=numbers, unit=largest.unit)


def _amount(value: Any) -> _Amount | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _Amount(kind="", value=float(value), unit="", size=1.0)
    written = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if written is None:
        return None
    for kind in SI_UNITS:
        try:
            found = float(quantity(kind).parse(value))
        except InputError:
            continue
        number = float(written[1])
        return _Amount(kind=kind, value=found, unit=written[2], size=found / number if number else 1.0)
    return None
