r"""How much longer kernels take while their rank communicates.

The channels of a collective hold multiprocessors, one each, and its copies take memory bandwidth.  A kernel that is
bound by arithmetic for a part 1 - f of its time and by memory traffic for f then needs

.. math:: s = (1 - f) \frac{M}{M - c} + f \frac{B}{B - q}

times as long, with M multiprocessors, c channels, B the memory's bandwidth and q the traffic that all collectives under
way cause.  Per byte that a rank sends, an all-gather reads one and writes one, a reduction reads two and writes one
(NCCL ``src/device/prims_simple.h``: copy, and reduce and copy).

Collectives may not take all there is: ``MOST`` bounds both shares.  A measured factor replaces the whole.
"""

from __future__ import annotations

import abc
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, final

__all__ = ["ABSENT", "AbstractInterference", "Contention", "Measured", "Occupancy", "Taken"]

MOST: Final = 0.75
"""Share of multiprocessors, and of the memory's bandwidth, that collectives can take from kernels."""


class Occupancy(NamedTuple):
    """What a collective takes from the accelerator while it runs."""

    channels: int
    """Multiprocessors that it holds."""
    traffic: float
    """Memory traffic that it causes [B/s]."""


class Taken(NamedTuple):
    """Shares that a collective takes from kernels."""

    held: float
    """Of the multiprocessors."""
    moved: float
    """Of the memory's bandwidth."""


class AbstractInterference(abc.ABC):
    """What communication does to kernels beside it.

    Whatever the kind, it can be said in shares: kernels need 1 / (1 - share) times as long, and all collectives under
    way take no more than :attr:`most` of either together.
    """

    @property
    @abc.abstractmethod
    def most(self) -> float:
        """Largest share, of multiprocessors and of the memory's bandwidth, that collectives can take."""

    @abc.abstractmethod
    def taken(self, collective: Occupancy) -> Taken:
        """Return the shares that *collective* takes, before ``most`` bounds their sum."""

    @abc.abstractmethod
    def stretch(self, movement: float, beside: Collection[Occupancy]) -> float:
        """Return the time of a kernel over its time alone, at least 1.

        Parameters
        ----------
        movement
            f, the part of its time that memory traffic bounds.
        beside
            Collectives under way, at least one.
        """


@final
@dataclass(frozen=True, slots=True)
class Measured(AbstractInterference):
    """The same factor for every kernel, whatever collective runs."""

    slowdown: float

    @property
    def most(self) -> float:
        return 1 - 1 / self.slowdown

    def taken(self, collective: Occupancy) -> Taken:
        return Taken(self.most, self.most)  # one collective does all the harm that there is

    def stretch(self, movement: float, beside: Collection[Occupancy]) -> float:
        return self.slowdown


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Contention(AbstractInterference):
    """Channels take multiprocessors, copies take memory bandwidth."""

    multiprocessors: float
    memory: float
    """Bandwidth [B/s]."""

    @property
    def most(self) -> float:
        return MOST

    def taken(self, collective: Occupancy) -> Taken:
        return Taken(collective.channels / self.multiprocessors, collective.traffic / self.memory)

    def stretch(self, movement: float, beside: Collection[Occupancy]) -> float:
        held = min(sum(item.channels for item in beside) / self.multiprocessors, MOST)
        moved = min(sum(item.traffic for item in beside) / self.memory, MOST)
        return (1 - movement) / (1 - held) + movement / (1 - moved)


ABSENT: Final = Measured(1.0)
"""Kernels do not notice."""
