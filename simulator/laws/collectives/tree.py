r"""Trees: reduce towards a root, broadcast back; log2(hosts) messages one after another.

NCCL chains the devices of a host and joins hosts in a double binary tree, each of the two trees for half of the data
(Sanders, Speck, Traff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"; NCCL
``src/graph/trees.cc``).  Every rank but one sends the payload up and receives it from there, so per rank

.. math:: 2 S \frac{p - 1}{p} \text{ inside a host, } \quad 2 S \frac{m - 1}{m p} \text{ between hosts}

with p ranks on each of m hosts.  On two hosts that is half of a ring's traffic on the network.  The busiest of three
hosts has one child in one tree and is the root or a leaf of the other, and sends 3/2 S; from four hosts on it has two
children in one and sends 2 S.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

from simulator.laws.collectives.base import AbstractAlgorithm, Collective, CollectiveKind, Exchange, Send

__all__ = ["Tree", "tree_sends"]


@final
class Tree(AbstractAlgorithm):
    """All-reduce over a double binary tree of hosts and a chain inside each."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset({"all_reduce"})

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group, payload = collective.group, collective.payload
        p, m = group.ranks_per_host, group.hosts
        if group.size == 1:
            return ()
        sends = [Send(2 * payload * (p - 1) / p, hosts=0, devices=1)] if p > 1 else []
        sends += tree_sends(2 * payload / p, m)
        steps = m.bit_length() - 1
        return (Exchange(group=group, sends=tuple(sends), host_steps=2 * (p - 1), network_steps=2 * steps),)


def tree_sends(amount: float, hosts: int) -> Iterator[Send]:
    """Messages of the tree between *hosts*: half of the edges join neighbours, a quarter every second, ..."""
    left, distance = hosts - 1, 1
    peak = {2: 1.0, 3: 9 / 8}.get(hosts, hosts / (hosts - 1)) if hosts > 1 else 1.0
    while left:
        edges = left - left // 2
        yield Send(amount * edges / hosts, hosts=distance, peak=peak)
        left, distance = left - edges, 2 * distance
