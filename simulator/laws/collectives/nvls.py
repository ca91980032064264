r"""Reduction in the switches: NVLink SHARP on a host, SHARP in the network.

The NVSwitch adds up what devices send and multicasts the result (NCCL ``src/transport/nvls.cc``).  For an all-reduce
each device sends its payload once for the sum and a 1/p of it once more for the multicast,

.. math:: S \frac{p + 1}{p}

where a ring sends 2 S (p - 1)/p.  Gathering and scattering gain nothing in the busier direction.  Over several hosts
the sums go on along a tree (NVLSTree), or to switches of the network that reduce too (CollNet).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from simulator.laws.collectives.base import (
    AbstractAlgorithm,
    Collective,
    CollectiveKind,
    Exchange,
    Send,
    ring_factor,
)
from simulator.laws.collectives.tree import tree_sends

__all__ = ["CollNet", "Nvls", "NvlsTree"]

_REDUCTIONS: frozenset[CollectiveKind] = frozenset({"all_gather", "reduce_scatter", "all_reduce"})


@final
class Nvls(AbstractAlgorithm):
    """Sums and multicasts in the switch of one host."""

    supports: ClassVar[frozenset[CollectiveKind]] = _REDUCTIONS

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group = collective.group
        if group.size == 1:
            return ()
        sends = (Send(_on_host(collective), hosts=0, devices=1),)
        return (Exchange(group=group, sends=sends, host_steps=1, network_steps=0),)


@final
class NvlsTree(AbstractAlgorithm):
    """Sums in the switches of hosts, trees between them."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset({"all_reduce"})

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group, payload = collective.group, collective.payload
        p, m = group.ranks_per_host, group.hosts
        if group.size == 1:
            return ()
        sends = [Send(_on_host(collective), hosts=0, devices=1)] if p > 1 else []
        sends += tree_sends(2 * payload / p, m)
        steps = 2 * (m.bit_length() - 1)
        return (Exchange(group=group, sends=tuple(sends), host_steps=int(p > 1), network_steps=steps),)


@final
@dataclass(frozen=True, slots=True)
class CollNet(AbstractAlgorithm):
    """Every host sends its sum into the network once and gets the result back once."""

    supports: ClassVar[frozenset[CollectiveKind]] = _REDUCTIONS

    in_switch: bool = False
    """Whether the switch of the host reduces too (NVLS over several hosts)."""

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group, payload = collective.group, collective.payload
        p, m = group.ranks_per_host, group.hosts
        if group.size == 1:
            return ()
        inside = ring_factor(collective.kind) * payload * (p - 1) / p
        sends = [Send(_on_host(collective) if self.in_switch else inside, hosts=0, devices=1)] if p > 1 else []
        if m > 1:  # to the switches and back loads a card once in each direction, as one message to a neighbour does
            sends.append(Send(payload / p, hosts=1))
        return (Exchange(group=group, sends=tuple(sends), host_steps=2 * (p > 1), network_steps=int(m > 1)),)


def _on_host(collective: Collective) -> float:
    """Bytes in the busier direction of each device's link."""
    p = collective.group.ranks_per_host
    return collective.payload * ((p + 1) / p if collective.kind == "all_reduce" else (p - 1) / p)
