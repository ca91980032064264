"""Who plays, and what each operation costs there: a program set on a cluster.

Ranks that behave alike are one *rank class*, simulated once.  A uniform cluster is one class whose collectives load
every kind of link as the whole cluster does; ``ranks: all`` makes each rank its own class on the full graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.clock.cast import NO_COMMUNICATOR, Change, RankClass, Stage
from simulator.clock.pace import paced
from simulator.clock.parts import Own, division, owns
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.calibration import Pricing
from simulator.laws.collectives.fabric import FullFabric, Link, Phase
from simulator.laws.collectives.mixed import MixedFabric
from simulator.laws.interference import AbstractInterference, Contention, Measured
from simulator.laws.kernels import Kernel, Spent, kernel_time, rates
from simulator.laws.offload import HostLinks, Transfer
from simulator.schedules.program import Operation, Program
from simulator.world.catalog import Accelerator
from simulator.world.conditions import Conditions, Fault
from simulator.world.mesh import Group
from simulator.world.scenario import Scenario
from simulator.world.topology.mixed import host_types, slowest, type_of

__all__ = ["infinitely_fast_network", "stage", "under"]


def stage(scenario: Scenario, program: Program) -> Stage:
    """Set *program* on the scenario's cluster.

    Raises
    ------
    NoRouteError
        Two ranks that must exchange data are not joined.
    """
    casting = _Casting(scenario, program)
    ready = casting.all_ranks() if scenario.all_ranks else casting.by_class()
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
    changes = []
    for number, link in enumerate(ready.links):
        faults = [fault for index, fault in enumerate(conditions.faults) if _hits(index, fault, link, ready)]
        left = link.bandwidth - taken[number]
        changes += [Change(at, number, left * _remaining(faults, at)) for at in _moments(conditions, faults, link)]
    return replace(ready, changes=tuple(sorted(changes)), rivals=tuple(rivals))


def _moments(conditions: Conditions, faults: Sequence[Fault], link: Link) -> list[float]:
    """When *link*, which *faults* hit, changes; at the start if anything is taken from it."""
    ends = [moment for fault in faults for moment in (fault.start, fault.end)]
    constant = [0.0] if any(item.bandwidth and item.link == link.kind for item in conditions.background) else []
    return sorted({moment for moment in (*ends, *constant) if moment != float("inf")})


def _remaining(faults: Sequence[Fault], at: float) -> float:
    """Part of the bandwidth that *faults* leave from *at* on; the worst of them counts."""
    return min((fault.remaining for fault in faults if fault.start <= at < fault.end), default=1.0)


def _hits(number: int, fault: Fault, link: Link, ready: Stage) -> bool:
    if fault.link != link.kind:
        return False
    if fault.place is None:
        return True
    if link.ends:
        return (fault.lower, *fault.place) in link.ends
    # a kind stands for all of its links, and the slowest of them decides, unless it belongs to few ranks
    belongs = [number in cast.faults for cast in ready.classes]
    return belongs[link.part] or not any(belongs)


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

    def __init__(self, scenario: Scenario, program: Program) -> None:
        self._scenario, self._program, cluster = scenario, program, scenario.cluster
        self._types = host_types(cluster)
        self._spanning = slowest(cluster) if cluster.others else cluster
        groups = [item.group for item in program.operations if isinstance(item, Collective)]
        divided = None if scenario.all_ranks else division(scenario, groups)
        self._parts = () if divided is None else divided.parts
        self._owns = tuple(owns(scenario)) if divided is None else divided.owns
        types = [own.type for own in self._owns]
        self._fabric: FullFabric | MixedFabric = (
            FullFabric(cluster) if scenario.all_ranks else MixedFabric([self._types[number] for number in types])
        )
        self._spent = [self._spent_on(each.accelerator) for each in self._types]
        self._interference = [_interference(scenario, each.accelerator) for each in self._types]
        self._pricings: dict[tuple[frozenset[int], frozenset[int]], Pricing] = {}
        self._communicators: dict[tuple[str, int], int] = {}
        self._members: list[int] = []
        self._priced: dict[tuple[int, int], tuple[Phase, ...]] = {}
        copies = any(isinstance(operation, Transfer) for operation in program.operations)
        classes = None if scenario.all_ranks else types
        self._hosts = HostLinks(cluster, self._fabric.links, classes) if copies else None
        self._links = self._hosts.links if self._hosts else self._fabric.links

    def _spent_on(self, accelerator: Accelerator) -> tuple[Spent, ...]:
        at = rates(accelerator, self._scenario.compute)
        return tuple(
            kernel_time(operation, at) if isinstance(operation, Kernel) else Spent(0.0, 0.0)
            for operation in self._program.operations
        )

    def by_class(self) -> Stage:
        """One rank plays for all that behave alike; communicators are where classes meet."""
        if isinstance(self._fabric, MixedFabric):
            self._fabric.check_routes()
        classes = tuple(
            self._rank_class(name, part.ranks, part.rank, number, own)
            for number, (name, part, own) in enumerate(zip(self._names(), self._parts, self._owns, strict=True))
        )
        return Stage(classes=classes, members=tuple(self._members), links=self._links)

    def _names(self) -> list[str]:
        """What to call each class."""
        if len(self._parts) == 1:
            return ["all ranks"]
        per_host = self._scenario.cluster.accelerators_per_host
        by_type = list(self._owns) == [Own(number) for number in range(len(self._types))]
        return [
            f"{part.ranks // per_host} hosts of {self._types[own.type].accelerator.name}" if by_type
            else f"{part.ranks} ranks like rank {part.rank}" if part.ranks > 1 else f"rank {part.rank}"
            for own, part in zip(self._owns, self._parts, strict=True)
        ]  # fmt: skip

    def all_ranks(self) -> Stage:
        """Each rank plays for itself."""
        classes = tuple(self._rank_class(f"rank {rank}", 1, rank, rank, own) for rank, own in enumerate(self._owns))
        return Stage(classes=classes, members=tuple(self._members), links=self._links)

    def _rank_class(self, name: str, ranks: int, rank: int, part: int, own: Own) -> RankClass:
        """Class of *ranks* like *rank*, number *part*."""
        communicators = tuple(self._queue(operation, rank, part) for operation in self._program.operations)
        spent = self._spent[own.type]
        cast = RankClass(
            name=name,
            ranks=ranks,
            program=self._program,
            times=tuple(item.total for item in spent),
            movement=tuple(item.movement / item.total if item.total else 0.0 for item in spent),
            interference=self._interference[own.type],
            phases=tuple(
                self._phases(index, communicator, rank, part) for index, communicator in enumerate(communicators)
            ),
            communicators=communicators,
            faults=own.faults,
        )
        return paced(cast, own.pace)

    def _queue(self, operation: Operation, rank: int, part: int) -> int:
        """Number of what serves *operation* one at a time: a communicator, or one of the rank's copy engines."""
        if isinstance(operation, Collective):
            return self._communicator(operation.group, rank, part)
        if isinstance(operation, Transfer):
            return self._meeting_place((operation.route, part), 1)
        return NO_COMMUNICATOR

    def _communicator(self, group: Group, rank: int, part: int) -> int:
        """Number of the communicator of *rank*'s group; the first of its members names the group."""
        if self._scenario.all_ranks:
            first = rank // (group.size * group.stride) * (group.size * group.stride) + rank % group.stride
            return self._meeting_place((group.name, first), group.size)
        kind, joined = self._parts[part].meets[group.name]
        return self._meeting_place((group.name, kind), len(joined))

    def _meeting_place(self, key: tuple[str, int], members: int) -> int:
        if key not in self._communicators:
            self._communicators[key] = len(self._members)
            self._members.append(members)
        return self._communicators[key]

    def _phases(self, index: int, communicator: int, rank: int, part: int) -> tuple[Phase, ...]:
        operation = self._program.operations[index]
        if isinstance(operation, Transfer) and self._hosts is not None:
            return (self._hosts.phase(operation, rank, part),)
        if not isinstance(operation, Collective):
            return ()
        if (index, communicator) not in self._priced:
            ranks = operation.group.members(rank) if self._scenario.all_ranks else ()
            self._priced[index, communicator] = self._pricing(operation.group, ranks, part).phases(operation, ranks)
        return self._priced[index, communicator]

    def _pricing(self, group: Group, ranks: Sequence[int], part: int) -> Pricing:
        """Pricing for the members of a communicator: on one type of hosts as there, else as the slowest allows."""
        if self._scenario.all_ranks:
            per_host = self._scenario.cluster.accelerators_per_host
            joined = frozenset[int]()
            types = frozenset(type_of(self._scenario.cluster, rank // per_host) for rank in ranks)
        else:
            joined = self._parts[part].meets[group.name][1]
            types = frozenset(self._owns[number].type for number in joined)
        if (joined, types) not in self._pricings:
            cluster = self._types[next(iter(types))] if len(types) == 1 else self._spanning
            fabric = self._fabric.joining(joined) if isinstance(self._fabric, MixedFabric) else self._fabric
            place = self._scenario.place
            self._pricings[joined, types] = Pricing(cluster, place.library, place.forced, fabric)
        return self._pricings[joined, types]
