"""Results of a sweep for other programs: one flat row per variant and point."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from simulator.readings.report import Result
from simulator.sweep.store import Store
from simulator.sweep.study import Task

__all__ = ["as_results", "flat_rows", "write_csv"]


def as_results(tasks: Iterable[Task], store: Store) -> Iterator[dict[str, Any]]:
    """Yield ``point`` and everything that ``zerosim run --json`` has of a result; null where there is none."""
    tasks = list(tasks)
    for task, (result, failure) in zip(tasks, store.found(task.key for task in tasks), strict=True):
        nothing = dict.fromkeys(field.name for field in fields(Result)) | {"name": task.variant, "failure": failure}
        yield {"point": dict(task.point), **(result or nothing)}


def flat_rows(results: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows without nesting: ``exposed.stalled`` for a key inside a key, ``a; b`` for a list.

    >>> next(flat_rows([{"point": {"topology.hosts": 2}, "exposed": {"stalled": 0.5}, "assumed": ["a", "b"]}]))
    {'topology.hosts': 2, 'exposed.stalled': 0.5, 'assumed': 'a; b'}
    """
    for result in results:
        rest = {key: value for key, value in result.items() if key != "point"}
        yield {**result["point"], **dict(_flat(rest, ""))}


def write_csv(path: Path, tasks: Iterable[Task], store: Store) -> None:
    """Write a table whose first line names the columns: the varied keys, then those of a result."""
    tasks = list(tasks)
    columns = dict.fromkeys(key for row in flat_rows(as_results(tasks, store)) for key in row)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [*columns], restval="")
        table.writeheader()
        table.writerows(flat_rows(as_results(tasks, store)))


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "; ".join(map(str, value)) if isinstance(value, list | tuple) else value
