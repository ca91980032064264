"""Tables of measurements: comma-separated, first line the names of the columns."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import InputError

__all__ = ["Table", "read_table", "require_numbers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What stands in a file."""

    file: Path
    columns: frozenset[str]
    rows: Sequence[Mapping[str, str]]
    """Cells by column, without blanks around them."""


def read_table(file: Path) -> Table:
    """Read a table.

    Raises
    ------
    InputError
        The file cannot be read or has no rows, a column stands twice, or a row has more cells than there are columns.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            lines = [line for line in csv.reader(text, strict=True) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        remedy = "save it as UTF-8" if isinstance(error, UnicodeDecodeError) else None
        raise InputError(f"cannot be read: {reason}", file=file, remedy=remedy) from None
    if not lines:
        raise InputError("the table is empty", file=file, remedy="its first line names the columns")
    if len(lines) == 1:
        raise InputError("no row below the names of the columns", file=file, remedy="give it at least one")
    names = [name.strip() for name in lines[0]]
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise InputError("the column stands twice", file=file, value=twice[0], remedy="leave one of them")
    for number, line in enumerate(lines[1:], start=1):
        if len(line) > len(names):
            raise InputError(f"more cells than the {len(names)} columns", file=file, key=f"row {number}")
    rows = [dict.fromkeys(names, "") | dict(zip(names, map(str.strip, line), strict=False)) for line in lines[1:]]
    return Table(file=file, columns=frozenset(names), rows=rows)


def require_numbers(table: Table, columns: Iterable[str]) -> None:
    """Check that *columns* hold numbers; a blank cell says that something is not known.

    Raises
    ------
    InputError
        A cell with a word, a unit, or a number that is not finite.
    """
    for column in sorted(columns):
        for number, row in enumerate(table.rows, start=1):
            if row[column] and not _is_number(row[column]):
                remedy = "write it in the unit of the column, or leave the cell blank"
                place = f"row {number}, {column}"
                raise InputError("expected a bare number", file=table.file, key=place, value=row[column], remedy=remedy)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
