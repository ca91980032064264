"""Kinds of links where hosts are of different types.

Every type of host has its own links; switches above the hosts are shared.  A collective that spans types loads the
links of each, and the slowest sets its pace; one that stays on a host loads those of its own type only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from simulator.laws.collectives.base import Exchange
from simulator.laws.collectives.fabric import AbstractFabric, ClassFabric, Link, Phase
from simulator.world.topology.cluster import Cluster
from simulator.world.topology.mixed import host_types

__all__ = ["MixedFabric"]


@final
class MixedFabric(AbstractFabric):
    """One link per kind and type of host.

    Parameters
    ----------
    cluster
        With its types of hosts.
    only
        Number of the type whose links collectives load; None for all types.
    """

    def __init__(self, cluster: Cluster, only: int | None = None) -> None:
        self._types = [ClassFabric(item) for item in host_types(cluster)]
        self._loaded = range(len(self._types)) if only is None else [only]
        shared = {link.name for link in cluster.links if all(cluster.node(end).per != "host" for end in link.ends)}
        numbers: dict[str, int] = {}
        links: list[Link] = []
        self._number: list[list[int]] = []
        for number, fabric in enumerate(self._types):
            mine = []
            for link in fabric.links:
                name = link.name if link.kind in shared else f"{link.name} of type {number}"
                if name not in numbers:
                    numbers[name] = len(links)
                    links.append(replace(link, name=name))
                mine.append(numbers[name])
            self._number.append(mine)
        self.links = tuple(links)

    def check_routes(self) -> None:
        """Make sure that every kind of pair of ranks has a route."""
        for fabric in self._types:
            fabric.check_routes()

    def phase(self, exchange: Exchange, ranks: Sequence[int] = ()) -> Phase:
        carried: dict[int, float] = {}
        latency = 0.0
        for number in self._loaded:
            fabric = self._types[number]
            latency = max(latency, fabric.latency(exchange))
            for link, amount in fabric.loads(exchange).items():
                carried[self._number[number][link]] = amount
        return self._phase(exchange, carried, latency)
