"""Results of a sweep for other programs: one flat row per variant and point."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from simulator.errors import InputError
from simulator.readings.report import Result
from simulator.readings.rows import flat_rows
from simulator.sweep.store import Store
from simulator.sweep.study import Task

__all__ = ["as_results", "check_table", "write_csv", "write_parquet", "write_table"]


def as_results(tasks: Iterable[Task], store: Store) -> Iterator[dict[str, Any]]:
    """Yield ``point`` and everything that ``zerosim run --json`` has of a result; null where there is none."""
    tasks = list(tasks)
    for task, (result, failure) in zip(tasks, store.found(task.key for task in tasks), strict=True):
        nothing = dict.fromkeys(field.name for field in fields(Result)) | {"name": task.variant, "failure": failure}
        yield {"point": dict(task.point), **(result or nothing)}


def check_table(path: Path) -> None:
    """Check, before any work is done, that a table can be written to *path*.

    Raises
    ------
    InputError
        pyarrow is needed and not installed.
    """
    if path.suffix == ".parquet":
        _pyarrow()


def write_table(path: Path, tasks: Iterable[Task], store: Store) -> None:
    """Write a table of the format that the ending of *path* says."""
    write = write_parquet if path.suffix == ".parquet" else write_csv
    write(path, tasks, store)


def write_csv(path: Path, tasks: Iterable[Task], store: Store) -> None:
    """Write a table whose first line names the columns: the varied keys, then those of a result."""
    tasks = list(tasks)
    columns = dict.fromkeys(key for row in flat_rows(as_results(tasks, store)) for key in row)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [*columns], restval="")
        table.writeheader()
        table.writerows(flat_rows(as_results(tasks, store)))


def write_parquet(path: Path, tasks: Iterable[Task], store: Store) -> None:
    """Write the same table with types: numbers are numbers, and what is blank is null.

    Raises
    ------
    InputError
        pyarrow is not installed.
    """
    arrow, parquet = _pyarrow()
    rows = list(flat_rows(as_results(tasks, store)))
    columns = dict.fromkeys(key for row in rows for key in row)
    parquet.write_table(arrow.table({key: _column([row.get(key) for row in rows]) for key in columns}), path)


def _pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        remedy = "install the extra: pip install 'zerosim[parquet]', or write .csv"
        raise InputError("Parquet needs pyarrow", key="--export", remedy=remedy) from None


def _column(values: Sequence[Any]) -> list[Any]:
    """Bring *values* to one type: numbers to floats if one is, anything mixed to text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {bool} or kinds <= {str}:
        return list(values)
    kind = float if kinds <= {int, float} else str
    return [None if value is None else kind(value) for value in values]
