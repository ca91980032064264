"""Whole steps of every lane of a batch, as :mod:`simulator.readings.step` reads one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from simulator.clock.batch.evaluate import Batch
from simulator.clock.batch.lanes import Array, Fallback
from simulator.clock.batch.track import track_of
from simulator.clock.cast import RankClass, Stage
from simulator.clock.timeline import utilisation
from simulator.readings.batch import Exposures, read
from simulator.readings.batch_memory import peaks
from simulator.readings.exposure import COMPUTE, Totals, exposure
from simulator.readings.footprint import Peak
from simulator.readings.phases import divided, timed
from simulator.readings.step import ClassTotals, Step, step_of
from simulator.schedules.program import Launch

__all__ = ["steps"]


def steps(batch: Batch, states: Sequence[Mapping[str, float]]) -> list[Step]:
    """Read every lane; *states* are the bytes that each keeps from step to step, by item [B].

    Raises
    ------
    ValueError
        The lanes were lined up without their stages.
    """
    if not batch.lanes.stages:
        raise ValueError("lanes without stages have no result of their own")
    found = read(batch)
    by_phase = _phases(batch)
    memory = peaks(batch, track_of(batch).reached, states)
    ran = _what_ran(batch, memory)
    return [
        _by_engine(batch, lane, states[lane])
        if batch.fallback[lane] != Fallback.NONE
        else Step(
            program=stage.classes[0].program,
            time=float(batch.step_time[lane]),
            totals=(totals := _totals(found, lane)),
            phases={name: float(row[lane]) for name, row in by_phase.items()},
            links=_links(stage, float(batch.step_time[lane])),
            peak=memory[lane],
            ran=ran[lane],
            classes=(ClassTotals(stage.classes[0].name, stage.classes[0].ranks, totals),),
        )
        for lane, stage in enumerate(batch.lanes.stages)
    ]


def _by_engine(batch: Batch, lane: int, states: Mapping[str, float]) -> Step:
    timeline = batch.timelines[lane]
    return step_of(timeline, exposure(timeline.classes[0], timeline.step_time), states)


def _totals(found: Exposures, lane: int) -> Totals:
    causes = {cause: float(row[lane]) for cause, row in found.by_cause.items()}
    return Totals(
        compute=float(found.compute[lane]),
        slowed=float(found.slowed[lane]),
        recomputed=float(found.recomputed[lane]),
        stalled=float(found.stalled[lane]),
        copies=float(found.copies[lane]),
        host_bound=float(found.host_bound[lane]),
        uncovered=float(found.uncovered[lane]),
        skew=causes["skew"],
        communication=float(found.communication[lane]),
        by_cause=causes,
        by_collective={role: float(row[lane]) for role, row in found.by_collective.items() if row[lane]},
    )


def _phases(batch: Batch) -> dict[str, Array]:
    ends: dict[tuple[int, str], Array] = defaultdict(lambda: np.zeros(batch.lanes.count))
    for item, end in zip(batch.lanes.plan.program.instructions, batch.ends, strict=True):
        if isinstance(item, Launch) and (key := timed(item)) is not None:
            ends[key] = np.maximum(ends[key], end)
    return divided(ends, batch.step_time)


def _what_ran(batch: Batch, memory: Sequence[Peak]) -> list[tuple[str, str]]:
    """Phase and module that compute ran, or was about to run, at the peak of each lane."""
    launches = [
        (item, end)
        for item, end in zip(batch.lanes.plan.program.instructions, batch.ends, strict=True)
        if isinstance(item, Launch) and item.stream == COMPUTE
    ]
    names = [*((item.phase, item.label) for item, _ in launches), ("step", "end of step")]
    ends = np.stack([end for _, end in launches]) if launches else np.zeros((0, batch.lanes.count))
    done = (ends <= np.array([peak.at for peak in memory])).sum(axis=0)
    return [names[number] for number in done.tolist()]


def _links(stage: Stage, step: float) -> dict[str, float]:
    """Utilisation by kind of link: what a program carries does not depend on when."""
    return utilisation(stage.links, _carried(stage.classes[0], len(stage.links)), step)


def _carried(cast: RankClass, links: int) -> list[float]:
    """Bytes on each link [B]."""
    carried, counts = [0.0] * links, [0] * len(cast.phases)
    for launch in cast.program.launches:
        counts[launch.operation] += 1
    for count, phases in zip(counts, cast.phases, strict=True):
        for phase in phases:
            for link, share in phase.usage:
                carried[link] += count * share * phase.payload
    return carried
