"""What a drawing of a cluster says beside its rows."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from simulator.readings.plots.excerpt import Excerpt
from simulator.readings.standing import links_from_each, narrowing, standing
from simulator.units import readable
from simulator.world.topology.cluster import Cluster, LinkKind, Scope
from simulator.world.topology.graph import pair_count
from simulator.world.topology.mixed import host_types, links_by_type, type_of
from simulator.world.topology.placement import place_of

__all__ = ["Caption", "findings", "footnotes", "link_captions", "node_caption", "place_caption", "title"]

LETTERS = 27
"""That fit beside the drawing."""


class Caption(NamedTuple):
    """A line of text, and what a line of that bandwidth looks like."""

    text: str
    bandwidth: float | None = None
    """[B/s]"""


def title(cluster: Cluster) -> str:
    """Name of the cluster, and how large it is."""
    return f"{cluster.title}: {_counted(cluster.hosts, 'host')}, {_counted(cluster.ranks, 'device')}"


def findings(shown: Excerpt) -> str:
    """What holds for the whole picture."""
    cluster, drawn = shown.cluster, len(shown.hosts)
    hosts = [part for part in (standing(cluster), f"{drawn} are drawn" if drawn < cluster.hosts else "") if part]
    where = f"Hosts: {'; '.join(hosts)}. " if hosts else ""
    return f"{where}Bandwidths are those of payload on one link, each way."


def footnotes(cluster: Cluster) -> list[str]:
    """How links that somebody chose were sized."""
    return [
        f"{_spoken(link.name)}: {link.nominal.at}"
        for link in cluster.links
        if link.nominal.basis == "chosen" and link.nominal.at
    ]


def node_caption(shown: Excerpt, name: str) -> str:
    """Name of a kind of node, and how many there are."""
    node = shown.cluster.node(name)
    place = next(box.place for box in shown.boxes if box.name == name)
    count = sum(box.nodes for box in shown.boxes if (box.name, box.place) == (name, place))
    many = f"{count} per {node.per}" if node.per != "cluster" else f"{count} in all" if count > 1 else ""
    return "\n".join([*textwrap.wrap(_spoken(name), 14), *textwrap.wrap(many, 14)])


def place_caption(shown: Excerpt, scope: Scope, number: int) -> str:
    """Name of a host, pod or zone, and how many hosts it has."""
    cluster = shown.cluster
    if scope == "host":
        accelerator = host_types(cluster)[type_of(cluster, number)].accelerator.name
        return f"host {number}" + (f": {accelerator}" if cluster.others else "")
    present = sum(place_of(cluster, host, scope) == number for host in range(cluster.hosts))
    room = cluster.hosts_per_pod if scope == "pod" else cluster.hosts_per_zone
    return f"{scope} {number}: {_counted(present, 'host')}" + (f", room for {room}" if present < room else "")


def link_captions(cluster: Cluster, link: LinkKind) -> list[Caption]:
    """What there is to say about a kind of link, in short lines."""
    return [
        Caption(text, caption.bandwidth if first else None)
        for caption in (_pairs(cluster, link) if link.wiring == "pairs" else _upwards(cluster, link))
        for first, text in _wrapped(caption.text)
    ]


def _wrapped(text: str) -> Iterator[tuple[bool, str]]:
    for number, line in enumerate(textwrap.wrap(text, LETTERS)):
        yield number == 0, line


def _pairs(cluster: Cluster, link: LinkKind) -> Iterator[Caption]:
    """Links between devices: each number of them that joins two."""
    devices = cluster.accelerators_per_host
    counts = [pair_count(link, a, b) for b in range(devices) for a in range(b)]
    one = readable(link.bandwidth, "B/s")
    several = max(counts, default=1) > 1
    for count in sorted({count for count in counts if count}):
        yield Caption(f"{_spoken(link.name)} {f'{count} x ' if several else ''}{one}", count * link.bandwidth)
    joined = sum(count > 0 for count in counts)
    yield Caption("between all devices" if joined == len(counts) else f"between {joined} pairs of devices")


def _upwards(cluster: Cluster, link: LinkKind) -> Iterator[Caption]:
    for bandwidth in dict.fromkeys(own.bandwidth for own in links_by_type(cluster, link.name)):
        yield Caption(f"{_spoken(link.name)} {readable(bandwidth, 'B/s')}", bandwidth)
    each = links_from_each(cluster, link)
    if each > 1:
        yield Caption(f"{each} from each {_spoken(link.ends[0])}")
    ratio = narrowing(cluster, link)
    if ratio is not None:
        yield Caption(f"oversubscription {ratio:.3g}:1")


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"
