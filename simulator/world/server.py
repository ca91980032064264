"""What a host has beside its devices: memory, CPUs that update parameters, NVMe drives.

``topologies/servers/*.yaml`` describe the servers that devices usually stand in; a scenario may name another one or
change numbers of it (``topology.server``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from simulator.errors import UnknownNameError
from simulator.units import Bandwidth, Bytes, Duration
from simulator.world.catalog import Number, number
from simulator.world.document import Section, convert, data_directory, read_mapping

__all__ = ["Server", "asked_server", "server"]

Fraction = Annotated[float, Meta(gt=0, le=1)]

UNITS = {
    "memory": "B",
    "memory_bandwidth": "B/s",
    "adam": "",
    "torch_adam": "",
    "uplink": "B/s",
    "device_link": "B/s",
    "pageable": "B/s",
    "copy_latency": "s",
    "nvme": "B",
    "nvme_read": "B/s",
    "nvme_write": "B/s",
}
"""Keys of a server and their units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Memory, CPUs and drives of one host."""

    name: str
    memory: Number
    """[B]"""
    memory_bandwidth: Number
    """Peak [B/s]."""
    adam: Number
    """Fraction of that bandwidth which DeepSpeed's CPU kernels reach."""
    torch_adam: Number
    """Fraction which PyTorch's AdamW reaches on the CPU, one operation after the other."""
    uplink: Number
    """Between all devices of the host and its memory, in each direction [B/s]."""
    device_link: Number | None
    """Of a device to the memory, in each direction [B/s]; None: the PCIe link that the cluster file describes."""
    pageable: Number
    """Of one device's copy, if the memory is not pinned [B/s]."""
    copy_latency: Number
    """Of a copy between device and memory [s]."""
    nvme: Number
    """Capacity of the drives [B]."""
    nvme_read: Number
    """Of all drives [B/s]."""
    nvme_write: Number
    """Of all drives [B/s]."""

    def numbers(self) -> tuple[Number, ...]:
        """Every number of the server."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(value for value in values if isinstance(value, Number))


class ServerSection(Section):
    """A file of ``topologies/servers``."""

    kind: Literal["server"]
    title: str
    read: dict[str, str]
    memory: dict[str, Any]
    memory_bandwidth: dict[str, Any]
    adam: dict[str, Any]
    torch_adam: dict[str, Any]
    uplink: dict[str, Any]
    pageable: dict[str, Any]
    copy_latency: dict[str, Any]
    nvme: dict[str, Any]
    nvme_read: dict[str, Any]
    nvme_write: dict[str, Any]
    device_link: dict[str, Any] | None = None


class AskedServer(Section):
    """``topology.server``: a server of the catalogue and what is other on it."""

    name: str | None = None
    """By default the one that the devices usually stand in."""
    memory: Bytes | UnsetType = UNSET
    memory_bandwidth: Bandwidth | UnsetType = UNSET
    adam: Fraction | UnsetType = UNSET
    torch_adam: Fraction | UnsetType = UNSET
    uplink: Bandwidth | UnsetType = UNSET
    device_link: Bandwidth | UnsetType = UNSET
    pageable: Bandwidth | UnsetType = UNSET
    copy_latency: Duration | UnsetType = UNSET
    nvme: Bytes | UnsetType = UNSET
    nvme_read: Bandwidth | UnsetType = UNSET
    nvme_write: Bandwidth | UnsetType = UNSET


@cache
def server(name: str, file: object = None) -> Server:
    """Load ``topologies/servers/<name>.yaml``; *file* is what asks for it.

    Raises
    ------
    InputError
        There is none of that name, or a number lacks unit, basis or source.
    """
    folder = data_directory("topologies") / "servers"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = sorted(item.stem for item in folder.glob("*.yaml"))
        raise UnknownNameError("server", name, names, file=file, key="topology.server")
    section = convert(read_mapping(path), ServerSection, path)
    found: dict[str, Any] = {
        key: None if (raw := getattr(section, key)) is None else number(raw, unit, f"{name}.{key}", path)
        for key, unit in UNITS.items()
    }
    return Server(name=name, **found)


def asked_server(raw: str | dict[str, Any], usual: str, file: object) -> Server:
    """Return the server that a scenario asks for; *usual* is the name of the one it gets otherwise.

    Raises
    ------
    InputError
        Unknown name or key, wrong unit.
    """
    content = {"name": raw} if isinstance(raw, str) else raw
    section = convert(content, AskedServer, file, "topology.server")
    chosen: dict[str, Any] = {
        key: Number(value=float(value), name=f"topology.server.{key}", unit=unit, basis="chosen")
        for key, unit in UNITS.items()
        if (value := getattr(section, key)) is not UNSET
    }
    return replace(server(section.name or usual, file), **chosen)
