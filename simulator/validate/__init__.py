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
from simulator.world.measurements.tables import Table, read_table
from simulator.world.measurements.training import COLUMNS

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
    judge: Judge


TABLES: Final = (
    *(
        KnownTable(title=layout.title, columns=layout.columns, judge=partial(collectives, read=layout.read))
        for layout in LAYOUTS
    ),
    KnownTable(title="training runs", columns=COLUMNS, judge=training),
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
        A file cannot be read, or its columns are those of no known table.
    """
    judged = [item for file in files for item in _judged(read_table(file), assume)]
    return Comparison(
        verdicts=tuple(item for item in judged if isinstance(item, Verdict)),
        unmapped=tuple(item for item in judged if isinstance(item, Unmapped)),
    )


def _judged(table: Table, assume: bool) -> Iterator[Verdict | Unmapped]:
    for known in TABLES:
        if known.columns <= table.columns:
            return known.judge(table, assume=assume)
    layouts = "; ".join(f"{known.title}: {', '.join(sorted(known.columns))}" for known in TABLES)
    raise InputError("the columns are those of no known table", file=table.file, remedy=f"known are {layouts}")
