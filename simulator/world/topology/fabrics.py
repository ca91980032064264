r"""The network between hosts as a choice of its own: the same hosts on another fabric.

A fabric takes the cards of the hosts and their rate and builds switches above them.  With radix r and an
oversubscription of o to 1 a leaf has

.. math:: d = \left\lfloor \frac{r\,o}{1 + o} \right\rfloor \text{ ports down,} \quad r - d \text{ up,}

and its uplinks together carry 1/o of what its ports down do.  Fabrics (sizing as in vendors' design guides):

``single_switch``
    One switch that never blocks.
``fat_tree``
    Two tiers: neighbouring hosts below one leaf, all leaves joined by spines.  Three tiers: r/2 leaves and their
    spines form a zone, zones are joined by cores.
``rail_optimised``
    A leaf for each card of a host, so that card i of d hosts meets on one leaf; the rest as in a fat tree.
``rail_only``
    The same without spines: rails meet only inside the hosts.
``dragonfly_plus``
    Groups of leaves and spines that do not block inside, joined by global links of the group's capacity over o.  A ring
    sends everything from one group to the next: minimal routing leaves it one part in (groups - 1) of a group's
    global links, adaptive routing over a third group half of all.
``torus``
    Hosts linked to the next along each axis, without switches; the cards' rate is divided among these links.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from simulator.errors import InputError
from simulator.world.catalog import Number, network_number
from simulator.world.document import Section, convert
from simulator.world.topology.cluster import Cluster, LinkKind, NodeKind

__all__ = ["FabricSection", "read_fabric", "with_fabric"]


class FabricSection(Section):
    """``topology.fabric``."""

    kind: Literal["single_switch", "fat_tree", "rail_optimised", "rail_only", "dragonfly_plus", "torus"]
    tiers: Literal[2, 3] = 2
    radix: Annotated[int, Meta(ge=2)] = 64
    """Ports of a switch, at the cards' rate."""
    oversubscription: Annotated[float, Meta(ge=1)] = 1.0
    """Capacity of a leaf downwards over that upwards; of a dragonfly+, of a group over that of its global links."""
    core_oversubscription: Annotated[float, Meta(ge=1)] = 1.0
    """The same of the second tier of three."""
    routing: Literal["adaptive", "minimal"] = "adaptive"
    """Of a dragonfly+."""
    axes: list[Annotated[int, Meta(ge=1)]] = field(default_factory=list)
    """Of a torus: hosts along each axis; their product is the number of hosts."""
    technology: Literal["infiniband", "roce", "efa", "tcp"] | None = None
    """Replaces what the hosts' cards speak, with its usual efficiency and latency."""


def read_fabric(raw: str | dict[str, Any] | None, file: Path | None) -> FabricSection | None:
    """Read what a scenario says: a kind, or a mapping.

    Raises
    ------
    InputError
        An unknown key, kind or value.
    """
    if raw is None:
        return None
    section = convert({"kind": raw} if isinstance(raw, str) else raw, FabricSection, file, "topology.fabric")
    if section.kind == "rail_only" and section.tiers != 2:
        raise InputError("has one tier", file=file, key="topology.fabric.tiers", value=section.tiers)
    return section


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tier:
    """Switches above the hosts, and the links that lead there."""

    node: NodeKind
    link: str
    wiring: Literal["all", "spread"]
    nominal: float
    """Of one link [B/s]."""
    why: str


def with_fabric(cluster: Cluster, section: FabricSection) -> Cluster:
    """Return *cluster*'s hosts on the fabric of *section*.

    Raises
    ------
    InputError
        The hosts have no link that leaves them.
    """
    network = _network(cluster, section)
    if section.kind == "torus":
        return _on_torus(cluster, section, network)
    inside = tuple(node for node in cluster.nodes if node.per == "host")
    kept = tuple(link for link in cluster.links if all(cluster.node(end).per == "host" for end in link.ends))
    shape = _Shape.of(section, cluster.node(network.ends[0]).count, network.nominal.value, cluster.hosts)
    lower, links = network.ends[0], list(kept)
    for tier in shape.tiers:
        links.append(_link(tier, lower, network, first=tier is shape.tiers[0]))
        lower = tier.node.name
    return replace(
        cluster,
        title=f"{cluster.title.removesuffix(', rail-optimised')}, on {shape.title}",
        nodes=(*inside, *(tier.node for tier in shape.tiers)),
        links=tuple(links),
        hosts_per_pod=shape.hosts_per_pod,
        hosts_per_zone=shape.hosts_per_zone,
    )


def _on_torus(cluster: Cluster, section: FabricSection, network: LinkKind) -> Cluster:
    """Give each host a router for its cards, with a link to the next host in either direction of every axis."""
    axes = tuple(section.axes)
    if not axes:
        raise InputError("is missing", key="topology.fabric.axes", remedy="give hosts along each axis: [4, 4, 8]")
    if math.prod(axes) != cluster.hosts or cluster.hosts == 1:
        remedy = f"give lengths whose product is the {cluster.hosts} hosts (of two or more), for instance [4, 4, 8]"
        raise InputError("does not hold the hosts", key="topology.fabric.axes", value=list(axes), remedy=remedy)
    router = NodeKind(name="router", kind="switch", per="host", count=1)
    cards = cluster.node(network.ends[0]).count
    ways = sum(min(length - 1, 2) for length in axes)
    why = f"{cards} cards' rate over {ways} links of a host"
    rate = Number(
        value=cards * network.nominal.value / ways, name="fabric.axis.bandwidth", unit="B/s", basis="chosen", at=why
    )
    own = replace(network, name="network", ends=(network.ends[0], router.name), wiring="all")
    axis = replace(
        network, name="axis", ends=(router.name, router.name), wiring="torus", axes=axes, nominal=rate,
        latency=network_number("switch", "latency"),
    )  # fmt: skip
    kept = tuple(link for link in cluster.links if all(cluster.node(end).per == "host" for end in link.ends))
    return replace(
        cluster,
        title=f"{cluster.title.removesuffix(', rail-optimised')}, on a torus of {' x '.join(map(str, axes))}",
        nodes=(*(node for node in cluster.nodes if node.per == "host"), router),
        links=(*kept, own, axis),
        hosts_per_pod=cluster.hosts,
        hosts_per_zone=cluster.hosts,
    )


def _network(cluster: Cluster, section: FabricSection) -> LinkKind:
    """The link that leaves a host, of the technology that is asked for."""
    leaving = [
        link for link in cluster.links if [cluster.node(end).per == "host" for end in link.ends] == [True, False]
    ]
    if not leaving:
        remedy = "choose a cluster whose hosts are joined by a network"
        raise InputError("no link leaves the hosts", key="topology.fabric", value=cluster.name, remedy=remedy)
    if section.technology is None:
        return leaving[0]
    return replace(
        leaving[0],
        technology=section.technology,
        efficiency=network_number(section.technology, "efficiency"),
        latency=network_number(section.technology, "latency"),
    )


def _link(tier: _Tier, lower: str, network: LinkKind, *, first: bool) -> LinkKind:
    """Link kind from *lower* up to *tier*; the first is the hosts' own."""
    nominal = Number(
        value=tier.nominal, name=f"fabric.{tier.link}.bandwidth", unit="B/s", basis="chosen", source="", at=tier.why
    )
    return LinkKind(
        name=tier.link,
        technology=network.technology,
        ends=(lower, tier.node.name),
        wiring=tier.wiring,
        nominal=network.nominal if first else nominal,
        efficiency=network.efficiency,
        latency=network.latency if first else network_number("switch", "latency"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Switches, and the hosts below them."""

    title: str
    tiers: tuple[_Tier, ...]
    hosts_per_pod: int
    hosts_per_zone: int

    @classmethod
    def of(cls, section: FabricSection, cards: int, rate: float, hosts: int) -> _Shape:
        """Size the fabric for hosts of *cards* of *rate* [B/s] each."""
        down = max(1, int(section.radix * section.oversubscription / (1 + section.oversubscription)))
        if section.kind == "single_switch":
            return _single_switch(hosts)
        if section.kind == "dragonfly_plus":
            return _dragonfly_plus(section, cards, rate, hosts)
        if section.kind == "fat_tree":
            leaves, per_pod = -(-cards // down), max(1, down // cards)
        else:
            leaves, per_pod = cards, down
        return _clos(
            section, _Leaves(count=leaves, hosts=per_pod, capacity=per_pod * cards * rate / leaves), down, hosts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaves:
    """First-level switches of a pod."""

    count: int
    hosts: int
    capacity: float
    """Of the ports down of one leaf [B/s]."""


def _single_switch(hosts: int) -> _Shape:
    tier = _Tier(
        node=NodeKind(name="switch", kind="switch", per="cluster", count=1), link="network", wiring="all", nominal=0.0,
        why="",
    )  # fmt: skip
    return _Shape(title="a single switch", tiers=(tier,), hosts_per_pod=hosts, hosts_per_zone=hosts)


def _clos(section: FabricSection, leaves: _Leaves, down: int, hosts: int) -> _Shape:
    """Leaves, spines, and cores if there are three tiers."""
    wiring: Literal["all", "spread"] = "spread"
    first = _Tier(
        node=NodeKind(name="leaf", kind="switch", per="pod", count=leaves.count), link="network", wiring=wiring,
        nominal=0.0, why="",
    )  # fmt: skip
    if section.kind == "rail_only":
        return _Shape(title="rails only", tiers=(first,), hosts_per_pod=hosts, hosts_per_zone=hosts)
    ratio = section.oversubscription
    spines = max(1, section.radix - down)
    three = section.tiers == 3
    up = leaves.capacity / ratio / spines
    why = (
        f"{_of(leaves.hosts, 'host')} below {_of(leaves.count, 'leaf', 'leaves')} of {section.radix} ports, "
        f"{ratio:g}:1, over {_of(spines, 'spine')}"
    )
    scope: Literal["zone", "cluster"] = "zone" if three else "cluster"
    tiers = [first, _Tier(node=_spines(scope, spines), link="uplink", wiring="all", nominal=up, why=why)]
    pods = max(1, section.radix // 2 // leaves.count)
    if three:
        cores = section.radix // 2
        core_up = up * leaves.count * pods / section.core_oversubscription / cores
        why = f"{pods} pods below a zone's spines, {section.core_oversubscription:g}:1, over {cores} cores"
        core = NodeKind(name="core", kind="switch", per="cluster", count=cores)
        tiers.append(_Tier(node=core, link="core_uplink", wiring="all", nominal=core_up, why=why))
    zone = pods * leaves.hosts if three else -(-hosts // leaves.hosts) * leaves.hosts
    name = {"fat_tree": "a fat tree", "rail_optimised": "a rail-optimised fabric"}[section.kind]
    title = f"{name} of {section.tiers} tiers, {ratio:g}:1"
    return _Shape(title=title, tiers=tuple(tiers), hosts_per_pod=leaves.hosts, hosts_per_zone=zone)


def _spines(scope: Literal["zone", "cluster"], count: int) -> NodeKind:
    return NodeKind(name="spine", kind="switch", per=scope, count=count)


def _dragonfly_plus(section: FabricSection, cards: int, rate: float, hosts: int) -> _Shape:
    per_group = max(1, (section.radix // 2) ** 2 // cards)
    groups = -(-hosts // per_group)
    part = 0.5 if section.routing == "adaptive" else 1 / max(1, groups - 1)
    capacity = per_group * cards * rate / section.oversubscription
    why = (
        f"{per_group} hosts in a group, {section.oversubscription:g}:1, {section.routing} routing uses {part:.3g} of it"
    )
    tiers: Sequence[_Tier] = (
        _Tier(
            node=NodeKind(name="group", kind="switch", per="pod", count=1), link="network", wiring="all", nominal=0.0,
            why="",
        ),
        _Tier(
            node=NodeKind(name="optics", kind="switch", per="cluster", count=1), link="global", wiring="all",
            nominal=capacity * part, why=why,
        ),
    )  # fmt: skip
    return _Shape(
        title=f"a dragonfly+ of {groups} groups, {section.oversubscription:g}:1, {section.routing} routing",
        tiers=tuple(tiers),
        hosts_per_pod=per_group,
        hosts_per_zone=groups * per_group,
    )


def _of(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"
