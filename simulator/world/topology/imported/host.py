"""From the inventory of a host to node kinds and link kinds.

The shortest route wins, so the layout must not offer traffic between GPUs of a host a way over a network card that is
as short as the way that it really takes:

* GPUs with NVLink and a card (or several) each: ``device - nvswitch`` and ``device - nic``;
* GPUs with NVLink that share cards: ``device - pcie_port - nic``, one link longer;
* GPUs on PCIe only: everything hangs on one node, ``device - pcie_switch - nic``.  A ring over all GPUs crosses the CPU
  interconnect once in each direction, so that is as wide as any link can be where there is one.
"""

from __future__ import annotations

from simulator.errors import InputError
from simulator.world.topology.imported.inventory import Inventory, Nic
from simulator.world.topology.imported.layout import Figure, Layout, Link, Node, bandwidth, latency
from simulator.world.topology.imported.links import PciLink, Rate, nvlink, xgmi

__all__ = ["host_layout"]

_US = 1e-6
_NVLINK_HOP, _PCI_HOP, _NET_HOP = 3.4 * _US, 5.7 * _US, 14 * _US
"""Latency of a step of Ring Simple over NVLink, PCI and NET (``ncclTunerConstantsDefaults``)."""
_WIRE = 1 * _US
"""Share of the network link, half of a small RDMA write from end to end."""

_SM_BY_LINKS = {4: 60, 6: 70, 12: 80, 18: 90}


def host_layout(inventory: Inventory) -> Layout:
    """Return the cluster of such hosts, their cards on one switch that never blocks.

    Raises
    ------
    InputError
        No cluster file can hold the layout, or the inventory lacks a number.
    """
    nodes = [Node(name="device", kind="device", per="host", count=inventory.accelerators)]
    links: list[Link] = []
    if inventory.scale_up not in ("pcie", "none"):
        node, link = _scale_up(inventory)
        nodes.append(node)
        links.append(link)
    cards = inventory.compute_nics()
    if cards or inventory.scale_up == "pcie":
        _add_pcie(inventory, cards, nodes, links)
    if cards:
        nodes.append(Node(name="switch", kind="switch", per="cluster", count=1, note="the file does not hold a fabric"))
        links.append(_network(inventory, cards))
    if not links:
        raise InputError(
            "one GPU and no network port: nothing to wire", file=inventory.file, remedy="use the catalogue's 'flat'"
        )
    fabric = "The fabric is not in that file: every port goes to one switch that never blocks."
    return Layout(
        nodes=tuple(nodes), links=tuple(links), remarks=(fabric if cards else "No network port: one host only.",)
    )


def _scale_up(inventory: Inventory) -> tuple[Node, Link]:
    links = _equal_links(inventory)
    rate, law = _link_rate(inventory)
    origin = f"as {inventory.model} has" if "nvlinks" in inventory.filled else f"in {inventory.file}"
    where = f"{links} links of {rate.nominal / 1e9:g} GB/s per GPU, {origin}"
    kind = "xgmi" if inventory.gcn else "nvlink"
    if inventory.scale_up == "mesh":
        pair = links // (inventory.accelerators - 1)
        note = (
            f"{pair} direct links per pair, merged: right for collectives of all GPUs of a host; two GPUs alone have "
            f"{pair * rate.nominal / 1e9:g} GB/s"
        )
        node = Node(name="mesh", kind="switch", per="host", count=1, note=note)
    else:
        node = Node(name="nvswitch", kind="switch", per="host", count=1, note="all chips merged into one node")
    return node, Link(
        name=kind,
        ends=("device", node.name),
        wiring="all",
        bandwidth=Figure(value=bandwidth(links * rate.nominal), basis="derived", source="nccl-topo", at=where),
        efficiency=Figure(value=rate.efficiency, basis="published", source="nccl-topo", at=law),
        latency=_tuned(_NVLINK_HOP / 2, "Half of a hop of Ring Simple over NVLink, 3.4 us: a hop crosses two links"),
    )


def _equal_links(inventory: Inventory) -> int:
    if inventory.scale_up == "unknown":
        raise InputError(
            "the file does not say how GPUs are joined",
            file=inventory.file,
            remedy="name an NVIDIA part, such as 'a100-sxm-40gb' (--accelerator), and its NVLinks are filled in",
        )
    if inventory.scale_up == "partial mesh" or len(set(inventory.nvlinks)) != 1:
        raise InputError(
            "NVLinks join only some pairs of GPUs (cube mesh, bridges) or not all pairs alike; a cluster file wires "
            "kinds of nodes, not single pairs",
            file=inventory.file,
            key="nvlinks",
            remedy="write the cluster file by hand with one switch, a port of the links that the rings can use",
        )
    return inventory.nvlinks[0]


def _link_rate(inventory: Inventory) -> tuple[Rate, str]:
    if inventory.gcn:
        rate = xgmi(inventory.gcn)
        return rate, f"RCCL's topo.h, {inventory.gcn}: {rate.payload / 1e9:g} of {rate.nominal / 1e9:g} GB/s per link"
    sm = inventory.sm or _SM_BY_LINKS.get(inventory.nvlinks[0], 80)
    rate = nvlink(sm)
    return rate, f"ncclTopoNVLinkBw, sm{sm}: {rate.payload / 1e9:g} of {rate.nominal / 1e9:g} GB/s per link"


def _add_pcie(inventory: Inventory, cards: tuple[Nic, ...], nodes: list[Node], links: list[Link]) -> None:
    lane = inventory.pcie or PciLink(generation=4, width=16)
    to_card = _NET_HOP / 2 - _WIRE
    nic = Node(name="nic", kind="nic", per="host", count=len(cards))
    if inventory.scale_up == "pcie":
        nodes.append(_bridge(inventory))
        links.append(_to_bridge(inventory, lane))
        if cards:
            rest = "What the other links of a route between hosts leave of NET's 14 us, halved"
            delay = _tuned(to_card - _PCI_HOP / 2, rest)
            nodes.append(nic)
            links.append(_lanes(inventory, "host_bridge", ("pcie_switch", "nic"), lane, delay))
        return
    _check_spread(inventory, cards)
    delay = _tuned(to_card, "Hop latency Ring Simple over NET, 14 us, less 2 x 1 us of the network links, halved")
    if len(cards) >= inventory.accelerators:
        nodes.append(nic)
        each = len(cards) // inventory.accelerators
        links.append(_lanes(inventory, "pcie", ("device", "nic"), lane, delay, shared_by=each))
        return
    note = "the GPU's slot; keeps traffic between GPUs off the cards that they share"
    nodes += [Node(name="pcie_port", kind="switch", per="host", count=inventory.accelerators, note=note), nic]
    links.append(_lanes(inventory, "pcie", ("device", "pcie_port"), lane, delay))
    links.append(_lanes(inventory, "host_bridge", ("pcie_port", "nic"), lane, _tuned(0.0, "Counted in pcie")))


def _bridge(inventory: Inventory) -> Node:
    many = f"{len(inventory.switches)} switches and {inventory.cpus} CPUs, merged into one node"
    return Node(name="pcie_switch", kind="switch", per="host", count=1, note=many if _crosses(inventory) else "")


def _crosses(inventory: Inventory) -> bool:
    """True if traffic between GPUs crosses a CPU."""
    return (0 if not inventory.switches else len(inventory.switches[0])) < inventory.accelerators


def _to_bridge(inventory: Inventory, lane: PciLink) -> Link:
    delay = _tuned(_PCI_HOP / 2, "Half of a hop of Ring Simple over PCI, 5.7 us: a hop crosses two links")
    narrow = inventory.cpu_interconnect or 10e9
    if not _crosses(inventory) or inventory.cpus < 2 or narrow >= lane.rate.payload:
        return _lanes(inventory, "pcie", ("device", "pcie_switch"), lane, delay)
    at = f"Between CPUs, as NCCL reckons for those of {inventory.file}; a ring over all GPUs crosses it"
    width = Figure(value=bandwidth(narrow), basis="published", source="nccl-topo", at=at)
    return Link(name="pcie", ends=("device", "pcie_switch"), wiring="all", bandwidth=width, latency=delay)


def _lanes(
    inventory: Inventory, name: str, ends: tuple[str, str], lane: PciLink, delay: Figure, shared_by: int = 1
) -> Link:
    rate = lane.rate
    shared = f", shared by {shared_by} ports" if shared_by > 1 else ""
    origin = f"as {inventory.model} has" if "pcie" in inventory.filled else f"in {inventory.file}"
    origin = origin if inventory.pcie else f"taken as usual, not in {inventory.file}"
    at = f"Gen{lane.generation} x{lane.width}{shared}, {origin}"
    law = (
        f"ncclTopoAddPci: {rate.payload / 1e9:g} of {rate.nominal / 1e9:g} GB/s for gen{lane.generation} x{lane.width}"
    )
    return Link(
        name=name,
        ends=ends,
        wiring="spread",
        bandwidth=Figure(value=bandwidth(rate.nominal / shared_by), basis="derived", source="pci-express", at=at),
        efficiency=Figure(value=rate.efficiency, basis="published", source="nccl-topo", at=law),
        latency=delay,
    )


def _check_spread(inventory: Inventory, cards: tuple[Nic, ...]) -> None:
    """Cards in equal blocks must go to the GPUs that they are near to."""
    gpus, ports = inventory.accelerators, len(cards)
    remedy = "write the cluster file by hand, with the ports that the job will use"
    if max(gpus, ports) % min(gpus, ports):
        problem = f"{gpus} GPUs and {ports} network ports do not share out evenly"
        raise InputError(problem, file=inventory.file, key="nics", remedy=remedy)
    near = {gpu: {card.name for card in cards if gpu in card.near} for gpu in range(gpus)}
    for gpu, names in near.items():
        first = gpu * ports // gpus
        mine = {card.name for card in cards[first : max(first + 1, (gpu + 1) * ports // gpus)]}
        if names and not mine & names:
            problem = f"GPU {gpu} is nearest to {', '.join(sorted(names))}, not to {', '.join(sorted(mine))}"
            raise InputError(problem, file=inventory.file, key="nics", remedy=remedy)


def _network(inventory: Inventory, cards: tuple[Nic, ...]) -> Link:
    speeds = {card.speed for card in cards}
    if None in speeds:
        raise InputError(
            "the file does not say how fast the network ports are",
            file=inventory.file,
            key="nics",
            remedy="give their speed, such as '200 Gbit/s' (--nic-speed)",
        )
    if len(speeds) > 1:
        shown = ", ".join(f"{speed / 1e9:g} GB/s" for speed in sorted(speed for speed in speeds if speed))
        remedy = "delete the ports that the job will not use from a copy of the file"
        raise InputError(f"network ports of different speed: {shown}", file=inventory.file, key="nics", remedy=remedy)
    (speed,) = speeds
    given = "nics" in inventory.filled
    rdma = all(card.rdma for card in cards)
    ladder = "Speed ladder in search.cc: the channels of 25 GB/s found in logs carry 24, those of 50 carry 48"
    plain = "Ethernet without RDMA or without tuning: middle of 0.8 to 0.9"
    return Link(
        name="network",
        ends=("nic", "switch"),
        wiring="spread",
        bandwidth=Figure(
            value=bandwidth(speed or 0.0),
            basis="chosen" if given else "published",
            source="simulator" if given else "nccl-topo",
            at=f"Given when {inventory.file} was imported" if given else f"Port speed in {inventory.file}",
        ),
        efficiency=Figure(value=0.96, basis="derived", source="nccl-topo", at=ladder)
        if rdma
        else Figure(value=0.85, basis="assumed", source="simulator", at=plain),
        latency=_tuned(_WIRE, "Half of the 2 us of a small RDMA write from end to end, out of NET's 14 us"),
    )


def _tuned(value: float, at: str) -> Figure:
    return Figure(value=latency(value), basis="derived", source="nccl-tuning", at=at)
