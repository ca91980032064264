"""The matrix that ``nvidia-smi topo -m`` prints.

How the entries mean a layout: ``NV#`` between all pairs is a direct mesh if a GPU's entries sum to no more links than a
GPU can have, else each entry counts the links of one GPU to NVSwitch; ``PIX`` and ``PXB`` tie devices to one PCIe
switch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from simulator.errors import InputError
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

__all__ = ["read", "recognised"]

FORMAT = "nvidia-smi topo -m"

MOST_NVLINKS = 18
"""No GPU has had more (H100 to GB300)."""

_GPU = re.compile(r"GPU\d+$")
_ENTRY = re.compile(r"(X|NV\d+|PIX|PXB|PHB|NODE|SYS)$")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    devices: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    homes: Mapping[str, str]
    """NUMA node, or CPU affinity where that column is missing, of each GPU."""
    legend: Mapping[str, str]

    def entry(self, one: str, other: str) -> str:
        """How *one* reaches *other*; rows of network ports may be missing."""
        for row, column in ((one, other), (other, one)):
            if row in self.rows:
                return self.rows[row][self.devices.index(column)]
        return "SYS"


def recognised(text: str) -> bool:
    """True if *text* holds such a matrix."""
    return any(_is_header(line.split()) for line in _ESCAPE.sub("", text).splitlines())


def read(text: str, file: str) -> Inventory:
    """Read the *text* of a matrix; *file* is its name.

    Raises
    ------
    InputError
        No matrix, a row is missing, cut off or holds a word that is no path, or two entries contradict each other.
    """
    matrix = _matrix(_ESCAPE.sub("", text), file)
    gpus = [device for device in matrix.devices if _GPU.match(device)]
    ports = [device for device in matrix.devices if not _GPU.match(device)]
    links = _nvlinks(matrix, gpus, file)
    scale_up = _joined(links, len(gpus))
    seen = [
        Seen(
            name=matrix.legend.get(port, port),
            speed=None,
            distances=[DISTANCES.get(matrix.entry(port, gpu), DISTANCES["SYS"]) for gpu in gpus],
            technology=technology_of_port(matrix.legend.get(port, port)),
        )
        for port in ports
    ]
    found = nics(seen)
    notes = ["the matrix does not say how fast network ports are"] if ports else ["the matrix has no network port"]
    return Inventory(
        file=file,
        format=FORMAT,
        accelerators=len(gpus),
        scale_up=scale_up,
        nvlinks=_per_gpu(links, len(gpus), scale_up),
        pairs=() if scale_up == "nvswitch" else tuple((a, b, n) for (a, b), n in sorted(links.items())),
        switches=_switches(matrix, gpus),
        nics=found,
        rails=rails(found),
        cpus=len({matrix.homes[gpu] for gpu in gpus if matrix.homes.get(gpu)}),
        notes=tuple(notes),
    )


def _is_header(words: Sequence[str]) -> bool:
    """Names of devices only; a row has an ``X``."""
    return bool(words) and words[0] == "GPU0" and "X" not in words and not any("=" in word for word in words)


def _matrix(text: str, file: str) -> _Matrix:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    start = next((index for index, line in enumerate(lines) if _is_header(line.split())), None)
    if start is None:
        raise InputError("no header that begins with GPU0", file=file, remedy="save all that nvidia-smi topo -m prints")
    devices = _devices(lines[start].split())
    rows: dict[str, tuple[str, ...]] = {}
    homes: dict[str, str] = {}
    for line in lines[start + 1 :]:
        words = line.split()
        if words and words[0] in devices and words[0] not in rows:
            rows[words[0]] = _row(words, len(devices), file)
            rest = words[1 + len(devices) :]
            homes[words[0]] = (rest[1] if len(rest) > 1 and rest[1] != "N/A" else rest[0]) if rest else ""
    missing = [device for device in devices if _GPU.match(device) and device not in rows]
    if missing:
        raise InputError("the row is missing", file=file, key=missing[0], remedy="save the whole matrix")
    legend = {name: real for line in lines for name, real in re.findall(r"^\s*(NIC\d+):\s*(\S+)", line)}
    return _Matrix(devices=devices, rows=rows, homes=homes, legend=legend)


def _devices(words: Sequence[str]) -> tuple[str, ...]:
    end = next((index for index, word in enumerate(words) if word in ("CPU", "NUMA", "GPU")), len(words))
    return tuple(words[:end])


def _row(words: Sequence[str], count: int, file: str) -> tuple[str, ...]:
    entries = tuple(words[1 : 1 + count])
    if len(entries) < count:
        problem = f"expected {count} entries, found {len(entries)}"
        raise InputError(problem, file=file, key=words[0], remedy="save the whole matrix, without line breaks in rows")
    for entry in entries:
        if not _ENTRY.match(entry):
            remedy = "expected X, NV and a number, PIX, PXB, PHB, NODE or SYS"
            raise InputError("no path between devices", file=file, key=words[0], value=entry, remedy=remedy)
    return entries


def _nvlinks(matrix: _Matrix, gpus: Sequence[str], file: str) -> dict[tuple[int, int], int]:
    links = {}
    for low, one in enumerate(gpus):
        for high, other in list(enumerate(gpus))[low + 1 :]:
            there, back = matrix.entry(one, other), matrix.entry(other, one)
            if there != back:
                problem = f"{one} reaches {other} over {there}, but {other} reaches {one} over {back}"
                raise InputError(problem, file=file, key=one, remedy="save the matrix again")
            if there.startswith("NV"):
                links[low, high] = int(there.removeprefix("NV"))
    return links


def _joined(links: Mapping[tuple[int, int], int], count: int) -> ScaleUp:
    if count == 1:
        return "none"
    if not links:
        return "pcie"
    if not is_full_mesh(links, count):
        return "partial mesh"
    return "mesh" if (count - 1) * links[0, 1] <= MOST_NVLINKS else "nvswitch"


def _per_gpu(links: Mapping[tuple[int, int], int], count: int, scale_up: ScaleUp) -> tuple[int, ...]:
    if scale_up == "nvswitch":
        return (links[0, 1],) * count
    return tuple(sum(number for pair, number in links.items() if gpu in pair) for gpu in range(count))


def _switches(matrix: _Matrix, gpus: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """GPUs tied to each other or to a port by PIX or PXB; an entry NV# hides what lies below it."""
    tied: nx.Graph[str] = nx.Graph()
    for one in gpus:
        for other in matrix.devices:
            if matrix.entry(one, other) in ("PIX", "PXB"):
                tied.add_edge(one, other)
    groups = [tuple(index for index, gpu in enumerate(gpus) if gpu in group) for group in nx.connected_components(tied)]
    return tuple(sorted(groups))
