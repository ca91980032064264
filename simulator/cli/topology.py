"""Commands on the catalogue of clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.common import picture_option, print_json, print_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.world.topology.cluster import Cluster

__all__ = ["drawn", "topology"]

hosts_option = click.option("--hosts", type=click.IntRange(min=1), help="Number of hosts; default: the file's.")


@click.group()
def topology() -> None:
    """List, show and draw clusters."""


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
@click.argument("name")
@hosts_option
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def show(name: str, hosts: int | None, machine: bool) -> None:
    """Show what cluster NAME is made of, every number with its source."""
    from simulator.readings.parts import parts, parts_tables
    from simulator.world.topology.cluster import load_cluster

    content = parts(load_cluster(name, hosts=hosts))
    if machine:
        print_json(content)
    else:
        print_tables(*parts_tables(content))


@topology.command()
@click.argument("name")
@hosts_option
@picture_option
def draw(name: str, hosts: int | None, output: Path) -> None:
    """Draw cluster NAME."""
    from simulator.readings.files import write_atomically
    from simulator.world.topology.cluster import load_cluster

    write_atomically(output, drawn(load_cluster(name, hosts=hosts or 2)).savefig)
    print_tables(f"written to {output}")


def drawn(cluster: Cluster) -> Figure:
    """Draw *cluster*; a large one by its first hosts."""
    from simulator.readings.plots import topology_figure
    from simulator.world.topology.graph import graph

    shown = min(cluster.hosts, 4)  # more hosts are not legible on a slide
    built = graph(cluster, range(shown))
    nodes = [(node, str(kind)) for node, kind in built.nodes(data="kind")]
    links = [
        (tail, head, str(data["kind"]).split(":")[0], float(data["bandwidth"]))
        for tail, head, data in built.edges(data=True)
    ]
    hosts = f"{cluster.hosts} hosts" if shown == cluster.hosts else f"first {shown} of {cluster.hosts} hosts"
    return topology_figure(nodes, links, f"{cluster.title}: {hosts}")
