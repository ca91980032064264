"""SimAI's topology text, which its ns-3 back end reads and ``gen_Topo_Template.py`` writes.

First line: nodes, GPUs per server, NVSwitches, other switches, links, type of GPU.  Second line: ids of all switches,
the NVSwitches first.  Then one line per link: two ids, bandwidth, latency, error rate.  GPUs have the ids from 0 on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.errors import InputError
from simulator.world.topology.cluster import Technology
from simulator.world.topology.imported.inventory import Inventory, Nic
from simulator.world.topology.imported.layout import Figure, Layout, Link, Node, bandwidth, latency

__all__ = ["read", "recognised"]

FORMAT = "SimAI topology text"

_HEADER = re.compile(r"(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)$")
_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
_LINK = re.compile(rf"(\d+)\s+(\d+)\s+{_NUMBER}\s*([KMGT])bps\s+{_NUMBER}\s*(s|ms|us|ns)\s+(\S+)$")
_BITS = {"K": 1e3 / 8, "M": 1e6 / 8, "G": 1e9 / 8, "T": 1e12 / 8}
_FABRIC: Technology = "roce"  # what its ns-3 back end simulates
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cable:
    lower: int
    upper: int
    bandwidth: float
    """[B/s]"""
    latency: float
    """[s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    name: str
    per_host: int
    gpus: int
    nvswitches: frozenset[int]
    gpu_type: str
    inside: tuple[_Cable, ...]
    """GPU to NVSwitch."""
    access: tuple[_Cable, ...]
    """GPU to leaf, by GPU and in the order of the file."""
    above: tuple[_Cable, ...]
    """Between other switches."""

    @property
    def hosts(self) -> int:
        """Servers in the file."""
        return self.gpus // self.per_host

    def ports(self, host: int) -> list[_Cable]:
        """Cables from the GPUs of *host* to leaves."""
        return [cable for cable in self.access if cable.lower // self.per_host == host]


def recognised(text: str) -> bool:
    """True if the first line of *text* looks like SimAI's."""
    return bool(_HEADER.match(text.strip().partition("\n")[0].strip()))


def read(text: str, file: str) -> Inventory:
    """Read the *text* of a topology; *file* is its name.

    Raises
    ------
    InputError
        A line that is no link, numbers of nodes or links that do not add up.
    """
    content = _parse(text, file)
    layout, obstacle = _layout(content)
    ports = content.ports(0)
    links = [cable for cable in content.inside if cable.lower == 0]
    return Inventory(
        file=file,
        format=FORMAT,
        accelerators=content.per_host,
        hosts=content.hosts,
        scale_up="nvswitch" if links else "none" if content.per_host == 1 else "unknown",
        nics=tuple(
            Nic(
                name=f"gpu {cable.lower} to switch {cable.upper}",
                speed=cable.bandwidth,
                near=(cable.lower,),
                technology=_FABRIC,
            )
            for cable in ports
        ),
        rails=len({cable.upper for cable in ports}),
        notes=(f"the file calls its GPUs {content.gpu_type}", *_speed_note(links)),
        layout=layout,
        obstacle=obstacle,
    )


def _speed_note(links: Sequence[_Cable]) -> tuple[str, ...]:
    total = sum(cable.bandwidth for cable in links)
    return (f"{total / 1e9:g} GB/s from each GPU to NVSwitch",) if links else ()


def _parse(text: str, file: str) -> _File:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    header = _HEADER.match(lines[0]) if lines else None
    if not header or len(lines) < 2:
        expected = "nodes, GPUs per server, NVSwitches, switches, links, GPU type"
        raise InputError(f"expected a first line of {expected}", file=file, key="line 1")
    nodes, per_host, nvswitches, switches, links = (int(number) for number in header.groups()[:5])
    ids = [int(word) for word in lines[1].split() if word.isdigit()]
    gpus = nodes - nvswitches - switches
    if len(ids) != nvswitches + switches:
        problem = f"{len(ids)} ids of switches, but the first line counts {nvswitches} + {switches}"
        raise InputError(problem, file=file, key="line 2")
    if gpus < 1 or per_host < 1 or gpus % per_host:
        raise InputError(f"{gpus} GPUs do not fill servers of {per_host}", file=file, key="line 1")
    cables = [_cable(line, nodes, gpus, file) for line in lines[2:]]
    if len(cables) != links:
        remedy = "the file may be cut off"
        raise InputError(f"{len(cables)} links, but the first line counts {links}", file=file, remedy=remedy)
    return _sorted(cables, gpus, per_host, frozenset(ids[:nvswitches]), file, header[6])


def _sorted(
    cables: list[_Cable], gpus: int, per_host: int, nvswitches: frozenset[int], file: str, gpu_type: str
) -> _File:
    low = [cable for cable in cables if cable.lower < gpus]
    access = [cable for cable in low if cable.upper not in nvswitches]
    return _File(
        name=file,
        per_host=per_host,
        gpus=gpus,
        nvswitches=nvswitches,
        gpu_type=gpu_type,
        inside=tuple(cable for cable in low if cable.upper in nvswitches),
        access=tuple(sorted(access, key=lambda cable: cable.lower)),
        above=tuple(cable for cable in cables if cable.lower >= gpus),
    )


def _cable(line: str, nodes: int, gpus: int, file: str) -> _Cable:
    found = _LINK.match(line)
    if not found:
        remedy = "write it like '0 16 400Gbps 0.0005ms 0'"
        raise InputError("expected two ids, bandwidth, latency, error rate", file=file, value=line, remedy=remedy)
    one, other = sorted((int(found[1]), int(found[2])))
    if float(found[3]) == 0:
        raise InputError("expected a bandwidth above zero", file=file, value=line)
    if other >= nodes or other < gpus:
        raise InputError(f"a link must end at a switch with an id from {gpus} to {nodes - 1}", file=file, value=line)
    return _Cable(
        lower=one,
        upper=other,
        bandwidth=float(found[3]) * _BITS[found[4]],
        latency=float(found[5]) * _SECONDS[found[6]],
    )


def _layout(content: _File) -> tuple[Layout | None, str]:
    """Return the cluster, or why it cannot be written."""
    regular = "hosts of a pod are wired alike, every leaf to every spine, links of a kind are equal"
    remedy = "write the cluster file by hand"
    if content.inside and not _alike(content.inside, content.gpus):
        return None, f"GPUs have unequal links to NVSwitch, but {regular}; {remedy}"
    pods = _pods(content)
    if pods is None:
        return None, f"hosts reach their first switches in different ways, but {regular}; {remedy}"
    spines = _spines(content, pods[0])
    if spines is None:
        return None, f"the upper switches are not two tiers of leaf and spine, but {regular}; {remedy}"
    return _written(content, *pods, spines), ""


def _alike(cables: Sequence[_Cable], gpus: int) -> bool:
    per_gpu = [0] * gpus
    for cable in cables:
        per_gpu[cable.lower] += 1
    return len({(cable.bandwidth, cable.latency) for cable in cables}) == 1 and len(set(per_gpu)) == 1


def _pods(content: _File) -> tuple[list[list[int]], int] | None:
    """Leaves of each pod in the order of the ports that reach them, hosts per pod; None if not wired like a cluster."""
    if not content.access:
        return [], content.hosts
    if not _alike(content.access, content.gpus):
        return None
    pods: list[list[int]] = []
    sizes: list[int] = []
    for host in range(content.hosts):
        uppers = [cable.upper for cable in content.ports(host)]
        leaves = list(dict.fromkeys(uppers))
        if uppers != [leaves[port * len(leaves) // len(uppers)] for port in range(len(uppers))]:
            return None
        if not pods or pods[-1] != leaves:
            pods.append(leaves)
            sizes.append(0)
        sizes[-1] += 1
    every = [leaf for pod in pods for leaf in pod]
    equal = len({len(pod) for pod in pods}) == 1 and len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]
    return (pods, sizes[0]) if len(set(every)) == len(every) and equal else None


def _spines(content: _File, pods: list[list[int]]) -> list[_Cable] | None:
    """One cable, of added bandwidth, from the first leaf to each spine; None if leaves differ."""
    leaves = {leaf for pod in pods for leaf in pod}
    joined: dict[tuple[int, int], list[_Cable]] = defaultdict(list)
    for cable in content.above:
        ends = sorted((cable.lower, cable.upper), key=lambda end: end not in leaves)
        if ends[0] not in leaves or ends[1] in leaves:
            return None
        joined[ends[0], ends[1]].append(cable)
    spines = sorted({spine for _, spine in joined})
    widths = {(sum(cable.bandwidth for cable in cables), cables[0].latency) for cables in joined.values()}
    if len(joined) != len(leaves) * len(spines) or len(widths) > 1 or (len(pods) > 1 and not spines):
        return None
    return [_Cable(lower=0, upper=spine, bandwidth=width, latency=delay) for spine in spines for width, delay in widths]


def _written(content: _File, pods: list[list[int]], per_pod: int, spines: list[_Cable]) -> Layout:
    nodes = [Node(name="device", kind="device", per="host", count=content.per_host)]
    links = []
    mine = [cable for cable in content.inside if cable.lower == 0]
    if mine:
        nodes.append(Node(name="nvswitch", kind="switch", per="host", count=1))
        total = sum(cable.bandwidth for cable in mine)
        links.append(_link("nvlink", "nvlink", ("device", "nvswitch"), total, mine[0].latency, content.name))
    if pods:
        first = content.access[0]
        ports = len(content.ports(0))
        nodes.append(Node(name="nic", kind="nic", per="host", count=ports))
        nodes.append(Node(name="leaf", kind="switch", per="pod", count=len(pods[0])))
        where = f"{content.name} has no PCIe: never narrower than the port"
        links.append(_link("pcie", "pcie", ("device", "nic"), first.bandwidth, 0.0, where))
        links.append(_link("network", _FABRIC, ("nic", "leaf"), first.bandwidth, first.latency, content.name))
    if spines:
        nodes.append(Node(name="spine", kind="switch", per="cluster", count=len(spines)))
        width, delay = spines[0].bandwidth, spines[0].latency
        links.append(_link("uplink", _FABRIC, ("leaf", "spine"), width, delay, content.name))
    return Layout(nodes=tuple(nodes), links=tuple(links), hosts=content.hosts, hosts_per_pod=per_pod)


def _link(name: str, technology: Technology, ends: tuple[str, str], width: float, delay: float, where: str) -> Link:
    return Link(
        name=name,
        technology=technology,
        ends=ends,
        wiring="all" if name in ("nvlink", "uplink") else "spread",
        bandwidth=Figure(value=bandwidth(width), basis="published", source="simulator", at=where),
        latency=Figure(value=latency(delay), basis="published", source="simulator", at=where),
    )
