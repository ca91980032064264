"""Tables of measured layers: a row has the times of one micro-batch for one layer or module, or for several alike.

Columns are ``layer``, ``forward`` and ``backward``, and if wanted ``recompute``, ``activations``, ``tokens`` and
``notes``.  A cell states its unit, or the column does for all of them: ``forward`` has ``3.2 ms`` where ``forward_ms``
has ``3.2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.errors import InputError, UnknownNameError
from simulator.units import Bytes, Duration, Quantity
from simulator.world.measurements.tables import Table, read_table

__all__ = ["QUANTITIES", "LayerRow", "read_layers"]

QUANTITIES: Final[Mapping[str, type[Quantity]]] = {
    "forward": Duration,
    "backward": Duration,
    "recompute": Duration,
    "activations": Bytes,
}
"""What a column can hold with a unit."""

COLUMNS: Final = ("layer", *QUANTITIES, "tokens", "notes")

REQUIRED: Final = ("layer", "forward", "backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """What a row says."""

    file: Path
    number: int
    """1 is the first below the names of the columns."""
    name: str
    """Of the layer or module, as written."""
    forward: float
    """[s]"""
    backward: float
    """[s]"""
    recompute: float | None
    """Of a forward that is run again under activation checkpointing; None: the table does not say [s]."""
    activations: float | None
    """What backward needs when nothing is recomputed; None: the table does not say [B]."""
    tokens: int | None
    """Of the micro-batch that was measured; None: the table does not say."""

    def error(self, problem: str, column: str, value: object, remedy: str) -> InputError:
        """Return an error about what stands in a column."""
        return _error(self.file, self.number, column, problem, value, remedy)


def read_layers(file: Path) -> tuple[LayerRow, ...]:
    """Read a table of measured layers.

    Raises
    ------
    InputError
        It is no table, a column is missing or unknown or says what another says, or a cell is not what it should be.
    """
    table = read_table(file)
    columns = _columns(table)
    return tuple(_row(file, number, cells, columns) for number, cells in enumerate(table.rows, start=1))


def _columns(table: Table) -> dict[str, tuple[str, str]]:
    """Return column and unit of what the table has."""
    found: dict[str, tuple[str, str]] = {}
    for column in sorted(table.columns):
        name, _, unit = column.partition("_")
        if name not in COLUMNS or (unit and name not in QUANTITIES):
            raise UnknownNameError("column", column, COLUMNS, file=table.file)
        if name in found:
            raise InputError(f"a second column for {name!r}", file=table.file, value=column, remedy="leave one of them")
        if unit:
            _check_unit(table.file, column, QUANTITIES[name], unit)
        found[name] = column, unit
    for name in REQUIRED:
        if name not in found:
            raise InputError(f"no column {name!r}", file=table.file, remedy=f"columns are {', '.join(COLUMNS)}")
    return found


def _check_unit(file: Path, column: str, kind: type[Quantity], unit: str) -> None:
    try:
        kind.parse(f"1 {unit}")
    except InputError:
        example = kind.example.split()[1]
        raise InputError(f"{unit!r} is not a unit", file=file, value=column, remedy=f"such as {example!r}") from None


def _row(file: Path, number: int, cells: Mapping[str, str], columns: Mapping[str, tuple[str, str]]) -> LayerRow:
    def quantity(name: str) -> float | None:
        column, unit = columns.get(name, ("", ""))
        written = cells.get(column)
        try:
            return float(QUANTITIES[name].parse(f"{written} {unit}".strip())) if written else None
        except InputError as error:
            remedy = f"write a number, the column says {unit}" if unit else error.remedy
            raise _error(file, number, column, error.problem, written, remedy) from None

    def required(name: str) -> float:
        value = quantity(name)
        if value is None:
            raise _error(file, number, columns[name][0], "the cell is empty", None, "measure it, or leave the row out")
        return value

    return LayerRow(
        file=file,
        number=number,
        name=cells["layer"],
        forward=required("forward"),
        backward=required("backward"),
        recompute=quantity("recompute"),
        activations=quantity("activations"),
        tokens=_tokens(file, number, cells.get("tokens")),
    )


def _tokens(file: Path, number: int, written: str | None) -> int | None:
    if not written:
        return None
    if not (written.isascii() and written.isdigit() and int(written)):
        raise _error(file, number, "tokens", "expected a number", written, "write micro-batch x sequence length")
    return int(written)


def _error(file: Path, number: int, column: str, problem: str, value: object, remedy: str | None) -> InputError:
    return InputError(problem, file=file, key=f"row {number}, {column}", value=value, remedy=remedy)
