r"""Hosts on a torus: each is linked to the next in either direction of every axis.

Host h has the coordinates of its number in mixed radix, axis 0 first.  A message takes the shorter way around each
axis; both are equally short halfway.  Adding an offset k to all host numbers moves axis i, of length d_i, by its digit
of k, and by one more where the lower axes carry over, which they do for a part

.. math:: \frac{k \bmod R_i}{R_i}, \qquad R_i = d_0 d_1 \cdots d_{i-1}

of the hosts; so the mean number of links that a message crosses needs no list of hosts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from simulator.world.topology.kinds import Cluster, LinkKind

__all__ = ["coordinates", "crossings", "diameter", "hops", "neighbours", "torus_link"]

Step = tuple[int, str]
"""Axis and direction, ``+`` or ``-``."""


def torus_link(cluster: Cluster) -> LinkKind | None:
    """Return the link kind of *cluster* that is wired as a torus, if there is one."""
    return next((link for link in cluster.links if link.wiring == "torus"), None)


def coordinates(host: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Place of *host* on each axis.

    >>> coordinates(7, (4, 2))
    (3, 1)
    """
    found = []
    for length in axes:
        host, place = divmod(host, length)
        found.append(place)
    return tuple(found)


def neighbours(host: int, axes: tuple[int, ...]) -> Iterator[tuple[Step, int]]:
    """Steps from *host*, and the host that each leads to; none along an axis of one host.

    >>> list(neighbours(0, (3, 1)))
    [((0, '+'), 1), ((0, '-'), 2)]
    """
    span = 1
    for axis, length in enumerate(axes):
        place = host // span % length
        for direction, moved in (("+", 1), ("-", -1)):
            if length > 2 or (length == 2 and direction == "+"):
                yield (axis, direction), host + ((place + moved) % length - place) * span
        span *= length


def crossings(axes: tuple[int, ...], offset: int | None) -> dict[Step, float]:
    """Mean number of links of each kind that a message to the host *offset* on (None: to all others alike) crosses.

    >>> crossings((4, 4), 1)
    {(0, '+'): 1.0, (1, '+'): 0.25}
    """
    found: dict[Step, float] = defaultdict(float)
    span, hosts = 1, math.prod(axes)
    for axis, length in enumerate(axes):
        if offset is None:
            for moved in range(length):
                _go(found, axis, moved, length, hosts / (hosts - 1) / length)
        else:
            carried = offset % span / span
            _go(found, axis, offset // span % length, length, 1 - carried)
            _go(found, axis, (offset // span + 1) % length, length, carried)
        span *= length
    return dict(found)


def hops(axes: tuple[int, ...], offset: int | None, stride: int, hosts: int) -> dict[Step, float]:
    """Do as :func:`crossings` does in a group of *hosts* that stand *stride* apart."""
    if offset is not None:
        return crossings(axes, offset * stride)
    if hosts == math.prod(axes):
        return crossings(axes, None)
    found: dict[Step, float] = defaultdict(float)
    for step in range(1, hosts):
        for kind, number in crossings(axes, step * stride).items():
            found[kind] += number / (hosts - 1)
    return dict(found)


def diameter(axes: tuple[int, ...]) -> int:
    """Links between the two hosts that are farthest from each other."""
    return sum(length // 2 for length in axes)


def _go(found: dict[Step, float], axis: int, moved: int, length: int, part: float) -> None:
    """Add the shorter way of *moved* places around an axis for a *part* of the messages."""
    if not moved or not part:
        return
    back = length - moved
    if moved < back or length == 2:
        found[axis, "+"] += part * moved
    elif back < moved:
        found[axis, "-"] += part * back
    else:
        found[axis, "+"] += part * moved / 2
        found[axis, "-"] += part * moved / 2
