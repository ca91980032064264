"""Rings over the devices of a host.

Where a switch joins the devices, any order is a ring and one stands for all.  Where links join them in pairs (the cube
mesh of a DGX-1, the full mesh of an MI300X), a ring needs a link from each device to the next, and as many rings run
as there are sets of such links: NCCL's search (``ncclTopoSearchRec`` in ``src/graph/search.cc``) finds them, and so
does a depth-first search here, each link direction used at most as often as links join the pair.  If no such ring
exists, devices may pass on what the next one is not linked to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise, permutations
from random import Random

from simulator.world.mesh import Group
from simulator.world.topology.cluster import Cluster, LinkKind
from simulator.world.topology.graph import pair_count

__all__ = ["Rings", "devices_of", "host_rings"]

Step = tuple[int, int]
"""From a device to another."""

_STEPS = 2_000
"""Extensions of a path before the search for one more ring gives up; eight devices need a few hundred."""
_NOT_DECOMPOSABLE = (4, 6)
"""Every other full mesh of n divides into n - 1 rings (Tillson 1980, "A Hamiltonian decomposition of K*2m")."""
_ORDERS = 100
"""Orders of devices tried when links would allow for more rings."""


@dataclass(frozen=True, slots=True)
class Rings:
    """Channels through the devices of a host."""

    channels: int
    shares: tuple[tuple[Step, float], ...]
    """Steps from device to device, and the part of the channels that takes each."""


def devices_of(group: Group, cluster: Cluster) -> Iterable[tuple[int, ...]]:
    """Devices of a host that form each group's part of it."""
    per_host, inside = cluster.accelerators_per_host, group.ranks_per_host
    stride = group.stride if group.stride < per_host else 1
    for block in range(0, per_host, inside * stride):
        for offset in range(stride):
            yield tuple(block + offset + step * stride for step in range(inside))


@cache
def host_rings(direct: LinkKind | None, devices: tuple[int, ...]) -> Rings:
    """Return the channels through *devices*; one in order of number if no set of links makes a ring."""
    if direct is None or len(devices) == 1:
        return _shared([devices])
    links = {(a, b): pair_count(direct, a, b) for a in devices for b in devices if a != b}
    if len(devices) not in _NOT_DECOMPOSABLE and set(links.values()) == {1}:
        return Rings(len(devices) - 1, tuple((step, 1 / (len(devices) - 1)) for step in links))
    bound = min(sum(links[a, b] for b in devices if a != b) for a in devices)
    shuffled = Random(0)  # the same rings every time
    best: list[tuple[int, ...]] = []
    for order in range(_ORDERS):
        tried = devices if order == 0 else tuple(shuffled.sample(devices, len(devices)))
        best = max(best, _packed(tried, Counter(links)), key=len)
        if len(best) == bound:
            break
    if not best:
        best = _relayed(devices, Counter(links))
    return _shared(best or [devices])


def _shared(rings: Sequence[tuple[int, ...]]) -> Rings:
    taken = Counter(step for ring in rings if len(ring) > 1 for step in _steps(ring))
    return Rings(len(rings), tuple((step, count / len(rings)) for step, count in taken.items()))


def _relayed(devices: tuple[int, ...], left: Counter[Step]) -> list[tuple[int, ...]]:
    """Rings in which a device passes on what the next one is not linked to (NCCL's path type NVB)."""
    found: list[tuple[int, ...]] = []
    while ring := next(_closed_walks(devices, left), None):
        found.append(ring)
        left.subtract(_steps(ring))
    return found


def _closed_walks(devices: tuple[int, ...], left: Mapping[Step, int]) -> Iterator[tuple[int, ...]]:
    """Closed ways that meet every device, one of them perhaps twice between two others."""
    for order in islice(permutations(devices[1:]), _STEPS):
        walk: list[int] = []
        taken: Counter[Step] = Counter()
        for step in _steps((devices[0], *order)):
            leg = _leg(step, devices, left, taken)
            if leg is None:
                break
            walk += leg[:-1]
            taken.update(pairwise(leg))
        else:
            yield tuple(walk)


def _leg(
    step: Step,
    devices: Sequence[int],
    left: Mapping[Step, int],
    taken: Mapping[Step, int],
) -> tuple[int, ...] | None:
    """A way of one link or two over links that are not *taken*; None if there is none."""
    first, last = step
    ways = [step, *((first, relay, last) for relay in devices if relay not in step)]
    return next((way for way in ways if all(left.get(link, 0) > taken[link] for link in pairwise(way))), None)


def _steps(ring: tuple[int, ...]) -> Iterator[Step]:
    """From each device of *ring* to the next."""
    return zip(ring, (*ring[1:], ring[0]), strict=True)


def _packed(devices: tuple[int, ...], left: Counter[Step]) -> list[tuple[int, ...]]:
    """Rings taken one after another until no more fits."""
    found: list[tuple[int, ...]] = []
    while ring := next(_cycles(devices, left), None):
        found.append(ring)
        left.subtract(_steps(ring))
    return found


def _cycles(devices: tuple[int, ...], left: Mapping[Step, int]) -> Iterator[tuple[int, ...]]:
    """Closed ways through all devices; the most plentiful links first, so that scarce ones stay for later rings."""
    budget = _STEPS
    stack: list[tuple[int, ...]] = [devices[:1]]
    while stack and budget:
        path = stack.pop()
        budget -= 1
        if len(path) == len(devices):
            if left.get((path[-1], path[0]), 0) > 0:
                yield path
            continue
        onward = [item for item in devices if item not in path and left.get((path[-1], item), 0) > 0]
        stack += [(*path, item) for item in sorted(onward, key=lambda item: left[path[-1], item])]
