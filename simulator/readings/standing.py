"""How the hosts of a cluster stand in pods and zones, and how much the network above them narrows.

A switch of a tier takes traffic from below and hands part of it up.  With D the bandwidth of all links from below into
the switches of one full pod or zone, and U that of all their links upwards, the tier narrows by D to U: its
*oversubscription*.  One to one never blocks, four to one leaves each host a quarter when all send upwards at once.
"""

from __future__ import annotations

from simulator.world.topology.cluster import DEVICE, Cluster, LinkKind, NodeKind, Scope
from simulator.world.topology.torus import neighbours

__all__ = ["links_from_each", "narrowing", "standing"]


def standing(cluster: Cluster) -> str:
    """Say in which pods and zones the hosts stand; nothing if they all share one pod.

    >>> from simulator.world.topology.cluster import load_cluster
    >>> standing(load_cluster("dgx-a100-80gb", hosts=60)), standing(load_cluster("dgx-a100-80gb", hosts=2))
    ('packed into 3 pods of up to 20 hosts', '')
    """
    if cluster.pods == 1:
        return ""
    zones = cluster.containers("zone")
    where = f"{cluster.pods} pods of up to {cluster.hosts_per_pod} host{'s' if cluster.hosts_per_pod > 1 else ''}"
    inside = f" in {zones} zones" if zones > 1 else ""
    return f"{cluster.placement} {'into' if cluster.placement == 'packed' else 'over'} {where}{inside}"


def links_from_each(cluster: Cluster, link: LinkKind) -> int:
    """Links upwards, or on a torus onwards, from one node at the lower end of *link*, which is not wired in pairs."""
    if link.wiring == "torus":
        return sum(1 for _ in neighbours(0, link.axes))
    lower, upper = (cluster.node(end) for end in link.ends)
    return upper.count if link.wiring == "all" else max(1, upper.count // lower.count)


def narrowing(cluster: Cluster, link: LinkKind) -> float | None:
    """Bandwidth into the switches at the lower end of *link* over that out of them upwards, pods and zones full.

    Returns
    -------
    The oversubscription of the tier; None inside a host, where nothing is shared out by a fabric.
    """
    lower = cluster.node(link.ends[0])
    if lower.per == "host":
        return None
    down = sum(_total(cluster, other, lower.per) for other in cluster.links if other.ends[1] == lower.name)
    up = sum(_total(cluster, other, lower.per) for other in cluster.links if other.ends[0] == lower.name)
    return down / up


def _total(cluster: Cluster, link: LinkKind, scope: Scope) -> float:
    """Bandwidth of all links of a kind whose lower ends stand in one full *scope* [B/s]."""
    lower = cluster.node(link.ends[0])
    inside = _hosts(cluster, scope) / _hosts(cluster, lower.per)
    return _count(cluster, lower) * inside * links_from_each(cluster, link) * link.bandwidth


def _hosts(cluster: Cluster, scope: Scope) -> int:
    """Hosts that a full *scope* holds."""
    full = {"host": 1, "pod": cluster.hosts_per_pod, "zone": cluster.hosts_per_zone, "cluster": cluster.hosts}
    return full[scope]


def _count(cluster: Cluster, node: NodeKind) -> int:
    return cluster.accelerators_per_host if node.name == DEVICE else node.count
