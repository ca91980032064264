"""The best points of a sweep as a table, and why others failed; results as ``zerosim sweep --json`` has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any

from rich.markup import escape
from rich.table import Table

from simulator.readings.table import has_room, titled

__all__ = ["best_points"]

BEST, REASONS = 10, 5
"""Rows that are shown: of the best points; of the reasons why others failed."""


def best_points(results: Sequence[Mapping[str, Any]], new: int) -> Iterator[Table | str]:
    """Yield the points with the most tokens per second, and how many of all results are *new* or failed."""
    failures = Counter(result["failure"] for result in results if result["failure"])
    ran = [result for result in results if not result["failure"]]
    if ran:
        yield _best(nlargest(BEST, ran, key=_merit), len(ran))
    yield f"{len(results)} results: {new} simulated now, {len(results) - new} known before; {failures.total()} failed"
    for reason, count in failures.most_common(REASONS):
        yield escape(f"{count} failed: {reason}")


def _merit(result: Mapping[str, Any]) -> tuple[bool, float]:
    return has_room(result["memory"]), result["tokens_per_second_per_gpu"]


def _best(results: Sequence[Mapping[str, Any]], of: int) -> Table:
    """Most tokens/s/GPU, those first that fit in memory."""
    table = titled(f"Most tokens per second and GPU: {len(results)} of {of}")
    keys = dict.fromkeys(key for result in results for key in result["point"])
    for key in keys:
        table.add_column(escape(key), justify="right", overflow="fold")
    table.add_column("variant", no_wrap=True)
    for heading in ("step\n[s]", "exposed\n[%]", "memory\n[GB]", "fits", "tokens\n/s/GPU", "MFU\n[%]"):
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for result in results:
        step, memory = result["step_time"], result["memory"]
        table.add_row(
            *(escape(str(result["point"].get(key, "-"))) for key in keys), escape(result["name"]), f"{step:.4g}",
            f"{100 * result['exposed']['stalled'] / step:.1f}" if step else "-", f"{memory['needed'] / 1e9:.1f}",
            "yes" if has_room(memory) else "[red]no[/red]", f"{result['tokens_per_second_per_gpu']:.0f}",
            f"{100 * result['mfu']:.1f}",
        )  # fmt: skip
    return table
