"""What ``zerosim run --detail`` adds: the critical path of each variant, and what is exposed by layer and link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from simulator.readings.table import exposed_by

__all__ = ["details"]

ROWS, LAYERS = 12, 6
"""Most rows of a path, and layers; the rest is added up in one more."""


def details(results: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Yield tables by variant; the results are those of ``zerosim run --json``."""
    ran = [result for result in results if not result["failure"]]
    flat = [{**result, **result["critical_path"]} for result in ran]
    yield exposed_by(flat, "by_kind", "Critical path by what it is made of [ms]")
    if any(len(result["by_rank_class"]) > 1 for result in flat):
        yield exposed_by(flat, "by_rank_class", "Critical path by rank class [ms]")
    yield exposed_by(ran, "exposed_by_link", "Exposed communication by link [ms]")
    for result in ran:
        yield _path(result)
        if result["exposed_by_layer"]:
            yield _layers(result)


def _path(result: Mapping[str, Any]) -> Table:
    """What stands on the path, most first."""
    table = _table(f"Critical path of {result['name']}")
    for heading in ("phase", "operation", "part", "link"):
        table.add_column(heading, no_wrap=True)
    for heading in ("pieces", "time\n[ms]", "[% of step]"):
        table.add_column(escape(heading), justify="right")
    rows, step = result["critical_path"]["rows"], result["step_time"]
    for row in rows[:ROWS]:
        names = (row["phase"], row["operation"].replace("_", " "), row["kind"], row["link"])
        table.add_row(*names, str(row["pieces"]), *_time(row["time"], step))
    if rest := rows[ROWS:]:
        pieces, time = sum(row["pieces"] for row in rest), sum(row["time"] for row in rest)
        table.add_row("", f"{len(rest)} more", "", "", str(pieces), *_time(time, step))
    return table


def _layers(result: Mapping[str, Any]) -> Table:
    """Layers that compute waited for, most first."""
    table = _table(f"Exposed communication of {result['name']} by layer")
    table.add_column("layer or bucket", no_wrap=True)
    for heading in ("time\n[ms]", "[% of step]"):
        table.add_column(escape(heading), justify="right")
    layers, step = list(result["exposed_by_layer"].items()), result["step_time"]
    for name, time in layers[:LAYERS]:
        table.add_row(escape(name), *_time(time, step))
    if rest := layers[LAYERS:]:
        table.add_row(f"{len(rest)} more", *_time(sum(time for _, time in rest), step))
    return table


def _time(time: float, step: float) -> tuple[str, str]:
    return f"{1e3 * time:.2f}", f"{100 * time / step:.1f}" if step else "-"


def _table(title: str) -> Table:
    # units stand in square brackets, which rich would take for markup
    return Table(title=escape(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
