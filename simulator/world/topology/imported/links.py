"""What links carry, and what a GPU has when its file leaves that out.

Two rates per link: *nominal* is what the lanes carry, *payload* is what NCCL reckons with (``src/graph/topo.h`` and
``src/graph/topo.cc``).  A cluster file gets the first as bandwidth and their ratio as efficiency.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CUBE_MESH",
    "Family",
    "PciLink",
    "Rate",
    "cpu_interconnect",
    "family",
    "nvlink",
    "part_of_pci_device",
    "xgmi",
]

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One direction of a link."""

    nominal: float
    """[B/s]"""
    payload: float
    """As NCCL reckons [B/s]."""

    @property
    def efficiency(self) -> float:
        """Payload per nominal, rounded to three digits as the catalogue does."""
        return round(self.payload / self.nominal, 3)


_NVLINK = {60: (20, 18), 70: (25, 20), 80: (25, 20), 86: (14, 12), 90: (25, 20.6), 100: (50, 40.1)}
"""Compute capability x 10: nominal, payload of one NVLink [GB/s] (``ncclTopoNVLinkBw``)."""

_XGMI = {"gfx94": (64, 48), "gfx95": (76.5, 48), "gfx90a": (50, 36)}
"""Prefix of the architecture: nominal, payload of one xGMI link [GB/s] (RCCL, ``src/graph/topo.h``)."""

_XGMI_BEFORE = (46, 24)

CUBE_MESH = (
    (0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2),
    (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2),
)  # fmt: skip
"""Two GPUs of a DGX-1V and the NVLinks between them (``nvidia-smi topo -m`` in microsoft/msccl-tools)."""

_PCI = {1: (4, 3), 2: (8, 6), 3: (15.75, 12), 4: (31.5, 24), 5: (63, 48), 6: (126, 96)}
"""PCIe generation: nominal, payload of 16 lanes [GB/s] (``ncclTopoAddPci``)."""

_GENERATION = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""GT/s of a lane: generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciLink:
    """A PCIe link as its two ends agreed on it."""

    generation: int
    width: int
    """Lanes."""

    @classmethod
    def parse(cls, speed: str, width: str) -> PciLink:
        """Read ``link_speed`` and ``link_width``; like NCCL, an unknown speed is generation 3 and no width is 16.

        >>> PciLink.parse("32.0 GT/s PCIe", "16"), PciLink.parse("", "0")
        (PciLink(generation=5, width=16), PciLink(generation=3, width=16))
        """
        number = speed.strip().split(" ")[0].removesuffix(".0")
        lanes = int(width) if width.strip().isdigit() else 0
        return cls(generation=_GENERATION.get(number, 3), width=lanes or 16)

    @property
    def rate(self) -> Rate:
        """What the link carries."""
        nominal, payload = _PCI[self.generation]
        return Rate(nominal=nominal * GB * self.width / 16, payload=payload * GB * self.width / 16)


def nvlink(sm: int) -> Rate:
    """Return what one NVLink of a GPU of compute capability *sm* / 10 carries."""
    nominal, payload = _NVLINK[max((known for known in _NVLINK if known <= sm), default=60)]
    return Rate(nominal=nominal * GB, payload=payload * GB)


def xgmi(gcn: str) -> Rate:
    """Return what one xGMI link of an AMD GPU of architecture *gcn* carries."""
    nominal, payload = next((rate for known, rate in _XGMI.items() if gcn.startswith(known)), _XGMI_BEFORE)
    return Rate(nominal=nominal * GB, payload=payload * GB)


def cpu_interconnect(vendor: str, family_id: int, model: int, arch: str = "x86_64") -> float:
    """Return what NCCL reckons between two CPUs or NUMA nodes [B/s]; 10 GB/s where the file names no CPU.

    >>> cpu_interconnect("GenuineIntel", 6, 143) / 1e9
    22.0
    """
    if vendor == "GenuineIntel":
        steps = ((0xCF, 40), (0x8F, 22), (0x55, 10), (0, 6))
        return next(rate for first, rate in steps if model >= first) * GB
    if vendor == "AuthenticAMD":
        return 16 * GB
    if "Shanghai" in vendor:  # Zhaoxin
        return (9 if family_id == 7 and model >= 0x5B else 6) * GB
    return {"ppc64": 32, "arm64": 6}.get(arch, 10) * GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What every GPU of a part's name has, wherever it is sold."""

    sm: int | None
    """Compute capability x 10 of an NVIDIA GPU."""
    nvlinks: int
    """NVLink or xGMI; per GPU, as far as a board wires them by itself: PCIe cards with bridges count none."""
    generation: int
    """Of its PCIe port."""
    peer_to_peer: bool
    """False if the driver lets GPUs reach each other only through host memory."""
    gcn: str | None = None
    """Architecture of an AMD GPU."""


_FAMILIES = {
    "v100-sxm": (70, 6, 3),
    "v100-pcie": (70, 0, 3),
    "a100-sxm": (80, 12, 4),
    "a100-pcie": (80, 0, 4),
    "a800-sxm": (80, 8, 4),
    "a10g": (86, 0, 4),
    "l40s": (89, 0, 4),
    "rtx-4090": (89, 0, 4),
    "h100-pcie": (90, 0, 5),
    "h100-sxm": (90, 18, 5),
    "h200-sxm": (90, 18, 5),
    "h20-": (90, 18, 5),
    "h800-sxm": (90, 8, 5),
    "b200": (100, 18, 5),
    "b300": (100, 18, 6),
    "gb200": (100, 18, 5),
    "gb300": (100, 18, 6),
    "rtx-5090": (120, 0, 5),
    "rtx-pro-6000": (120, 0, 5),
}
"""Beginning of a part's name: compute capability x 10, NVLinks, PCIe generation (NVIDIA datasheets)."""

_AMD_FAMILIES = {"mi300x": ("gfx942", 7, 5), "mi325x": ("gfx942", 7, 5), "mi355x": ("gfx950", 7, 5)}
"""Beginning of a part's name: architecture, xGMI links, PCIe generation (AMD data sheets)."""


def family(part: str | None) -> Family | None:
    """Return what GPUs of *part* have, None for parts that are not known here.

    >>> family("h100-sxm-80gb").nvlinks
    18
    """
    for known, (sm, nvlinks, generation) in _FAMILIES.items():
        if part and part.startswith(known):
            reached = not known.startswith(("rtx-4090", "rtx-5090"))
            return Family(sm=sm, nvlinks=nvlinks, generation=generation, peer_to_peer=reached)
    for known, (gcn, links, generation) in _AMD_FAMILIES.items():
        if part and part.startswith(known):
            return Family(sm=None, nvlinks=links, generation=generation, peer_to_peer=True, gcn=gcn)
    return None


_DEVICES = {
    "0x1db1": "v100-sxm-16gb",
    "0x1db4": "v100-pcie-16gb",
    "0x1db5": "v100-sxm-32gb",
    "0x1db6": "v100-pcie-32gb",
    "0x20b0": "a100-sxm-40gb",
    "0x20b2": "a100-sxm-80gb",
    "0x20b5": "a100-pcie-80gb",
    "0x20f1": "a100-pcie-40gb",
    "0x2237": "a10g-24gb",
    "0x2330": "h100-sxm-80gb",
    "0x2331": "h100-pcie-80gb",
    "0x2335": "h200-sxm-141gb",
    "0x2684": "rtx-4090-24gb",
    "0x26b9": "l40s-48gb",
    "0x2901": "b200-sxm-180gb",
}
"""PCI device of vendor 0x10de (pci.ids): name of the part."""


def part_of_pci_device(vendor: str, device: str) -> str | None:
    """Return the part that *device* of *vendor* is, None if it is not known here."""
    return _DEVICES.get(device.lower()) if vendor.lower() == "0x10de" else None
