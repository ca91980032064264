"""Rank classes: which ranks behave alike.

Two ranks behave alike if nothing sets them apart by themselves (their accelerator, their pace) and each of their
communicators joins as many ranks of every class.  The coarsest such division is found by refinement: begin with what
sets ranks apart by themselves, and split a class whose members' groups differ in the classes that they join, until
nothing splits (the equitable partition of colour refinement: Weisfeiler and Leman 1968; Berkholz, Bonsma and Grohe,
"Tight lower and upper bounds for the complexity of canonical colour refinement", 2017).  Ranks of one class then see
the same at every collective, by induction over the instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.world.conditions import Fault
from simulator.world.mesh import Group, Mesh
from simulator.world.scenario import Scenario
from simulator.world.topology.cluster import DEVICE, Cluster
from simulator.world.uneven import EVEN, Pace, Uneven

__all__ = ["Division", "Own", "Part", "divided", "division", "owns"]

Numbers = npt.NDArray[np.intp]

MANY = 16
"""Codes per rank that are worth counting."""


class Own(NamedTuple):
    """What sets a rank apart by itself."""

    type: int = 0
    """Of its host."""
    pace: Pace = EVEN
    faults: frozenset[int] = frozenset()
    """Numbers of the faults of links that are its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A class of ranks."""

    rank: int
    """The first of its ranks."""
    ranks: int
    """How many they are."""
    meets: Mapping[str, tuple[int, frozenset[int]]]
    """By name of a group: which kind of such groups its ranks are in, and the classes that meet there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """All ranks, divided into classes; those come first that nothing sets apart."""

    parts: tuple[Part, ...]
    owns: tuple[Own, ...]
    """By class, what sets its ranks apart by themselves."""
    of_rank: Numbers
    """Class of each rank, (ranks,); (1,) if there is only one."""


def division(scenario: Scenario, groups: Iterable[Group]) -> Division:
    """Divide the ranks of *scenario*, whose collectives run over *groups*."""
    numbers, found = _apart(scenario)
    if len(found) == 1:
        meets = {group.name: (0, frozenset({0})) for group in groups}
        only = Part(rank=0, ranks=scenario.mesh.ranks, meets=meets)
        return Division(parts=(only,), owns=(found[0],), of_rank=np.zeros(1, dtype=np.intp))
    parts, of_rank = divided(numbers, groups)
    return Division(parts=parts, owns=tuple(found[int(numbers[part.rank])] for part in parts), of_rank=of_rank)


def owns(scenario: Scenario) -> list[Own]:
    """What sets each rank of *scenario* apart."""
    numbers, found = _apart(scenario)
    return [found[number] for number in numbers.tolist()]


def _apart(scenario: Scenario) -> tuple[Numbers, list[Own]]:
    """Number what sets ranks apart, (ranks,), and say what each number means; 0 is the first type of hosts, on pace."""
    cluster, faults = scenario.cluster, scenario.place.conditions.faults
    single = [number for number, fault in enumerate(faults) if _is_of_hosts(fault, cluster)]
    if not (cluster.others or scenario.uneven or single):
        return np.zeros(scenario.mesh.ranks if scenario.all_ranks else 1, dtype=np.intp), [Own()]
    keys = [
        _types(cluster),
        *(_are_uneven(item, scenario.mesh) for item in scenario.uneven),
        *(_are_hit(faults[number], cluster) for number in single),
    ]
    numbers = _numbered(keys)
    _, firsts = np.unique(numbers, return_index=True)
    return numbers, [_own([int(key[first]) for key in keys], scenario.uneven, single) for first in firsts]


def _own(key: Sequence[int], uneven: Sequence[Uneven], single: Sequence[int]) -> Own:
    """What a *key* means: a type, which entries of *uneven* apply, and which of the faults of *single* links."""
    kind, applies, hit = key[0], key[1 : 1 + len(uneven)], key[1 + len(uneven) :]
    paces = [item.pace for item, mine in zip(uneven, applies, strict=True) if mine]
    faults = frozenset(number for number, mine in zip(single, hit, strict=True) if mine)
    return Own(kind, reduce(Pace.times, paces, EVEN), faults)


def _types(cluster: Cluster) -> Numbers:
    """Type of the host of each rank."""
    first = cluster.hosts - sum(item.hosts for item in cluster.others)
    hosts = [first, *(item.hosts for item in cluster.others)]
    return np.repeat(np.arange(len(hosts)), [count * cluster.accelerators_per_host for count in hosts])


def _are_uneven(item: Uneven, mesh: Mesh) -> Numbers:
    """1 for each rank that *item* means."""
    found, hosts = np.zeros((mesh.hosts, mesh.devices_per_host), dtype=np.intp), item.hosts(mesh)
    found[hosts.start : hosts.stop, slice(None) if item.device is None else item.device] = 1
    return found.reshape(-1)


def _is_of_hosts(fault: Fault, cluster: Cluster) -> bool:
    """Whether *fault* is of one link that some devices of one host have to themselves."""
    return fault.place is not None and cluster.node(fault.lower).per == "host" and bool(_are_hit(fault, cluster).any())


def _are_hit(fault: Fault, cluster: Cluster) -> Numbers:
    """1 for each rank whose link *fault* is: the devices of a host are spread over its cards and switches in order."""
    assert fault.place is not None
    host, index = fault.place
    devices, nodes = cluster.node(DEVICE).count, cluster.node(fault.lower).count
    for_device = np.arange(cluster.accelerators_per_host)
    mine = for_device * nodes // devices == index if nodes <= devices else for_device == index * devices // nodes
    found = np.zeros((cluster.hosts, cluster.accelerators_per_host), dtype=np.intp)
    found[host, mine] = 1
    return found.reshape(-1)


def divided(own: Numbers, groups: Iterable[Group]) -> tuple[tuple[Part, ...], Numbers]:
    """Return classes and the class of each rank: the smallest number in *own* first, larger classes before smaller.

    Parameters
    ----------
    own
        What sets each rank apart by itself, (ranks,).
    groups
        That collectives run over.
    """
    distinct = {group.name: group for group in groups}
    colours = _numbered([own])
    while True:
        kinds = {name: _kinds(colours, group) for name, group in distinct.items()}
        refined = _numbered([colours, *kinds.values()])
        if refined.max() == colours.max():
            return _parts(own, colours, kinds)
        colours = refined


def _numbered(keys: Sequence[Numbers]) -> Numbers:
    """Number ranks by their *keys*, small whole numbers: the same number for the same keys."""
    codes = keys[0]
    for key in keys[1:]:
        codes = _renumbered(codes) * (int(key.max()) + 1) + key
    return _renumbered(codes)


def _renumbered(codes: Numbers) -> Numbers:
    """Number *codes* from 0 without gaps, in their order; sorting them would take ten times as long."""
    if codes.max() >= MANY * codes.size:
        return np.unique(codes, return_inverse=True)[1].reshape(codes.shape)
    numbers: Numbers = np.cumsum(np.bincount(codes.reshape(-1)) > 0) - 1
    return numbers[codes]


def _kinds(colours: Numbers, group: Group) -> Numbers:
    """Number for each rank the kind of its group: groups that join as many ranks of each colour are of one kind."""
    joined = colours.reshape(-1, group.size, group.stride)
    kinds = np.zeros((len(joined), group.stride), dtype=np.intp)
    for colour in range(int(colours.max())):  # the last colour's number follows
        counts = np.count_nonzero(joined == colour, axis=1)
        kinds = _renumbered(kinds * (group.size + 1) + counts)
    return np.broadcast_to(kinds[:, np.newaxis], joined.shape).reshape(-1)


def _parts(own: Numbers, colours: Numbers, kinds: Mapping[str, Numbers]) -> tuple[tuple[Part, ...], Numbers]:
    _, firsts, counts = np.unique(colours, return_index=True, return_counts=True)
    order = sorted(range(len(firsts)), key=lambda colour: (own[firsts[colour]], -counts[colour], firsts[colour]))
    firsts, counts = firsts[order], counts[order]
    seen = {name: found[firsts].tolist() for name, found in kinds.items()}
    joined = {
        name: {kind: frozenset(part for part, other in enumerate(of_parts) if other == kind) for kind in of_parts}
        for name, of_parts in seen.items()
    }
    parts = tuple(
        Part(
            rank=int(first),
            ranks=int(count),
            meets={name: (of_parts[part], joined[name][of_parts[part]]) for name, of_parts in seen.items()},
        )
        for part, (first, count) in enumerate(zip(firsts, counts, strict=True))
    )
    return parts, np.argsort(order)[colours]
