r"""Lanes in which two collectives that use the same link ran at the same time.

Times are exact until the first instant at which two transfers share a link.  At that instant both are under way in the
vectorised pass too, because the earlier one ran alone until then.  So a lane without such a pair is exact, and a lane
with one is for the engine.  Collectives count from start to end, latency included: a lane too many falls back, never
one too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.lanes import Array, Lanes

__all__ = ["shares_a_link"]

Mask = npt.NDArray[np.bool_]


def shares_a_link(lanes: Lanes, starts: Sequence[Array], ends: Sequence[Array]) -> Mask:
    """Say for each lane whether collectives of different communicators met on a link."""
    links, operations = lanes.links, lanes.plan.operations
    found = np.zeros(lanes.count, dtype=np.bool_)
    for some, others in combinations(lanes.plan.served, 2):
        used = [np.bitwise_or.reduce([links[operations[index]] for index in served]) for served in (some, others)]
        if (used[0] & used[1]).any():
            for one, other in _side_by_side(some, others, starts, ends):
                together = (starts[one] < ends[other]) & (starts[other] < ends[one])
                found |= together & ((links[operations[one]] & links[operations[other]]) != 0)
    return found


def _side_by_side(
    some: Sequence[int], others: Sequence[int], starts: Sequence[Array], ends: Sequence[Array]
) -> list[tuple[int, int]]:
    """Pairs that overlap in any lane, or nearly; each communicator serves one after another."""
    pairs, first = [], 0
    for one in some:
        while first < len(others) and not np.count_nonzero(ends[others[first]] > starts[one]):
            first += 1
        for other in others[first:]:
            if not np.count_nonzero(starts[other] < ends[one]):
                break
            pairs.append((one, other))
    return pairs
