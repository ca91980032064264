"""What a node-link file holds: nodes of kinds and links between them, checked one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from simulator.errors import InputError
from simulator.world.topology.cluster import DEVICE, Scope, Technology, technology_of

__all__ = ["Content", "Edge", "Kind", "Pairs", "Place", "pairs_of", "parse"]

Place = tuple[str, int, int]
"""Kind, number of its host, pod, zone or cluster, index in there."""
Kind = Literal["device", "switch", "nic"]
Pairs = tuple[tuple[int, int, int], ...]
"""Two devices of a host and the links that join them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One direction of a link, or both."""

    ends: tuple[Place, Place]
    name: str
    technology: Technology
    bandwidth: float
    latency: float
    links: int | None
    """That join a pair of devices; None if the file does not say."""

    @property
    def pair(self) -> tuple[int, int] | None:
        """Two devices of a host; None if something else is joined."""
        (one, _, first), (other, _, second) = self.ends
        return (min(first, second), max(first, second)) if one == other == DEVICE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A whole file."""

    file: str
    kinds: Mapping[Place, Kind]
    edges: tuple[Edge, ...]
    hosts: int
    devices: int
    """Of a host."""
    scopes: Mapping[str, Scope]
    """Of the kinds whose nodes say it."""
    attributes: Mapping[str, Any]
    """Of the whole graph."""


def parse(text: str, file: str) -> Content:
    """Return what the *text* of *file* holds.

    Raises
    ------
    InputError
        Not JSON, no node-link graph, or ids and attributes that our graph does not have.
    """
    raw = _raw(text, file)
    kinds = dict(_nodes(raw, file))
    hosts, devices = _size(kinds, file)
    attributes = raw.get("graph")
    return Content(
        file=file,
        kinds=kinds,
        edges=tuple(_edge(item, kinds, index, file) for index, item in enumerate(_links(raw) or [])),
        hosts=hosts,
        devices=devices,
        scopes={item["id"][0]: item["per"] for item in raw["nodes"] if item.get("per") in get_args(Scope)},
        attributes=attributes if isinstance(attributes, dict) else {},
    )


def _raw(text: str, file: str) -> Mapping[str, Any]:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON in line {error.lineno}: {error.msg}", file=file) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("nodes"), list) or _links(raw) is None:
        remedy = "a node-link graph has the lists 'nodes' and 'edges' (or 'links')"
        raise InputError("not a node-link graph", file=file, remedy=remedy)
    return raw


def _links(raw: Mapping[str, Any]) -> list[Any] | None:
    links = raw.get("edges", raw.get("links"))
    return links if isinstance(links, list) else None


def _size(kinds: Mapping[Place, Kind], file: str) -> tuple[int, int]:
    """Hosts, devices of each."""
    devices = [place for place in kinds if place[0] == DEVICE]
    if not devices:
        raise InputError(f"no node of kind {DEVICE!r}", file=file, key="nodes")
    hosts = 1 + max(host for _, host, _ in devices)
    per_host = 1 + max(index for _, _, index in devices)
    if len(devices) != hosts * per_host:
        problem = f"{len(devices)} devices, but hosts go to {hosts - 1} and indices to {per_host - 1}"
        raise InputError(problem, file=file, key="nodes", remedy="every host must have as many devices")
    return hosts, per_host


def _nodes(raw: Mapping[str, Any], file: str) -> Iterator[tuple[Place, Kind]]:
    for index, item in enumerate(raw["nodes"]):
        key = f"nodes[{index}]"
        place = _place(item.get("id") if isinstance(item, dict) else item, file, key)
        if item.get("kind") not in get_args(Kind):
            raise InputError("expected device, switch or nic", file=file, key=f"{key}.kind", value=item.get("kind"))
        yield place, item["kind"]


def _place(written: object, file: str, key: str) -> Place:
    if isinstance(written, list) and [type(part) for part in written] == [str, int, int]:
        return (written[0], written[1], written[2])
    remedy = "write an id like ['device', 0, 3]: kind, number of host (or pod, or 0), index in there"
    raise InputError("no id of our graph", file=file, key=key, value=written, remedy=remedy)


def _edge(item: object, kinds: Mapping[Place, Kind], index: int, file: str) -> Edge:
    key = f"edges[{index}]"
    if not isinstance(item, dict):
        raise InputError("expected source, target, bandwidth, latency", file=file, key=key, value=item)
    source, target = (_place(item.get(end), file, f"{key}.{end}") for end in ("source", "target"))
    for end in (source, target):
        if end not in kinds:
            raise InputError("no such node", file=file, key=key, value=list(end))
    for attribute, unit in (("bandwidth", "B/s above zero"), ("latency", "s")):
        value = item.get(attribute)
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise InputError(f"expected a number in {unit}", file=file, key=f"{key}.{attribute}", value=value)
    if item["bandwidth"] == 0:
        raise InputError("expected a number in B/s above zero", file=file, key=f"{key}.bandwidth", value=0)
    name = str(item.get("kind") or "-".join(sorted((source[0], target[0])))).split(":", maxsplit=1)[0]
    technology: Technology | None = item.get("technology")
    links = item.get("links")
    return Edge(
        ends=(source, target),
        name=name,
        technology=technology if technology and technology in get_args(Technology) else technology_of(name),
        bandwidth=float(item["bandwidth"]),
        latency=float(item["latency"]),
        links=links if isinstance(links, int) and links > 0 else None,
    )


def pairs_of(edges: Sequence[Edge]) -> Pairs:
    """Return pairs of devices and the links that join them: as written, else by the bandwidth of the narrowest."""
    between = [(edge.pair, edge) for edge in edges if edge.pair]
    narrowest = min((edge.bandwidth for _, edge in between), default=1.0)
    return tuple(sorted({(*pair, edge.links or round(edge.bandwidth / narrowest)) for pair, edge in between}))
