"""Ranks on devices, and the groups that collectives run over.

Rank ``r`` sits on device ``r mod G`` of host ``r div G``, with G devices per host.  A group is every rank of a block
of ``size * stride`` consecutive ranks that shares the same position modulo ``stride``; the whole cluster divides into
``ranks / size`` such groups, all of the same shape, and they all run the same collectives at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError

__all__ = ["Group", "Mesh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One of the equal groups that the cluster divides into."""

    name: str
    """Two groups of the same name are one communicator."""
    size: int
    """Ranks in the group."""
    stride: int
    """Distance between neighbours in rank numbers."""
    ranks_per_host: int
    """Members on each host that the group touches."""
    host_stride: int
    """Distance between neighbouring hosts of the group."""

    @property
    def hosts(self) -> int:
        """Hosts that the group touches."""
        return self.size // self.ranks_per_host

    def position(self, rank: int) -> int:
        """Place of *rank* among the members of its group."""
        return rank % (self.size * self.stride) // self.stride

    def members(self, rank: int) -> tuple[int, ...]:
        """Ranks of the group that *rank* belongs to, in order."""
        block = self.size * self.stride
        first = rank // block * block + rank % self.stride
        return tuple(range(first, first + block, self.stride))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Hosts times devices per host."""

    hosts: int
    devices_per_host: int

    @property
    def ranks(self) -> int:
        """World size."""
        return self.hosts * self.devices_per_host

    def world(self) -> Group:
        """All ranks."""
        return self.group("world", self.ranks)

    def group(self, name: str, size: int, stride: int = 1) -> Group:
        """Divide the world into groups of *size* ranks that are *stride* apart.

        Raises
        ------
        InputError
            The groups would not all have the same shape.
        """
        devices, block = self.devices_per_host, size * stride
        if size < 1 or stride < 1 or self.ranks % block:
            remedy = f"use a divisor of {self.ranks // stride if stride and self.ranks % stride == 0 else self.ranks}"
            raise InputError(f"does not divide the {self.ranks} ranks", key=name, value=size, remedy=remedy)
        if not (_nests(stride, devices) and _nests(block, devices)):
            remedy = f"use a divisor or a multiple of the {devices} devices of a host"
            raise InputError("groups would straddle hosts unevenly", key=name, value=size, remedy=remedy)
        per_host = 1 if stride >= devices else min(size, devices // stride)
        return Group(
            name=name, size=size, stride=stride, ranks_per_host=per_host, host_stride=max(1, stride // devices)
        )


def _nests(block: int, devices: int) -> bool:
    return block % devices == 0 or devices % block == 0
