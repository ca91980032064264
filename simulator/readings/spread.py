"""How a step differs from replication to replication, and what the slowest replications have in common.

A replication is read as the mean over all ranks; a rank that was sampled for many others counts as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.evaluate import Batch
from simulator.clock.batch.ranks import Sample
from simulator.readings.batch import Exposures, read

__all__ = ["QUANTILES", "Spread", "spread", "summary"]

Array = npt.NDArray[np.float64]

QUANTILES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)

TAIL: Final = 0.05
"""definition: the slowest twentieth of all steps is the tail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Replications of a step: an element for each [s]."""

    ranks: int
    """That were simulated one by one."""
    step_time: Array
    compute: Array
    stalled: Array
    host_bound: Array
    copies: Array
    by_cause: Mapping[str, Array]
    by_collective: Mapping[str, Array]


def spread(batches: Iterable[tuple[Sample, Batch]]) -> Spread:
    """Read all replications."""
    parts = [_replications(sample, read(batch)) for sample, batch in batches]
    return Spread(
        ranks=parts[0].ranks,
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in PLAIN},
        by_cause=_joined([part.by_cause for part in parts]),
        by_collective=_joined([part.by_collective for part in parts]),
    )


PLAIN: Final = ("step_time", "compute", "stalled", "host_bound", "copies")


def _replications(sample: Sample, found: Exposures) -> Spread:
    def mean(row: Array) -> Array:
        averages: Array = row.reshape(-1, len(sample.ranks)) @ sample.weights
        return averages

    return Spread(
        ranks=len(sample.ranks),
        **{name: mean(getattr(found, name)) for name in PLAIN},
        by_cause={cause: mean(row) for cause, row in found.by_cause.items()},
        by_collective={role: mean(row) for role, row in found.by_collective.items()},
    )


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    names = dict.fromkeys(name for part in parts for name in part)
    size = [len(next(iter(part.values()))) for part in parts]
    return {
        name: np.concatenate([part.get(name, np.zeros(count)) for part, count in zip(parts, size, strict=True)])
        for name in names
    }


def summary(found: Spread, even: float) -> dict[str, Any]:
    """Quantiles and the tail; *even* is the step without jitter [s]."""
    return {
        "replications": len(found.step_time),
        "ranks": found.ranks,
        "step_time": {"even": even, **_quantiles(found.step_time)},
        "stalled": _quantiles(found.stalled),
        "exposed_share": _quantiles(found.stalled / found.step_time),
        "skew": _quantiles(found.by_cause["skew"]),
        "tail": _tail(found),
    }


def _quantiles(row: Array) -> dict[str, float]:
    mean, deviation = float(row.mean()), float(row.std(ddof=1)) if len(row) > 1 else 0.0
    return {
        "mean": mean,
        "deviation": deviation,
        **{f"p{round(100 * share)}": float(np.quantile(row, share)) for share in QUANTILES},
    }


def _tail(found: Spread) -> dict[str, Any]:
    """How much longer the slowest replications are than the mean, and of what [s]."""
    slowest = np.argsort(found.step_time)[-max(1, round(TAIL * len(found.step_time))) :]

    def more(row: Array) -> float:
        return float(row[slowest].mean() - row.mean())

    parts = {"compute": more(found.compute), "copies": more(found.copies), "host bound": more(found.host_bound)}
    return {
        "replications": len(slowest),
        "step_time": float(found.step_time[slowest].mean()),
        "longer": more(found.step_time),
        "by_cause": {**parts, **{cause: more(row) for cause, row in found.by_cause.items()}},
        "by_collective": {role: more(row) for role, row in found.by_collective.items()},
    }
