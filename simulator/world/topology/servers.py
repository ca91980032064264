"""Which server the devices of a cluster stand in."""

from __future__ import annotations

from simulator.world.server import Server, server
from simulator.world.topology.kinds import DEVICE, SCALE_UP, Cluster, LinkKind

__all__ = ["device_link", "server_of", "usual_server"]


def server_of(cluster: Cluster) -> Server:
    """Return the server of a host of *cluster*: what its scenario says, or the usual one."""
    return cluster.server or server(usual_server(cluster))


def usual_server(cluster: Cluster) -> str:
    """Name of the server in which such devices usually stand."""
    if cluster.cpu == "arm":
        return "grace"
    joined = any(link.technology in SCALE_UP for link in cluster.links)
    if cluster.accelerator.generation == "ada" or (not joined and device_link(cluster) is not None):
        return "pcie"
    return cluster.accelerator.generation


def device_link(cluster: Cluster) -> LinkKind | None:
    """Return the PCIe link of a device, which copies to the host's memory share with messages to the network."""
    mine = (link for link in cluster.links if link.technology == "pcie" and link.ends[0] == DEVICE)
    return next((link for link in mine if link.wiring != "pairs"), None)
