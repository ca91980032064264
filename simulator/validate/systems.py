"""From what a table says of a machine to a cluster of the catalogue.

A row names its GPU, often an instance, sometimes only cards: "8x200G TCPXO".  Candidates are the clusters of that GPU.
The best is one that is named; else of the same provider, kind of network, GPUs per host, bandwidth, memory; else a
plain server.  If the row states another bandwidth than the cluster has, the row wins; then all links that lead only
out of the host grow with the cards, because hosts are built to feed them.

In an NVL72 all 72 GPUs are one host here, while tables count its trays as nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simulator.errors import InputError
from simulator.units import Bandwidth
from simulator.validate import words
from simulator.validate.clusters import (
    card_link,
    cluster_called,
    devices,
    has_slots,
    host_bandwidth,
    hosts_of_cards,
    model_of,
    models,
    names,
    pcie_part,
    sxm_part,
    ways_out,
)
from simulator.world.measurements.collectives import Measurement
from simulator.world.topology.cluster import Cluster, LinkOverride, Technology, load_cluster

__all__ = ["Place", "hosts_of", "place"]

RACK: Final = 36
"""A cluster with so many devices per host describes racks, not trays."""

LARGEST_HOST: Final = 8
"""So many GPUs are taken for one host if a row does not count nodes."""

SAME: Final = 0.02
"""Bandwidths that differ by less are the same, rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row is run in the simulator."""

    cluster: str
    hosts: int
    per_host: int
    """GPUs in use."""
    accelerator: str | None = None
    """Part of the catalogue, if not the cluster's own."""
    network: float = 1.0
    """Bandwidth of the cards over that of the catalogue's."""
    assumed: tuple[str, ...] = ()
    """What the row does not say."""

    def load(self) -> Cluster:
        """Load the cluster with what the row says of its network."""
        catalogued = cluster_called(self.cluster)
        changed = ways_out(catalogued) if self.network > 1 else [card_link(catalogued)]
        return load_cluster(
            self.cluster,
            hosts=self.hosts,
            accelerators_per_host=self.per_host,
            accelerator_name=self.accelerator,
            overrides={
                link.name: LinkOverride(bandwidth=Bandwidth(link.nominal.value * self.network))
                for link in changed
                if self.network != 1
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What helps to choose a cluster."""

    model: str
    named: Sequence[str]
    provider: str | None
    technology: Technology | None
    network: float | None
    """Of a node [B/s]."""
    memory: float | None
    """Of a GPU [B]."""
    host_size: int | None
    """GPUs of a node."""
    whole: bool
    """Whether the row itself says so."""
    used: int
    """GPUs of a node that took part."""
    pcie: bool


def place(measured: Measurement, host_size: int | None = None, *, assume: bool = False) -> Place:
    """Find the cluster that *measured* ran on.

    Parameters
    ----------
    measured
        A row.
    host_size
        GPUs of a whole host where the table tells; the row itself may have used fewer.
    assume
        Take the GPU's reference host where the network is not stated.

    Raises
    ------
    InputError
        Why there is none.
    """
    nodes = hosts_of(measured)
    _refuse(measured, nodes)
    said = _said(measured, host_size, nodes)
    best = min(_pool(said), key=lambda name: _distance(name, said))
    full, ranks = devices(best), said.used * nodes
    hosts = _racks(ranks, full) if full >= RACK else nodes
    unknown = hosts > 1 and said.network is None and not _tells_network(best, said)
    if unknown and not assume:
        raise InputError("network between hosts not stated")
    trays = full / (measured.per_node or said.used) if full >= RACK else 1.0
    return Place(
        cluster=best,
        hosts=hosts,
        per_host=ranks // hosts,
        accelerator=_part(best, said),
        network=_factor(best, said.network, trays) if hosts > 1 else 1.0,
        assumed=("network",) if unknown else (),
    )


def hosts_of(measured: Measurement) -> int:
    """Nodes as the table counts them.

    Raises
    ------
    InputError
        The row does not say.
    """
    if measured.ranks is None:
        raise InputError("number of GPUs not stated")
    nodes = measured.nodes or (-(-measured.ranks // measured.per_node) if measured.per_node else None)
    if nodes is None and measured.ranks <= LARGEST_HOST and "multi" not in measured.system.lower():
        nodes = 1
    if nodes is None:
        raise InputError("number of hosts not stated")
    if measured.ranks % nodes:
        raise InputError("GPUs do not divide among the hosts")
    return nodes


def _refuse(measured: Measurement, nodes: int) -> None:
    """Refuse what the row itself says is no measure of this network."""
    said = f"{measured.text} {measured.settings}"
    remarks = f"{said} {measured.notes}"
    if words.is_bridged(measured.text):
        raise InputError("cards with NVLink bridges, which no cluster of the catalogue describes")
    if words.is_misconfigured(remarks):
        raise InputError("misconfigured, says the source")
    if nodes > 1 and words.is_sockets(said):
        raise InputError("over TCP sockets, which no cluster of the catalogue describes")
    if nodes > 1 and words.is_shared(remarks):
        raise InputError("on a network shared with others, says the source")


def _said(measured: Measurement, host_size: int | None, nodes: int) -> _Said:
    text = measured.text
    named = words.named_in(text, names())
    model = words.model_in(measured.gpu, models()) or words.model_in(text, models())
    if model is None and named:
        model = model_of(cluster_called(named[0]).accelerator.name)
    if model is None:
        raise InputError(f"{measured.gpu} is not in the catalogue" if measured.gpu else "GPU not stated")
    memory = re.search(r"(?<![\dx])(\d+)\s*GB", text)
    return _Said(
        model=model,
        named=named,
        provider=words.provider_in(f"{text} {measured.publication}"),
        technology=words.technology_in(text),
        network=measured.network or words.network_in(text),
        memory=float(memory[1]) * 1e9 if memory else None,
        host_size=max(measured.per_node or 0, host_size or 0) or None,
        whole=measured.per_node is not None,
        used=(measured.ranks or 0) // nodes,
        pcie=words.says_pcie(text),
    )


def _pool(said: _Said) -> Sequence[str]:
    """Clusters of the GPU; for a PCIe card also hosts of other cards, if their slots are as fast."""
    model = _stand_in(said.model)
    alike = [name for name in names() if model_of(cluster_called(name).accelerator.name) == model]
    carded = [name for name in alike if has_slots(name)]
    part = pcie_part(model)
    if said.pcie:
        alike = carded or (hosts_of_cards(part) if part else [])
    else:
        alike = [name for name in alike if name not in carded] or carded
    fitting = [name for name in alike if _fits(name, said)]
    if not fitting:
        size = f"{said.host_size or said.used} " if alike else ""
        raise InputError(f"no host with {size}{said.model.upper()}{' on PCIe' * said.pcie} in the catalogue")
    return [name for name in fitting if name in said.named] or fitting


def _stand_in(model: str) -> str:
    """GPU with the same links between devices, where the catalogue does not have *model*."""
    return model if model in models() else words.RELATED.get(model, model)


def _fits(name: str, said: _Said) -> bool:
    """Whether a host has enough GPUs; where they are joined in pairs, part of a larger host is another network."""
    exact = said.whole and cluster_called(name).direct is not None
    return devices(name) == said.host_size if exact else devices(name) >= said.used


def _distance(name: str, said: _Said) -> tuple[float | str, ...]:
    """How far a cluster is from what was said, the weightiest difference first."""
    cluster = cluster_called(name)
    memory = cluster.accelerator.memory.value
    return (
        said.provider is not None and not name.startswith(f"{said.provider}-"),
        said.technology is not None and card_link(cluster).technology != said.technology,
        said.host_size is not None and devices(name) != said.host_size,
        round(abs(math.log(said.network / host_bandwidth(cluster))), 2) if said.network else 0.0,
        not name.startswith(("dgx-", "hgx-")),
        abs(memory - said.memory) if said.memory else -memory,
        name,
    )


def _racks(ranks: int, full: int) -> int:
    """Fewest equal racks that hold *ranks*."""
    return next(count for count in range(-(-ranks // full), ranks + 1) if ranks % count == 0)


def _tells_network(name: str, said: _Said) -> bool:
    """Whether the row names the very machine: by instance, or by provider where that has one with such GPUs."""
    if _stand_in(said.model) != said.model:
        return False
    offered = [other for other in _pool(said) if said.provider and other.startswith(f"{said.provider}-")]
    return name in said.named or offered == [name]


def _part(name: str, said: _Said) -> str | None:
    """Part to put into the host's slots, where it is described with another card or another memory."""
    described = cluster_called(name).accelerator
    if said.pcie:
        part = pcie_part(said.model)
    else:
        part = None if said.memory in (None, described.memory.value) else sxm_part(said.model, said.memory)
    return part if part != described.name else None


def _factor(name: str, stated: float | None, trays: float) -> float:
    """Bandwidth of a host as the row states it, over the catalogue's."""
    if stated is None:
        return 1.0
    factor = stated * trays / host_bandwidth(cluster_called(name))
    return 1.0 if abs(factor - 1) < SAME else factor
