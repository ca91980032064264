r"""The reference: every message of a collective is a flow of its own on the full graph.

The engine carries a collective as one transfer per phase, whose usage of links is the sum over its messages
(:mod:`simulator.laws.collectives.fabric`).  Here nothing is added up.  A message waits for the messages it depends on,
then for the latency of its route, then flows at its max-min fair rate; whoever waits for it goes on when it has
arrived.  That costs time and memory per message, n^2 of them in a channel of n ranks, so it serves to check the sums.

Two runs differ for two reasons, and :class:`Comparison` says by how much each: the busiest link carries other bytes, or
it stands still longer,

.. math:: T = \max_l \frac{b_l}{B_l} + T_{still}

With *ahead* a channel prepares the next message while one flows, as a kernel with several slots in flight does: the
latency of a message passes while the one before it is still sending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import simpy

from simulator.clock.engine import ROUNDING
from simulator.clock.network import Network
from simulator.errors import BrokenLawError, InputError
from simulator.laws.collectives.base import AbstractAlgorithm, Collective
from simulator.laws.collectives.channels import Path, layout
from simulator.laws.collectives.fabric import AbstractFabric, ClassFabric, FullFabric, Link, Phase, without_scale_up
from simulator.laws.collectives.messages import Message, messages
from simulator.world.topology.cluster import Cluster
from simulator.world.topology.graph import Node, device, graph, routes

__all__ = [
    "MOST_RANKS",
    "Comparison",
    "Job",
    "ReferenceRun",
    "aggregated",
    "check_ranks",
    "compared",
    "everywhere",
    "reference",
    "reference_time",
]

MOST_RANKS = 64
"""An all-reduce of 64 ranks by rings in 8 channels is 64,512 messages."""

Process = Generator[simpy.Event, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One collective of one group."""

    collective: Collective
    algorithm: AbstractAlgorithm
    rank: int = 0
    """Any rank of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """What happened when jobs ran at once."""

    ends: tuple[float, ...]
    """Of each job [s]; all start at 0."""
    links: tuple[Link, ...]
    carried: tuple[float, ...]
    """Bytes that each link carried [B]."""
    messages: int
    """Flows simulated."""

    @property
    def time(self) -> float:
        """Until everything has arrived [s]."""
        return max(self.ends, default=0.0)

    @property
    def bound(self) -> float:
        """What the busiest link needs for its bytes; no run takes less [s]."""
        return max(amount / link.bandwidth for amount, link in zip(self.carried, self.links, strict=True))

    @property
    def still(self) -> float:
        """How long that link carries nothing, or less than it could [s]."""
        return self.time - self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Messages one by one against one transfer per phase."""

    reference: ReferenceRun
    aggregated: ReferenceRun

    @property
    def difference(self) -> float:
        """Of the reference, relative to the aggregate: 0.01 if it takes one percent longer."""
        return self.reference.time / self.aggregated.time - 1

    @property
    def counted(self) -> float:
        """The part of the difference that comes from other bytes on the busiest link [s]."""
        return self.reference.bound - self.aggregated.bound

    @property
    def waiting(self) -> float:
        """The part of the difference in which the busiest link stands still [s]."""
        return self.reference.still - self.aggregated.still

    def __str__(self) -> str:
        reasons = f"bytes on the busiest link {self.counted * 1e6:+.4g} us, waiting {self.waiting * 1e6:+.4g} us"
        return f"{self.difference:+.2%}: {reasons}"


def everywhere(cluster: Cluster, collective: Collective, algorithm: AbstractAlgorithm) -> tuple[Job, ...]:
    """The same collective in all groups of the cluster at once, as a uniform cluster runs it."""
    groups = dict.fromkeys(collective.group.members(rank) for rank in range(cluster.ranks))
    return tuple(Job(collective=collective, algorithm=algorithm, rank=members[0]) for members in groups)


def reference_time(
    cluster: Cluster, collective: Collective, algorithm: AbstractAlgorithm, *, pieces: int = 1, ahead: bool = False
) -> ReferenceRun:
    """Simulate the messages of *collective* in one group, alone on the cluster.

    Raises
    ------
    InputError
        The cluster is too large for it, or the algorithm is not made of messages.
    """
    job = Job(collective=collective, algorithm=algorithm)
    return reference(cluster, [job], pieces=pieces, ahead=ahead)


def compared(
    cluster: Cluster,
    collective: Collective,
    algorithm: AbstractAlgorithm,
    *,
    by_class: bool = True,
    pieces: int = 1,
    ahead: bool = False,
) -> Comparison:
    """Compare both ways to carry *collective* out in all groups of the cluster at once.

    Raises
    ------
    InputError
        As :func:`reference`.
    """
    jobs = everywhere(cluster, collective, algorithm)
    return Comparison(
        reference=reference(cluster, jobs, pieces=pieces, ahead=ahead),
        aggregated=aggregated(cluster, jobs, by_class=by_class),
    )


def check_ranks(cluster: Cluster) -> None:
    """Refuse clusters of more than :data:`MOST_RANKS`.

    Raises
    ------
    InputError
        The cluster is too large.
    """
    if cluster.ranks > MOST_RANKS:
        remedy = f"use at most {MOST_RANKS}, or leave the reference out: aggregated transfers cost nothing per GPU"
        raise InputError("too many GPUs to simulate each message", key="ranks", value=cluster.ranks, remedy=remedy)


def reference(
    cluster: Cluster, jobs: Sequence[Job], *, pieces: int = 1, ahead: bool = False, cross_nic: bool = True
) -> ReferenceRun:
    """Simulate the messages of *jobs*, all started at once.

    Parameters
    ----------
    pieces
        Parts that each message of a ring, chain or tree is cut into.
    ahead
        Whether the latency of a message passes while its channel still sends the one before.
    cross_nic
        Whether rings may leave a host on another rail than they came (:mod:`simulator.laws.collectives.channels`).

    Raises
    ------
    InputError
        The cluster is too large for it, or an algorithm is not made of messages.
    """
    check_ranks(cluster)
    env, wires = simpy.Environment(), _Wires(cluster)
    network = Network(env, wires.links)
    ends, count = [], 0
    for job in jobs:
        laid = layout(cluster, job.collective.group, job.rank, cross_nic=cross_nic)
        flows = messages(job.collective, job.algorithm, laid, pieces=pieces)
        count += len(flows)
        ends.append(env.process(_finish(env, _sent(env, network, wires, flows, ahead=ahead))))
    env.run()
    run = ReferenceRun(
        ends=tuple(float(end.value or 0.0) for end in ends),
        links=wires.links,
        carried=tuple(network.carried),
        messages=count,
    )
    if run.time < run.bound * (1 - ROUNDING):
        raise BrokenLawError(f"messages took {run.time} s, less than the {run.bound} s that a link needs for its bytes")
    return run


def aggregated(cluster: Cluster, jobs: Sequence[Job], *, by_class: bool = False) -> ReferenceRun:
    """Simulate *jobs* as the engine does, one transfer per phase, all started at once.

    With *by_class* one group stands for all groups of its kind: only jobs of the groups of rank 0 are simulated.
    """
    fabric: AbstractFabric = ClassFabric(cluster) if by_class else FullFabric(cluster)
    env = simpy.Environment()
    network = Network(env, fabric.links)
    taken = [job for job in jobs if not by_class or 0 in job.collective.group.members(job.rank)]
    phases = [
        [fabric.phase(item, job.collective.group.members(job.rank)) for item in job.algorithm.exchanges(job.collective)]
        for job in taken
    ]
    ends = [env.process(_finish(env, _in_order(env, network, of_job))) for of_job in phases]
    env.run()
    return ReferenceRun(
        ends=tuple(float(end.value or 0.0) for end in ends),
        links=fabric.links,
        carried=tuple(network.carried),
        messages=sum(map(len, phases)),
    )


class _Wires:
    """Links of the full graph, and the flow that a message is on them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._graph = cluster, graph(cluster)
        self._network = without_scale_up(self._graph, cluster)
        edges = sorted(self._graph.edges)
        self._number = {edge: number for number, edge in enumerate(edges)}
        self.links = tuple(self._link(edge) for edge in edges)
        self._flows: dict[tuple[Path, float, bool], Phase] = {}

    def flow(self, message: Message) -> Phase:
        """Return the usage of links by *message* on the shortest routes along its path, all alike."""
        key = message.path, message.amount, message.by_network
        if key not in self._flows:
            used: dict[int, float] = defaultdict(float)
            latency = 0.0
            for ends in pairwise(message.path):
                found = routes(
                    self._network if message.by_network else self._graph,
                    *(device(self._cluster, rank) for rank in ends),
                )
                latency += max(sum(self._graph.edges[edge]["latency"] for edge in route) for route in found)
                for edge in chain.from_iterable(found):
                    used[self._number[edge]] += 1 / len(found)
            self._flows[key] = self._phase(used, message.amount, latency)
        return self._flows[key]

    def _phase(self, used: dict[int, float], amount: float, latency: float) -> Phase:
        busiest = max(used, key=lambda link: used[link] / self.links[link].bandwidth)
        usage = tuple((link, share / used[busiest]) for link, share in used.items())
        payload, rate = amount * used[busiest], self.links[busiest].bandwidth
        return Phase(payload=payload, usage=usage, latency=latency, rate=rate)

    def _link(self, edge: tuple[Node, Node]) -> Link:
        data = self._graph.edges[edge]
        name = " > ".join(f"{kind}[{place}.{index}]" for kind, place, index in edge)
        return Link(name=name, kind=data["kind"].split(":")[0], bandwidth=data["bandwidth"])


def _sent(
    env: simpy.Environment, network: Network, wires: _Wires, flows: Iterable[Message], *, ahead: bool
) -> list[simpy.Process]:
    """Start all messages; each waits for those before it."""
    under_way: list[simpy.Process] = []
    for message in flows:
        phase = wires.flow(message)
        after = [under_way[number] for number in message.after]
        behind = [] if message.behind is None else [under_way[message.behind]]
        waits = (after, behind) if ahead else (after + behind, [])
        under_way.append(env.process(_send(env, network, phase, *waits)))
    return under_way


def _send(
    env: simpy.Environment, network: Network, phase: Phase, before: list[simpy.Process], busy: list[simpy.Process]
) -> Process:
    """Wait for what is *before* it, for the latency and for the channel if it is *busy*; then flow."""
    yield from before
    if phase.latency:
        yield env.timeout(phase.latency)
    yield from busy
    network.count((phase,))
    yield network.carry(phase)


def _in_order(env: simpy.Environment, network: Network, phases: Iterable[Phase]) -> list[simpy.Process]:
    """Start *phases*, each after the one before it."""
    under_way: list[simpy.Process] = []
    for phase in phases:
        under_way.append(env.process(_send(env, network, phase, under_way[-1:], [])))
    return under_way


def _finish(env: simpy.Environment, parts: Iterable[simpy.Event]) -> Generator[simpy.Event, None, float]:
    """Wait for all *parts*; the time."""
    yield from parts
    return env.now
