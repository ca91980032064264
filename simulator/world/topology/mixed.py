"""Hosts of different types in one cluster.

The first hosts are those of the cluster file; the types that a scenario adds follow, each with its own accelerator and
its own links inside the host and to the network.  All have the same layout: as many devices, cards and switches.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.world.catalog import Generation
from simulator.world.topology.kinds import Cluster, LinkKind, OtherHosts

__all__ = ["host_types", "links_by_type", "slowest", "type_of"]

_OLDEST_FIRST: tuple[Generation, ...] = ("volta", "cdna", "ampere", "ada", "hopper", "blackwell")


def host_types(cluster: Cluster) -> tuple[Cluster, ...]:
    """Return the cluster once per type, as if all of its hosts were of that type."""
    if not cluster.others:
        return (cluster,)
    others = (replace(cluster, accelerator=item.accelerator, links=item.links, others=()) for item in cluster.others)
    return (replace(cluster, others=()), *others)


def type_of(cluster: Cluster, host: int) -> int:
    """Number of the type of *host*."""
    ends = cluster.hosts
    for number, item in reversed(list(enumerate(cluster.others, start=1))):
        ends -= item.hosts
        if host >= ends:
            return number
    return 0


def links_by_type(cluster: Cluster, name: str) -> tuple[LinkKind, ...]:
    """Return the link kind *name* of every type."""
    types: tuple[Cluster | OtherHosts, ...] = (cluster, *cluster.others)
    return tuple(next(link for link in item.links if link.name == name) for item in types)


def slowest(cluster: Cluster) -> Cluster:
    """Return what collectives that span types see: of each link the least bandwidth and the most latency."""
    types = host_types(cluster)
    links = tuple(_slowest(tuple(kinds)) for kinds in zip(*(item.links for item in types), strict=True))
    oldest = min((item.accelerator for item in types), key=lambda part: _OLDEST_FIRST.index(part.generation))
    return replace(cluster, accelerator=oldest, links=links, others=())


def _slowest(kinds: tuple[LinkKind, ...]) -> LinkKind:
    narrow = min(kinds, key=lambda link: link.bandwidth)
    return replace(narrow, latency=max((link.latency for link in kinds), key=lambda number: number.value))
