"""Numbers of a result by name: where they stand, in which unit, and whether more of them is better.

A metric is a dotted key of a result (docs/reference/json.md), or one divided by another of the same unit:
``exposed.stalled/step_time`` is the share of the step that is exposed communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.errors import InputError, UnknownNameError
from simulator.readings.exposure import CAUSES

__all__ = ["Metric", "display_unit", "metric", "unit_of"]

FIXED: Final = {
    **dict.fromkeys(("step_time", "compute_time", "slowed_time", "host_time", "copy_time", "communication_time"), "s"),
    **dict.fromkeys(("exposed.stalled", "exposed.uncovered", "exposed.counterfactual", "exposed.skew"), "s"),
    **{f"exposed_by_cause.{cause}": "s" for cause in CAUSES},
    **dict.fromkeys(("phases.forward", "phases.backward", "phases.optimizer"), "s"),
    **dict.fromkeys(("ceilings.perfect_overlap_step_time", "ceilings.no_recompute_step_time", "memory.peak_at"), "s"),
    **dict.fromkeys(("ceilings.perfect_overlap_mfu", "ceilings.no_recompute_mfu", "ceilings.hidden"), "1"),
    **dict.fromkeys(("mfu", "hfu"), "1"),
    **dict.fromkeys(("volume.in_psi", "volume.inter_host_in_psi"), "Ψ"),
    **dict.fromkeys(("volume.sent_per_rank", "volume.intra_host_per_rank", "volume.inter_host_per_rank"), "B"),
    **dict.fromkeys(("memory.peak", "memory.reserved", "memory.device", "memory.needed", "memory.capacity"), "B"),
    "memory.deepspeed_estimate": "B",
    **dict.fromkeys(("cost.per_hour", "cost.per_step", "cost.per_billion_tokens", "cost.exposed_per_step"), "US$"),
    "tokens_per_second_per_gpu": "tokens/s per GPU",
    "ranks": "GPUs",
}
"""Metrics that every result has, and their units; ``1`` is a fraction."""

FAMILIES: Final = {
    "exposed_by_collective.": "s",
    "links.": "1",
    "memory.items.": "B",
    "memory.host.": "B",
    "memory.nvme.": "B",
    "volume.": "B",
}
"""Beginnings of metrics that only some results have."""

MORE_IS_BETTER: Final = {
    "tokens_per_second_per_gpu",
    "mfu",
    "hfu",
    "ceilings.hidden",
    "ceilings.perfect_overlap_mfu",
    "ceilings.no_recompute_mfu",
}

LABELS: Final = {
    "tokens_per_second_per_gpu": "throughput",
    "mfu": "MFU",
    "hfu": "HFU",
    "exposed.stalled": "exposed communication",
    "memory.needed": "memory needed",
    "memory.peak": "peak of memory",
    "cost.per_hour": "price of an hour",
    "cost.per_step": "price of a step",
    "cost.per_billion_tokens": "price of a billion tokens",
    "cost.exposed_per_step": "price of exposed communication in a step",
}
"""What figures say where the key itself, with blanks, would not read well."""

DISPLAYED: Final = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "1": ((0.01, "%"),),
}
"""Unit: sizes in which figures show it, in that unit, largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number that results have."""

    name: str
    label: str
    unit: str
    more_is_better: bool

    def of(self, result: Mapping[str, Any]) -> float | None:
        """Look the number up; None where *result* has none."""
        parts = [_found(result, key) for key in self.name.split("/")]
        if None in parts:
            return None
        over, *under = (float(part) for part in parts if part is not None)
        return over if not under else over / under[0] if under[0] else None


def metric(name: str, where: str | None = None, others: Iterable[str] = ()) -> Metric:
    """Return the metric called *name*; errors say *where* it stands and that *others* may stand there too.

    Raises
    ------
    UnknownNameError
        No result can have it.
    InputError
        A quotient of different units, or of more than two.

    >>> metric("exposed.stalled/step_time").of({"exposed": {"stalled": 1.0}, "step_time": 4.0})
    0.25
    """
    names = name.split("/")
    units = [_unit(part, where, others) for part in names]
    if len(names) > 2 or len(set(units)) > 1:
        remedy = "divide one by one other of the same unit, like exposed.stalled/step_time"
        raise InputError("not a quotient that has a meaning", key=where, value=name, remedy=remedy)
    return Metric(
        name=name,
        label=" / ".join(_label(part) for part in names),
        unit=units[0] if len(names) == 1 else "1",
        more_is_better=names[0] in MORE_IS_BETTER,
    )


def display_unit(unit: str, values: Iterable[float]) -> tuple[float, str]:
    """Unit in which the largest of *values* [*unit*] is easy to read: its size in *unit*, and its name.

    >>> display_unit("s", [0.02, 0.5]), display_unit("B", [8e10]), display_unit("1", [0.5]), display_unit("US$", [9.0])
    ((0.001, 'ms'), (1000000000.0, 'GB'), (0.01, '%'), (1.0, 'US$'))
    """
    sizes = DISPLAYED.get(unit, ((1.0, unit),))
    largest = max((abs(value) for value in values), default=0.0)
    return next((size for size in sizes if largest >= size[0]), sizes[0 if not largest else -1])


def unit_of(name: str) -> str | None:
    """Return the unit of the metric called *name*; None if there is no such metric."""
    families = (unit for family, unit in FAMILIES.items() if name.startswith(family) and name != family)
    return FIXED.get(name) or next(families, None)


def _unit(name: str, where: str | None, others: Iterable[str]) -> str:
    unit = unit_of(name)
    if unit is None:
        raise UnknownNameError("metric", name, [*FIXED, *(f"{family}*" for family in FAMILIES), *others], key=where)
    return unit


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " ").replace(".", ": "))


def _found(content: Any, key: str) -> float | None:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content if isinstance(content, int | float) and not isinstance(content, bool) else None
