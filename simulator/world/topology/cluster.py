"""Cluster files: read, checked, and fitted to a scenario.

What a cluster is made of is described in :mod:`simulator.world.topology.kinds`, whose nouns are at home here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, field

from simulator.errors import InputError, UnknownNameError
from simulator.units import Bandwidth, Duration
from simulator.world.catalog import Number, accelerator, number
from simulator.world.document import Section, data_directory, find, read_section
from simulator.world.topology.kinds import (
    DEVICE,
    NCCL_ALGORITHMS,
    NCCL_PROTOCOLS,
    SCALE_UP,
    Cluster,
    Forced,
    Library,
    LinkKind,
    NodeKind,
    OtherHosts,
    Placement,
    Scope,
    Technology,
    Wiring,
)
from simulator.world.topology.measured import MeasuredSection, measured_collective

__all__ = [
    "DEVICE",
    "NCCL_ALGORITHMS",
    "NCCL_PROTOCOLS",
    "SCALE_UP",
    "Cluster",
    "Forced",
    "Library",
    "LinkKind",
    "LinkOverride",
    "NodeKind",
    "OtherHosts",
    "Placement",
    "Scope",
    "Technology",
    "Wiring",
    "load_cluster",
    "overridden",
    "shipped_clusters",
    "technology_of",
]

Count = Annotated[int, Meta(ge=1)]

_SCOPES = ("host", "pod", "zone", "cluster")


class NodeSection(Section):
    """One entry of ``nodes``."""

    name: str
    kind: Literal["device", "switch", "nic"]
    per: Scope
    count: Count
    note: str = ""


class LinkSection(Section):
    """One entry of ``links``."""

    name: str
    ends: tuple[str, str]
    wiring: Literal["all", "spread", "pairs"]
    bandwidth: dict[str, Any]
    latency: dict[str, Any]
    technology: Technology | None = None
    pairs: list[tuple[int, int, Count]] = field(default_factory=list)
    efficiency: dict[str, Any] | None = None


class ClusterSection(Section):
    """A file of ``topologies``."""

    name: str
    title: str
    accelerator: str
    nodes: Annotated[list[NodeSection], Meta(min_length=1)]
    links: Annotated[list[LinkSection], Meta(min_length=1)]
    hosts: Count = 1
    hosts_per_pod: Count | None = None
    hosts_per_zone: Count | None = None
    library: Library = "nccl"
    cpu: Literal["intel", "amd", "arm"] = "intel"
    measured: list[MeasuredSection] = field(default_factory=list)


class LinkOverride(Section):
    """What a scenario may change on a link kind."""

    bandwidth: Bandwidth | None = None
    latency: Duration | None = None
    efficiency: Annotated[float, Meta(gt=0, le=1)] | None = None


def load_cluster(
    reference: str,
    beside: Path | None = None,
    *,
    hosts: int | None = None,
    accelerators_per_host: int | None = None,
    accelerator_name: str | None = None,
    cards: int | None = None,
    overrides: Mapping[str, LinkOverride] | None = None,
    on_fabric: Callable[[Cluster], Cluster] = lambda cluster: cluster,
) -> Cluster:
    """Load a cluster by catalogue name or path and fit it to a scenario.

    *cards* says how many network cards of each host are in use; default: all.  *on_fabric* exchanges the network
    between hosts, see :mod:`simulator.world.topology.fabrics`.

    Raises
    ------
    InputError
        The file or a number in it is wrong, a link joins unknown nodes, or more devices are asked for than a host
        has.
    """
    path = find(reference, beside, "topologies", ".yaml")
    section = read_section(path, ClusterSection)
    nodes = tuple(
        NodeKind(name=node.name, kind=node.kind, per=node.per, count=_count(node, cards, path))
        for node in section.nodes
    )
    _check_names([node.name for node in nodes], "nodes", path)
    _check_names([link.name for link in section.links], "links", path)
    links = tuple(_link(section.name, link, [node.name for node in nodes], path) for link in section.links)
    _check_order(links, nodes, path)
    _check_pairs(links, nodes, path)
    total = hosts or section.hosts
    pod = section.hosts_per_pod or total
    written = Cluster(
        name=section.name,
        title=section.title,
        accelerator=accelerator(accelerator_name or section.accelerator),
        hosts=total,
        accelerators_per_host=_devices(nodes, accelerators_per_host, path),
        hosts_per_pod=pod,
        hosts_per_zone=_zone(section.hosts_per_zone, pod, total, path),
        nodes=nodes,
        links=links,
        library=section.library,
        cpu=section.cpu,
        measured=tuple(
            measured_collective(item, path, f"measured[{index}]") for index, item in enumerate(section.measured)
        ),
    )
    built = on_fabric(written)
    return replace(built, links=overridden(built.links, overrides or {}, beside))


def _count(node: NodeSection, cards: int | None, path: Path) -> int:
    """Nodes of a kind; of network cards as many as are in use."""
    if cards is None or node.kind != "nic" or node.per != "host":
        return node.count
    if node.count % cards:
        remedy = f"use a divisor of its {node.count}"
        raise InputError("cards cannot be spread evenly", file=path, key="cards", value=cards, remedy=remedy)
    return cards


def _zone(zone: int | None, pod: int, hosts: int, path: Path) -> int:
    """Hosts of a zone; the whole cluster, in full pods, unless the file says otherwise."""
    if zone is not None and zone % pod:
        remedy = f"use a multiple of {pod}"
        raise InputError("a zone is made of whole pods", file=path, key="hosts_per_zone", value=zone, remedy=remedy)
    return zone or -(-hosts // pod) * pod


def shipped_clusters() -> list[Path]:
    """Return the files of the catalogue, by name."""
    return sorted(path for path in data_directory("topologies").glob("*.yaml") if path.stem != "sources")


def _check_names(names: list[str], key: str, path: Path) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError("the name stands twice", file=path, key=key, value=twice[0], remedy="give each its own name")


def _devices(nodes: tuple[NodeKind, ...], wanted: int | None, path: Path) -> int:
    devices = [node for node in nodes if node.kind == DEVICE]
    if len(devices) != 1 or devices[0].name != DEVICE or devices[0].per != "host":
        raise InputError("expected one node kind 'device' per host", file=path, key="nodes")
    if wanted is not None and not 1 <= wanted <= devices[0].count:
        remedy = f"use 1 to {devices[0].count}"
        raise InputError("a host has fewer", file=path, key="accelerators_per_host", value=wanted, remedy=remedy)
    return wanted or devices[0].count


def _link(cluster: str, section: LinkSection, nodes: list[str], path: Path) -> LinkKind:
    key = f"links.{section.name}"
    for end in section.ends:
        if end not in nodes:
            raise UnknownNameError("node kind", end, nodes, file=path, key=f"{key}.ends")
    name = f"{cluster}.{section.name}"
    return LinkKind(
        name=section.name,
        technology=section.technology or technology_of(section.name),
        ends=section.ends,
        wiring=section.wiring,
        pairs=tuple(section.pairs),
        nominal=number(section.bandwidth, "B/s", f"{name}.bandwidth", path),
        efficiency=number(section.efficiency, "", f"{name}.efficiency", path) if section.efficiency else None,
        latency=number(section.latency, "s", f"{name}.latency", path),
    )


def technology_of(name: str) -> Technology:
    """Read it off the name of the link: ``nvlink`` and ``pcie`` say what they are."""
    known: tuple[Technology, ...] = get_args(Technology)
    return next((item for item in known if item in name), "other")


def _check_order(links: tuple[LinkKind, ...], nodes: tuple[NodeKind, ...], path: Path) -> None:
    """The graph grows upwards from the devices, so every link must start at something that is already there."""
    width = {node.name: _SCOPES.index(node.per) for node in nodes}
    reached = {DEVICE}
    for link in links:
        lower, upper = link.ends
        if lower not in reached or width[lower] > width[upper]:
            remedy = "list links from the devices upwards, the lower end first"
            raise InputError(
                "starts at a node that no device has reached", file=path, key=f"links.{link.name}.ends", value=lower,
                remedy=remedy,
            )  # fmt: skip
        reached.add(upper)


def _check_pairs(links: tuple[LinkKind, ...], nodes: tuple[NodeKind, ...], path: Path) -> None:
    devices = next((node.count for node in nodes if node.name == DEVICE), 0)
    for link in links:
        key = f"links.{link.name}"
        if (link.wiring == "pairs") != (link.ends == (DEVICE, DEVICE)):
            remedy = "write ends: [device, device] with wiring: pairs"
            raise InputError(
                "only devices are wired in pairs", file=path, key=f"{key}.ends", value=link.ends, remedy=remedy
            )
        if link.pairs and link.wiring != "pairs":
            raise InputError("needs wiring: pairs", file=path, key=f"{key}.pairs", value=list(link.pairs))
        for pair in link.pairs:
            first, second, _ = pair
            if not (0 <= first < devices and 0 <= second < devices and first != second):
                remedy = f"name two of the devices 0 to {devices - 1}"
                raise InputError("no such pair", file=path, key=f"{key}.pairs", value=list(pair), remedy=remedy)


def overridden(
    links: tuple[LinkKind, ...], overrides: Mapping[str, LinkOverride], file: Path | None
) -> tuple[LinkKind, ...]:
    """Return *links* with what a scenario changes on them."""
    known = {link.name: link for link in links}
    for name, override in overrides.items():
        if name not in known:
            raise UnknownNameError("link", name, known, file=file, key="topology.links")
        known[name] = _with_override(known[name], override)
    return tuple(known.values())


def _with_override(link: LinkKind, override: LinkOverride) -> LinkKind:
    def chosen(value: float, unit: str, what: str) -> Number:
        return Number(value=value, name=f"topology.links.{link.name}.{what}", unit=unit, basis="chosen")

    return replace(
        link,
        nominal=link.nominal if override.bandwidth is None else chosen(override.bandwidth, "B/s", "bandwidth"),
        latency=link.latency if override.latency is None else chosen(override.latency, "s", "latency"),
        efficiency=link.efficiency if override.efficiency is None else chosen(override.efficiency, "", "efficiency"),
    )
