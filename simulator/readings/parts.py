"""What a cluster is made of: nodes, links with their numbers in the whole cluster, sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table

from simulator.readings.resolved import numbers_table
from simulator.units import readable
from simulator.world.catalog import Number
from simulator.world.topology.cluster import Cluster, LinkKind
from simulator.world.topology.graph import sample

__all__ = ["parts", "parts_tables"]


def parts(cluster: Cluster) -> dict[str, Any]:
    """Return the nodes, links and numbers of *cluster*."""
    built = sample(cluster)
    members = {str(data["kind"]): int(data["members"]) for _, _, data in built.edges(data=True)}
    links = [
        {
            "name": link.name,
            "from": link.ends[0],
            "to": link.ends[1],
            "count": _count(link, members),
            "bandwidth": link.bandwidth,
            "latency": link.latency.value,
        }
        for link in cluster.links
    ]
    present = Counter(node[0] for node in built)
    return {
        "name": cluster.name,
        "title": cluster.title,
        "hosts": cluster.hosts,
        "hosts_per_pod": cluster.hosts_per_pod,
        "ranks": cluster.ranks,
        "accelerator": cluster.accelerator.name,
        "nodes": [
            {"name": node.name, "kind": node.kind, "per": node.per, "count": node.count}
            for node in cluster.nodes
            if node.name in present
        ],
        "links": links,
        "numbers": [asdict(number) for number in cluster.numbers()],
    }


def _count(link: LinkKind, members: Mapping[str, int]) -> int:
    """Links of a kind in the cluster; of pairs and of a torus each direction is a kind of its own."""
    mine = {kind: number for kind, number in members.items() if kind.split(":")[0] == link.name}
    return sum(mine.values()) // 2 if mine else 0


def parts_tables(content: Mapping[str, Any]) -> Iterable[Table]:
    """Lay *content* out as tables."""
    title = f"{content['title']}: {content['hosts']} hosts, {content['ranks']} x {content['accelerator']}"
    nodes = Table(title=title, title_justify="left")
    for heading in ("node", "kind", "count"):
        nodes.add_column(heading)
    for node in content["nodes"]:
        nodes.add_row(node["name"], node["kind"], f"{node['count']} per {node['per']}")
    yield nodes
    links = Table(title="Links, each direction", title_justify="left")
    for heading in ("link", "between", "in the cluster", "bandwidth", "latency"):
        links.add_column(heading)
    for link in content["links"]:
        links.add_row(
            link["name"], f"{link['from']} - {link['to']}", str(link["count"]),
            readable(link["bandwidth"], "B/s"), readable(link["latency"], "s"),
        )  # fmt: skip
    yield links
    yield numbers_table(Number(**item) for item in content["numbers"])
