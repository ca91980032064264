r"""Where lanes are ranks of one job: a collective starts when the last of its members has reached it.

Lanes stand in rows of replications: lane r S + s is sampled rank s in replication r.  Of a group with more members than
are sampled the others are drawn: if arrivals of ranks on pace are independent and normal with mean m and deviation d,
the latest of n of them is

.. math:: m + d \, \Phi^{-1}(U^{1/n}), \quad U \sim \mathrm{uniform}(0, 1)

(the largest order statistic by inversion: David and Nagaraja, "Order Statistics", 3rd ed., 2003, section 2.1).  The
mean is that of the sampled ranks on pace in the replication, the deviation that around these means in all replications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Meeting", "Members"]

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]

NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Which sampled ranks meet in the groups of a communicator."""

    group: Numbers
    """Number of each sampled rank's group, (sampled,)."""
    others: Numbers
    """Members of each group that are not sampled, (groups,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """All groups of ranks that meet."""

    replications: int
    members: Mapping[int, Members]
    """By communicator."""
    everyone: Members
    """Who ends the step together."""
    on_pace: Numbers
    """Sampled ranks that stand for those that are not."""
    seed: Sequence[int] = field(default=(0,))
    """Of what is drawn."""

    def met(self, communicator: int, reached: Array, number: int) -> Array:
        """When the last member reached what the ranks *reached*, (lanes,); *number* tells it from other events."""
        return self._last(self.members[communicator], reached, number)

    def ended(self, ends: Array) -> Array:
        """When the last rank was done, (lanes,)."""
        return self._last(self.everyone, ends, -1)

    def _last(self, members: Members, reached: Array, number: int) -> Array:
        by_rank = reached.reshape(self.replications, -1)
        order = np.argsort(members.group, kind="stable")
        firsts = np.searchsorted(members.group[order], np.arange(len(members.others)))
        latest = np.maximum.reduceat(by_rank[:, order], firsts, axis=1)
        if members.others.any():
            latest = np.maximum(latest, self._drawn(by_rank[:, self.on_pace], members.others, number))
        return latest[:, members.group].reshape(-1)

    def _drawn(self, on_pace: Array, others: Numbers, number: int) -> Array:
        """When the latest of so many *others* come, (replications, groups)."""
        mean = on_pace.mean(axis=1, keepdims=True)
        deviation = np.sqrt(((on_pace - mean) ** 2).sum() / max(1, on_pace.size - len(on_pace)))
        chance = np.random.default_rng([*self.seed, number + 1]).random((self.replications, len(others)))
        largest = [[_largest(u, n) for u, n in zip(row, others.tolist(), strict=True)] for row in chance.tolist()]
        latest: Array = mean + deviation * np.array(largest)
        return latest


def _largest(chance: float, count: int) -> float:
    """Quantile of the largest of *count* standard normal numbers; minus infinity of none."""
    return NORMAL.inv_cdf(max(chance, 1e-300) ** (1 / count)) if count else -np.inf
