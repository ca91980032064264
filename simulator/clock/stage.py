"""Who plays, and what each operation costs there: a program set on a cluster.

Ranks that behave alike are one *rank class*, simulated once.  A uniform cluster is one class whose collectives load
every kind of link as the whole cluster does; ``ranks: all`` makes each rank its own class on the full graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.calibration import Pricing
from simulator.laws.collectives.fabric import AbstractFabric, ClassFabric, FullFabric, Link, Phase
from simulator.laws.collectives.mixed import MixedFabric
from simulator.laws.interference import ABSENT, AbstractInterference, Contention, Measured, Occupancy
from simulator.laws.kernels import Kernel, Spent, kernel_time, rates
from simulator.laws.offload import HostLinks, Transfer
from simulator.schedules.program import Operation, Program
from simulator.world.catalog import Accelerator
from simulator.world.conditions import Conditions, Fault
from simulator.world.mesh import Group
from simulator.world.scenario import Scenario
from simulator.world.topology.mixed import host_types, slowest, type_of

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
    """Of collectives and transfers; empty for kernels."""
    communicators: tuple[int, ...]
    """Which communicator a collective, or which copy engine a transfer belongs to; ``NO_COMMUNICATOR`` for kernels."""
    movement: tuple[float, ...] = ()
    """Part of the time of kernels that memory traffic bounds; 0 for collectives."""
    interference: AbstractInterference = ABSENT
    """What communication does to kernels beside it."""

    @property
    def interferes(self) -> bool:
        """Whether any collective slows kernels."""
        return any(
            self.interference.stretch(movement, (occupancy(phases),)) > 1
            for phases in dict.fromkeys(self.phases)
            if phases
            for movement in (0.0, 1.0)
        )


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
    """Rank classes that meet in each communicator; one in each copy engine."""
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
    elif scenario.cluster.others:
        mixed = MixedFabric(scenario.cluster)
        mixed.check_routes()
        ready = _Casting(scenario, program, mixed).one_class_per_type()
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


def occupancy(phases: Sequence[Phase]) -> Occupancy:
    """What a collective of these *phases* takes from the accelerator of each rank."""
    channels = max((phase.channels for phase in phases), default=0)
    time = sum(phase.duration for phase in phases)
    return Occupancy(channels, sum(phase.traffic for phase in phases) / time if time else 0.0)


def infinitely_fast_network(ready: Stage) -> Stage:
    """Return the same stage on which collectives take no time."""
    classes = tuple(replace(item, phases=((),) * len(item.phases)) for item in ready.classes)
    return replace(ready, classes=classes, changes=(), rivals=())


def _interference(scenario: Scenario, accelerator: Accelerator) -> AbstractInterference:
    if scenario.compute.overlap_slowdown is not None:
        return Measured(scenario.compute.overlap_slowdown)
    return Contention(multiprocessors=accelerator.multiprocessors.value, memory=accelerator.memory_bandwidth.value)


class _Casting:
    """Prices each operation once per communicator."""

    def __init__(self, scenario: Scenario, program: Program, fabric: AbstractFabric) -> None:
        self._scenario, self._program, self._fabric = scenario, program, fabric
        cluster, place = scenario.cluster, scenario.place
        spanning = slowest(cluster) if cluster.others else cluster
        self._pricing = Pricing(spanning, place.library, place.forced, fabric)
        self._inside = [self._pricing]
        if cluster.others:
            self._inside = [
                Pricing(each, place.library, place.forced, self._fabric_of(number))
                for number, each in enumerate(host_types(cluster))
            ]
        self._spent = [self._spent_on(each.accelerator) for each in host_types(cluster)]
        self._interference = [_interference(scenario, each.accelerator) for each in host_types(cluster)]
        self._communicators: dict[tuple[str, int], int] = {}
        self._members: list[int] = []
        self._priced: dict[tuple[int, int], tuple[Phase, ...]] = {}
        copies = any(isinstance(operation, Transfer) for operation in program.operations)
        self._hosts = HostLinks(cluster, fabric.links, everyone=scenario.all_ranks) if copies else None
        self._links = self._hosts.links if self._hosts else fabric.links

    def _fabric_of(self, number: int) -> AbstractFabric:
        """Where collectives that stay on a host of type *number* run."""
        return MixedFabric(self._scenario.cluster, number) if isinstance(self._fabric, MixedFabric) else self._fabric

    def _spent_on(self, accelerator: Accelerator) -> tuple[Spent, ...]:
        at = rates(accelerator, self._scenario.compute)
        return tuple(
            kernel_time(operation, at) if isinstance(operation, Kernel) else Spent(0.0, 0.0)
            for operation in self._program.operations
        )

    def one_class(self) -> Stage:
        """All ranks behave alike: each communicator is a meeting of one."""
        mesh = self._scenario.mesh
        return Stage(
            classes=(self._rank_class("all ranks", mesh.ranks, 0),),
            members=tuple(self._members),
            links=self._links,
        )

    def one_class_per_type(self) -> Stage:
        """Ranks of a type of hosts behave alike; collectives that span hosts are where types meet."""
        cluster = self._scenario.cluster
        counts = [cluster.hosts - sum(item.hosts for item in cluster.others), *(item.hosts for item in cluster.others)]
        classes, first = [], 0
        for number, (each, hosts) in enumerate(zip(host_types(cluster), counts, strict=True)):
            ranks = hosts * cluster.accelerators_per_host
            name = f"{hosts} hosts of {each.accelerator.name}"
            classes.append(self._rank_class(name, ranks, first * cluster.accelerators_per_host, number))
            first += hosts
        return Stage(classes=tuple(classes), members=tuple(self._members), links=self._links)

    def all_ranks(self) -> Stage:
        """Each rank plays for itself."""
        per_host = self._scenario.cluster.accelerators_per_host
        classes = tuple(
            self._rank_class(f"rank {rank}", 1, rank, type_of(self._scenario.cluster, rank // per_host))
            for rank in range(self._scenario.mesh.ranks)
        )
        return Stage(classes=classes, members=tuple(self._members), links=self._links)

    def _rank_class(self, name: str, ranks: int, rank: int, kind: int = 0) -> RankClass:
        """Class of *ranks* like *rank*, on hosts of type *kind*."""
        communicators = tuple(self._queue(operation, rank, kind) for operation in self._program.operations)
        return RankClass(
            name=name,
            ranks=ranks,
            program=self._program,
            times=tuple(spent.total for spent in self._spent[kind]),
            movement=tuple(spent.movement / spent.total if spent.total else 0.0 for spent in self._spent[kind]),
            interference=self._interference[kind],
            phases=tuple(
                self._phases(index, communicator, rank, kind) for index, communicator in enumerate(communicators)
            ),
            communicators=communicators,
        )

    def _queue(self, operation: Operation, rank: int, kind: int) -> int:
        """Number of what serves *operation* one at a time: a communicator, or one of the rank's copy engines."""
        if isinstance(operation, Collective):
            return self._communicator(operation, rank, kind)
        if isinstance(operation, Transfer):
            return self._meeting_place((operation.route, rank), 1)
        return NO_COMMUNICATOR

    def _communicator(self, collective: Collective, rank: int, kind: int) -> int:
        """Number of the communicator of *rank*'s group; the first of its members names the group."""
        group = collective.group
        if self._scenario.all_ranks:
            first = rank // (group.size * group.stride) * (group.size * group.stride) + rank % group.stride
        else:
            first = kind if group.hosts == 1 else 0  # classes meet unless their groups stay on hosts
        return self._meeting_place((group.name, first), self._meeting(group))

    def _meeting_place(self, key: tuple[str, int], members: int) -> int:
        if key not in self._communicators:
            self._communicators[key] = len(self._members)
            self._members.append(members)
        return self._communicators[key]

    def _meeting(self, group: Group) -> int:
        """Rank classes that meet in a communicator of *group*."""
        if self._scenario.all_ranks:
            return group.size
        return 1 if group.hosts == 1 else len(self._spent)

    def _phases(self, index: int, communicator: int, rank: int, kind: int) -> tuple[Phase, ...]:
        operation = self._program.operations[index]
        if isinstance(operation, Transfer) and self._hosts is not None:
            return (self._hosts.phase(operation, rank, kind),)
        if not isinstance(operation, Collective):
            return ()
        if (index, communicator) not in self._priced:
            ranks = operation.group.members(rank) if self._scenario.all_ranks else ()
            pricing = self._inside[kind] if operation.group.hosts == 1 else self._pricing
            self._priced[index, communicator] = pricing.phases(operation, ranks)
        return self._priced[index, communicator]
