"""A cluster file in the making: node kinds and link kinds whose numbers know where they were read."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from simulator.world.catalog import Basis
from simulator.world.topology.cluster import Technology

__all__ = ["Figure", "Layout", "Link", "Node", "bandwidth", "cluster_text", "latency"]


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
    per: Literal["host", "pod", "cluster"]
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
    wiring: Literal["all", "spread", "pairs"]
    bandwidth: Figure
    latency: Figure
    efficiency: Figure | None = None
    technology: Technology = "other"
    pairs: tuple[tuple[int, int, int], ...] = ()

    def entry(self) -> dict[str, Any]:
        """As it is written in the file."""
        entry: dict[str, Any] = {
            "name": self.name,
            "technology": self.technology,
            "ends": list(self.ends),
            "wiring": self.wiring,
            "bandwidth": self.bandwidth.entry(),
        }
        if self.pairs:
            entry["pairs"] = [list(pair) for pair in self.pairs]
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
    remarks: tuple[str, ...] = field(default=())
    """For the head of the file."""


def cluster_text(layout: Layout, name: str, title: str, accelerator: str) -> str:
    """Return *layout* as the text of a cluster file."""
    content: dict[str, Any] = {"name": name, "title": title, "accelerator": accelerator, "hosts": layout.hosts}
    if layout.hosts_per_pod and layout.hosts_per_pod != layout.hosts:
        content["hosts_per_pod"] = layout.hosts_per_pod
    content["nodes"] = [node.entry() for node in layout.nodes]
    content["links"] = [link.entry() for link in layout.links]
    head = "\n".join(
        textwrap.fill(remark, 118, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
        for remark in layout.remarks
    )
    return head + "\n\n" + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
