"""Tables of what is different between two results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from simulator.readings.difference import Change, Difference
from simulator.readings.table import titled

__all__ = ["changes_table", "difference_tables"]

UNITS: Final = {
    "tokens_per_second_per_gpu": ("tokens/s/GPU", 1.0, 0),
    "mfu": ("MFU [%]", 100.0, 1),
    "communication_time": ("communication [s]", 1.0, 3),
    "memory.needed": ("memory needed [GB]", 1e-9, 1),
    "volume.sent_per_rank": ("sent [GB/GPU]", 1e-9, 1),
}
"""Heading, factor and digits of other numbers."""


def changes_table(changes: Sequence[Change]) -> Table:
    """Keys that differ."""
    table = titled("What is different")
    table.add_column("key", overflow="fold")
    for heading in ("A", "B"):
        table.add_column(heading, overflow="fold")
    for item in changes:
        table.add_row(
            escape(item.key), *("-" if value is None else escape(str(value)) for value in (item.before, item.after))
        )
    return table


def difference_tables(item: Difference) -> Iterator[Table]:
    """Yield what the step's difference is made of, and other numbers."""
    before, after = item.names
    name = before if before == after else f"{before} against {after}"
    change = item.step_time[1] - item.step_time[0]
    share = f" ({100 * change / item.step_time[0]:+.1f} %)" if item.step_time[0] else ""
    table = _pairs(f"{name}: the step takes {change:+.3f} s{share}", {"step": item.step_time, **item.parts}, 3)
    yield table
    if any(pair[0] != pair[1] for pair in item.collectives.values()):
        yield _pairs(f"{name}: exposed communication by collective", item.collectives, 3)
    table = titled(f"{name}: other numbers")
    _add_columns(table)
    for key, pair in item.values.items():
        heading, factor, digits = UNITS[key]
        _add_row(table, heading, (pair[0] * factor, pair[1] * factor), digits)
    yield table


def _pairs(title: str, rows: Mapping[str, tuple[float, float]], digits: int) -> Table:
    table = titled(title)
    _add_columns(table)
    for name, pair in rows.items():
        _add_row(table, f"{name.replace('_', ' ')} [s]", pair, digits)
    return table


def _add_columns(table: Table) -> None:
    table.add_column("", no_wrap=True)
    for heading in ("A", "B", "B - A", "%"):
        table.add_column(heading, justify="right", no_wrap=True)


def _add_row(table: Table, name: str, pair: tuple[float, float], digits: int) -> None:
    before, after = pair
    share = f"{100 * (after - before) / before:+.1f}" if before else "-"
    table.add_row(escape(name), f"{before:.{digits}f}", f"{after:.{digits}f}", f"{after - before:+.{digits}f}", share)
