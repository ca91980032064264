"""What a comparison comes to: errors by source, by range of sizes, what could not be compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Final

__all__ = ["RANGES", "Comparison", "Unmapped", "Verdict", "sources", "unmapped_reasons", "worst"]

MIB = 2**20

RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "< 1 MiB": (0, MIB),
    "1-16 MiB": (MIB, 16 * MIB),
    ">= 16 MiB": (16 * MIB, float("inf")),
    ">= 128 MiB": (128 * MIB, float("inf")),
}
"""Sizes of arrays, the upper end left out [B]; the last is part of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A row of a table that could be predicted."""

    row: int
    """1 is the first below the names of the columns."""
    file: str
    source: str
    """System that was measured."""
    metric: str
    """``time`` [s], ``busbw`` [B/s], or one of a training run, in the unit that its name says."""
    measured: float
    predicted: float
    payload: float | None = None
    """Bytes of the whole array, where the row is of a collective."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else the row says, and the cluster that stood in for the system."""

    @property
    def error(self) -> float:
        """Fraction by which the prediction is too high."""
        return self.predicted / self.measured - 1

    def as_json(self) -> dict[str, Any]:
        """Return the row under the names that ``--json`` promises."""
        return {
            "row": self.row, "file": self.file, "source": self.source, "metric": self.metric,
            "measured": self.measured, "predicted": self.predicted, "error": self.error, "payload": self.payload,
            **self.details,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmapped:
    """A row of a table that could not be predicted, and why."""

    row: int
    file: str
    source: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return the row under the names that ``--json`` promises."""
        return {"row": self.row, "file": self.file, "source": self.source, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows of all tables."""

    verdicts: tuple[Verdict, ...]
    unmapped: tuple[Unmapped, ...]

    def as_json(self) -> dict[str, Any]:
        """Return what ``zerosim validate --json`` prints."""
        return {
            "sources": list(sources(self.verdicts)),
            "rows": [verdict.as_json() for verdict in self.verdicts],
            "unmapped": [row.as_json() for row in self.unmapped],
        }


def sources(verdicts: Iterable[Verdict]) -> Iterator[dict[str, Any]]:
    """Errors of each system and metric, in order of appearance; ``sizes`` has those of each range that has rows."""
    grouped: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        grouped[verdict.source, verdict.metric].append(verdict)
    for (source, metric), mine in grouped.items():
        ranges = {name: [item for item in mine if _within(item, *ends)] for name, ends in RANGES.items()}
        yield {
            "source": source,
            "metric": metric,
            **_errors(mine),
            "sizes": {name: _errors(part) for name, part in ranges.items() if part},
        }


def _within(verdict: Verdict, low: float, high: float) -> bool:
    return verdict.payload is not None and low <= verdict.payload < high


def _errors(verdicts: Sequence[Verdict]) -> dict[str, float]:
    absolute = [abs(verdict.error) for verdict in verdicts]
    return {
        "runs": len(verdicts),
        "mean_absolute_error": fmean(absolute),
        "median_absolute_error": median(absolute),
        "bias": fmean(verdict.error for verdict in verdicts),
    }


def worst(verdicts: Iterable[Verdict], count: int) -> list[Verdict]:
    """Return the rows of largest error, the largest first."""
    return sorted(verdicts, key=lambda verdict: -abs(verdict.error))[:count]


def unmapped_reasons(unmapped: Iterable[Unmapped]) -> list[tuple[str, int]]:
    """Reasons and how many rows each has, the most frequent first."""
    return Counter(row.reason for row in unmapped).most_common()
