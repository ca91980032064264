"""Ranks that are slower than the others: a hot GPU, a slow host, longer sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.document import Section
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Count

__all__ = ["EVEN", "Pace", "Uneven", "UnevenSection", "read_uneven"]

Factor = Annotated[float, Meta(gt=0)]
Index = Annotated[int, Meta(ge=0)]


class UnevenSection(Section):
    """An entry of ``uneven``: ranks that are slower, or faster, than the others."""

    host: Index | None = None
    """One host, by number ..."""
    hosts: Count | None = None
    """... or so many, the last ones."""
    device: Index | None = None
    """One device of each of them; all by default."""
    slowdown: Factor = 1.0
    """How much longer their kernels take."""
    host_slowdown: Factor = 1.0
    """How much longer their launching threads take."""
    micro_batches: list[Factor] | None = None
    """How much longer forward and backward of each micro-batch take, from the first to the last, then again."""


class Pace(NamedTuple):
    """How much longer a rank takes than the scenario says."""

    kernels: float = 1.0
    host: float = 1.0
    micro_batches: tuple[float, ...] = (1.0,)
    """Forward and backward of each micro-batch, from the first to the last, then again."""

    def times(self, other: Pace) -> Pace:
        """Both at once."""
        period = lcm(len(self.micro_batches), len(other.micro_batches))
        return Pace(
            self.kernels * other.kernels,
            self.host * other.host,
            tuple(self.of(number) * other.of(number) for number in range(period)),
        )

    def of(self, micro_batch: int) -> float:
        """Factor of one micro-batch."""
        return self.micro_batches[micro_batch % len(self.micro_batches)]


EVEN: Final = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Ranks with a pace of their own."""

    hosts: range
    device: int | None
    """None: all of a host."""
    pace: Pace


def read_uneven(sections: Sequence[UnevenSection], mesh: Mesh, file: Path) -> tuple[Uneven, ...]:
    """Check entries against the ranks of *mesh*.

    Raises
    ------
    InputError
        An entry means no ranks, ranks that are not there, or no micro-batch.
    """
    return tuple(_uneven(item, mesh, file, f"uneven[{index}]") for index, item in enumerate(sections))


def _uneven(section: UnevenSection, mesh: Mesh, file: Path, key: str) -> Uneven:
    if (section.host is None) == (section.hosts is None):
        raise InputError("expected either 'host' or 'hosts'", file=file, key=key, remedy="give one of them")
    for name, value, count in (
        ("host", section.host, mesh.hosts),
        ("device", section.device, mesh.devices_per_host),
        ("hosts", section.hosts and section.hosts - 1, mesh.hosts),
    ):
        if value is not None and value >= count:
            remedy = f"use at most {count}" if name == "hosts" else f"use 0 to {count - 1}"
            told = section.hosts if name == "hosts" else value
            raise InputError("there are fewer", file=file, key=f"{key}.{name}", value=told, remedy=remedy)
    if section.micro_batches == []:
        raise InputError("no factor", file=file, key=f"{key}.micro_batches", remedy="give one per micro-batch, or none")
    first = mesh.hosts - section.hosts if section.hosts else section.host or 0
    hosts = range(first, first + (section.hosts or 1))
    factors = tuple(section.micro_batches or (1.0,))
    return Uneven(hosts=hosts, device=section.device, pace=Pace(section.slowdown, section.host_slowdown, factors))
