"""Commands on the catalogue of clusters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from simulator.cli.common import picture_option, print_json, print_tables, written_to

if TYPE_CHECKING:
    from simulator.world.topology.cluster import Cluster, Placement

__all__ = ["topology"]

Command = TypeVar("Command", bound=Callable[..., None])


@click.group()
def topology() -> None:
    """List, show and draw clusters."""


def cluster_options(command: Command) -> Command:
    """Add what names a cluster and what may differ from its file."""
    options: Sequence[Callable[[Command], Command]] = (
        click.argument("name"),
        click.option("--hosts", type=click.IntRange(min=1), help="Number of hosts."),
        click.option(
            "--fabric", metavar="KIND",
            help="Another network between hosts: fat_tree, or '{kind: fat_tree, oversubscription: 4}'.",
        ),
        click.option(
            "--placement", type=click.Choice(["packed", "scattered"]), default="packed", show_default=True,
            help="How hosts are spread over pods and zones.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@topology.command("list")
def list_() -> None:
    """List the clusters of the catalogue."""
    from rich.table import Table

    from simulator.world.topology.cluster import load_cluster, shipped_clusters

    table = Table(title="Clusters", title_justify="left")
    for heading in ("name", "accelerator", "per host", "title"):
        table.add_column(heading)
    for path in shipped_clusters():
        cluster = load_cluster(path.stem)
        table.add_row(cluster.name, cluster.accelerator.name, str(cluster.accelerators_per_host), cluster.title)
    print_tables(table)


@topology.command()
@cluster_options
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def show(name: str, hosts: int | None, fabric: str | None, placement: Placement, machine: bool) -> None:
    """Show what cluster NAME is made of, every number with its source."""
    from simulator.readings.parts import parts, parts_tables
    from simulator.readings.standing import standing

    cluster = asked_cluster(name, hosts, fabric, placement)
    content = parts(cluster)
    if machine:
        print_json(content | {"hosts_per_zone": cluster.hosts_per_zone, "placement": cluster.placement})
        return
    nodes, *others = parts_tables(content)
    where = standing(cluster)
    print_tables(nodes, *([f"hosts {where}"] if where else []), *others)


@topology.command()
@cluster_options
@picture_option
def draw(name: str, hosts: int | None, fabric: str | None, placement: Placement, output: Path) -> None:
    """Draw cluster NAME: two hosts, and on a chosen fabric two of its largest units, unless --hosts says more."""
    from simulator.readings.files import write_atomically
    from simulator.readings.plots import topology_figure
    from simulator.world.topology.torus import torus_link

    cluster = asked_cluster(name, hosts, fabric, placement, fewest=2)
    if hosts is None and fabric is not None and torus_link(cluster) is None:
        cluster = asked_cluster(name, 2 * cluster.hosts_per_zone, fabric, placement)
    write_atomically(output, topology_figure(cluster).savefig)
    print_tables(written_to(output))


def asked_cluster(
    name: str, hosts: int | None, fabric: str | None, placement: Placement, fewest: int | None = None
) -> Cluster:
    """Load the cluster that the options describe; what is wrong is named by the option.

    Without *hosts* a torus has those that its axes hold, any other network *fewest*, or the file's.
    """
    from simulator.errors import InputError
    from simulator.world.topology.cluster import load_cluster
    from simulator.world.topology.fabrics import read_fabric, with_fabric

    try:
        section = read_fabric(None if fabric is None else _fabric(fabric), None)
        on_fabric = (lambda cluster: with_fabric(cluster, section)) if section else (lambda cluster: cluster)
        whole = math.prod(section.axes) if section and section.kind == "torus" else None
        cluster = load_cluster(name, hosts=hosts or whole or fewest, on_fabric=on_fabric)
        return replace(cluster, placement=placement)
    except InputError as error:
        if error.key:
            error.key = error.key.replace("topology.fabric", "--fabric")
        raise


def _fabric(text: str) -> str | dict[str, Any]:
    """A word is a kind, anything else a mapping in YAML."""
    from simulator.world.document import parse_mapping

    return text if re.fullmatch(r"[\w+-]+", text) else parse_mapping(text, "--fabric")
