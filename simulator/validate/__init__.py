"""Predictions against published measurements.

A table is recognised by its columns; each kind of table has one function that turns its rows into verdicts.  A row
that does not say what a prediction needs is listed with the reason, never guessed in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from simulator.errors import InputError
from simulator.validate.collectives import collectives
from simulator.validate.summary import RANGES, Comparison, Unmapped, Verdict, sources, unmapped_reasons, worst
from simulator.validate.training import training
from simulator.world.measurements.collectives import LAYOUTS
from simulator.world.measurements.tables import Table, read_table, require_numbers
from simulator.world.measurements.training import COLUMNS, NUMBERS

__all__ = [
    "RANGES",
    "TABLES",
    "Comparison",
    "KnownTable",
    "Unmapped",
    "Verdict",
    "sources",
    "unmapped_reasons",
    "validate",
    "worst",
]


class Judge(Protocol):
    """Predicts the rows of a table."""

    def __call__(self, table: Table, *, assume: bool) -> Iterator[Verdict | Unmapped]:
        """Yield one verdict or one reason for each row, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """A kind of table."""

    title: str
    columns: frozenset[str]
    """That it must have; others do no harm."""
    numbers: frozenset[str]
    """Those of them that hold numbers."""
    judge: Judge


TABLES: Final = (
    *(
        KnownTable(
            title=layout.title,
            columns=layout.columns,
            numbers=layout.numbers,
            judge=partial(collectives, read=layout.read),
        )
        for layout in LAYOUTS
    ),
    KnownTable(title="training runs", columns=COLUMNS, numbers=NUMBERS, judge=training),
)
"""What can be validated against."""


def validate(files: Iterable[Path], *, assume: bool = False) -> Comparison:
    """Predict every row of *files*.

    Parameters
    ----------
    files
        Comma-separated tables.
    assume
        Where a row leaves out network or size, take the reference host of its GPU and 8 GiB instead of giving up.

    Raises
    ------
    InputError
        A file cannot be read, its columns are those of no known table, or a cell that should hold a number does not.
    """
    tables = [(table, _known(table)) for table in map(read_table, files)]
    judged = [item for table, known in tables for item in known.judge(table, assume=assume)]
    return Comparison(
        verdicts=tuple(item for item in judged if isinstance(item, Verdict)),
        unmapped=tuple(item for item in judged if isinstance(item, Unmapped)),
    )


def _known(table: Table) -> KnownTable:
    """Return what *table* is, by its columns; its numbers are checked."""
    for known in TABLES:
        if known.columns <= table.columns:
            require_numbers(table, known.numbers)
            return known
    nearest = max(TABLES, key=lambda known: len(known.columns & table.columns) / len(known.columns))
    missing = nearest.columns - table.columns
    if len(missing) < len(nearest.columns) / 2:
        problem = f"looks like {nearest.title}, without the column {', '.join(sorted(missing))}"
        raise InputError(problem, file=table.file, remedy="add it; what is not known is left blank")
    layouts = "; ".join(f"{known.title}: {', '.join(sorted(known.columns))}" for known in TABLES)
    raise InputError("the columns are those of no known table", file=table.file, remedy=f"known are {layouts}")
