"""The border between what people write and what the package computes with.

Inside, every quantity is an SI float without prefix: seconds, bytes, bytes/s, FLOP, FLOP/s, US$.  Outside, it is a
string with a unit.  QuantiPhy does the parsing of numbers and prefixes; this module only decides which units belong
to which kind of quantity, and refuses everything else with an example.

Each kind is a subclass of ``float`` so that a schema can name it as the type of a field.
"""

from __future__ import annotations

import math
import re
from typing import ClassVar, Final, Self

from quantiphy import QuantiPhyError
from quantiphy import Quantity as _Parser

from simulator.errors import InputError

__all__ = [
    "Bandwidth",
    "Bytes",
    "Duration",
    "Flop",
    "FlopRate",
    "Price",
    "Quantity",
    "Share",
    "binary",
    "quantity",
    "readable",
]

_NUMBER: Final = re.compile(r"^\s*[+-]?[\d._]+(?:[eE][+-]?\d+)?\s*")


class Quantity(float):
    """A number with a unit; subclasses fix the kind."""

    factors: ClassVar[dict[str, float]] = {}
    """Accepted spellings of the unit, and what one of them is in SI."""

    example: ClassVar[str] = ""
    """A correct value, for the error message."""

    zero_is_fine: ClassVar[bool] = True
    """False where zero would mean that nothing ever ends."""

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read *text* such as ``"400 Gbit/s"``.

        Raises
        ------
        InputError
            No unit, a unit of another kind, or a number that is negative, infinite or not a number.
        """
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise InputError("a bare number has no unit", value=text, remedy=f"write it like {cls.example!r}")
        try:
            parsed = _Parser(text, binary=True)
        except QuantiPhyError:
            raise InputError("not a number with a unit", value=text, remedy=f"write it like {cls.example!r}") from None
        unit = parsed.units.replace(" ", "")
        if unit not in cls.factors:
            written = _NUMBER.sub("", text)  # with the letter that was read as a prefix
            what = f"{written!r} is not a unit for this quantity" if unit else "the unit is missing"
            raise InputError(what, value=text, remedy=f"write it like {cls.example!r}")
        value = float(parsed) * cls.factors[unit]
        if not math.isfinite(value) or value < 0 or (value == 0 and not cls.zero_is_fine):
            problem = "must be a finite number" + ("" if cls.zero_is_fine else " above zero")
            raise InputError(problem, value=text, remedy=f"write it like {cls.example!r}")
        return cls(value)


class Duration(Quantity):
    """Seconds.

    >>> Duration.parse("25 ms")
    0.025
    """

    factors: ClassVar[dict[str, float]] = {"s": 1.0}
    example: ClassVar[str] = "4 us"


class Bytes(Quantity):
    """Bytes; ``GB`` is 1e9 and ``GiB`` is 2**30."""

    factors: ClassVar[dict[str, float]] = {"B": 1.0, "bit": 1 / 8}
    example: ClassVar[str] = "80 GB"


class Bandwidth(Quantity):
    """Bytes per second in one direction.

    >>> Bandwidth.parse("400 Gbit/s")
    50000000000.0
    """

    factors: ClassVar[dict[str, float]] = {"B/s": 1.0, "bit/s": 1 / 8}
    example: ClassVar[str] = "400 Gbit/s"
    zero_is_fine: ClassVar[bool] = False


class Flop(Quantity):
    """Floating-point operations; a multiply-add is two."""

    factors: ClassVar[dict[str, float]] = {"FLOP": 1.0}
    example: ClassVar[str] = "78 TFLOP"


class FlopRate(Quantity):
    """Floating-point operations per second."""

    factors: ClassVar[dict[str, float]] = {"FLOP/s": 1.0}
    example: ClassVar[str] = "312 TFLOP/s"
    zero_is_fine: ClassVar[bool] = False


class Price(Quantity):
    """US$ per hour."""

    factors: ClassVar[dict[str, float]] = {"USD/h": 1.0, "$/h": 1.0, "US$/h": 1.0}
    example: ClassVar[str] = "1.43 USD/h"


class Share(Quantity):
    """A part of a whole.

    >>> Share.parse("5 %")
    0.05
    """

    factors: ClassVar[dict[str, float]] = {"%": 0.01}
    example: ClassVar[str] = "5 %"


_BY_UNIT = {"s": Duration, "B": Bytes, "B/s": Bandwidth, "FLOP": Flop, "FLOP/s": FlopRate, "USD/h": Price}


def quantity(unit: str) -> type[Quantity]:
    """Return the kind of quantity whose SI unit is *unit*."""
    return _BY_UNIT[unit]


def readable(value: float, unit: str, digits: int = 3) -> str:
    """Return *value* with a metric prefix for people.

    >>> readable(0.0123, "s"), readable(5e10, "B/s"), readable(0.0, "s")
    ('12.3 ms', '50 GB/s', '0 s')
    """
    return str(_Parser(value, unit).render(prec=digits - 1, strip_zeros=True))


def binary(size: float) -> str:
    """Return *size* [B] with a binary prefix for people.

    >>> binary(2**20), binary(1.5 * 2**30), binary(512)
    ('1 MiB', '1.5 GiB', '512 B')
    """
    return str(_Parser(size, "B").binary(prec=3))
