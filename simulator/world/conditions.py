"""What else happens on the network during a step: other people's traffic, links that degrade or fail.

A fault of one link slows every collective that crosses it, because a ring is as fast as its slowest link.  One class of
ranks stands for all of them, so there the fault counts for the whole kind of link; ``run.ranks: all`` keeps it to the
link that is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from simulator.errors import InputError, UnknownNameError
from simulator.units import Bandwidth, Duration
from simulator.world.document import Section
from simulator.world.topology.cluster import Cluster, Count, LinkKind

__all__ = ["Background", "BackgroundSection", "Conditions", "Fault", "FaultSection", "read_conditions"]


class BackgroundSection(Section):
    """An entry of ``topology.background``: traffic of others."""

    link: str
    bandwidth: Bandwidth | None = None
    """That it takes from each direction of each such link, whatever we do."""
    transfers: Count | None = None
    """Or transfers that share each such link fairly with ours."""


class FaultSection(Section):
    """An entry of ``topology.faults``: a link that has less bandwidth for a while."""

    link: str
    remaining: Annotated[float, Meta(ge=0, lt=1)]
    """Part of its bandwidth that is left; 0 for a link that fails."""
    at: Duration | None = None
    """From when on, counted from the start of the step; from the start by default."""
    until: Duration | None = None
    """Until when; to the end of the step by default."""
    host: Annotated[int, Meta(ge=0)] | None = None
    """One link instead of all of its kind: the host (pod, ...) of its lower end ..."""
    index: Annotated[int, Meta(ge=0)] = 0
    """... and the lower end's index in there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Traffic of others on a kind of link."""

    link: str
    bandwidth: float
    """That is gone [B/s]."""
    transfers: int
    """That share what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Less bandwidth for a while."""

    link: str
    lower: str
    """Node kind of the link's lower end."""
    place: tuple[int, int] | None
    """Host (pod, ...) and index of the lower end; None: all of the kind."""
    start: float
    """[s]"""
    end: float
    """[s]; infinite if it never comes back."""
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Everything on the network that is not ours."""

    background: tuple[Background, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.background or self.faults)


def read_conditions(
    background: Sequence[BackgroundSection], faults: Sequence[FaultSection], cluster: Cluster, file: Path
) -> Conditions:
    """Check entries against the links of *cluster*.

    Raises
    ------
    InputError
        An unknown link, a period that ends before it starts, traffic that leaves nothing.
    """
    return Conditions(
        background=tuple(_background(item, cluster, file, index) for index, item in enumerate(background)),
        faults=tuple(_fault(item, cluster, file, index) for index, item in enumerate(faults)),
    )


def _background(section: BackgroundSection, cluster: Cluster, file: Path, index: int) -> Background:
    key = f"topology.background[{index}]"
    link = _link(section.link, cluster, file, key)
    if (section.bandwidth is None) == (section.transfers is None):
        raise InputError("expected either 'bandwidth' or 'transfers'", file=file, key=key, remedy="give one of them")
    taken = float(section.bandwidth or 0.0)
    if taken >= link.bandwidth:
        remedy = f"take less than the {link.bandwidth / 1e9:.4g} GB/s that payload can use"
        raise InputError("leaves nothing", file=file, key=f"{key}.bandwidth", value=section.bandwidth, remedy=remedy)
    return Background(link=section.link, bandwidth=taken, transfers=section.transfers or 0)


def _fault(section: FaultSection, cluster: Cluster, file: Path, index: int) -> Fault:
    key = f"topology.faults[{index}]"
    link = _link(section.link, cluster, file, key)
    start = float(section.at or 0.0)
    end = float("inf") if section.until is None else float(section.until)
    if end <= start:
        raise InputError("ends before it starts", file=file, key=f"{key}.until", value=section.until)
    if section.remaining == 0 and section.until is None:
        remedy = "say with `until` when it comes back, or give `remaining` what other links take over"
        raise InputError("a link that fails for good stops every collective over it", file=file, key=key, remedy=remedy)
    if section.host is not None:
        _check_place(section, link, cluster, file, key)
    return Fault(
        link=section.link,
        lower=link.ends[0],
        place=None if section.host is None else (section.host, section.index),
        start=start,
        end=end,
        remaining=section.remaining,
    )


def _check_place(section: FaultSection, link: LinkKind, cluster: Cluster, file: Path, key: str) -> None:
    lower = cluster.node(link.ends[0])
    for name, value, count in (
        ("host", section.host, cluster.containers(lower.per)),
        ("index", section.index, lower.count),
    ):
        if value is not None and value >= count:
            remedy = f"use 0 to {count - 1}"
            raise InputError("there are fewer", file=file, key=f"{key}.{name}", value=value, remedy=remedy)


def _link(name: str, cluster: Cluster, file: Path, key: str) -> LinkKind:
    known = {link.name: link for link in cluster.links}
    if name not in known:
        raise UnknownNameError("link", name, known, file=file, key=f"{key}.link")
    return known[name]
