"""What an engine needs: who plays, what operations cost, which links they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.interference import ABSENT, AbstractInterference, Occupancy
from simulator.schedules.program import Program

__all__ = ["NO_COMMUNICATOR", "Change", "RankClass", "Stage", "occupancy"]

NO_COMMUNICATOR = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """Ranks that behave alike.  Tuples run parallel to the program's operations."""

    name: str
    ranks: int
    program: Program
    times: tuple[float, ...]
    """Of kernels [s]; 0 for collectives."""
    phases: tuple[tuple[Phase, ...], ...]
    """Of collectives and transfers; empty for kernels."""
    communicators: tuple[int, ...]
    """Which communicator a collective, or which copy engine a transfer belongs to; ``NO_COMMUNICATOR`` for kernels."""
    movement: tuple[float, ...] = ()
    """Part of the time of kernels that memory traffic bounds; 0 for collectives."""
    interference: AbstractInterference = ABSENT
    """What communication does to kernels beside it."""
    faults: frozenset[int] = frozenset()
    """Numbers of the scenario's faults that are of links of these ranks alone."""

    @property
    def interferes(self) -> bool:
        """Whether any collective slows kernels."""
        return any(
            self.interference.stretch(movement, (occupancy(phases),)) > 1
            for phases in dict.fromkeys(self.phases)
            if phases
            for movement in (0.0, 1.0)
        )


class Change(NamedTuple):
    """A link gets another bandwidth."""

    at: float
    """[s]"""
    link: int
    bandwidth: float
    """[B/s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything an engine needs."""

    classes: tuple[RankClass, ...]
    members: tuple[int, ...]
    """Rank classes that meet in each communicator; one in each copy engine."""
    links: tuple[Link, ...]
    changes: tuple[Change, ...] = ()
    """Of links during the step, in order of time."""
    rivals: tuple[int, ...] = ()
    """Links on which somebody else's transfer goes on all the time, once per transfer."""


def occupancy(phases: Sequence[Phase]) -> Occupancy:
    """What a collective of these *phases* takes from the accelerator of each rank."""
    channels = max((phase.channels for phase in phases), default=0)
    time = sum(phase.duration for phase in phases)
    return Occupancy(channels, sum(phase.traffic for phase in phases) / time if time else 0.0)
