r"""Rings of ranks, as NCCL lays them through hosts.

On a host a ring visits the devices in any order where a switch joins them; where links join them in pairs there are as
many rings as sets of such links (:mod:`simulator.laws.collectives.rings`).

Between hosts each network card is a *rail*, and a ring per rail enters a host at one device, visits the others over
the scale-up links and leaves at the last.  With rails a, b, c, ... the ring that enters at a leaves at the device
before a in the order of the host, so every device is the exit of one ring.  Two ways to stay on a rail between hosts:

* hosts of odd number walk the other way (NCCL's ``crossNic``: rings paired and swapped on odd nodes in
  ``ncclTopoPostset``, ``src/graph/connect.cc``)::

      host 0   > a b c d        a ring that enters at a leaves at d,
      host 1   > d c b a        goes on over the rail of d, and so on;
      host 2   > a b c d        an odd number of hosts changes the rail where the ring closes

* every host walks the same way and hands the bytes back to the device of the rail (NCCL's PXN), which loads that
  device's scale-up link once more.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from simulator.laws.collectives.rings import Rings, host_rings
from simulator.world.mesh import Group
from simulator.world.topology.cluster import Cluster

__all__ = ["Layout", "Path", "circuits", "layout", "rings", "walks"]

Path = tuple[int, ...]
"""Ranks that a message passes: the sender, those that hand it on, the receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the ranks of one group stand."""

    hosts: tuple[tuple[int, ...], ...]
    """Ranks of each host, in order of rail."""
    circuits: tuple[tuple[int, ...], ...]
    """Closed ways through the places of a host, one for each ring that its links have room for."""
    cross_nic: bool = True
    """Whether a ring may leave a host on another rail than it came."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks, host by host."""
        return tuple(rank for host in self.hosts for rank in host)

    def each_host(self) -> Iterator[Layout]:
        """The group's part on each host."""
        return (replace(self, hosts=(host,)) for host in self.hosts)

    def each_rail(self) -> Iterator[Layout]:
        """The group's part on each rail."""
        columns = zip(*self.hosts, strict=True)
        return (replace(self, hosts=tuple((rank,) for rank in rail), circuits=((0,),)) for rail in columns)


def layout(cluster: Cluster, group: Group, rank: int = 0, *, cross_nic: bool = True) -> Layout:
    """Return where the group of *rank* stands."""
    members, p = group.members(rank), group.ranks_per_host
    hosts = tuple(members[first : first + p] for first in range(0, group.size, p))
    devices = tuple(member % cluster.accelerators_per_host for member in hosts[0])
    found = circuits(host_rings(cluster.direct, devices), devices)
    return Layout(hosts=hosts, circuits=found, cross_nic=cross_nic)


def circuits(found: Rings, devices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Rings through the places of *devices*, from the number of rings that take each step.

    ``host_rings`` counts the steps of a set of rings; a search takes them apart again.

    >>> both_ways = ((0, 1), 0.5), ((1, 2), 0.5), ((2, 0), 0.5), ((0, 2), 0.5), ((2, 1), 0.5), ((1, 0), 0.5)
    >>> circuits(Rings(2, both_ways), (0, 1, 2))
    ((0, 1, 2), (0, 2, 1))
    """
    if len(devices) == 1:
        return ((0,),)
    place = {device: index for index, device in enumerate(devices)}
    steps = Counter({(place[a], place[b]): round(share * found.channels) for (a, b), share in found.shares})
    return next(_taken_apart(steps, len(devices)))


def _taken_apart(left: Counter[tuple[int, int]], places: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Ways to see the steps in *left* as rings, each from place 0."""
    first = min((head for tail, head in +left if tail == 0), default=None)
    if first is None:
        yield ()
        return
    paths: list[tuple[int, ...]] = [(0, first)]
    while paths:
        path = paths.pop()
        if len(path) < places:
            paths += [(*path, item) for item in range(places) if item not in path and left[path[-1], item] > 0]
        elif left[path[-1], 0] > 0:
            rest = left - Counter(zip(path, (*path[1:], 0), strict=True))
            yield from ((path, *others) for others in _taken_apart(rest, places))


def walks(laid: Layout) -> tuple[tuple[int, ...], ...]:
    """Orders in which the channels of a group visit the places of a host; each enters at its first."""
    if len(laid.hosts) == 1:
        return laid.circuits
    return tuple(circuit[cut:] + circuit[:cut] for circuit in laid.circuits for cut in range(len(circuit)))


def rings(laid: Layout) -> tuple[tuple[Path, ...], ...]:
    """The channels of a group; each is the path from every rank of the ring to the next."""
    return tuple(_ring(laid, walk) for walk in walks(laid))


def _ring(laid: Layout, walk: Sequence[int]) -> tuple[Path, ...]:
    back = walk[::-1] if laid.cross_nic else walk
    visits = [[host[place] for place in (back if number % 2 else walk)] for number, host in enumerate(laid.hosts)]
    steps: list[Path] = []
    for visit, following in zip(visits, (*visits[1:], visits[0]), strict=True):
        steps += itertools.pairwise(visit)
        by_card = laid.cross_nic or len(visits) == 1 or len(visit) == 1
        steps.append((visit[-1], following[0]) if by_card else (visit[-1], visit[0], following[0]))
    return tuple(steps)
