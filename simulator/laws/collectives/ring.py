r"""The ring: every rank sends to its neighbour, n - 1 times 1/n of the payload.

.. math:: T = (n - 1) \alpha + \frac{n - 1}{n} \frac{S}{B}

for all-gather and reduce-scatter, twice that for all-reduce (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce
algorithms", section 3); broadcast and reduce pass the whole payload along a chain of n - 1 links, so a rank sends
(n - 1)/n of it on average, and every rank but the last all of it.  Over several hosts the rings of all rails together
let each rank send 1/p of its bytes to the next host and the rest to its neighbour on the host; a chunk that travels
once around crosses m - 1 times between hosts (NCCL ``src/graph/tuning.cc``, ``nInterSteps``).
"""

from __future__ import annotations

from typing import ClassVar, final

from simulator.laws.collectives.base import (
    AbstractAlgorithm,
    Collective,
    CollectiveKind,
    Exchange,
    Send,
    ring_factor,
)

__all__ = ["Ring"]


@final
class Ring(AbstractAlgorithm):
    """NCCL's ring over all ranks of the group, one ring per rail."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset(
        {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"}
    )

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group, passes = collective.group, ring_factor(collective.kind)
        n, p, m = group.size, group.ranks_per_host, group.hosts
        if n == 1:
            return ()
        sent = passes * collective.payload * (n - 1) / n
        peak = n / (n - 1) if collective.kind in ("broadcast", "reduce") else 1.0
        if m == 1:
            sends: tuple[Send, ...] = (Send(sent, hosts=0, devices=1, peak=peak),)
        elif p == 1:
            sends = (Send(sent, hosts=1, peak=peak),)
        else:
            inside = Send(sent * (p - 1) / p, hosts=0, devices=1, peak=peak)
            sends = (inside, Send(sent / p, hosts=1, peak=peak))
        return (Exchange(group=group, sends=sends, host_steps=passes * (n - m), network_steps=passes * (m - 1)),)
