"""Which format a file has, and reading it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from simulator.errors import InputError, UnknownNameError
from simulator.world.topology.imported import astrasim, nccl_xml, node_link, simai, smi_topo
from simulator.world.topology.imported.inventory import Inventory, with_hints

__all__ = ["FORMATS", "detect", "read_topology"]

FORMATS: Mapping[str, Callable[[str, str], Inventory]] = {
    "nccl-xml": nccl_xml.read,
    "nvidia-smi": smi_topo.read,
    "astra-sim": astrasim.read,
    "simai": simai.read,
    "node-link": node_link.read,
}
"""Readers of text and file name, by name of the format."""

_OTHERS = (
    ('"scheduling-policy"', "an ASTRA-sim system file (algorithms and scheduling); import the network file beside it"),
    ('"mem1"', "a Calculon system file: one GPU and its networks by size, no topology"),
    ("allreduce_size_", "a table of measured bandwidths by Galvatron, no topology"),
    ("pp_size_", "a table of measured bandwidths by Galvatron, no topology"),
    ("overlap_coe", "a slow-down measured by Galvatron, no topology"),
    ("mem_per_GPU_in_GB", "an llm-analysis description of one GPU; write it as a file of topologies/parts"),
    ("[topology.args]", "a Phantora network description; write its hosts, racks and spines as a cluster file"),
)
"""What tells files of neighbouring tools, and what to do with them."""


def read_topology(
    path: Path, format: str | None = None, *, accelerator: str | None = None, nic_speed: float | None = None
) -> Inventory:
    """Read the topology at *path*.

    Parameters
    ----------
    path
        A file of another tool.
    format
        A name of :data:`FORMATS`; recognised by content if None.
    accelerator
        Part that the GPUs are, for what the file leaves out.
    nic_speed
        Of network ports whose speed the file leaves out [B/s].

    Raises
    ------
    InputError
        The file cannot be read, or is of no known format.
    """
    if format is not None and format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    text = _text(path)
    try:
        inventory = FORMATS[format or detect(text, path)](text, path.name)
    except InputError as error:
        error.file = path
        raise
    return with_hints(inventory, accelerator, nic_speed)


def detect(text: str, file: object) -> str:
    """Return the name of the format of *text*.

    Raises
    ------
    InputError
        None of them.
    """
    start = text.lstrip()[:1]
    if start == "<":
        return "nccl-xml"
    if smi_topo.recognised(text):
        return "nvidia-smi"
    if start in "{[" and '"nodes"' in text:
        return "node-link"
    if simai.recognised(text):
        return "simai"
    if re.search(r"^\s*npus_count\s*:", text, flags=re.MULTILINE):
        return "astra-sim"
    for sign, what in _OTHERS:
        if sign in text:
            raise InputError(what, file=file)
    raise InputError("not a topology that can be read", file=file, remedy=f"known formats: {', '.join(FORMATS)}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError("no such file", file=path, remedy="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
