"""The command that imports topologies of other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.common import print_json, print_tables, written_to

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.world.topology.imported.inventory import Inventory, Nic

__all__ = ["import_"]


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", metavar="NAME", help="nccl-xml, nvidia-smi, astra-sim, simai, node-link; else guessed."
)
@click.option("--accelerator", metavar="PART", help="Part of the catalogue that the GPUs are; fills in its NVLinks.")
@click.option("--nic-speed", metavar="SPEED", help="Of network ports whose speed the file leaves out: '200 Gbit/s'.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write a cluster file (.yaml).")
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def import_(
    file: Path, form: str | None, accelerator: str | None, nic_speed: str | None, output: Path | None, machine: bool
) -> None:
    """Show what is in FILE, a topology of another tool, and write it as a cluster file."""
    from rich.markup import escape

    from simulator.readings.files import write_atomically
    from simulator.units import Bandwidth
    from simulator.world.catalog import accelerator as part
    from simulator.world.topology.imported.cluster_file import to_cluster_yaml
    from simulator.world.topology.imported.formats import read_topology

    speed = None if nic_speed is None else float(Bandwidth.parse(nic_speed))
    name = part(accelerator).name if accelerator else None
    inventory = read_topology(file, form, accelerator=name, nic_speed=speed)
    if output:
        text = to_cluster_yaml(inventory, accelerator, name=output.stem)
        write_atomically(output, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    if machine:
        print_json(inventory.as_json() | {"written": str(output) if output else None})
        return
    print_tables(_summary(inventory), *_ports(inventory), *map(escape, _remarks(inventory, output)))


def _remarks(inventory: Inventory, output: Path | None) -> Iterator[str]:
    yield from (f"note: {note}" for note in inventory.notes)
    if inventory.obstacle:
        yield f"no cluster file: {inventory.obstacle}"
    if output:
        yield written_to(output)


def _summary(inventory: Inventory) -> Table:
    table = _table(f"{inventory.file}: {inventory.format}", "", "per host")
    for what, value in _lines(inventory):
        if value:
            table.add_row(what, value)
    return table


def _lines(inventory: Inventory) -> Iterator[tuple[str, str]]:
    kind = [inventory.model, inventory.gcn, f"sm{inventory.sm}" if inventory.sm else None]
    yield "hosts", str(inventory.hosts) if inventory.hosts > 1 else ""
    yield "accelerators", f"{inventory.accelerators}"
    yield "model", ", ".join(part for part in kind if part)
    yield "scale-up", inventory.scale_up
    yield "links per GPU", _alike(inventory.nvlinks)
    yield "direct links", ", ".join(f"{a}-{b}: {n}" for a, b, n in inventory.pairs)
    pcie = inventory.pcie
    yield "PCIe of a GPU", f"gen{pcie.generation} x{pcie.width}" if pcie else ""
    yield "PCIe switches", ", ".join("GPU " + " ".join(map(str, group)) for group in inventory.switches)
    yield "CPUs", str(inventory.cpus or "")
    between = inventory.cpu_interconnect
    yield "between CPUs", _rate(between) if between and inventory.cpus > 1 else ""
    yield "network ports", str(len(inventory.nics))
    yield "rails", str(inventory.rails)


def _alike(counts: tuple[int, ...]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else " ".join(map(str, counts))


def _ports(inventory: Inventory) -> Iterator[Table]:
    from rich.text import Text

    if not inventory.nics:
        return
    table = _table("Network ports", "name", "speed", "nearest GPUs")
    for nic in inventory.nics:
        table.add_row(Text(nic.name), _speed(nic), " ".join(map(str, nic.near)) or "none: not for traffic of GPUs")
    yield table


def _speed(nic: Nic) -> str:
    return "not in the file" if nic.speed is None else f"{_rate(nic.speed)} ({nic.speed * 8 / 1e9:g} Gbit/s)"


def _rate(value: float) -> str:
    from simulator.units import readable

    return readable(value, "B/s")


def _table(title: str, *headings: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading)
    return table
