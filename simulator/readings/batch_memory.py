"""Peak of memory in every lane of a batch at once: the rules of :mod:`simulator.readings.footprint` over vectors.

What launches take and give back, and in which order they were issued, follows from the program; when they do, and how
much, differs from lane to lane.  Rows are changes, columns lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simulator.clock.batch.evaluate import Batch
from simulator.clock.batch.lanes import Array, Numbers
from simulator.clock.periodic import Rows
from simulator.readings.footprint import Peak, allocated_on, largest_first
from simulator.schedules.program import Program
from simulator.schedules.tape import COMPUTE

__all__ = ["peaks"]


def peaks(batch: Batch, reached: Rows, states: Sequence[Mapping[str, float]]) -> list[Peak]:
    """Find in each lane the moment at which most is held.

    Parameters
    ----------
    reached
        When streams got to launches, in issue order; (lanes,) each [s].
    states
        Bytes that each lane keeps through the whole step, by item [B].
    """
    program = batch.lanes.plan.program
    items = list(dict.fromkeys(item for launch in program.launches for item, _ in (*launch.takes, *launch.gives)))
    kept = np.array([[sum(lane.values()) for lane in states]])
    if not items:
        return [
            Peak(peak=total, at=0.0, items=largest_first(lane), reserved=total) for total, lane in _with(kept, states)
        ]
    sorted_changes = _sorted(batch, reached, items)
    totals = np.cumsum(np.concatenate([kept, sorted_changes.amounts]), axis=0)
    fullest = np.argmax(totals, axis=0)
    at = np.concatenate([np.zeros_like(kept), sorted_changes.times])[fullest, np.arange(batch.lanes.count)]
    held = _held(sorted_changes, items, fullest)
    reserved = _reserved(sorted_changes, [allocated_on(program).get(item, COMPUTE) for item in items], kept)
    return [
        Peak(
            peak=float(totals[fullest[lane], lane]),
            at=float(at[lane]),
            items=largest_first(_added(kept_in, {item: float(row[lane]) for item, row in held.items()})),
            reserved=float(reserved[lane]),
        )
        for lane, kept_in in enumerate(states)
    ]


def _with(kept: Array, states: Sequence[Mapping[str, float]]) -> Iterator[tuple[float, Mapping[str, float]]]:
    return zip(kept[0].tolist(), states, strict=True)


def _added(some: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {item: some.get(item, 0.0) + others.get(item, 0.0) for item in {**some, **others}}


class _Changes(NamedTuple):
    """In order of time, (changes, lanes)."""

    times: Array
    amounts: Array
    """Positive if taken [B]."""
    items: Numbers
    """Place of each change's item in the list of items."""


def _sorted(batch: Batch, reached: Rows, items: Sequence[str]) -> _Changes:
    launched = [index for index, stream in enumerate(batch.lanes.plan.streams) if stream >= 0]
    times, numbers = [], []
    for launch, index, got_there in zip(batch.lanes.plan.program.launches, launched, reached, strict=True):
        times += [got_there] * len(launch.takes) + [batch.ends[index]] * len(launch.gives)
        numbers += [items.index(item) for item, _ in (*launch.takes, *launch.gives)]
    by_time = np.stack(times)
    order = np.argsort(by_time, axis=0, kind="stable")  # at one instant issue order counts
    amounts = np.broadcast_to(_amounts(batch), by_time.shape)
    return _Changes(
        times=np.take_along_axis(by_time, order, axis=0),
        amounts=np.take_along_axis(amounts, order, axis=0),
        items=np.array(numbers)[order],
    )


def _amounts(batch: Batch) -> Array:
    """What each change takes, in issue order; one column if all lanes have one program."""
    programs = [stage.classes[0].program for stage in batch.lanes.stages] or [batch.lanes.plan.program]
    distinct = {id(program): program for program in programs}
    columns = {number: list(_amounts_of(program)) for number, program in distinct.items()}
    if len(columns) == 1:
        programs = programs[:1]
    return np.array([columns[id(program)] for program in programs]).T


def _amounts_of(program: Program) -> Iterator[float]:
    for launch in program.launches:
        yield from (amount for _, amount in launch.takes)
        yield from (-amount for _, amount in launch.gives)


def _held(changes: _Changes, items: Sequence[str], fullest: Numbers) -> dict[str, Array]:
    """What was taken of each item, and not given back, when memory was fullest."""
    so_far = np.where(np.arange(len(changes.times))[:, np.newaxis] < fullest, changes.amounts, 0.0)
    return {
        item: np.cumsum(np.where(changes.items == number, so_far, 0.0), axis=0)[-1] for number, item in enumerate(items)
    }


def _reserved(changes: _Changes, streams: Sequence[str], kept: Array) -> Array:
    """Sum over streams of the most that each held."""
    total = np.zeros(kept.shape[1])
    for stream in dict.fromkeys((COMPUTE, *streams)):
        mine = np.isin(changes.items, [number for number, other in enumerate(streams) if other == stream])
        first = kept if stream == COMPUTE else np.zeros_like(kept)
        pool = np.cumsum(np.concatenate([first, np.where(mine, changes.amounts, 0.0)]), axis=0)
        total += pool.max(axis=0)
    return total
