r"""Where the hosts of a job stand: in which pod, in which zone.

``packed``
    In order: a pod is filled before the next one begins, so that neighbours in rank order mostly share it.  A ring
    leaves a pod of h hosts once, and its uplinks carry 1/h of what the hosts send.
``scattered``
    Round robin over zones and pods, as a busy scheduler leaves them: neighbours never share a pod if there are several,
    and every message of a ring climbs.

With Z zones of Q pods, host i of a scattered job stands in zone i mod Z, there in pod (i div Z) mod Q.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.world.topology.kinds import Cluster, Scope
from simulator.world.topology.torus import neighbours, torus_link

__all__ = ["Partners", "partners", "place_of", "sample_hosts", "staying"]


class Partners(NamedTuple):
    """For each distance a host that is so far from host 0; None if there is none."""

    pod: int | None
    """In the same pod."""
    zone: int | None
    """In another pod of the same zone."""
    beyond: int | None
    """In another zone."""


def place_of(cluster: Cluster, host: int, scope: Scope) -> int:
    """Number of the host, pod, zone or cluster in which *host* stands."""
    if scope == "host":
        return host
    if scope == "cluster":
        return 0
    if cluster.placement == "packed":
        return host // (cluster.hosts_per_pod if scope == "pod" else cluster.hosts_per_zone)
    zones, pods = cluster.containers("zone"), _pods_of_a_zone(cluster)
    zone = host % zones
    return zone if scope == "zone" else zone * pods + host // zones % pods


def partners(cluster: Cluster) -> Partners:
    """Hosts that show every kind of route from host 0."""
    pod, zone = cluster.hosts_per_pod, cluster.hosts_per_zone
    if cluster.placement == "packed":
        found: tuple[int | None, ...] = (1 if pod > 1 else None, pod if pod < zone else None, zone)
    else:
        zones, pods = cluster.containers("zone"), _pods_of_a_zone(cluster)
        found = (zones * pods, zones if pods > 1 else None, 1 if zones > 1 else None)
    return Partners(*(host if host is not None and host < cluster.hosts else None for host in found))


def sample_hosts(cluster: Cluster) -> list[int]:
    """Host 0 and a partner at each distance; on a torus, its neighbours."""
    torus = torus_link(cluster)
    if torus is not None:
        return sorted({0, *(host for _, host in neighbours(0, torus.axes))})
    return sorted({0, *(host for host in partners(cluster) if host is not None)})


def staying(cluster: Cluster, offset: int | None, stride: int, hosts: int) -> tuple[float, float]:
    """Parts of *hosts*, *stride* apart, whose partner *offset* of them on shares the pod, and the zone.

    An *offset* of None means all others alike.
    """
    spans = cluster.hosts_per_pod, cluster.hosts_per_zone
    if cluster.placement == "packed":
        within = [_staying_packed(offset, max(1, span // stride), hosts) for span in spans]
        return within[0], within[1]
    zones, pods = cluster.containers("zone"), _pods_of_a_zone(cluster)
    if offset is None:
        pod, zone = (max(0.0, hosts / rounds - 1) / (hosts - 1) for rounds in (zones * pods, zones))
        return pod, zone
    return float(offset * stride % (zones * pods) == 0), float(offset * stride % zones == 0)


def _pods_of_a_zone(cluster: Cluster) -> int:
    return -(-cluster.pods // cluster.containers("zone"))


def _staying_packed(offset: int | None, span: int, hosts: int) -> float:
    if hosts <= span:
        return 1.0
    containers = -(-hosts // span)
    mean = hosts / containers  # the last one may be filled only in part
    if offset is None:
        last = hosts - (containers - 1) * span
        most = max(size * (hosts - size) for size in (span, last))  # of the one that sends most to the others
        return 1 - containers / hosts * most / (hosts - 1)
    shortest = min(offset % hosts, -offset % hosts)
    return max(0.0, mean - shortest) / mean
