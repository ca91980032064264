"""Kinds of links where not all ranks are alike.

Every class of ranks has its own copy of each kind of link, with the bandwidth that its type of hosts has.  A
collective loads the copies of the classes that it joins, each as much as in a cluster of equals, and the slowest sets
its pace.  So groups of one name that join different classes do not slow each other: that they all run at once is in
their loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate
from typing import final

from simulator.laws.collectives.base import Exchange
from simulator.laws.collectives.fabric import AbstractFabric, ClassFabric, Phase
from simulator.world.topology.cluster import Cluster

__all__ = ["MixedFabric"]


@final
class MixedFabric(AbstractFabric):
    """One link per kind and class of ranks.

    Parameters
    ----------
    clusters
        For each class of ranks, the cluster as if all hosts were of the type that its hosts are.
    """

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        fabrics = {cluster: ClassFabric(cluster) for cluster in dict.fromkeys(clusters)}
        self._parts = [fabrics[cluster] for cluster in clusters]
        self._joined: Sequence[int] = range(len(clusters))
        self._first = list(accumulate((len(fabric.links) for fabric in self._parts), initial=0))
        self.links = tuple(
            replace(link, name=link.name if len(clusters) == 1 else f"{link.name} of class {part}", part=part)
            for part, fabric in enumerate(self._parts)
            for link in fabric.links
        )

    def check_routes(self) -> None:
        """Make sure that every kind of pair of ranks has a route."""
        for fabric in dict.fromkeys(self._parts):
            fabric.check_routes()

    def joining(self, classes: Iterable[int]) -> MixedFabric:
        """Return the same links for collectives that join only some *classes*."""
        other = copy(self)
        other._joined = sorted(classes)
        return other

    def phase(self, exchange: Exchange, ranks: Sequence[int] = ()) -> Phase:
        carried: dict[int, float] = {}
        latency = 0.0
        for part in self._joined:
            fabric = self._parts[part]
            latency = max(latency, fabric.latency(exchange))
            for link, amount in fabric.loads(exchange).items():
                carried[self._first[part] + link] = amount
        return self._phase(exchange, carried, latency)
