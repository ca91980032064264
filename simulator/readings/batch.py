"""Exposure of every lane of a batch at once: the rules of :mod:`simulator.readings.exposure` over vectors.

Which operations delay an operation, and which it needs, follows from the program; only what came last differs from lane
to lane.  So lanes are charged side by side: each asks what its idle stretch waited for, and those that name the same
operation are charged together.  A lane whose charges do not fill its idle stretches to the end, because a stream went
on later than what it waited for, is read alone; so are the lanes that fell back to the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.evaluate import Batch, evaluate
from simulator.clock.batch.lane import timeline_of
from simulator.clock.batch.lanes import Array, Fallback, Lanes, Numbers
from simulator.clock.timeline import ClassTimeline
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.charging import Charging
from simulator.readings.exposure import CAUSES, COMPUTE, ROUNDING, Exposure, exposure
from simulator.schedules.program import Launch

__all__ = ["Exposures", "exposures", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposures:
    """Where the time of each lane's step went, as :class:`~simulator.readings.exposure.Exposure`; (lanes,) [s]."""

    step_time: Array
    compute: Array
    slowed: Array
    recomputed: Array
    stalled: Array
    copies: Array
    host_bound: Array
    uncovered: Array
    communication: Array
    by_cause: dict[str, Array]
    """``stalled`` by cause; every cause is there."""
    by_collective: dict[str, Array]
    """``stalled`` by what was waited for."""
    fallback: npt.NDArray[np.int8]
    """Why each lane fell back to the engine, as :class:`~simulator.clock.batch.lanes.Fallback`."""


def exposures(lanes: Lanes) -> Exposures:
    """Evaluate and read all *lanes*, part by part."""
    numbers, parts = zip(*((numbers, read(evaluate(part))) for numbers, part in lanes.parts()), strict=True)
    return _joined(parts, np.argsort(np.concatenate(numbers)))


def read(batch: Batch) -> Exposures:
    """Read all lanes of *batch*; those without a result are not a number."""
    qualifies = batch.fallback == Fallback.NONE
    found = _side_by_side(batch, int(np.argmax(qualifies))) if qualifies.any() else _nothing(batch)
    parts = found.compute + found.copies + found.stalled + found.host_bound
    adds_up = np.abs(parts - batch.step_time) <= ROUNDING * batch.step_time
    for lane in np.flatnonzero(~(qualifies & adds_up)).tolist():
        _put(found, lane, _alone(batch, lane))
    return found


def _side_by_side(batch: Batch, lane: int) -> Exposures:
    """Read all lanes of *batch* by vectors; *lane* qualifies."""
    pattern = timeline_of(batch, lane)
    charging = Charging(batch, pattern)
    kernels, copies, again = _kernels(pattern)
    _wait_for_next_step(batch, pattern, charging)
    return Exposures(
        step_time=batch.step_time,
        compute=_total(batch, kernels),
        slowed=_slowed(batch, kernels),
        recomputed=_total(batch, again),
        stalled=sum(charging.by_cause.values(), np.zeros(batch.lanes.count)),
        copies=_total(batch, copies),
        host_bound=charging.host_bound,
        uncovered=_uncovered(batch, kernels),
        communication=_communication(batch),
        by_cause=charging.by_cause,
        by_collective=dict(charging.by_collective),
        fallback=batch.fallback,
    )


def _nothing(batch: Batch) -> Exposures:
    zeros: dict[str, Any] = {item.name: np.zeros(batch.lanes.count) for item in fields(Exposures)}
    causes = {cause: np.zeros(batch.lanes.count) for cause in CAUSES}
    known = {"step_time": batch.step_time, "fallback": batch.fallback, "by_cause": causes, "by_collective": {}}
    return Exposures(**{**zeros, **known})


def _kernels(pattern: ClassTimeline) -> tuple[list[int], list[int], list[int]]:
    """Instructions of the compute stream: kernels, copies, and kernels that checkpointing runs again."""
    found: tuple[list[int], list[int], list[int]] = [], [], []
    for index, item in enumerate(pattern.program.instructions):
        if isinstance(item, Launch) and item.stream == COMPUTE:
            operation = pattern.program.operations[item.operation]
            if isinstance(operation, Kernel):
                found[operation.is_copy].append(index)
                found[2].extend([index] if operation.kind == "recompute" and not operation.is_copy else [])
    return found


def _total(batch: Batch, instructions: Iterable[int]) -> Array:
    """Time that *instructions* ran."""
    total = np.zeros(batch.lanes.count)
    for index in instructions:
        total += batch.ends[index]
        total -= batch.starts[index]
    return total


def _slowed(batch: Batch, kernels: Iterable[int]) -> Array:
    """How much longer *kernels* ran than they would have alone."""
    total = np.zeros(batch.lanes.count)
    for index in kernels:
        end, ran = batch.ends[index], batch.ends[index] - batch.starts[index]
        longer = ran - batch.lanes.alone[batch.lanes.plan.operations[index]]
        total += np.where(longer > np.maximum(ROUNDING * ran, 2 * np.spacing(end)), longer, 0.0)
    return total


def _communication(batch: Batch) -> Array:
    """Length of the union of the intervals in which some collective ran."""
    served = batch.lanes.plan.served
    if len(served) <= 1:  # one after another
        return _total(batch, *served) if served else np.zeros(batch.lanes.count)
    return _union(batch, [index for of_one in served for index in of_one])


def _uncovered(batch: Batch, kernels: Sequence[int]) -> Array:
    """Length of the part of that union beside which no kernel ran."""
    collectives = [index for of_one in batch.lanes.plan.served for index in of_one]
    if not collectives:
        return np.zeros(batch.lanes.count)
    beside_nothing = _union(batch, [*kernels, *collectives]) - _total(batch, kernels)
    uncovered: Array = np.clip(beside_nothing, 0.0, _communication(batch))
    return uncovered


def _union(batch: Batch, instructions: Sequence[int]) -> Array:
    """Length of the union of the intervals in which *instructions* ran."""
    starts, ends = (np.stack([rows[index] for index in instructions]) for rows in (batch.starts, batch.ends))
    order = np.argsort(starts, axis=0)
    starts, ends = (np.take_along_axis(rows, order, axis=0) for rows in (starts, ends))
    covered = np.maximum.accumulate(ends, axis=0)
    starts[1:] = np.maximum(starts[1:], covered[:-1])
    union: Array = np.maximum(ends - starts, 0.0).sum(axis=0)
    return union


def _wait_for_next_step(batch: Batch, pattern: ClassTimeline, charging: Charging) -> None:
    """Charge the time from the end of the compute stream to that of the step."""
    first = next((item.role for item in pattern.program.operations if isinstance(item, Collective)), None)
    if first is not None:
        last = [index for index, stream in enumerate(batch.lanes.plan.streams) if stream == COMPUTE][-1:]
        waited = batch.step_time - (batch.ends[last[0]] if last else 0.0)
        charging.by_cause["skew"] += waited
        charging.by_collective[first] += waited


def _alone(batch: Batch, lane: int) -> Exposure | None:
    """Read one lane as the engine's timelines are read; None if nothing is known of it."""
    if batch.fallback[lane] and lane not in batch.timelines:
        return None
    return exposure(timeline_of(batch, lane), float(batch.step_time[lane]))


def _put(found: Exposures, lane: int, one: Exposure | None) -> None:
    """Let *lane* have the values of *one*."""
    for name in ("compute", "slowed", "recomputed", "stalled", "copies", "host_bound", "uncovered", "communication"):
        getattr(found, name)[lane] = np.nan if one is None else getattr(one, name)
    charges = (found.by_cause, one.by_cause() if one else {}), (found.by_collective, one.by_collective() if one else {})
    for by_name, values in charges:
        for name in {**by_name, **values}:
            row = by_name.setdefault(name, np.zeros(len(found.step_time)))
            row[lane] = np.nan if one is None else values.get(name, 0.0)


def _joined(parts: Sequence[Exposures], order: Numbers) -> Exposures:
    """All lanes of *parts* in *order*."""
    rows = {item.name: [getattr(part, item.name) for part in parts] for item in fields(Exposures)}
    joined: dict[str, Any] = {
        name: _joined_by_name(row, parts, order) if isinstance(row[0], dict) else np.concatenate(row)[order]
        for name, row in rows.items()
    }
    return Exposures(**joined)


def _joined_by_name(rows: Sequence[dict[str, Array]], parts: Sequence[Exposures], order: Numbers) -> dict[str, Array]:
    names = dict.fromkeys(name for row in rows for name in row)
    pairs = [(row, np.zeros(len(part.step_time))) for row, part in zip(rows, parts, strict=True)]
    return {name: np.concatenate([row.get(name, zero) for row, zero in pairs])[order] for name in names}
