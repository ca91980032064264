"""The cluster file of an inventory."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath

from simulator.errors import InputError
from simulator.world.catalog import accelerator as catalogue_part
from simulator.world.document import data_directory
from simulator.world.topology.imported.host import host_layout
from simulator.world.topology.imported.inventory import Inventory, with_hints
from simulator.world.topology.imported.layout import cluster_text

__all__ = ["to_cluster_yaml"]


def to_cluster_yaml(
    inventory: Inventory,
    accelerator: str | None = None,
    *,
    name: str | None = None,
    nic_speed: float | None = None,
) -> str:
    """Return a complete cluster file that ``load_cluster`` reads.

    Parameters
    ----------
    inventory
        What a reader of this package found.
    accelerator
        Part of the catalogue that the GPUs are; default: the one that the file shows.
    name
        Name of the cluster; default: made from the file's name.
    nic_speed
        Of network ports whose speed the file leaves out [B/s].

    Raises
    ------
    InputError
        The layout cannot be written as node kinds and wiring, a number is missing, or the part is not known.
    """
    if inventory.obstacle:
        raise InputError(inventory.obstacle, file=inventory.file)
    part = _part(inventory, accelerator)
    filled = with_hints(inventory, part, nic_speed)
    layout = filled.layout or host_layout(filled)
    origin = f"Imported from {inventory.file} ({inventory.format}); compare it with the machine before you rely on it."
    remarks = (origin, *layout.remarks, *(f"Note: {note}." for note in filled.notes))
    title = f"{inventory.accelerators} x {part}, imported from {inventory.file}"
    return cluster_text(replace(layout, remarks=remarks), name or _name(inventory.file), title, part)


def _part(inventory: Inventory, accelerator: str | None) -> str:
    parts = sorted(path.stem for path in (data_directory("topologies") / "parts").glob("*.yaml"))
    if accelerator:
        return catalogue_part(accelerator).name
    if inventory.model in parts:
        return str(inventory.model)
    found = f"its GPUs look like {inventory.model}, which the catalogue lacks" if inventory.model else "no GPU is named"
    remedy = f"name a part of the catalogue (--accelerator): {', '.join(parts)}"
    raise InputError(f"which accelerator? {found}", file=inventory.file, remedy=remedy)


def _name(file: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", PurePath(file).stem.lower()).strip("-") or "imported"
