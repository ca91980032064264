"""NCCL's and RCCL's topology XML: what ``NCCL_TOPO_DUMP_FILE`` writes and cloud images ship.

Read as ``src/graph/xml.cc`` and ``src/graph/topo.cc`` of NCCL do: a ``pci`` of class GPU is a GPU and one of class
network is a card, whether or not they have children; direct links that both ends list count once; chips of NVSwitch
are one switch; a ``net`` without ``dev`` does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from simulator.errors import InputError
from simulator.world.topology.cluster import Technology
from simulator.world.topology.imported.inventory import (
    DISTANCES,
    Inventory,
    ScaleUp,
    Seen,
    is_full_mesh,
    nics,
    rails,
    technology_of_port,
)
from simulator.world.topology.imported.layout import Cpu
from simulator.world.topology.imported.links import PciLink, cpu_interconnect, part_of_pci_device

__all__ = ["read"]

FORMAT = "NCCL topology XML"

_GPU_CLASSES, _NIC_CLASSES, _BRIDGES, _NVSWITCH = ("0x03", "0x12"), ("0x02",), ("0x0604",), "0x068000"
_BROADCOM = "0x1000"
_NVIDIA, _AMD = "0x10de", "0x1002"
_AMAZON = "0x1d0f"
_NIC_VENDORS = ("0x15b3", _AMAZON, "0x14e4", "0x1dd8")  # Mellanox, Broadcom, Pensando
_ETHERNET = "0x0200"
_NO_SPEED = 10_000  # Mb/s that NCCL takes for a port of speed 0
_MBIT = 1e6 / 8


@dataclass(slots=True, kw_only=True)
class _Device:
    """A GPU or a card and where it hangs: CPU, then bridges from the root down."""

    element: ET.Element
    cpu: int
    bridges: tuple[str, ...]
    gpu: int = 0

    @property
    def bus(self) -> str:
        return self.element.get("busid", "").lower()


@dataclass(slots=True, kw_only=True)
class _Found:
    """What one walk over the tree found."""

    gpus: list[_Device] = field(default_factory=list)
    cards: list[_Device] = field(default_factory=list)
    """``pci`` of a network card, or a ``nic`` that hangs at a CPU."""
    nvswitches: set[str] = field(default_factory=set)
    buses: set[str] = field(default_factory=set)


def read(text: str, file: str) -> Inventory:
    """Read the *text* of a topology XML; *file* is its name.

    Raises
    ------
    InputError
        Not XML, not a topology, no GPU in it, or a value that is not a number.
    """
    root = _parse(text, file)
    cpus = root.findall("cpu")
    found = _Found()
    for index, cpu in enumerate(cpus):
        _walk(cpu, index, (), found)
    if not found.gpus:
        raise InputError("no GPU in this topology", file=file, remedy="dump it on a host whose GPUs NCCL sees")
    _number_gpus(found.gpus, file)
    notes: list[str] = []
    links, switched, scale_up = _scale_up(found, file, notes)
    seen = list(_ports(found, file, notes))
    model, sm, gcn = _kind(found.gpus, file)
    ports = nics(seen)
    return Inventory(
        file=file,
        format=FORMAT,
        accelerators=len(found.gpus),
        scale_up=scale_up,
        model=model,
        sm=sm,
        gcn=gcn,
        nvlinks=() if scale_up == "unknown" else _per_gpu(len(found.gpus), links, switched),
        pairs=tuple((a, b, count) for (a, b), count in sorted(links.items())),
        pcie=_narrowest(found.gpus),
        switches=_switches(found.gpus),
        nics=ports,
        rails=rails(ports),
        cpus=len({gpu.cpu for gpu in found.gpus}),
        cpu_interconnect=_between(cpus, file),
        cpu=_vendor(cpus),
        notes=tuple(notes),
    )


def _parse(text: str, file: str) -> ET.Element:
    bare = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip()  # NCCL survives "--" in a comment, XML does not
    try:
        root = ET.fromstring(bare)
    except ET.ParseError as error:
        remedy = "a file cut off in the middle cannot be used"
        raise InputError(f"not valid XML: {error}", file=file, remedy=remedy) from None
    if root.tag == "graphs":
        raise InputError(
            "an NCCL graph file (the rings and trees that NCCL chose), not a topology",
            file=file,
            value="<graphs>",
            remedy="import the file that NCCL_TOPO_DUMP_FILE writes, with the root <system>",
        )
    if root.tag != "system":
        raise InputError("expected the root <system> of a topology", file=file, value=f"<{root.tag}>")
    return root


def _walk(parent: ET.Element, cpu: int, bridges: tuple[str, ...], found: _Found) -> None:
    for child in parent:
        if child.tag == "nic":
            found.cards.append(_Device(element=child, cpu=cpu, bridges=bridges))
        elif child.tag == "pci":
            device = _Device(element=child, cpu=cpu, bridges=bridges)
            what = _what(child)
            found.buses.add(device.bus)
            if what == "gpu":
                found.gpus.append(device)
            elif what == "nic":
                found.cards.append(device)
            elif what == "nvswitch":
                found.nvswitches.add(device.bus)
            else:
                _walk(child, cpu, _below(child, bridges), found)


def _what(pci: ET.Element) -> str:
    """Tell by class; where it is missing, by children and vendor."""
    kind, vendor = pci.get("class", "").lower(), pci.get("vendor", "").lower()
    if pci.find("gpu") is not None or kind.startswith(_GPU_CLASSES):
        return "gpu"
    if pci.find("nic") is not None or kind.startswith(_NIC_CLASSES):
        return "nic"
    if kind == _NVSWITCH:
        return "nvswitch"
    if kind or pci.find("pci") is not None:
        return "bridge"
    return "gpu" if vendor in (_NVIDIA, _AMD) else "nic" if vendor in _NIC_VENDORS else "bridge"


def _below(pci: ET.Element, bridges: tuple[str, ...]) -> tuple[str, ...]:
    """Bridges above the children of *pci*; of stacked Broadcom bridges, which are one switch, only the first."""
    vendor = pci.get("vendor", "").lower()
    stacked = bridges and vendor == _BROADCOM and bridges[-1].startswith(_BROADCOM)
    return bridges if stacked else (*bridges, f"{vendor}/{pci.get('busid', '').lower()}")


def _number_gpus(gpus: list[_Device], file: str) -> None:
    """Put them in the order of ``dev``, of the bus where a file has none (as CUDA_DEVICE_ORDER=PCI_BUS_ID does)."""
    numbers: dict[str, int] = {}
    for gpu in gpus:
        child = gpu.element.find("gpu")
        if child is not None and child.get("dev") is not None:
            numbers[gpu.bus] = _integer(child, "dev", file)
    if len(numbers) == len(gpus):
        gpus.sort(key=lambda gpu: numbers[gpu.bus])
    else:
        gpus.sort(key=lambda gpu: gpu.bus)
    for index, gpu in enumerate(gpus):
        gpu.gpu = index


def _integer(element: ET.Element, key: str, file: str, default: int | None = None) -> int:
    written = element.get(key)
    if written is None and default is not None:
        return default
    try:
        return int(str(written), 16 if str(written).lower().startswith("0x") else 10)
    except ValueError:
        raise InputError("expected a whole number", file=file, key=f"{element.tag}.{key}", value=written) from None


Pairs = dict[tuple[int, int], int]


def _scale_up(found: _Found, file: str, notes: list[str]) -> tuple[Pairs, list[int], ScaleUp]:
    """Direct links of pairs, links of each GPU to switches, and what they amount to."""
    numbers = {gpu.bus: gpu.gpu for gpu in found.gpus}
    ends: Pairs = {}
    switched = [0] * len(found.gpus)
    ignored = {"at the GPU that lists them": 0, "at a device that is not in the file": 0}
    for gpu in found.gpus:
        for link in _gpu_links(gpu):
            target, count = link.get("target", "").lower(), _integer(link, "count", file, 1)
            if target in numbers and numbers[target] != gpu.gpu:
                ends[gpu.gpu, numbers[target]] = ends.get((gpu.gpu, numbers[target]), 0) + count
            elif target == gpu.bus:
                ignored["at the GPU that lists them"] += count
            elif link.get("tclass", "").lower() == _NVSWITCH or target in found.nvswitches:
                switched[gpu.gpu] += count
            else:
                ignored["at a device that is not in the file"] += count
    notes += [f"{count} links end {where} and are ignored, as NCCL does" for where, count in ignored.items() if count]
    links = {(min(a, b), max(a, b)): max(count, ends.get((b, a), 0)) for (a, b), count in ends.items()}
    return links, switched, _joined(found, links, switched)


def _gpu_links(gpu: _Device) -> Iterator[ET.Element]:
    for child in gpu.element.findall("gpu"):
        yield from child.findall("nvlink")
        yield from child.findall("xgmi")


def _joined(found: _Found, links: Pairs, switched: list[int]) -> ScaleUp:
    if len(found.gpus) == 1:
        return "none"
    if any(switched):
        return "nvswitch"
    if links:
        return "mesh" if is_full_mesh(links, len(found.gpus)) else "partial mesh"
    complete = all(gpu.element.find("gpu") is not None for gpu in found.gpus)
    return "pcie" if complete else "unknown"


def _per_gpu(count: int, links: Pairs, switched: Sequence[int]) -> tuple[int, ...]:
    return tuple(switched[gpu] + sum(n for pair, n in links.items() if gpu in pair) for gpu in range(count))


def _kind(gpus: list[_Device], file: str) -> tuple[str | None, int | None, str | None]:
    """Part, compute capability, architecture of an AMD GPU; of the first GPU that tells."""
    models = [part_of_pci_device(gpu.element.get("vendor", ""), gpu.element.get("device", "")) for gpu in gpus]
    model = next((each for each in models if each), None)
    children = [child for gpu in gpus for child in gpu.element.findall("gpu")]
    gcn = next((name for child in children if (name := child.get("gcn") or child.get("arch"))), None)
    if gcn:  # RCCL writes the number of compute units into sm
        return model, None, gcn if gcn.startswith("gfx") else f"gfx{gcn}"
    sm = next((_integer(child, "sm", file) for child in children if child.get("sm")), None)
    return model, sm, None


def _narrowest(gpus: list[_Device]) -> PciLink:
    ports = [PciLink.parse(gpu.element.get("link_speed", ""), gpu.element.get("link_width", "")) for gpu in gpus]
    return min(ports, key=lambda port: port.rate.payload)


def _switches(gpus: list[_Device]) -> tuple[tuple[int, ...], ...]:
    below: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.bridges:
            below.setdefault(gpu.bridges[0], []).append(gpu.gpu)
    return tuple(tuple(group) for group in below.values())


def _ports(found: _Found, file: str, notes: list[str]) -> Iterator[Seen]:
    """Every ``net`` that has a ``dev``, in their order; without any, every card."""
    nets = [(net, card) for card in found.cards for net in card.element.iter("net")]
    used = [(net, card) for net, card in nets if net.get("dev") is not None]
    if len(used) < len(nets):
        notes.append(f"{len(nets) - len(used)} net without dev ignored, as NCCL does")
    if not used:
        if found.cards:
            notes.append("the file names network cards but not how fast they are")
        for index, card in enumerate(sorted(found.cards, key=lambda card: card.bus)):
            name = card.bus or f"nic{index}"
            distances = _distances(card, found.gpus)
            yield Seen(name=name, speed=None, distances=distances, technology=_technology(card, ""))
        return
    for net, card in sorted(used, key=lambda pair: _integer(pair[0], "dev", file)):
        speed = _integer(net, "speed", file, 0)
        name = net.get("name") or f"net{net.get('dev')}"
        if speed <= 0:
            notes.append(f"{name} has no speed: {_NO_SPEED} Mb/s, as NCCL takes it")
        yield Seen(
            name=name,
            speed=(speed if speed > 0 else _NO_SPEED) * _MBIT,
            distances=_distances(card, found.gpus),
            technology=_technology(card, name, rdma=net.get("gdr") != "0" or name.startswith("mlx5")),
            latency=_microseconds(net, file),
        )


def _technology(card: _Device, name: str, *, rdma: bool = True) -> Technology:
    if card.element.get("vendor", "").lower() == _AMAZON:
        return "efa"
    ethernet = card.element.get("class", "").lower().startswith(_ETHERNET)
    return technology_of_port(name, ethernet=ethernet, rdma=rdma)


def _microseconds(net: ET.Element, file: str) -> float:
    """Latency that the network's plugin tells NCCL [s]."""
    written = net.get("latency", "0")
    try:
        return float(written) * 1e-6
    except ValueError:
        raise InputError("expected a number of microseconds", file=file, key="net.latency", value=written) from None


def _distances(card: _Device, gpus: list[_Device]) -> list[int]:
    return [_distance(card, gpu) for gpu in gpus]


def _distance(card: _Device, gpu: _Device) -> int:
    if card.cpu != gpu.cpu:
        return DISTANCES["SYS"]
    shared = [ours for ours, theirs in zip(card.bridges, gpu.bridges, strict=False) if ours == theirs]
    if not shared:
        return DISTANCES["PHB"]
    return DISTANCES["PIX" if len(shared) == len(card.bridges) == len(gpu.bridges) else "PXB"]


def _between(cpus: list[ET.Element], file: str) -> float | None:
    if len(cpus) < 2:
        return None
    return min(
        cpu_interconnect(
            cpu.get("vendor", ""), _integer(cpu, "familyid", file, 0), _integer(cpu, "modelid", file, 0),
            cpu.get("arch", "x86_64"),
        )
        for cpu in cpus
    )  # fmt: skip


def _vendor(cpus: list[ET.Element]) -> Cpu | None:
    vendors: dict[str, Cpu] = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
    found = {"arm" if cpu.get("arch") == "arm64" else vendors.get(cpu.get("vendor", "")) for cpu in cpus}
    order: tuple[Cpu, ...] = ("amd", "arm", "intel")
    return next((vendor for vendor in order if vendor in found), None)
