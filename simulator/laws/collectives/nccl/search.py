r"""The channels that NCCL finds, in the simplified form of its topology search.

``ncclTopoCompute`` (NCCL ``src/graph/search.cc``) tries a ladder of speeds and looks for as many rings as the links can
carry at each; the largest product of channels and speed wins, the faster channel among equals.  On a host whose
devices share a switch that is arithmetic; between hosts each network card is a slot for one channel.
``ncclTopoDupChannels`` then splits fast channels in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from simulator.laws.collectives.nccl.graphs import AMPERE, BLACKWELL, GIGA, HOPPER, Graph

__all__ = ["host_graph", "ladder_step", "network_graph", "nvls_graph", "tree_graph"]

_INTRA: Final[Mapping[int, tuple[float, ...]]] = {
    AMPERE: (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    HOPPER: (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    BLACKWELL: (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
_INTER: Final[Mapping[int, tuple[float, ...]]] = {
    AMPERE: (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    HOPPER: (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    BLACKWELL: (
        96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12,
    ),
}  # fmt: skip
"""``speedArrayIntra``, ``speedArrayInter`` and their variants for sm90 and sm100 [GB/s]."""

MAX_CHANNELS: Final = 32
ROUNDING: Final = 1 + 1e-9


def _ladder(table: Mapping[int, tuple[float, ...]], generation: int) -> Sequence[float]:
    return table[min(max(generation, AMPERE), BLACKWELL)]


def host_graph(bandwidth: float, generation: int) -> Graph:
    """Rings on one host whose devices have *bandwidth* [B/s] each to a switch."""
    best, channels = 0.0, 1
    for speed in _ladder(_INTRA, generation):
        count = min(MAX_CHANNELS, int(bandwidth * ROUNDING / (speed * GIGA)))
        if count * speed > best * channels * ROUNDING:
            best, channels = speed, count
    if not best:  # slower than the ladder: one channel takes what there is
        return Graph(channels=1, intra=bandwidth, inter=bandwidth)
    if best >= 25 and not (generation >= HOPPER and best < 50 and channels > 4):
        best, channels = best / 2, channels * 2
    return Graph(channels=channels, intra=best * GIGA, inter=best * GIGA)


def network_graph(slots: int, card: float, device: float, generation: int, *, passing: int | None = None) -> Graph:
    """Rings over several hosts: one channel per slot, at the speed of a slot's cards but no faster than devices.

    Parameters
    ----------
    slots
        Places where a ring can leave the host.
    card
        Bandwidth of one slot [B/s].
    device
        Bandwidth of a device to the others of its host [B/s].
    passing
        Rings that load a device's link to the others; by default all but the one that leaves the host at its card.
    """
    busiest = max(1, slots - 1 if passing is None else passing)
    speed = ladder_step(min(card, device / busiest), generation)
    return Graph(channels=slots, intra=speed, inter=speed)


def tree_graph(ring: Graph, device: float, generation: int) -> Graph:
    """Trees over several hosts: a message takes a card once, so that inside the host twice its speed is of use."""
    fits = [speed * GIGA for speed in _ladder(_INTRA, generation) if speed * GIGA * ring.channels <= device * ROUNDING]
    inside = min([2 * ring.inter, *fits[:1]])
    return Graph(channels=ring.channels, intra=max(inside, ring.intra), inter=ring.inter)


def nvls_graph(devices: int, bandwidth: float, generation: int, inter: float | None) -> Graph:
    """NVLS: one channel per device that leads it, which uses its link twice as much as the others do."""
    channels = min(MAX_CHANNELS, devices)
    ladder = _ladder(_INTRA, generation)
    speed = next((item for item in ladder if (channels + 1) * item * GIGA <= bandwidth * ROUNDING), ladder[-1])
    return Graph(channels=channels, intra=speed * GIGA, inter=ladder[0] * GIGA if inter is None else inter)


def ladder_step(bandwidth: float, generation: int) -> float:
    """Return the fastest speed of the ladder between hosts that *bandwidth* carries [B/s]."""
    fits = (speed * GIGA for speed in _ladder(_INTER, generation) if speed * GIGA <= bandwidth * ROUNDING)
    return next(fits, bandwidth)
