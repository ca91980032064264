"""The catalogue's clusters, as far as rows of tables can tell them apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from simulator.world.catalog import accelerator
from simulator.world.document import data_directory
from simulator.world.topology.cluster import DEVICE, Cluster, LinkKind, load_cluster, shipped_clusters

__all__ = [
    "card_link", "cluster_called", "devices", "has_slots", "host_bandwidth", "hosts_of_cards", "model_of", "models",
    "names", "pcie_part", "sxm_part", "ways_out",
]  # fmt: skip

_PCIE: Final = {"volta": 15.75e9, "ampere": 31.5e9, "ada": 31.5e9}
"""x16 slot that a generation of GPUs fills, in one direction [B/s]: gen 3, 4."""
_PCIE_5: Final = 63e9


@cache
def names() -> Sequence[str]:
    """Clusters whose GPUs talk over NVLink, xGMI or PCIe; not the idealised one."""
    every = (path.stem for path in shipped_clusters())
    return [name for name in every if cluster_called(name).links[0].technology in ("nvlink", "xgmi", "pcie")]


@cache
def cluster_called(name: str) -> Cluster:
    """Return the cluster as the catalogue has it."""
    return load_cluster(name)


def model_of(part: str) -> str:
    """GPU model of a part, without form and memory.

    >>> model_of("a100-sxm-80gb"), model_of("rtx-pro-6000-96gb")
    ('a100', 'rtx-pro-6000')
    """
    return re.sub(r"(-(sxm|pcie|oam|nvl))?-\d+gb$", "", part)


@cache
def _parts() -> Sequence[str]:
    return sorted(path.stem for path in (data_directory("topologies") / "parts").glob("*.yaml"))


def models() -> Iterable[str]:
    """GPU models of the catalogue."""
    return {model_of(part) for part in _parts()}


def pcie_part(model: str) -> str | None:
    """Part of *model* that is a PCIe card, where there are both."""
    return next((part for part in _parts() if model_of(part) == model and "-pcie-" in part), None)


def sxm_part(model: str, memory: float) -> str | None:
    """Part of *model* that is a module with so much *memory* [B], if there is one."""
    return next((part for part in _parts() if part == f"{model}-sxm-{memory / 1e9:.0f}gb"), None)


def devices(name: str) -> int:
    """GPUs of a whole host."""
    return cluster_called(name).node(DEVICE).count


def has_slots(name: str) -> bool:
    """Whether the GPUs of a host talk over PCIe."""
    return cluster_called(name).links[0].technology == "pcie"


def hosts_of_cards(part: str) -> list[str]:
    """Clusters of PCIe cards of any model, in slots as fast as those that *part* fills."""
    rate = _PCIE.get(accelerator(part).generation, _PCIE_5)
    return [name for name in names() if has_slots(name) and cluster_called(name).links[0].nominal.value == rate]


def card_link(cluster: Cluster) -> LinkKind:
    """Link from the network cards into the network."""
    return next(
        link for link in cluster.links if _per_host(cluster, link.ends[0]) and not _per_host(cluster, link.ends[1])
    )


def host_bandwidth(cluster: Cluster) -> float:
    """Line rate of the cards of a whole host together [B/s]."""
    link = card_link(cluster)
    return link.nominal.value * cluster.node(link.ends[0]).count


def ways_out(cluster: Cluster) -> list[LinkKind]:
    """Links that carry traffic between hosts only: all but those that GPUs of a host talk over.

    The first link is that of the scale-up network or the slot; in hosts with NVLink, PCIe leads only to the cards.
    """
    return list(cluster.links[1:])


def _per_host(cluster: Cluster, node: str) -> bool:
    return cluster.node(node).per == "host"
