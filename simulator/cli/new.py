"""The command that writes a first scenario."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from simulator.cli.common import print_tables, written_to

__all__ = ["new"]


@click.command()
@click.option("--model", required=True, metavar="NAME", help="A shipped model, or the path of a config.json.")
@click.option("--cluster", required=True, metavar="NAME", help="A shipped cluster, or the path of a topology file.")
@click.option("--hosts", type=click.IntRange(min=1), help="Number of hosts.  [default: as the cluster's file has it]")
@click.option("--deepspeed", metavar="FILE", help="A ds_config.json that you train with.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A .yaml file.")
def new(model: str, cluster: str, hosts: int | None, deepspeed: str | None, output: Path) -> None:
    """Write a scenario for a model on a cluster, to be run as it is or changed first."""
    from simulator.errors import InputError
    from simulator.readings.files import write_atomically
    from simulator.world.starter import Start, starter

    if output.exists():
        raise InputError("is there already", key="--output", value=str(output), remedy="name another file")
    if not output.parent.is_dir():
        raise InputError("no such folder", key="--output", value=str(output), remedy="make it, or name another")
    text = starter(Start(model=model, cluster=cluster, hosts=hosts, deepspeed=deepspeed), output)
    write_atomically(output, lambda path: path.write_text(text, encoding="utf-8"))
    print_tables(written_to(f"{output}; next: zerosim run {shlex.quote(str(output))}"))
