"""Who plays, and what each operation costs there: a program set on a cluster.

Ranks that behave alike are one *rank class*, simulated once.  A uniform cluster is one class whose collectives load
every kind of link as the whole cluster does; ``ranks: all`` makes each rank its own class on the full graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.calibration import Pricing
from simulator.laws.collectives.fabric import AbstractFabric, ClassFabric, FullFabric, Link, Phase
from simulator.laws.kernels import Kernel, kernel_time, rates
from simulator.schedules.program import Program
from simulator.world.conditions import Conditions, Fault
from simulator.world.scenario import Scenario

__all__ = ["RankClass", "Stage", "infinitely_fast_network", "stage", "under"]

NO_COMMUNICATOR = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """Ranks that behave alike.  Tuples run parallel to the program's operations."""

    name: str
    ranks: int
    program: Program
    times: tuple[float, ...]
    """Of kernels [s]; 0 for collectives."""
    phases: tuple[tuple[Phase, ...], ...]
    """Of collectives; empty for kernels."""
    communicators: tuple[int, ...]
    """Which communicator a collective belongs to; ``NO_COMMUNICATOR`` for kernels."""


class Change(NamedTuple):
    """A link gets another bandwidth."""

    at: float
    """[s]"""
    link: int
    bandwidth: float
    """[B/s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything an engine needs."""

    classes: tuple[RankClass, ...]
    members: tuple[int, ...]
    """Rank classes that meet in each communicator."""
    links: tuple[Link, ...]
    changes: tuple[Change, ...] = ()
    """Of links during the step, in order of time."""
    rivals: tuple[int, ...] = ()
    """Links on which somebody else's transfer goes on all the time, once per transfer."""


def stage(scenario: Scenario, program: Program) -> Stage:
    """Set *program* on the scenario's cluster.

    Raises
    ------
    NoRouteError
        Two ranks that must exchange data are not joined.
    """
    if scenario.all_ranks:
        fabric: AbstractFabric = FullFabric(scenario.cluster)
        ready = _Casting(scenario, program, fabric).all_ranks()
    else:
        by_class = ClassFabric(scenario.cluster)
        by_class.check_routes()
        ready = _Casting(scenario, program, by_class).one_class()
    return under(scenario.place.conditions, ready) if scenario.place.conditions else ready


def under(conditions: Conditions, ready: Stage) -> Stage:
    """Return *ready* with the traffic of others and the faults of *conditions*."""
    taken = [sum(item.bandwidth for item in conditions.background if item.link == link.kind) for link in ready.links]
    rivals = [
        number
        for number, link in enumerate(ready.links)
        for item in conditions.background
        for _ in range(item.transfers if item.link == link.kind else 0)
    ]
    changes = [
        Change(at, number, (link.bandwidth - taken[number]) * _remaining(conditions, link, at))
        for number, link in enumerate(ready.links)
        for at in _moments(conditions, link)
    ]
    return replace(ready, changes=tuple(sorted(changes)), rivals=tuple(rivals))


def _moments(conditions: Conditions, link: Link) -> list[float]:
    """When *link* changes; at the start if anything is taken from it."""
    ends = [moment for fault in conditions.faults if _hits(fault, link) for moment in (fault.start, fault.end)]
    constant = [0.0] if any(item.bandwidth and item.link == link.kind for item in conditions.background) else []
    return sorted({moment for moment in (*ends, *constant) if moment != float("inf")})


def _remaining(conditions: Conditions, link: Link, at: float) -> float:
    """Part of the bandwidth that faults leave *link* from *at* on; the worst of them counts."""
    left = [fault.remaining for fault in conditions.faults if _hits(fault, link) and fault.start <= at < fault.end]
    return min(left, default=1.0)


def _hits(fault: Fault, link: Link) -> bool:
    if fault.link != link.kind:
        return False
    # a kind stands for all of its links, and the slowest of them decides
    return fault.place is None or not link.ends or (fault.lower, *fault.place) in link.ends


def infinitely_fast_network(ready: Stage) -> Stage:
    """Return the same stage on which collectives take no time."""
    classes = tuple(replace(item, phases=((),) * len(item.phases)) for item in ready.classes)
    return replace(ready, classes=classes, changes=(), rivals=())


class _Casting:
    """Prices each operation once per communicator."""

    def __init__(self, scenario: Scenario, program: Program, fabric: AbstractFabric) -> None:
        self._scenario, self._program, self._fabric = scenario, program, fabric
        self._pricing = Pricing(scenario.cluster, scenario.place.library, scenario.place.forced, fabric)
        at = rates(scenario.accelerator, scenario.training.precision, scenario.achieved)
        self._times = tuple(
            kernel_time(operation, at) if isinstance(operation, Kernel) else 0.0 for operation in program.operations
        )
        self._communicators: dict[tuple[str, int], int] = {}
        self._members: list[int] = []
        self._priced: dict[tuple[int, int], tuple[Phase, ...]] = {}

    def one_class(self) -> Stage:
        """All ranks behave alike: each communicator is a meeting of one."""
        mesh = self._scenario.mesh
        return Stage(
            classes=(self._rank_class("all ranks", mesh.ranks, 0),),
            members=tuple(1 for _ in self._communicators),
            links=self._fabric.links,
        )

    def all_ranks(self) -> Stage:
        """Each rank plays for itself."""
        classes = tuple(self._rank_class(f"rank {rank}", 1, rank) for rank in range(self._scenario.mesh.ranks))
        return Stage(classes=classes, members=tuple(self._members), links=self._fabric.links)

    def _rank_class(self, name: str, ranks: int, rank: int) -> RankClass:
        communicators = tuple(
            self._communicator(operation, rank) if isinstance(operation, Collective) else NO_COMMUNICATOR
            for operation in self._program.operations
        )
        return RankClass(
            name=name,
            ranks=ranks,
            program=self._program,
            times=self._times,
            phases=tuple(self._phases(index, communicator, rank) for index, communicator in enumerate(communicators)),
            communicators=communicators,
        )

    def _communicator(self, collective: Collective, rank: int) -> int:
        """Number of the communicator of *rank*'s group; the first of its members names the group."""
        group = collective.group
        first = rank // (group.size * group.stride) * (group.size * group.stride) + rank % group.stride
        key = (group.name, first)
        if key not in self._communicators:
            self._communicators[key] = len(self._members)
            self._members.append(group.size)
        return self._communicators[key]

    def _phases(self, index: int, communicator: int, rank: int) -> tuple[Phase, ...]:
        operation = self._program.operations[index]
        if not isinstance(operation, Collective):
            return ()
        if (index, communicator) not in self._priced:
            ranks = operation.group.members(rank) if self._scenario.all_ranks else ()
            self._priced[index, communicator] = self._pricing.phases(operation, ranks)
        return self._priced[index, communicator]
