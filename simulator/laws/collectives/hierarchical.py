"""Two levels: one algorithm inside hosts, another between the ranks of one rail.

A reduce-scatter reduces inside the host first, so that only 1/p of the payload goes on between hosts; an all-gather
is the mirror image; an all-reduce scatters inside, reduces between, gathers inside; an all-to-all first gives every
device what goes out on its rail, then sends along rails (two hops, fewer and larger messages between hosts).  With
direct exchanges and four-bit quantisation the reduce-scatter is ZeRO++'s gradient exchange (Wang et al. 2023, "ZeRO++",
section 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

from simulator.laws.collectives.base import AbstractAlgorithm, Collective, CollectiveKind, Exchange
from simulator.world.mesh import Group

__all__ = ["Hierarchical"]


@final
@dataclass(frozen=True, slots=True)
class Hierarchical(AbstractAlgorithm):
    """*inside* on each host, *between* the ranks of the same rail."""

    supports: ClassVar[frozenset[CollectiveKind]] = frozenset(
        {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"}
    )

    inside: AbstractAlgorithm
    between: AbstractAlgorithm

    def exchanges(self, collective: Collective) -> tuple[Exchange, ...]:
        host, rail = _levels(collective.group)
        share = collective.elements / host.size
        if collective.kind == "all_to_all":  # nothing is summed up, so both hops move the whole array
            return (
                *self.inside.exchanges(replace(collective, group=host)),
                *self.between.exchanges(replace(collective, group=rail)),
            )
        if collective.kind == "all_gather":
            return (
                *self.between.exchanges(replace(collective, group=rail, elements=share)),
                *self.inside.exchanges(replace(collective, group=host)),
            )
        if collective.kind == "reduce_scatter":
            return (
                *self.inside.exchanges(replace(collective, group=host)),
                *self.between.exchanges(replace(collective, group=rail, elements=share)),
            )
        return (
            *self.inside.exchanges(replace(collective, kind="reduce_scatter", group=host)),
            *self.between.exchanges(replace(collective, group=rail, elements=share)),
            *self.inside.exchanges(replace(collective, kind="all_gather", group=host)),
        )


def _levels(group: Group) -> tuple[Group, Group]:
    """Divide a group into its part on one host and its part on one rail."""
    p = group.ranks_per_host
    host = replace(group, size=p, host_stride=1)
    rail = replace(group, size=group.hosts, stride=group.stride * p, ranks_per_host=1)
    return host, rail
