"""What NCCL's tuner gets to know of a group of ranks, read off the cluster's description.

NCCL reckons with the line rate of a card and with its own constant for NVLink and PCIe; the latter stand in the
catalogue as the efficiency of these links, so that their ``bandwidth`` is NCCL's.  A route's latency over that of
NCCL's constant for Ring Simple says how far this cluster differs from it: what a network adds (EFA, TCP) is the latency
that its plugin tells, counted for the message and for its flush.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import networkx as nx

from simulator.laws.collectives.fabric import devices_are_alike, farthest_host
from simulator.laws.collectives.nccl.constants import HOP, Algorithm, Hop
from simulator.laws.collectives.nccl.graphs import AMPERE, BLACKWELL, HOPPER, MICRO, VOLTA, Graph, System
from simulator.laws.collectives.nccl.search import (
    MAX_CHANNELS,
    host_graph,
    ladder_step,
    network_graph,
    nvls_graph,
    tree_graph,
)
from simulator.laws.collectives.rings import devices_of, host_rings
from simulator.world.catalog import Generation
from simulator.world.mesh import Group
from simulator.world.topology.cluster import DEVICE, SCALE_UP, Cluster
from simulator.world.topology.graph import Node, device, routes, sample

__all__ = ["SystemReader"]

GENERATIONS: Final[Mapping[Generation, int]] = {
    "volta": VOLTA, "ampere": AMPERE, "ada": AMPERE, "hopper": HOPPER, "blackwell": BLACKWELL, "cdna": AMPERE,
}  # fmt: skip
"""Rows of NCCL's tables."""

Link = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Exit:
    """How a device reaches the network."""

    slots: int
    """Places per host where a ring can leave."""
    rate: float
    """Of one slot [B/s]."""


class SystemReader:
    """Reads systems of one cluster; routes are looked up once."""

    def __init__(self, cluster: Cluster, *, channels: int | None = None, in_network: bool = False) -> None:
        self._cluster, self._channels, self._in_network = cluster, channels, in_network
        self._built = sample(cluster)
        self._technology = {link.name: link.technology for link in cluster.links}
        self._nominal = {link.name: link.nominal.value for link in cluster.links}
        self._systems: dict[tuple[int, int, int], System] = {}

    def system(self, group: Group) -> System:
        """Return what the tuner knows of *group*."""
        key = (group.size, group.ranks_per_host, group.stride)
        if key not in self._systems:
            self._systems[key] = self._read(group)
        return self._systems[key]

    def _read(self, group: Group) -> System:
        inside = self._inside(group)
        between = self._between(group)
        hop: Hop = "nvlink" if self._is_scale_up(inside) else "pci"
        generation = GENERATIONS[self._cluster.accelerator.generation]
        usual = HOP["ring"]["net"]["simple"] * MICRO
        away = _latency(between)
        return System(
            ranks=group.size,
            hosts=group.hosts,
            generation=generation,
            graphs=self._graphs(group, inside, between, generation),
            hop=hop,
            nic_latency=max(0.0, away - usual) / 2,
            network_overhead=2.0 if self._cluster.cpu == "amd" else 1.0,
            amd_cpu=self._cluster.cpu == "amd",
            ll128=hop == "nvlink" if inside else self._has_scale_up(),
            in_network=self._in_network,
            intra_scale=_latency(inside) / (HOP["ring"][hop]["simple"] * MICRO) if inside else 1.0,
            inter_scale=min(1.0, away / usual) if between else 1.0,
            device=self._device_rate(group, inside),
        )

    def _graphs(self, group: Group, inside: list[Link], between: list[Link], generation: int) -> dict[Algorithm, Graph]:
        device_rate = self._device_rate(group, inside)
        if group.hosts == 1:
            ring = tree = self._forced(self._host_graph(group, device_rate, generation))
        else:
            leave = self._exit(group)
            channels = min(MAX_CHANNELS, leave.slots)
            rate = leave.rate * leave.slots / channels
            passing = channels - 1 if channels >= group.ranks_per_host and self._is_scale_up(inside) else channels
            ring = network_graph(channels, rate, device_rate, generation, passing=passing)
            if not self._is_laddered(between):
                ring = Graph(channels=ring.channels, intra=leave.rate, inter=leave.rate)
            ring = self._forced(ring)
            tree = tree_graph(ring, device_rate, generation)
        graphs: dict[Algorithm, Graph] = {"tree": tree, "ring": ring, "pat": ring}
        if self._has_nvls(group, inside, generation):
            inter = None if group.hosts == 1 else self._nvls_inter(group, generation)
            nvls = nvls_graph(group.ranks_per_host, device_rate, generation, inter)
            graphs |= {"nvls": nvls, "nvls_tree": nvls, "collnet_direct": ring, "collnet_chain": ring}
        return graphs

    def _device_rate(self, group: Group, inside: list[Link]) -> float:
        """Of a device to the others of its host; where links join pairs, of all the rings through it."""
        if self._cluster.direct is None or not self._is_scale_up(inside):
            return min((link["bandwidth"] for link in inside), default=math.inf)
        rings = host_rings(self._cluster.direct, next(iter(devices_of(group, self._cluster))))
        return rings.channels * self._cluster.direct.bandwidth

    def _nvls_inter(self, group: Group, generation: int) -> float:
        """Every channel of NVLS leaves its host once: all cards together, divided by channels."""
        leave, channels = self._exit(group), min(MAX_CHANNELS, group.ranks_per_host)
        return ladder_step(leave.rate * leave.slots / channels, generation)

    def _forced(self, graph: Graph) -> Graph:
        if self._channels is None:
            return graph
        share = min(1.0, graph.channels / self._channels)  # more channels than links carry do not widen links
        return replace(graph, channels=self._channels, intra=share * graph.intra, inter=share * graph.inter)

    def _host_graph(self, group: Group, device_rate: float, generation: int) -> Graph:
        direct = self._cluster.direct
        if direct is None:
            return host_graph(device_rate, generation)
        rings = host_rings(direct, next(iter(devices_of(group, self._cluster))))
        speed = ladder_step(direct.bandwidth, generation) if direct.technology == "nvlink" else direct.bandwidth
        return Graph(channels=rings.channels, intra=speed, inter=speed)

    def _has_nvls(self, group: Group, inside: list[Link], generation: int) -> bool:
        switched = self._cluster.direct is None and self._is_scale_up(inside)
        return generation >= HOPPER and switched and group.ranks_per_host > 1

    def _inside(self, group: Group) -> list[Link]:
        """Links from one member of a host to the next, the longest way in the order of members."""
        if group.ranks_per_host == 1:
            return []
        members = next(iter(devices_of(group, self._cluster)))
        pairs = pairwise(members[:2] if devices_are_alike(self._cluster) else members)
        ways = [self._links(*(device(self._cluster, index) for index in pair)) for pair in pairs]
        return max(ways, key=_latency)

    def _between(self, group: Group) -> list[Link]:
        """Links from a member to that of the next host, the farther kind if the group has both."""
        if group.hosts == 1:
            return []
        host = farthest_host(group, self._cluster)
        return self._links(device(self._cluster, 0), device(self._cluster, host * self._cluster.accelerators_per_host))

    def _links(self, source: Node, target: Node) -> list[Link]:
        return [self._built.edges[edge] for edge in routes(self._built, source, target)[0]]

    def _exit(self, group: Group) -> _Exit:
        """Slots of *group*: all cards near its members, no more than there are members."""
        cluster = self._cluster
        way = self._way_out()
        cards = way[-1][1]
        shared = min(cards, cluster.accelerators_per_host)
        slots = max(1, shared * group.ranks_per_host // cluster.accelerators_per_host)
        rate = min(rate * count / shared for rate, count in way)
        return _Exit(slots, rate)

    def _way_out(self) -> list[tuple[float, int]]:
        """Rate of each kind of link from a device out of its host, and how many of them a host has."""
        last = max(node[1] for node in self._built if node[0] == DEVICE)
        target = device(self._cluster, last * self._cluster.accelerators_per_host)
        host = [node for node in self._built if node[1] == 0 and self._per_host(node[0])]
        way = []
        for tail, head in routes(self._built, device(self._cluster, 0), target)[0]:
            link = self._built.edges[tail, head]
            name = _name(link)
            leaves = not (self._per_host(head[0]) and head[1] == 0)
            rate = self._nominal[name] if leaves else link["bandwidth"]
            way.append((rate, _count(self._built, host, str(link["kind"]))))
            if leaves:
                break
        return way

    def _per_host(self, name: str) -> bool:
        return self._cluster.node(name).per == "host"

    def _is_scale_up(self, links: list[Link]) -> bool:
        return bool(links) and all(self._technology[_name(link)] in SCALE_UP for link in links)

    def _has_scale_up(self) -> bool:
        return any(link.technology in SCALE_UP for link in self._cluster.links)

    def _is_laddered(self, links: list[Link]) -> bool:
        return all(self._technology[_name(link)] != "other" for link in links)


def _name(link: Link) -> str:
    return str(link["kind"]).split(":", maxsplit=1)[0]


def _latency(links: list[Link]) -> float:
    return float(sum(link["latency"] for link in links))


def _count(built: nx.DiGraph[Node], host: list[Node], kind: str) -> int:
    return sum(1 for node in host for _, _, link in built.out_edges(node, data=True) if link["kind"] == kind)
