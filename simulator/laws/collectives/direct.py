r"""Direct exchange: every rank sends 1/n of its array to every other rank.

This is the all-to-all, and the reduce-scatter that ZeRO++ builds from it (exchange, then sum locally).  With PXN bytes
for another host leave on the rail of their destination: they first cross the host's switch to the device on that rail,
so (p - 1)/p of them load the scale-up links too (``ncclTopoGetNetDev`` in NCCL ``src/graph/search.cc``).  Without it
they leave by the sender's own card, and (p - 1)/p of them change rails in the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from simulator.laws.collectives.base import AbstractAlgorithm, Collective, CollectiveKind, Exchange, Send

__all__ = ["Direct"]


@final
@dataclass(frozen=True, slots=True)
class Direct(AbstractAlgorithm):
    """All-to-all by point-to-point messages, all started at once."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset({"all_to_all", "reduce_scatter"})

    pxn: bool = True
    """Whether messages reach the rail of their destination inside the sender's host."""

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group, payload = collective.group, collective.payload
        n, p, m = group.size, group.ranks_per_host, group.hosts
        if n == 1:
            return ()
        away = payload * (n - p) / n
        near = payload * (p - 1) / n + (away * (p - 1) / p if self.pxn else 0.0)
        sends = []
        if p > 1:
            sends.append(Send(near, hosts=0, devices=None))
        if m > 1:
            sends.append(Send(away, hosts=None, devices=0 if self.pxn else None))
        return (Exchange(group=group, sends=tuple(sends), host_steps=int(p > 1), network_steps=int(m > 1)),)
