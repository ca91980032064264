"""How many bytes a rank sends in a step, exactly and as papers count them.

Exact bytes come from what the algorithms of the collectives send: they carry the factor (n - 1)/n of n ranks, the
scales of quantised blocks, and both hops of a hierarchical exchange.  Papers count the payload of each collective
(twice for an all-reduce) in units of the model's size, the limit of many ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.laws.collectives.base import Collective, ring_factor
from simulator.laws.collectives.library import Library
from simulator.laws.offload import Transfer
from simulator.schedules.program import Program
from simulator.world.mesh import Mesh

__all__ = ["Traffic", "Volume", "volume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of the collectives of one role [B]."""

    role: str
    count: int
    """Collectives in one step."""
    payload: float
    """Whole arrays on the wire, twice for an all-reduce."""
    intra_host: float
    """Sent by each rank inside its host."""
    inter_host: float
    """Sent by each rank to other hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Traffic of one step of one rank."""

    roles: tuple[Traffic, ...]
    model_bytes: float
    """Size of the model in the precision of training [B]."""
    ranks_per_host: int
    transfers: Mapping[str, float] = field(default_factory=dict)
    """Copies of each rank between device, memory of the host and drives, by route [B]."""

    @property
    def intra_host(self) -> float:
        """Sent by each rank inside its host [B]."""
        return sum(role.intra_host for role in self.roles)

    @property
    def inter_host(self) -> float:
        """Sent by each rank to other hosts [B]."""
        return sum(role.inter_host for role in self.roles)

    @property
    def in_psi(self) -> float:
        """Payload in units of the model, as papers count."""
        return sum(role.payload for role in self.roles) / self.model_bytes

    @property
    def inter_host_in_psi(self) -> float:
        """Bytes that leave a host in units of the model, as ZeRO++ counts cross-node traffic."""
        return self.inter_host * self.ranks_per_host / self.model_bytes


def volume(program: Program, collectives: Library, mesh: Mesh, model_bytes: float) -> Volume:
    """Add up the collectives of *program*, and its copies to and from the host."""
    counts: dict[int, int] = defaultdict(int)
    for launch in program.launches:
        counts[launch.operation] += 1
    by_role: dict[str, list[Traffic]] = defaultdict(list)
    transfers: dict[str, float] = defaultdict(float)
    for index, operation in enumerate(program.operations):
        if isinstance(operation, Collective):
            by_role[operation.role].append(_traffic(operation, counts[index], collectives))
        elif isinstance(operation, Transfer):
            transfers[operation.route] += counts[index] * operation.amount
    return Volume(
        roles=tuple(_sum(role, parts) for role, parts in by_role.items()),
        model_bytes=model_bytes,
        ranks_per_host=mesh.devices_per_host,
        transfers=dict(transfers),
    )


def _traffic(collective: Collective, count: int, collectives: Library) -> Traffic:
    exchanges = collectives.exchanges(collective)
    sends = [send for exchange in exchanges for send in exchange.sends]
    return Traffic(
        role=collective.role,
        count=count,
        payload=count * ring_factor(collective.kind) * collective.wire_bytes if sends else 0.0,
        intra_host=count * sum(send.amount for send in sends if send.hosts == 0),
        inter_host=count * sum(send.amount for send in sends if send.hosts != 0),
    )


def _sum(role: str, parts: list[Traffic]) -> Traffic:
    return Traffic(
        role=role,
        count=sum(part.count for part in parts),
        payload=sum(part.payload for part in parts),
        intra_host=sum(part.intra_host for part in parts),
        inter_host=sum(part.inter_host for part in parts),
    )
