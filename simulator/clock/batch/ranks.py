"""Many replications of a step in which kernels take random times: lanes that are ranks and wait for each other.

Every rank runs the program of its class, with random times of its own.  A collective takes as long as in the step
without jitter, whatever it then shared its links with, and starts when the last rank is there
(:mod:`simulator.clock.batch.meeting`).  Collectives slow kernels beside them; where those of several communicators do,
kernels are slowed as in the step without jitter.

Of clusters with more ranks than are wanted some hosts are sampled: those whose ranks differ from the others, then the
first ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.clock.batch.evaluate import Batch, evaluate
from simulator.clock.batch.lanes import BYTES_PER_INSTRUCTION, MEMORY, PART, Array, Lanes, Numbers, lanes_of
from simulator.clock.batch.meeting import Meeting, Members
from simulator.clock.batch.noise import factors
from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage, occupancy
from simulator.clock.parts import Division, division
from simulator.clock.timeline import Span, Timeline
from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.interference import ABSENT
from simulator.schedules.program import HostWork, Launch
from simulator.world.jitter import Jitter
from simulator.world.mesh import Group, Mesh
from simulator.world.scenario import Scenario

__all__ = ["Sample", "replications"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Ranks that are simulated one by one."""

    ranks: Numbers
    """(sampled,)"""
    classes: Numbers
    """Rank class of each."""
    on_pace: Numbers
    """Places of those that stand for all that are not sampled."""
    weights: Array
    """Share of all ranks that each stands for, (sampled,)."""


def replications(scenario: Scenario, jitter: Jitter, ready: Stage, even: Timeline) -> Iterator[tuple[Sample, Batch]]:
    """Yield batches of replications, whose lanes stand in rows of sampled ranks.

    Parameters
    ----------
    ready
        The stage of *scenario*, one rank class for all that behave alike.
    even
        What happened there without jitter.

    Raises
    ------
    InputError
        More ranks differ from the others than may be sampled.
    """
    groups = _groups(ready.classes[0])
    sample = sampled(division(scenario, groups.values()), scenario.mesh, jitter.ranks)
    slowed_as_before = _several_slow_kernels(ready.classes[0])
    casts = [
        _each_launch(cast, played.spans, slowed_as_before=slowed_as_before)
        for cast, played in zip(ready.classes, even.classes, strict=True)
    ]
    one = lanes_of([replace(ready, classes=tuple(casts[:1]), changes=(), rivals=())])
    together = max(1, min(PART, MEMORY // (BYTES_PER_INSTRUCTION * len(one.plan.order))) // len(sample.ranks))
    for first in range(0, jitter.replications, together):
        count = min(together, jitter.replications - first)
        meeting = _meeting(groups, scenario.mesh, sample, count, (jitter.seed, first))
        random = np.random.default_rng([jitter.seed, first])
        yield sample, evaluate(_with_ranks(one, casts, sample, jitter, meeting, random))


def sampled(found: Division, mesh: Mesh, most: int) -> Sample:
    """Choose hosts with *most* ranks in all, or every rank.

    Raises
    ------
    InputError
        More ranks differ from the others.
    """
    of_rank = np.broadcast_to(found.of_rank, mesh.ranks)
    per_host = mesh.devices_per_host
    differs = np.array([own != found.owns[0] for own in found.owns])[of_rank]
    special = np.unique(np.flatnonzero(differs) // per_host)
    hosts = mesh.hosts if mesh.ranks <= most else max(1, most // per_host)
    if hosts < mesh.hosts and len(special) >= hosts:
        remedy = f"sample more: jitter.ranks={(len(special) + 1) * per_host} or more"
        raise InputError(
            f"ranks on {len(special)} hosts differ from the others", key="jitter.ranks", value=most, remedy=remedy
        )
    usual = np.setdiff1d(np.arange(min(mesh.hosts, hosts + len(special))), special)[: hosts - len(special)]
    chosen = np.sort(np.concatenate([special, usual]))
    ranks = (chosen[:, np.newaxis] * per_host + np.arange(per_host)).reshape(-1)
    on_pace = np.flatnonzero(~differs[ranks])
    weights = np.ones(len(ranks))
    weights[on_pace] = (mesh.ranks - differs.sum()) / max(1, len(on_pace))
    return Sample(ranks=ranks, classes=of_rank[ranks], on_pace=on_pace, weights=weights / mesh.ranks)


def _groups(cast: RankClass) -> dict[int, Group]:
    """Group of each communicator of a rank."""
    pairs = zip(cast.communicators, cast.program.operations, strict=True)
    return {number: operation.group for number, operation in pairs if isinstance(operation, Collective)}


def _meeting(groups: Mapping[int, Group], mesh: Mesh, sample: Sample, count: int, seed: tuple[int, int]) -> Meeting:
    return Meeting(
        replications=count,
        members={number: _members(group, sample.ranks) for number, group in groups.items()},
        everyone=_members(mesh.world(), sample.ranks),
        on_pace=sample.on_pace,
        seed=seed,
    )


def _members(group: Group, ranks: Numbers) -> Members:
    block = group.size * group.stride
    _, numbers = np.unique(ranks // block * group.stride + ranks % group.stride, return_inverse=True)
    return Members(group=numbers, others=group.size - np.bincount(numbers))


def _several_slow_kernels(cast: RankClass) -> bool:
    """Whether collectives of several communicators can slow a kernel at once, which takes long to evaluate."""
    takes = (cast.interference.taken(occupancy(phases)) if phases else (0.0, 0.0) for phases in cast.phases)
    collectives = (isinstance(operation, Collective) for operation in cast.program.operations)
    parts = zip(cast.communicators, collectives, takes, strict=True)
    return len({number for number, collective, taken in parts if collective and any(taken)}) > 1


def _each_launch(cast: RankClass, spans: Sequence[Span], *, slowed_as_before: bool) -> RankClass:
    """Return *cast* with an operation for each launch: kernels as long as alone, others as long as in *spans*.

    With *slowed_as_before*, kernels take as long as in *spans* as well, and nothing slows them again.
    """
    launches = cast.program.launches
    old = [launch.operation for launch in launches]
    numbers = iter(range(len(old)))
    instructions = tuple(
        item._replace(operation=next(numbers)) if isinstance(item, Launch) else item
        for item in cast.program.instructions
    )
    kernels = [communicator == NO_COMMUNICATOR for communicator in cast.communicators]
    return replace(
        cast,
        program=replace(
            cast.program,
            operations=tuple(cast.program.operations[number] for number in old),
            instructions=instructions,
        ),
        times=tuple(
            cast.times[number] if kernels[number] and not slowed_as_before else span.end - span.start
            for number, span in zip(old, spans, strict=True)
        ),
        movement=tuple(cast.movement[number] for number in old),
        phases=tuple(cast.phases[number] for number in old),
        communicators=tuple(cast.communicators[number] for number in old),
        interference=ABSENT if slowed_as_before else cast.interference,
    )


def _with_ranks(
    one: Lanes,
    casts: Sequence[RankClass],
    sample: Sample,
    jitter: Jitter,
    meeting: Meeting,
    random: np.random.Generator,
) -> Lanes:
    """Let a lane of *one* be every sampled rank, in every replication of *meeting*, with random times."""
    size = meeting.replications * len(sample.ranks)
    times = np.array([cast.times for cast in casts]).T[:, sample.classes]
    noise = factors(casts[0].program, jitter, (meeting.replications, len(sample.ranks)), random)
    host = np.array([[item.time for item in cast.program.instructions if isinstance(item, HostWork)] for cast in casts])
    return replace(
        one,
        count=size,
        alone=(times[:, np.newaxis] * noise).reshape(-1, size),
        links=np.zeros_like(one.links),
        host=np.tile(host.T[:, sample.classes], meeting.replications),
        stages=(),
        meeting=meeting,
    )
