"""What a topology file says is in a host, in one shape for every format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, Literal

from simulator.world.topology.cluster import Technology
from simulator.world.topology.imported.layout import Cpu, Layout
from simulator.world.topology.imported.links import CUBE_MESH, Family, PciLink, family

__all__ = [
    "DISTANCES",
    "Inventory",
    "Nic",
    "ScaleUp",
    "Seen",
    "is_full_mesh",
    "nics",
    "rails",
    "technology_of_port",
    "with_hints",
]

ScaleUp = Literal["nvswitch", "switch", "mesh", "partial mesh", "ring", "pcie", "none", "unknown"]
"""How the GPUs of a host are joined.

``nvswitch`` and ``switch``: each GPU has a port to one switch; ``mesh``: every pair has the same direct links;
``partial mesh``: only some pairs, or pairs with different numbers of links; ``ring``: each GPU has two neighbours;
``pcie``: nothing but PCIe; ``none``: one GPU; ``unknown``: the file leaves it out.
"""

DISTANCES = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
"""Kinds of paths over PCIe as nvidia-smi names them, nearest first."""

_BELOW_A_SWITCH = DISTANCES["PXB"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network port."""

    name: str
    speed: float | None
    """One direction [B/s]; None if the file does not say."""
    near: tuple[int, ...]
    """GPUs nearest to it; empty for ports that no GPU is meant to use, such as those for storage."""
    technology: Technology
    """Of its network, as far as class, vendor and name show it."""
    latency: float = 0.0
    """That its plugin tells NCCL, beyond NCCL's own constant [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What an imported file holds; per host, unless it says otherwise."""

    file: str
    """Name without folder."""
    format: str
    accelerators: int
    scale_up: ScaleUp
    hosts: int = 1
    """In the file."""
    model: str | None = None
    """Name of the part, if the file shows it."""
    sm: int | None = None
    """Compute capability x 10 of an NVIDIA GPU."""
    gcn: str | None = None
    """Architecture of an AMD GPU."""
    nvlinks: tuple[int, ...] = ()
    """Links (NVLink or xGMI) of each GPU; empty if the file does not say."""
    pairs: tuple[tuple[int, int, int], ...] = ()
    """Direct links: GPU, GPU with a higher number, links between them."""
    pcie: PciLink | None = None
    """Port of a GPU; the narrowest if they differ."""
    switches: tuple[tuple[int, ...], ...] = ()
    """GPUs below each PCIe switch; a GPU that hangs directly at a CPU is in none."""
    nics: tuple[Nic, ...] = ()
    rails: int = 0
    """Ports of a host for traffic of GPUs, each of which can have its own first-level switch."""
    cpus: int = 0
    """CPUs or NUMA nodes that GPUs hang at; 0 if the file does not say."""
    cpu_interconnect: float | None = None
    """Between two of them [B/s]."""
    cpu: Cpu | None = None
    """Their vendor."""
    filled: tuple[str, ...] = ()
    """Fields that the file leaves out and :func:`with_hints` filled in: ``nvlinks``, ``pcie``, ``nics``."""
    notes: tuple[str, ...] = ()
    """What a reader must know: what was ignored, filled in, or is missing."""
    layout: Layout | None = None
    """Of formats that hold the whole cluster; a host's layout is worked out from the fields above."""
    obstacle: str = ""
    """Why no cluster file can hold the layout, and what to do; empty if it can."""

    def as_json(self) -> dict[str, Any]:
        """Return everything but the layout for a machine; SI units."""
        content = asdict(self)
        del content["layout"]
        return content

    def compute_nics(self) -> tuple[Nic, ...]:
        """Return the ports for traffic of GPUs, in the order of the GPUs that they are near to."""
        near = [nic for nic in self.nics if nic.near]
        return tuple(sorted(near, key=lambda nic: nic.near[0])) if near else self.nics


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A port as a file shows it: how far it is from each GPU."""

    name: str
    speed: float | None
    distances: Sequence[int]
    """One of :data:`DISTANCES` for each GPU."""
    technology: Technology
    latency: float = 0.0


def nics(seen: Sequence[Seen]) -> tuple[Nic, ...]:
    """Say which GPUs each port is for.

    Where some port shares a PCIe switch with a GPU, the ports that do not are for something else.  Where none does,
    as in virtual machines that hide their switches, a port serves the GPUs of its CPU.
    """
    closest = min((distance for port in seen for distance in port.distances), default=DISTANCES["SYS"])
    limit = _BELOW_A_SWITCH if closest <= _BELOW_A_SWITCH else DISTANCES["NODE"]
    return tuple(
        Nic(
            name=port.name,
            speed=port.speed,
            near=_near(port.distances, limit),
            technology=port.technology,
            latency=port.latency,
        )
        for port in seen
    )


def technology_of_port(name: str, *, ethernet: bool = False, rdma: bool = True) -> Technology:
    """Say what network a port is on; one that nothing tells is taken for InfiniBand.

    >>> technology_of_port("mlx5_0"), technology_of_port("mlx5_bond_0"), technology_of_port("rdmap16s27")
    ('infiniband', 'roce', 'efa')
    """
    if name.startswith(("efa", "rdmap")):
        return "efa"
    if not rdma or name.startswith(("eth", "eno", "ens", "enp")):
        return "tcp"
    return "roce" if ethernet or "bond" in name or name.startswith(("roce", "bnxt", "irdma")) else "infiniband"


def _near(distances: Sequence[int], limit: int) -> tuple[int, ...]:
    closest = min(distances, default=limit + 1)
    return tuple(gpu for gpu, distance in enumerate(distances) if distance == closest <= limit)


def rails(ports: Sequence[Nic]) -> int:
    """Number of ports for traffic of GPUs."""
    return sum(bool(port.near) for port in ports) or len(ports)


def is_full_mesh(links: Mapping[tuple[int, int], int], accelerators: int) -> bool:
    """True if every pair of GPUs has equally many of the direct *links*."""
    return len(links) == accelerators * (accelerators - 1) // 2 and len(set(links.values())) == 1


def with_hints(inventory: Inventory, part: str | None = None, nic_speed: float | None = None) -> Inventory:
    """Fill in what the file leaves out: from the GPU's name, and the speed of its ports [B/s].

    What the file does say stays.
    """
    known = family(part or inventory.model)
    changed: dict[str, Any] = {"model": part or inventory.model}
    notes, added = list(inventory.notes), list(inventory.filled)
    if known:
        added += [] if inventory.pcie else ["pcie"]
        changed |= {
            "sm": inventory.sm or known.sm,
            "gcn": inventory.gcn or known.gcn,
            "pcie": inventory.pcie or PciLink(generation=known.generation, width=16),
        }
        if inventory.scale_up == "unknown":
            changed |= _usual(known, inventory.accelerators)
            added.append("nvlinks")
            notes += _filled(known, inventory.accelerators, changed)
        if not known.peer_to_peer:
            notes.append(
                f"{changed['model']} has no peer-to-peer: traffic between GPUs goes through host memory, slower than "
                "PCIe alone"
            )
    if nic_speed:
        filled = [replace(nic, speed=nic_speed) if nic.speed is None else nic for nic in inventory.nics]
        changed["nics"] = tuple(filled)
        if filled != list(inventory.nics):
            added.append("nics")
        elif "nics" not in added:
            notes.append("the speed given for network ports was not needed: the file has none without a speed")
    return replace(inventory, **changed, filled=tuple(added), notes=tuple(dict.fromkeys(notes)))


def _filled(known: Family, accelerators: int, changed: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"the file holds no {'xGMI' if known.gcn else 'NVLinks'}: {changed['nvlinks'][0]} per GPU and the layout "
        f"'{changed['scale_up']}' are those of {accelerators} x {changed['model']}"
    )
    if changed.get("pairs") == CUBE_MESH:
        yield "the cube mesh is that of a DGX-1V; whether GPUs have the same numbers here is not known"


def _usual(known: Family, accelerators: int) -> dict[str, Any]:
    """NVLinks of a host that the market knows: NVSwitch from 8 GPUs, but a cube mesh of 8 V100; xGMI is a mesh."""
    if accelerators == 1 or known.nvlinks == 0:
        return {"scale_up": "none" if accelerators == 1 else "pcie", "nvlinks": (known.nvlinks,) * accelerators}
    peers = accelerators - 1
    if known.gcn:
        return _mesh(accelerators, 1)
    if known.sm == 70 and accelerators == 8:
        return {"scale_up": "partial mesh", "nvlinks": (known.nvlinks,) * accelerators, "pairs": CUBE_MESH}
    if accelerators <= 4 and known.nvlinks % peers == 0:
        return _mesh(accelerators, known.nvlinks // peers)
    return {"scale_up": "nvswitch", "nvlinks": (known.nvlinks,) * accelerators}


def _mesh(accelerators: int, each: int) -> dict[str, Any]:
    return {
        "scale_up": "mesh",
        "nvlinks": (each * (accelerators - 1),) * accelerators,
        "pairs": tuple((a, b, each) for a, b in combinations(range(accelerators), 2)),
    }
