"""What a cluster is made of: kinds of nodes and how kinds are wired.

A cluster is a set of equal hosts.  Hosts stand in pods (hosts that share first-level switches), pods in zones (pods
that share second-level switches), zones in the cluster.  A node kind says how many such nodes there are *per* host,
pod, zone or cluster; a link kind says which kinds it joins and how it is wired:

``all``
    every node of the lower kind to every node of the upper kind in reach;
``spread``
    in order of index: with as many uppers as lowers i to i, with fewer in equal blocks, with more a block each
    (GPU to its nearest NIC, NIC i to the leaf switch of rail i);
``pairs``
    devices of a host straight to each other: ``pairs`` lists both indices and how many links join them, and without
    a list every pair has one (the cube mesh of a DGX-1, the full mesh of an MI300X).

So a file of twenty lines describes the cluster at any number of hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.world.catalog import Accelerator, Number
from simulator.world.server import Server
from simulator.world.topology.measured import MeasuredCollective

__all__ = [
    "DEVICE",
    "NCCL_ALGORITHMS",
    "NCCL_PROTOCOLS",
    "SCALE_UP",
    "Cluster",
    "Forced",
    "Library",
    "LinkKind",
    "NodeKind",
    "OtherHosts",
    "Placement",
    "Scope",
    "Technology",
    "Wiring",
]

DEVICE = "device"
"""Name of the node kind that ranks sit on."""

Scope = Literal["host", "pod", "zone", "cluster"]

Wiring = Literal["all", "spread", "pairs", "torus"]
"""How a link kind joins nodes; ``torus`` only as a fabric, see :mod:`simulator.world.topology.fabrics`."""

Technology = Literal["nvlink", "xgmi", "pcie", "infiniband", "roce", "efa", "tcp", "other"]
"""What a link is, for libraries that treat kinds differently."""

SCALE_UP: frozenset[Technology] = frozenset({"nvlink", "xgmi"})
"""What joins devices of a host and no cards."""

Placement = Literal["packed", "scattered"]

Library = Literal["nccl", "rccl", "ring", "recursive_doubling", "hierarchical"]
"""What carries out collectives: a communication library as it behaves, or one textbook algorithm at all sizes."""


NCCL_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
NCCL_PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """What a user prescribes to NCCL instead of its tuner's choice."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    """Of rings and trees."""
    sharp: bool = False
    """Switches of the network reduce (CollNet)."""
    pxn: bool = True
    """Messages of an all-to-all reach the rail of their destination inside the sender's host."""
    two_hop: bool = False
    """An all-to-all goes inside hosts first, then along rails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that play the same part."""

    name: str
    kind: Literal["device", "switch", "nic"]
    per: Scope
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkKind:
    """Links that play the same part; every link has two directions of equal bandwidth."""

    name: str
    technology: Technology
    ends: tuple[str, str]
    """Lower node kind, upper node kind."""
    wiring: Wiring
    pairs: tuple[tuple[int, int, int], ...] = ()
    """Of ``pairs``: two devices and the number of links between them."""
    axes: tuple[int, ...] = ()
    """Of ``torus``: hosts along each axis; see :mod:`simulator.world.topology.torus`."""
    nominal: Number
    """Bandwidth of one link in one direction [B/s], before efficiency."""
    efficiency: Number | None
    """Fraction of the nominal bandwidth that payload can use."""
    latency: Number
    """Of crossing the link once, with its share of software [s]."""

    @property
    def bandwidth(self) -> float:
        """Payload bandwidth in one direction [B/s]."""
        return self.nominal.value * (self.efficiency.value if self.efficiency else 1.0)

    def numbers(self) -> tuple[Number, ...]:
        """Every number of the link."""
        return (self.nominal, self.latency, *([self.efficiency] if self.efficiency else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherHosts:
    """Hosts that differ from those of the file in accelerator or links."""

    hosts: int
    accelerator: Accelerator
    links: tuple[LinkKind, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cluster:
    """Hosts of one layout, wired alike; the same only as itself, so that what is built of it can be kept."""

    name: str
    title: str
    accelerator: Accelerator
    hosts: int
    accelerators_per_host: int
    """Devices in use on each host."""
    hosts_per_pod: int
    hosts_per_zone: int
    """A multiple of the hosts of a pod."""
    nodes: tuple[NodeKind, ...]
    links: tuple[LinkKind, ...]
    """Lower kinds first."""
    placement: Placement = "packed"
    """How the job's hosts are spread over pods and zones."""
    library: Library = "nccl"
    """What carries out collectives unless the scenario says otherwise."""
    cpu: Literal["intel", "amd", "arm"] = "intel"
    """Vendor of the hosts' CPUs; NCCL reckons with slower proxies on AMD's."""
    measured: tuple[MeasuredCollective, ...] = ()
    """Times that take the place of the model's."""
    others: tuple[OtherHosts, ...] = ()
    """The last hosts, where they are of other types; see :mod:`simulator.world.topology.mixed`."""
    server: Server | None = None
    """What all hosts have beside their devices; None: what is usual, see :mod:`simulator.world.topology.servers`."""

    @property
    def ranks(self) -> int:
        """Devices in use in the whole cluster."""
        return self.hosts * self.accelerators_per_host

    @property
    def pods(self) -> int:
        """Pods that the hosts fill."""
        return -(-self.hosts // self.hosts_per_pod)

    def containers(self, scope: Scope) -> int:
        """Hosts, pods, zones that there are, or one cluster."""
        return {
            "host": self.hosts,
            "pod": self.pods,
            "zone": -(-self.hosts // self.hosts_per_zone),
            "cluster": 1,
        }[scope]

    @property
    def direct(self) -> LinkKind | None:
        """Links that join the devices of a host in pairs; None where a switch does."""
        return next((link for link in self.links if link.wiring == "pairs"), None)

    def node(self, name: str) -> NodeKind:
        """Return the node kind called *name*."""
        return next(node for node in self.nodes if node.name == name)

    def numbers(self) -> tuple[Number, ...]:
        """Every catalogue number of links and accelerator."""
        parts: tuple[Cluster | OtherHosts, ...] = (self, *self.others)
        return tuple(
            dict.fromkeys(
                number
                for part in parts
                for numbers in (part.accelerator.numbers(), *(link.numbers() for link in part.links))
                for number in numbers
            )
        )
