r"""From messages to links: usage, payload, latency of a phase.

Two fabrics know the same cluster.

:class:`ClassFabric` has one link per *kind* of link.  All groups of the cluster run the same collective at once, so the
bytes on each link of a kind are

.. math:: b_l = \sum_{\text{sends}} a \cdot r_l \cdot \frac{D}{M_l}

with a the bytes each rank sends, r_l how often the route of that send crosses a link of kind l, D the devices of the
cluster and M_l the links of that kind.  Its cost does not depend on the number of GPUs.

:class:`FullFabric` has every link, and a phase is the traffic of one communicator alone.  It serves ``ranks: all``.

A phase is normalised to its busiest link l* (largest b_l / B_l): payload b_{l*}, usage b_l / b_{l*}.  So two equal
transfers over one network card get half of it each, whatever else they touch.
"""

from __future__ import annotations

import abc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import networkx as nx

from simulator.laws.collectives.base import Exchange, Send
from simulator.laws.collectives.rings import devices_of, host_rings
from simulator.world.mesh import Group
from simulator.world.topology.cluster import DEVICE, SCALE_UP, Cluster, LinkKind
from simulator.world.topology.graph import Node, device, graph, routes, sample
from simulator.world.topology.placement import partners, sample_hosts, staying
from simulator.world.topology.torus import diameter, hops, torus_link

__all__ = ["AbstractFabric", "ClassFabric", "FullFabric", "Link", "Phase", "devices_are_alike", "farthest_host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a link, or of a kind of links that carry equal traffic."""

    name: str
    kind: str
    """Name of its :class:`~simulator.world.topology.cluster.LinkKind`."""
    bandwidth: float
    """[B/s]"""
    ends: tuple[Node, ...] = ()
    """The nodes it joins; empty for a kind."""
    part: int = 0
    """Class of the ranks whose kind it is; see :mod:`simulator.laws.collectives.mixed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a collective with one usage of links."""

    payload: float
    """Bytes on the busiest link."""
    usage: tuple[tuple[int, float], ...]
    """Number of a link, bytes on it per byte of payload; at most 1 where links are equally fast."""
    latency: float
    """Before the bytes flow [s]."""
    rate: float
    """Payload per second if nothing else uses the links [B/s]: what the links give, or less if the kernel is slower."""
    algorithm: str = ""
    protocol: str = ""
    channels: int = 0
    """Multiprocessors that it holds on each rank."""
    traffic: float = 0.0
    """Memory traffic of each rank [B]."""

    @property
    def duration(self) -> float:
        """Time if nothing else uses the links [s]."""
        return self.latency + self.payload / self.rate


class AbstractFabric(abc.ABC):
    """Numbered links and the usage of them."""

    links: tuple[Link, ...]

    @abc.abstractmethod
    def phase(self, exchange: Exchange, ranks: Sequence[int]) -> Phase:
        """Usage of links when *ranks*, the members of one communicator, carry out *exchange*."""

    def _phase(self, exchange: Exchange, carried: dict[int, float], latency: float) -> Phase:
        loads = [(link, amount * exchange.overhead) for link, amount in sorted(carried.items()) if amount > 0]
        payload, usage, rate = 0.0, [], 1.0
        if loads:
            busiest, payload = max(loads, key=lambda load: load[1] / self.links[load[0]].bandwidth)
            usage = [(link, amount / payload) for link, amount in loads]
            rate = self.links[busiest].bandwidth
            if exchange.kernel or exchange.local:
                rate = payload / (max(payload / rate, exchange.kernel) + exchange.local)
        return Phase(
            payload=payload,
            usage=tuple(usage),
            latency=latency,
            rate=rate,
            algorithm=exchange.algorithm,
            protocol=exchange.protocol,
            channels=exchange.channels,
            traffic=exchange.copies * sum(send.amount for send in exchange.sends),
        )


@dataclass(frozen=True, slots=True)
class _Route:
    """Links of a kind of route, how often each is crossed per route and by how many devices' traffic."""

    usage: tuple[tuple[int, float], ...]
    latency: float


@final
class ClassFabric(AbstractFabric):
    """One link per kind; usage by the whole cluster at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._graph = sample(cluster)
        kinds = {name: data["bandwidth"] for _, _, data in self._graph.edges(data=True) for name in [data["kind"]]}
        self.links = tuple(Link(name=name, kind=_kind(name), bandwidth=kinds[name]) for name in sorted(kinds))
        self._number = {link.name: index for index, link in enumerate(self.links)}
        self._routes: dict[tuple[int, int], _Route] = {}
        self._hops: dict[tuple[int, int], _Route] = {}
        self._rails: dict[tuple[int, int], _Route] = {}
        self._alike = devices_are_alike(cluster)
        self._torus = torus_link(cluster)

    def check_routes(self) -> None:
        """Make sure that every kind of pair of ranks has a route.

        Raises
        ------
        NoRouteError
            Two ranks are not joined.
        """
        cluster = self._cluster
        if cluster.accelerators_per_host > 1:
            self._inside()
        for host in sample_hosts(cluster):
            if host:
                self._route(host, 0)

    def phase(self, exchange: Exchange, ranks: Sequence[int] = ()) -> Phase:
        return self._phase(exchange, self.loads(exchange), self.latency(exchange))

    def loads(self, exchange: Exchange) -> dict[int, float]:
        """Bytes on each link, by its number."""
        carried: dict[int, float] = defaultdict(float)
        for send in exchange.sends:
            for share, route in self._shares(send, exchange.group):
                for link, crossings in route.usage:
                    carried[link] += send.amount * send.peak * share * crossings
        return carried

    def latency(self, exchange: Exchange) -> float:
        """Latency of all messages that follow each other [s]."""
        if exchange.latency is not None:
            return exchange.latency
        latency = 0.0
        if exchange.host_steps:
            inside = self._inside() if self._alike else self._pairs(1, exchange.group)
            latency += exchange.host_steps * inside.latency
        if exchange.network_steps:
            latency += exchange.network_steps * self._farthest(exchange.group).latency
        return latency

    def _shares(self, send: Send, group: Group) -> Iterator[tuple[float, _Route]]:
        if send.hosts == 0:
            yield 1.0, self._inside() if self._alike else self._pairs(send.devices, group)
            return
        if self._torus is not None:
            yield 1.0, self._around(self._torus, send.hosts, group)
            return
        within_pod, within_zone = staying(self._cluster, send.hosts, group.host_stride, group.hosts)
        shares = (within_pod, within_zone - within_pod, 1 - within_zone)
        for share, host in zip(shares, partners(self._cluster), strict=True):
            if share > 0 and host is not None:
                yield share, self._route(host, 0) if send.devices == 0 else self._across_rails(host, group)

    def _inside(self) -> _Route:
        return self._route(0, 1)

    def _across_rails(self, host: int, group: Group) -> _Route:
        """Mean route to all members of another host by the network alone."""
        members = next(iter(devices_of(group, self._cluster)))
        crossed: dict[int, float] = defaultdict(float)
        latency = 0.0
        for index in members:
            route = self._by_network(host, index)
            latency = max(latency, route.latency)
            for link, crossings in route.usage:
                crossed[link] += crossings / len(members)
        return _Route(tuple(crossed.items()), latency)

    def _by_network(self, host: int, index: int) -> _Route:
        if (host, index) not in self._rails:
            source = device(self._cluster, 0)
            target = device(self._cluster, host * self._cluster.accelerators_per_host + index)
            paths = routes(without_scale_up(self._graph, self._cluster), source, target)
            self._rails[host, index] = self._along(paths[0])
        return self._rails[host, index]

    def _pairs(self, offset: int | None, group: Group) -> _Route:
        """Mean route inside a host: along the rings, *offset* members further on, or to all others alike (None)."""
        per_host = self._cluster.accelerators_per_host
        crossed: dict[int, float] = defaultdict(float)
        latency = 0.0
        for members in devices_of(group, self._cluster):
            for (first, second), share in self._steps(offset, members):
                route = self._between_devices(first, second)
                latency = max(latency, route.latency)
                for link, crossings in route.usage:
                    crossed[link] += share * crossings / per_host
        return _Route(tuple(crossed.items()), latency)

    def _steps(self, offset: int | None, members: tuple[int, ...]) -> Iterable[tuple[tuple[int, int], float]]:
        """Pairs of devices that exchange messages, and the part of a sender's bytes that goes there."""
        if offset is None:
            return _all_pairs(members)
        if offset == 1:
            return host_rings(self._cluster.direct, members).shares
        return [((tail, members[(place + offset) % len(members)]), 1.0) for place, tail in enumerate(members)]

    def _between_devices(self, first: int, second: int) -> _Route:
        if (first, second) not in self._hops:
            paths = routes(self._graph, device(self._cluster, first), device(self._cluster, second))
            crossed: dict[int, float] = defaultdict(float)
            for path in paths:
                for link, crossings in self._along(path).usage:
                    crossed[link] += crossings / len(paths)
            self._hops[first, second] = _Route(tuple(crossed.items()), self._along(paths[0]).latency)
        return self._hops[first, second]

    def _around(self, torus: LinkKind, offset: int | None, group: Group) -> _Route:
        """Mean route on a torus to the host *offset* members further on, or to all others alike (None)."""
        ends = device(self._cluster, 0), (torus.ends[0], 0, 0)
        ways = [self._along(routes(self._graph, *pair)[0]) for pair in (ends, ends[::-1])]
        crossed: dict[int, float] = defaultdict(float)
        for way in ways:
            for link, number in way.usage:
                crossed[link] += number
        for (axis, direction), links in hops(torus.axes, offset, group.host_stride, group.hosts).items():
            crossed[self._number[f"{torus.name}:{axis}{direction}"]] += links * self._cluster.accelerators_per_host
        latency = sum(way.latency for way in ways) + diameter(torus.axes) * torus.latency.value
        return _Route(tuple(crossed.items()), latency)

    def _farthest(self, group: Group) -> _Route:
        if self._torus is not None:
            return self._around(self._torus, 1, group)
        return self._route(farthest_host(group, self._cluster), 0)

    def _route(self, host: int, index: int) -> _Route:
        """Route from the first device to device *index* of host *host*."""
        if (host, index) not in self._routes:
            source = device(self._cluster, 0)
            target = device(self._cluster, host * self._cluster.accelerators_per_host + index)
            self._routes[host, index] = self._along(routes(self._graph, source, target)[0])
        return self._routes[host, index]

    def _along(self, path: Sequence[tuple[Node, Node]]) -> _Route:
        crossed: dict[int, float] = defaultdict(float)
        edges = [self._graph.edges[edge] for edge in path]
        for edge in edges:
            crossed[self._number[edge["kind"]]] += self._cluster.ranks / edge["members"]
        return _Route(tuple(crossed.items()), sum(edge["latency"] for edge in edges))


@final
class FullFabric(AbstractFabric):
    """Every link; usage by one communicator."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._graph = graph(cluster)
        self._network = without_scale_up(self._graph, cluster)
        edges = sorted(self._graph.edges)
        data = [self._graph.edges[edge] for edge in edges]
        self.links = tuple(
            Link(name=_edge_name(edge), kind=_kind(item["kind"]), bandwidth=item["bandwidth"], ends=edge)
            for edge, item in zip(edges, data, strict=True)
        )
        self._number = {edge: index for index, edge in enumerate(edges)}
        self._routes: dict[tuple[int, int, bool], _Route] = {}

    def phase(self, exchange: Exchange, ranks: Sequence[int]) -> Phase:
        carried: dict[int, float] = defaultdict(float)
        for rank in ranks:  # a phase of a hierarchical collective runs in several groups of the communicator at once
            members, position = exchange.group.members(rank), exchange.group.position(rank)
            for send in exchange.sends:
                for share, peer in self._peers(send, position, exchange.group, members):
                    apart = send.hosts != 0 and send.devices is None
                    for link, crossings in self._route(rank, members[peer], by_network=apart).usage:
                        carried[link] += send.amount * send.peak * share * crossings
        latency = exchange.latency
        if latency is None:
            latency = self._latency(exchange, exchange.group.members(ranks[0]))
        return self._phase(exchange, carried, latency)

    def _peers(self, send: Send, position: int, group: Group, members: Sequence[int]) -> Iterator[tuple[float, int]]:
        """Positions that *position* sends to, with the share of the amount each gets."""
        if self._cluster.direct is None or send.hosts != 0 or send.devices != 1:
            yield from _peers(send, position, group)
            return
        first = position // group.ranks_per_host * group.ranks_per_host
        on_host = [
            members[first + index] % self._cluster.accelerators_per_host for index in range(group.ranks_per_host)
        ]
        for (tail, head), share in host_rings(self._cluster.direct, tuple(on_host)).shares:
            if tail == on_host[position - first]:
                yield share, first + on_host.index(head)

    def _latency(self, exchange: Exchange, members: Sequence[int]) -> float:
        group, latency = exchange.group, 0.0
        if exchange.host_steps:
            inside = members[: group.ranks_per_host]
            longest = max(self._route(*pair).latency for pair in pairwise((*inside, inside[0])))
            latency += exchange.host_steps * longest
        if exchange.network_steps:
            firsts = members[group.ranks_per_host :: group.ranks_per_host]
            latency += exchange.network_steps * max(self._route(members[0], other).latency for other in firsts)
        return latency

    def _route(self, source: int, target: int, *, by_network: bool = False) -> _Route:
        key = source, target, by_network
        if key not in self._routes:
            ends = device(self._cluster, source), device(self._cluster, target)
            paths = routes(self._network if by_network else self._graph, *ends)
            crossed: dict[int, float] = defaultdict(float)
            for path in paths:
                for edge in path:
                    crossed[self._number[edge]] += 1 / len(paths)
            latency = sum(self._graph.edges[edge]["latency"] for edge in paths[0])
            self._routes[key] = _Route(tuple(crossed.items()), latency)
        return self._routes[key]


def _all_pairs(members: Sequence[int]) -> list[tuple[tuple[int, int], float]]:
    pairs = [(first, second) for first in members for second in members if first != second]
    return [(pair, 1 / (len(members) - 1)) for pair in pairs]


def farthest_host(group: Group, cluster: Cluster) -> int:
    """Return a host as far from the first as the members of *group* get: in its pod, zone, or beyond."""
    within_pod, within_zone = staying(cluster, None, group.host_stride, group.hosts)
    found = partners(cluster)
    near = [found.pod, found.zone if within_pod < 1 else None, found.beyond if within_zone < 1 else None]
    return next((host for host in reversed(near) if host is not None), 0)


def devices_are_alike(cluster: Cluster) -> bool:
    """Say whether one pair of devices of a host stands for all: a single switch joins them."""
    first = next((link for link in cluster.links if link.ends[0] == DEVICE), None)
    return first is not None and first.wiring == "all" and cluster.node(first.ends[1]).per == "host"


def without_scale_up(built: nx.DiGraph[Node], cluster: Cluster) -> nx.DiGraph[Node]:
    """Return the part of *built* that a message crosses if it may not use another device's card."""
    names = {link.name for link in cluster.links if link.technology in SCALE_UP}
    kept: nx.DiGraph[Node] = nx.subgraph_view(
        built, filter_edge=lambda tail, head: _kind(built.edges[tail, head]["kind"]) not in names
    )
    return kept


def _peers(send: Send, position: int, group: Group) -> Iterator[tuple[float, int]]:
    """Positions that *position* sends to, with the share of the amount each gets."""
    p, m = group.ranks_per_host, group.hosts
    host, index = divmod(position, p)
    if send.hosts == 0:
        steps = range(1, p) if send.devices is None else [send.devices]
        for step in steps:
            yield 1 / len(steps), host * p + (index + step) % p
    else:
        hops = range(1, m) if send.hosts is None else [send.hosts]
        members = range(p) if send.devices is None else [index]
        for hop in hops:
            for member in members:
                yield 1 / len(hops) / len(members), (host + hop) % m * p + member


def _kind(direction: str) -> str:
    """Return the kind of link that *direction* (``network:nic>leaf``) is one of."""
    return direction.split(":", maxsplit=1)[0]


def _edge_name(edge: tuple[tuple[str, int, int], tuple[str, int, int]]) -> str:
    return " > ".join(f"{kind}[{place}.{index}]" for kind, place, index in edge)
