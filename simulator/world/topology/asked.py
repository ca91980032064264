"""``topology`` of a scenario: a cluster of the catalogue or a file, fitted to the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from msgspec import field

from simulator.errors import InputError, UnknownNameError
from simulator.world.catalog import accelerator
from simulator.world.conditions import BackgroundSection, Conditions, FaultSection, read_conditions
from simulator.world.document import Section, convert, find
from simulator.world.server import asked_server
from simulator.world.topology.cluster import (
    NCCL_ALGORITHMS,
    NCCL_PROTOCOLS,
    Cluster,
    Count,
    Forced,
    LinkOverride,
    OtherHosts,
    Placement,
    load_cluster,
    overridden,
)
from simulator.world.topology.cluster import Library as LibraryName
from simulator.world.topology.fabrics import read_fabric, with_fabric
from simulator.world.topology.measured import read_costs
from simulator.world.topology.servers import usual_server

__all__ = ["NcclSection", "Place", "TopologySection", "asked_place", "forced"]


class NcclSection(Section):
    """``topology.nccl``: what a user prescribes instead of the tuner's choice."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: Count | None = None
    sharp: bool = False
    pxn: bool = True
    two_hop: bool = False


class OtherHostsSection(Section):
    """An entry of ``topology.others``: the last hosts, of another type with the same layout."""

    hosts: Count
    accelerator: str | None = None
    links: dict[str, dict[str, Any]] = field(default_factory=dict)
    """As ``topology.links``."""


class TopologySection(Section):
    """``topology``: a cluster of the catalogue or a file, fitted to the question."""

    cluster: str
    hosts: Count | None = None
    accelerators_per_host: Count | None = None
    accelerator: str | None = None
    cards: Count | None = None
    """Network cards of each host that are in use."""
    links: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What to change on which kind of link: see :class:`LinkOverride`."""
    algorithm: str | None = None
    """A :data:`~simulator.world.topology.cluster.Library`; default: the cluster's."""
    nccl: NcclSection = field(default_factory=NcclSection)
    fabric: str | dict[str, Any] | None = None
    """The network between hosts, see :class:`~simulator.world.topology.fabrics.FabricSection`; default: the file's."""
    placement: Placement = "packed"
    """How the hosts are spread over pods and zones."""
    costs: str | None = None
    """A table of measured times of collectives (.csv), besides those of the cluster file."""
    others: list[OtherHostsSection] = field(default_factory=list)
    """Hosts of other types among ``hosts``, the last ones."""
    background: list[BackgroundSection] = field(default_factory=list)
    faults: list[FaultSection] = field(default_factory=list)
    server: str | dict[str, Any] | None = None
    """Memory, CPUs and drives of the hosts, see :class:`~simulator.world.server.AskedServer`; default: the usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job runs, and what carries out its collectives there."""

    cluster: Cluster
    library: LibraryName
    forced: Forced
    """What a user prescribes to the library."""
    conditions: Conditions
    """Traffic and faults that are not ours."""


def asked_place(section: TopologySection, file: Path) -> Place:
    """Load everything that *section* asks for.

    Raises
    ------
    InputError
        A file, a number or a name in it is wrong.
    """
    cluster = _cluster(section, file)
    return Place(
        cluster=cluster,
        library=_library(section.algorithm, cluster, file),
        forced=forced(section.nccl, file),
        conditions=read_conditions(section.background, section.faults, cluster, file),
    )


def _cluster(section: TopologySection, file: Path) -> Cluster:
    """Load the cluster of *section* and change on it what the scenario changes."""
    costs = () if section.costs is None else read_costs(find(section.costs, file, "scenarios", ".csv"))
    overrides = {
        name: convert(raw, LinkOverride, file, f"topology.links.{name}") for name, raw in section.links.items()
    }
    loaded = load_cluster(
        section.cluster,
        file,
        hosts=section.hosts,
        accelerators_per_host=section.accelerators_per_host,
        accelerator_name=section.accelerator,
        cards=section.cards,
        overrides=overrides,
        on_fabric=_on_fabric(section.fabric, section.placement, file),
    )
    return replace(
        loaded,
        measured=(*costs, *loaded.measured),
        others=_others(section, loaded, file),
        server=None if section.server is None else asked_server(section.server, usual_server(loaded), file),
    )


def _others(section: TopologySection, loaded: Cluster, file: Path) -> tuple[OtherHosts, ...]:
    total = sum(item.hosts for item in section.others)
    if total >= loaded.hosts and section.others:
        remedy = f"leave at least one of the {loaded.hosts} hosts as the cluster file describes it"
        raise InputError("too many hosts of other types", file=file, key="topology.others", value=total, remedy=remedy)
    found = []
    for index, item in enumerate(section.others):
        key = f"topology.others[{index}].links"
        changes = {name: convert(raw, LinkOverride, file, f"{key}.{name}") for name, raw in item.links.items()}
        links = overridden(loaded.links, changes, file)
        for name in changes:
            link = next(link for link in links if link.name == name)
            if all(loaded.node(end).per != "host" for end in link.ends):
                raise InputError("is not a link of hosts", file=file, key=key, value=name)
        part = accelerator(item.accelerator) if item.accelerator else loaded.accelerator
        found.append(OtherHosts(hosts=item.hosts, accelerator=part, links=links))
    return tuple(found)


def _on_fabric(raw: str | dict[str, Any] | None, placement: Placement, file: Path) -> Callable[[Cluster], Cluster]:
    section = read_fabric(raw, file)

    def built(cluster: Cluster) -> Cluster:
        return replace(with_fabric(cluster, section) if section else cluster, placement=placement)

    return built


def _library(name: str | None, cluster: Cluster, file: Path) -> LibraryName:
    """Return what carries out collectives: what the scenario names, or what the cluster has."""
    if name is None:
        return cluster.library
    names: tuple[LibraryName, ...] = get_args(LibraryName)
    for known in names:
        if known == name:
            return known
    raise UnknownNameError("algorithm", name, names, file=file, key="topology.algorithm")


def forced(section: NcclSection, file: Path | None) -> Forced:
    """Check what a user prescribes; names are NCCL's, in any case, with or without underscores."""
    return Forced(
        algorithm=_spelled("algorithm", section.algorithm, NCCL_ALGORITHMS, file),
        protocol=_spelled("protocol", section.protocol, NCCL_PROTOCOLS, file),
        channels=section.channels,
        sharp=section.sharp,
        pxn=section.pxn,
        two_hop=section.two_hop,
    )


def _spelled(what: str, name: str | None, names: Sequence[str], file: Path | None) -> str | None:
    if name is None:
        return None
    for known in names:
        if name.lower().replace("_", "") == known.replace("_", ""):
            return known
    raise UnknownNameError(f"NCCL {what}", name, names, file=file, key=f"topology.nccl.{what}")
