"""From the inventory of a host to node kinds and link kinds.

The shortest route wins, so the layout must not offer traffic between GPUs of a host a way over a network card that is
as short as the way that it really takes:

* GPUs with NVLink and a card (or several) each: ``device - nvswitch`` and ``device - nic``;
* GPUs joined in pairs: ``device - device``; two that no link joins are further apart, but no further than over cards;
* GPUs with NVLink that share cards: ``device - pcie_port - nic``, one link longer;
* GPUs on PCIe only: everything hangs on one node, ``device - pcie_switch - nic``.  A ring over all GPUs crosses the CPU
  interconnect once in each direction, so that is as wide as any link can be where there is one;
* GPUs that NVLink joins in groups (bridges): ``device - device`` within a group, and as on PCIe between them.
"""

from __future__ import annotations

import networkx as nx

from simulator.errors import InputError
from simulator.world.topology.cluster import Technology
from simulator.world.topology.imported.inventory import Inventory, Nic
from simulator.world.topology.imported.layout import Figure, Layout, Link, Node, bandwidth, latency
from simulator.world.topology.imported.links import PciLink, Rate, nvlink, xgmi

__all__ = ["host_layout"]

_US = 1e-6
_NVLINK_HOP, _PCI_HOP, _NET_HOP = 3.4 * _US, 5.7 * _US, 14 * _US
"""Latency of a step of Ring Simple over NVLink, PCI and NET (``ncclTunerConstantsDefaults``)."""
_WIRE = 1 * _US
"""Share of the network link, half of a small RDMA write from end to end."""

_FARTHEST = 3
"""NVLinks from a GPU to any other: the way over a shared card has four links."""

_VOLTA = 70
_SM_BY_LINKS = {4: 60, 6: _VOLTA, 12: 80, 18: 90}


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
        _add_scale_up(inventory, nodes, links)
    cards = inventory.compute_nics()
    if cards or _meet_on_pcie(inventory):
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
        nodes=tuple(nodes),
        links=tuple(links),
        library="rccl" if inventory.gcn else "nccl",
        cpu=inventory.cpu,
        remarks=(fabric if cards else "No network port: one host only.",),
    )


def _add_scale_up(inventory: Inventory, nodes: list[Node], links: list[Link]) -> None:
    if inventory.scale_up == "unknown":
        raise InputError(
            "the file does not say how GPUs are joined",
            file=inventory.file,
            remedy="name a part such as 'a100-sxm-40gb' (--accelerator), and its NVLinks are filled in",
        )
    if _is_direct(inventory):
        links.append(_pairs(inventory))
        return
    nodes.append(Node(name="nvswitch", kind="switch", per="host", count=1, note="all chips merged into one node"))
    links.append(_switched(inventory))


def _pairs(inventory: Inventory) -> Link:
    _check_pairs(inventory)
    nominal, efficiency = _one_link(inventory)
    kind: Technology = "xgmi" if inventory.gcn else "nvlink"
    at = f"One link; pairs {_origin(inventory)}"
    return Link(
        name=kind,
        technology=kind,
        ends=("device", "device"),
        wiring="pairs",
        pairs=inventory.pairs,
        bandwidth=Figure(value=bandwidth(nominal), basis="derived", source="nccl-topo", at=at),
        efficiency=efficiency,
        latency=_tuned(_NVLINK_HOP, "Hop latency Ring Simple over NVLink; a hop crosses one link"),
    )


def _switched(inventory: Inventory) -> Link:
    if len(set(inventory.nvlinks)) != 1:
        raise InputError(
            "GPUs have unequal numbers of NVLinks to the switch",
            file=inventory.file,
            key="nvlinks",
            value=list(inventory.nvlinks),
            remedy="dump the file again when all links are up",
        )
    links = inventory.nvlinks[0]
    nominal, efficiency = _one_link(inventory)
    where = f"{links} links of {nominal / 1e9:g} GB/s per GPU, {_origin(inventory)}"
    return Link(
        name="nvlink",
        technology="nvlink",
        ends=("device", "nvswitch"),
        wiring="all",
        bandwidth=Figure(value=bandwidth(links * nominal), basis="derived", source="nccl-topo", at=where),
        efficiency=efficiency,
        latency=_tuned(_NVLINK_HOP / 2, "Half of a hop of Ring Simple over NVLink, 3.4 us: a hop crosses two links"),
    )


def _origin(inventory: Inventory) -> str:
    return f"as {inventory.model} has" if "nvlinks" in inventory.filled else f"in {inventory.file}"


def _groups(inventory: Inventory) -> nx.Graph[int]:
    """GPUs and the links that join them in pairs."""
    joined: nx.Graph[int] = nx.Graph((first, second) for first, second, _ in inventory.pairs)
    joined.add_nodes_from(range(inventory.accelerators))
    return joined


def _check_pairs(inventory: Inventory) -> None:
    """Traffic of two GPUs must keep to NVLink where that joins them, however far apart they are."""
    joined = _groups(inventory)
    whole = nx.is_connected(joined)
    limit = _FARTHEST if whole else 1
    if any(nx.diameter(joined.subgraph(group)) > limit for group in nx.connected_components(joined)):
        ways = "more than three links apart" if whole else "joined in groups, and not every pair of a group"
        raise InputError(
            f"GPUs are {ways}: a way over PCIe would be as short",
            file=inventory.file,
            key="pairs",
            remedy="write the cluster file by hand",
        )


def _meet_on_pcie(inventory: Inventory) -> bool:
    """True if GPUs of a host reach each other over PCIe, all or some of them."""
    return inventory.scale_up == "pcie" or (_is_direct(inventory) and not nx.is_connected(_groups(inventory)))


def _is_direct(inventory: Inventory) -> bool:
    return inventory.scale_up in ("mesh", "partial mesh")


def _one_link(inventory: Inventory) -> tuple[float, Figure]:
    """Nominal bandwidth of one link [B/s], and what payload gets of it."""
    if inventory.gcn:
        rate, law = xgmi(inventory.gcn), f"RCCL's topo.h, {inventory.gcn}"
        return rate.nominal, Figure(value=rate.efficiency, basis="published", source="rccl-topo", at=_of(law, rate))
    sm = inventory.sm or _SM_BY_LINKS.get(inventory.nvlinks[0], 80)
    rate = nvlink(sm)
    if sm == _VOLTA:
        at = "All-reduces on 2 to 8 V100: 22.5 of 25 GB/s per link, where ncclTopoNVLinkBw says 20"
        return rate.nominal, Figure(value=0.9, basis="measured", source="vtrain", at=at)
    law = f"ncclTopoNVLinkBw, sm{sm}"
    return rate.nominal, Figure(value=rate.efficiency, basis="published", source="nccl-topo", at=_of(law, rate))


def _of(law: str, rate: Rate) -> str:
    return f"{law}: {rate.payload / 1e9:g} of {rate.nominal / 1e9:g} GB/s per link"


def _add_pcie(inventory: Inventory, cards: tuple[Nic, ...], nodes: list[Node], links: list[Link]) -> None:
    lane = inventory.pcie or PciLink(generation=4, width=16)
    to_card = _NET_HOP / 2 - _WIRE
    nic = Node(name="nic", kind="nic", per="host", count=len(cards))
    if _meet_on_pcie(inventory):
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
    ends = ("device", "pcie_switch")
    return Link(name="pcie", technology="pcie", ends=ends, wiring="all", bandwidth=width, latency=delay)


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
        technology="pcie",
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
    technology = cards[0].technology
    told = max(card.latency for card in cards)
    wire = "Half of the 2 us of a small RDMA write from end to end, out of NET's 14 us"
    ladder = "Speed ladder in search.cc: the channels of 25 GB/s found in logs carry 24, those of 50 carry 48"
    plain = "Ethernet without RDMA or without tuning: middle of 0.8 to 0.9"
    return Link(
        name="network",
        technology=technology,
        ends=("nic", "switch"),
        wiring="spread",
        bandwidth=Figure(
            value=bandwidth(speed or 0.0),
            basis="chosen" if given else "published",
            source="simulator" if given else "nccl-topo",
            at=f"Given when {inventory.file} was imported" if given else f"Port speed in {inventory.file}",
        ),
        efficiency=Figure(value=0.96, basis="derived", source="nccl-topo", at=ladder)
        if technology != "tcp"
        else Figure(value=0.85, basis="assumed", source="simulator", at=plain),
        latency=_tuned(_WIRE + told, f"{wire}, and {told / _US:g} us that the file tells NCCL" if told else wire),
    )


def _tuned(value: float, at: str) -> Figure:
    return Figure(value=latency(value), basis="derived", source="nccl-tuning", at=at)
