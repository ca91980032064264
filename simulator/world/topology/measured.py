"""Measured times of collectives on a cluster, as a calibration or a user's own table gives them.

They hold for collectives of one kind on so many ranks of so many hosts, each rank alone on the network; what they mean
for other payloads and group sizes is said in :mod:`simulator.laws.collectives.calibration`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta

from simulator.errors import InputError, UnknownNameError
from simulator.units import Bandwidth, Bytes, Duration
from simulator.world.document import Section
from simulator.world.measurements.tables import read_table

__all__ = ["MeasuredCollective", "MeasuredSection", "measured_collective", "read_costs"]

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce"]

COLUMNS = ("kind", "hosts", "ranks", "bytes", "time_us")
"""Of a user's own table."""


class FitSection(Section):
    """What an affine fit to the larger payloads found: T = alpha + payload / bandwidth."""

    alpha: Duration
    bandwidth: Bandwidth
    """Algorithmic."""
    above: Bytes
    """Smallest payload of the fit."""
    worst: Annotated[float, Meta(ge=0)]
    """Largest relative residual."""


class MeasuredSection(Section):
    """An entry of ``measured`` in a cluster file."""

    kind: Kind
    hosts: Annotated[int, Meta(ge=1)]
    ranks: Annotated[int, Meta(ge=2)]
    file: str
    """Where the times come from."""
    times: Annotated[list[tuple[Bytes, Duration]], Meta(min_length=1)]
    """Payloads of the whole array, and the time of one call."""
    fit: FitSection | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """Times of one kind of collective on one group."""

    kind: Kind
    hosts: int
    ranks: int
    file: str
    times: tuple[tuple[float, float], ...]
    """Payload [B] and time [s], payloads rising."""


def measured_collective(section: MeasuredSection, file: Path, key: str) -> MeasuredCollective:
    """Check an entry.

    Raises
    ------
    InputError
        More hosts than ranks, a payload twice, or a time of zero.
    """
    if section.ranks % section.hosts:
        raise InputError("every host has equally many ranks", file=file, key=f"{key}.ranks", value=section.ranks)
    return MeasuredCollective(
        kind=section.kind,
        hosts=section.hosts,
        ranks=section.ranks,
        file=section.file,
        times=_rising([(float(size), float(time)) for size, time in section.times], file, f"{key}.times"),
    )


def read_costs(path: Path) -> tuple[MeasuredCollective, ...]:
    """Read a user's own table of collective times: columns kind, hosts, ranks, bytes, time_us.

    Raises
    ------
    InputError
        A column is missing or a cell is not a number.
    """
    table = read_table(path)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        remedy = f"columns are {', '.join(COLUMNS)}"
        raise InputError(f"no column {missing[0]!r}", file=path, remedy=remedy)
    groups: dict[tuple[Kind, int, int], list[tuple[float, float]]] = defaultdict(list)
    for number, row in enumerate(table.rows, start=2):
        try:
            group = _kind(row["kind"], path, number), int(row["hosts"]), int(row["ranks"])
            groups[group].append((float(row["bytes"]), float(row["time_us"]) * 1e-6))
        except ValueError:
            raise InputError("expected numbers", file=path, key=f"line {number}", remedy="see the columns") from None
    return tuple(
        MeasuredCollective(kind=kind, hosts=hosts, ranks=ranks, file=path.name, times=_rising(times, path, kind))
        for (kind, hosts, ranks), times in groups.items()
    )


def _kind(name: str, path: Path, line: int) -> Kind:
    known: tuple[Kind, ...] = get_args(Kind)
    for kind in known:
        if kind == name:
            return kind
    raise UnknownNameError("kind of collective", name, known, file=path, key=f"line {line}")


def _rising(times: Sequence[tuple[float, float]], file: Path, key: str) -> tuple[tuple[float, float], ...]:
    ordered = sorted(times)
    if any(first[0] == second[0] for first, second in pairwise(ordered)):
        raise InputError("a payload stands twice", file=file, key=key, remedy="give each payload one time")
    if any(size <= 0 or time <= 0 for size, time in ordered):
        raise InputError("expected payloads and times above zero", file=file, key=key)
    return tuple(ordered)
