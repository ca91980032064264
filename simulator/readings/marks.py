"""What a figure of a sweep needs to know of each result, and nothing else of the thousands there may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import InputError
from simulator.readings.layout import Layout
from simulator.readings.table import has_room
from simulator.readings.varied import place_of

__all__ = ["Mark", "marks", "remark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One result in a figure."""

    variant: str
    point: Mapping[str, Any]
    at: Mapping[str, str]
    """Values of the layout's keys, as written, by place."""
    values: Mapping[str, float]
    """The layout's metrics [SI], by place; empty where there is no result."""
    fits: bool
    """In memory, and there is a result."""
    failure: str | None
    """Why there is none."""


def marks(results: Iterable[Mapping[str, Any]], layout: Layout) -> list[Mark]:
    """Take from *results* what the figure shows.

    Raises
    ------
    InputError
        No result has a metric that is asked for.
    """
    found = [_mark(result, layout) for result in results]
    if any(mark.failure is None for mark in found):
        return found
    reason, _ = (
        Counter(str(mark.failure) for mark in found).most_common(1)[0] if found else ("nothing was simulated", 0)
    )
    raise InputError(f"no result can be drawn: {reason}", key=", ".join(item.name for item in layout.metrics.values()))


def remark(found: Sequence[Mark]) -> str:
    """Say how many results are missing, and the most common reason."""
    reasons = Counter(mark.failure for mark in found if mark.failure)
    if not reasons:
        return ""
    reason, _ = reasons.most_common(1)[0]
    return f"{reasons.total()} of {len(found)} have no result: {reason}"


def _mark(result: Mapping[str, Any], layout: Layout) -> Mark:
    values = {} if result["failure"] else {place: item.of(result) for place, item in layout.metrics.items()}
    known = {place: value for place, value in values.items() if value is not None}
    lacking = [layout.metrics[place].name for place in values if place not in known]
    failure = result["failure"] or (f"it has no {lacking[0]}" if lacking else None)
    return Mark(
        variant=str(result["name"]),
        point=result["point"],
        at={place: place_of(result, item.key) for place, item in layout.keys.items()},
        values={} if failure else known,
        fits=failure is None and has_room(result["memory"]),
        failure=failure,
    )
