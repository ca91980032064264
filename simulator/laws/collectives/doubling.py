r"""Recursive doubling: log2(n) steps, each with twice the data of the one before.

.. math:: T = \lceil \log_2 n \rceil \alpha + \frac{n - 1}{n} \frac{S}{B}

In step i a rank exchanges min(2^i, n - 2^i) chunks with the rank 2^i places away (Bruck et al. 1997, "Efficient
algorithms for all-to-all communications", section 3; Thakur et al. 2005 for the reduce-scatter run backwards).  The
bandwidth term equals the ring's, the latency term grows with the logarithm; NCCL's PAT belongs to this family.
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

__all__ = ["RecursiveDoubling"]


@final
class RecursiveDoubling(AbstractAlgorithm):
    """All-gather by doubling, reduce-scatter by halving, all-reduce by both."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset({"all_gather", "reduce_scatter", "all_reduce"})

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        group, passes = collective.group, ring_factor(collective.kind)
        return tuple(self._step(collective, passes, 1 << step) for step in range((group.size - 1).bit_length()))

    def _step(self, collective: Collective, passes: int, distance: int) -> Exchange:
        """Exchange with the rank *distance* places away, on the way there and, for an all-reduce, on the way back."""
        group = collective.group
        amount = passes * collective.payload * min(distance, group.size - distance) / group.size
        sends = tuple(_sends(amount, distance, group.ranks_per_host, group.hosts))
        away = passes * any(send.hosts for send in sends)
        return Exchange(group=group, sends=sends, host_steps=passes - away, network_steps=away)


def _sends(amount: float, distance: int, ranks_per_host: int, hosts: int) -> list[Send]:
    """Split a message to the rank *distance* places on into the part that stays on the host and the rest."""
    whole, rest = divmod(distance, ranks_per_host)
    parts = (
        (whole % hosts, rest, amount * (ranks_per_host - rest) / ranks_per_host),
        ((whole + 1) % hosts, rest, amount * rest / ranks_per_host),
    )
    return [
        Send(part, hosts=away, devices=0 if away else near) for away, near, part in parts if part and (away or near)
    ]
