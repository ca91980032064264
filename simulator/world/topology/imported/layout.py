"""A cluster file in the making: node kinds and link kinds whose numbers know where they were read."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from simulator.world.catalog import Basis
from simulator.world.topology.cluster import Library, Scope, Technology, Wiring

__all__ = ["Cpu", "Figure", "Layout", "Link", "Node", "bandwidth", "cluster_text", "latency"]

Cpu = Literal["intel", "amd", "arm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of a cluster file."""

    value: str | float
    basis: Basis
    source: str
    """Key of ``topologies/sources.yaml``."""
    at: str

    def entry(self) -> dict[str, Any]:
        """As it is written in the file."""
        return {"value": self.value, "basis": self.basis, "source": self.source, "at": self.at}


def bandwidth(value: float) -> str:
    """Write *value* [B/s] as the border wants it.

    >>> bandwidth(22.5e9), bandwidth(429496729600.0)
    ('22.5 GB/s', '429.4967296 GB/s')
    """
    return f"{value / 1e9:.12g} GB/s"


def latency(value: float) -> str:
    """Write *value* [s] as the border wants it."""
    return f"{value * 1e6:.12g} us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An entry of ``nodes``."""

    name: str
    kind: Literal["device", "switch", "nic"]
    per: Scope
    count: int
    note: str = ""

    def entry(self) -> dict[str, Any]:
        """As it is written in the file."""
        plain = {"name": self.name, "kind": self.kind, "per": self.per, "count": self.count}
        return plain | ({"note": self.note} if self.note else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An entry of ``links``."""

    name: str
    ends: tuple[str, str]
    wiring: Wiring
    technology: Technology
    bandwidth: Figure
    latency: Figure
    efficiency: Figure | None = None
    pairs: tuple[tuple[int, int, int], ...] = ()
    """Of ``wiring: pairs``: device, device, links."""

    def entry(self) -> dict[str, Any]:
        """As it is written in the file."""
        entry: dict[str, Any] = {
            "name": self.name,
            "technology": self.technology,
            "ends": self.ends,
            "wiring": self.wiring,
        }
        if self.pairs:
            entry["pairs"] = list(self.pairs)
        entry["bandwidth"] = self.bandwidth.entry()
        if self.efficiency:
            entry["efficiency"] = self.efficiency.entry()
        return entry | {"latency": self.latency.entry()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Nodes and links of a cluster file."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    hosts: int = 1
    hosts_per_pod: int | None = None
    hosts_per_zone: int | None = None
    library: Library = "nccl"
    """What the format takes for granted."""
    cpu: Cpu | None = None
    """Vendor of the CPUs; None if the file does not say."""
    remarks: tuple[str, ...] = field(default=())
    """For the head of the file."""


def cluster_text(layout: Layout, name: str, title: str, accelerator: str) -> str:
    """Return *layout* as the text of a cluster file."""
    content: dict[str, Any] = {"name": name, "title": title, "accelerator": accelerator, "library": layout.library}
    content |= {"cpu": layout.cpu} if layout.cpu else {}
    content["hosts"] = layout.hosts
    for key, hosts in (("hosts_per_pod", layout.hosts_per_pod), ("hosts_per_zone", layout.hosts_per_zone)):
        content |= {key: hosts} if hosts and hosts != layout.hosts else {}
    content["nodes"] = [node.entry() for node in layout.nodes]
    content["links"] = [link.entry() for link in layout.links]
    head = "\n".join(
        textwrap.fill(remark, 118, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
        for remark in layout.remarks
    )
    return head + "\n\n" + yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Writes tuples on one line, as the catalogue does."""


_Dumper.add_representer(
    tuple, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True)
)
