"""Ranks that are slower than the others: a hot GPU, a slow host, longer sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.document import Section
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Count

__all__ = ["EVEN", "Factor", "Pace", "Uneven", "UnevenSection", "read_uneven"]

Factor = Annotated[float, Meta(gt=0, le=1e6)]
"""Bounded, so that the step stays a finite number."""
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
    micro_batches: tuple[tuple[float, ...], ...] = ()
    """Forward and backward of each micro-batch: lists of factors, each of which goes round."""

    def times(self, other: Pace) -> Pace:
        """Both at once."""
        return Pace(self.kernels * other.kernels, self.host * other.host, self.micro_batches + other.micro_batches)

    def of(self, micro_batch: int) -> float:
        """Factor of one micro-batch."""
        return prod(factors[micro_batch % len(factors)] for factors in self.micro_batches)


EVEN: Final = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Ranks with a pace of their own, on whatever cluster a variant runs."""

    host: int | None
    """None: the last ``count``."""
    count: int
    device: int | None
    """None: all of a host."""
    pace: Pace
    file: Path
    key: str
    """Where the entry stands."""

    def hosts(self, mesh: Mesh) -> range:
        """Hosts of *mesh* that are meant.

        Raises
        ------
        InputError
            They, or their device, are not there.
        """
        for name, value, there in (("host", self.host, mesh.hosts), ("device", self.device, mesh.devices_per_host)):
            if value is not None and value >= there:
                raise self._absent(name, value, f"use 0 to {there - 1}")
        if self.count > mesh.hosts:
            raise self._absent("hosts", self.count, f"use at most {mesh.hosts}")
        first = mesh.hosts - self.count if self.host is None else self.host
        return range(first, first + self.count)

    def _absent(self, name: str, value: int, remedy: str) -> InputError:
        return InputError("there are fewer", file=self.file, key=f"{self.key}.{name}", value=value, remedy=remedy)


def read_uneven(sections: Sequence[UnevenSection], mesh: Mesh, file: Path) -> tuple[Uneven, ...]:
    """Check entries against the ranks of *mesh*; a variant may have others.

    Raises
    ------
    InputError
        An entry means no ranks, ranks that are not there, or no micro-batch.
    """
    found = tuple(_uneven(item, file, f"uneven[{index}]") for index, item in enumerate(sections))
    for item in found:
        item.hosts(mesh)
    return found


def _uneven(section: UnevenSection, file: Path, key: str) -> Uneven:
    if (section.host is None) == (section.hosts is None):
        raise InputError("expected either 'host' or 'hosts'", file=file, key=key, remedy="give one of them")
    if section.micro_batches == []:
        raise InputError("no factor", file=file, key=f"{key}.micro_batches", remedy="give one per micro-batch, or none")
    cycles = (tuple(section.micro_batches),) if section.micro_batches else ()
    return Uneven(
        host=section.host,
        count=section.hosts or 1,
        device=section.device,
        pace=Pace(section.slowdown, section.host_slowdown, cycles),
        file=file,
        key=key,
    )
