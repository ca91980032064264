r"""Copies between a device, the memory of its host and drives, and updates on the CPU.

A copy of S bytes by each of the g devices in use on a host loads the PCIe link of the device with S, where messages to
the network compete with it, and what leads to the host's memory with g S:

.. math:: t = \lambda + \max\left(\frac{S}{B_{link}}, \frac{g S}{B_{uplink}}\right)

Reading from and writing to NVMe loads the drives of the host with g S.  Memory that is not pinned is staged by the
driver, which bounds the rate of a device's copy.

An update on the CPU is bound by the memory: all g ranks of a host work at the same time, so with Q bytes read and
written per parameter, n parameters per rank and the fraction e of the bandwidth B that the code reaches,

.. math:: t = \frac{g \, n \, Q}{e B}

Adam in fp32 reads the gradient and reads and writes the parameter and both moments: Q = 28 B (Ren et al. 2021,
"ZeRO-Offload", arXiv:2101.06840, section 5; Rajbhandari et al. 2021, "ZeRO-Infinity", arXiv:2104.07857, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from simulator.laws.collectives.fabric import Link, Phase
from simulator.world.server import Server
from simulator.world.topology.cluster import DEVICE, Cluster
from simulator.world.topology.graph import device, kind_of_link
from simulator.world.topology.mixed import host_types, type_of
from simulator.world.topology.servers import device_link, server_of

__all__ = ["ADAM_BYTES", "CAST_BYTES", "SCALE_BYTES", "HostLinks", "Route", "Transfer", "cpu_time"]

ADAM_BYTES: Final = 28
"""definition: fp32 gradient read, parameter, momentum and variance read and written [B per parameter]."""
SCALE_BYTES: Final = 8
"""definition: an fp32 gradient read and written [B per parameter]."""
CAST_BYTES: Final = 6
"""definition: fp32 read, 16 bits written [B per parameter]."""

Route = Literal["to_host", "to_device", "nvme_read", "nvme_write"]
"""From a device to its host's memory and back; from drives to that memory and back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy of a program that leaves or reaches the memory of the host."""

    route: Route
    amount: float
    """Of each rank [B]."""
    role: str
    """What it is for, as reports name it: ``gradients_to_host``, ..."""
    pinned: bool = True


def cpu_time(amount: float, server: Server, sharers: int, *, torch: bool = False) -> float:
    """Time in which each of *sharers* ranks of a host reads and writes *amount* bytes in CPU kernels [s].

    Parameters
    ----------
    torch
        Kernels are PyTorch's, one operation after the other, and not DeepSpeed's.
    """
    fraction = server.torch_adam if torch else server.adam
    return sharers * amount / (fraction.value * server.memory_bandwidth.value)


@final
class HostLinks:
    """Links of the hosts to their memory and drives, numbered behind those of a fabric.

    Parameters
    ----------
    cluster
        Whose devices copy.
    links
        Of the fabric: one per kind and class of ranks, or every single one.
    classes
        Type of the hosts of each class, one rank of which stands for all; None: each rank is simulated.
    """

    def __init__(self, cluster: Cluster, links: Sequence[Link], classes: Sequence[int] | None) -> None:
        self._cluster, self._classes = cluster, classes
        self._everyone = classes is None
        self._types = host_types(cluster)
        self._numbers: dict[tuple[str, int], int] = {}
        self._fabric = {link.ends or link.name: number for number, link in enumerate(links)}
        self._links = list(links)
        for place in range(cluster.hosts if classes is None else len(classes)):
            self._add_host(place, server_of(self._types[self._type_at(place)]))

    @property
    def links(self) -> tuple[Link, ...]:
        """Those of the fabric, then those of the hosts."""
        return tuple(self._links)

    def phase(self, transfer: Transfer, rank: int, part: int) -> Phase:
        """Usage of links by *transfer* of *rank*, or of all ranks of class *part*."""
        place = rank // self._cluster.accelerators_per_host if self._everyone else part
        carried = {self._numbers[transfer.route, place]: transfer.amount}
        found, latency = server_of(self._types[self._type_at(place)]), 0.0
        if transfer.route in ("to_host", "to_device"):
            ways = self._device_links(transfer.route, rank, place)
            carried |= dict.fromkeys(ways, transfer.amount / len(ways)) if ways else {}
            latency = found.copy_latency.value
        busiest = max(carried, key=lambda link: carried[link] / self._links[link].bandwidth)
        payload, rate = carried[busiest], self._links[busiest].bandwidth
        if not transfer.pinned:
            rate = min(rate, found.pageable.value * payload / transfer.amount)
        usage = tuple((link, amount / payload) for link, amount in sorted(carried.items()))
        return Phase(payload=payload, usage=usage, latency=latency, rate=rate)

    def _type_at(self, place: int) -> int:
        return type_of(self._cluster, place) if self._classes is None else self._classes[place]

    def _add_host(self, place: int, found: Server) -> None:
        # one rank that stands for all has its share, so that a copy weighs as much as a message on the device's link
        sharers = 1 if self._everyone else self._cluster.accelerators_per_host
        self._add("to_host", place, "host", found.uplink.value / sharers)
        self._add("to_device", place, "host", found.uplink.value / sharers)
        self._add("nvme_read", place, "nvme", found.nvme_read.value / sharers)
        self._add("nvme_write", place, "nvme", found.nvme_write.value / sharers)
        if found.device_link is not None:
            devices = self._cluster.accelerators_per_host
            for index in range(place * devices, (place + 1) * devices) if self._everyone else [place]:
                self._add("device to_host", index, "device_link", found.device_link.value)
                self._add("device to_device", index, "device_link", found.device_link.value)

    def _add(self, what: str, place: int, kind: str, bandwidth: float) -> None:
        self._numbers[what, place] = len(self._links)
        part = 0 if self._everyone else place
        self._links.append(Link(name=f"{kind} {what} of {place}", kind=kind, bandwidth=bandwidth, part=part))

    def _device_links(self, route: str, rank: int, place: int) -> list[int]:
        """Numbers of the links between a device and what leads to the memory; none if the uplink is all there is."""
        own = (f"device {route}", rank if self._everyone else place)
        if own in self._numbers:
            return [self._numbers[own]]
        link = device_link(self._types[self._type_at(place)])
        if link is None:
            return []
        if self._everyone:
            ends = [ends for ends in self._fabric if isinstance(ends, tuple) and ends]
            at = 0 if route == "to_host" else 1
            mine = [
                pair for pair in ends if pair[at] == device(self._cluster, rank) and pair[1 - at][0] == link.ends[1]
            ]
            return [self._fabric[pair] for pair in mine]
        name = kind_of_link(link, DEVICE if route == "to_host" else link.ends[1])
        of_class = f"{name} of class {place}"
        return [self._fabric[of_class if of_class in self._fabric else name]]
