r"""Max-min fair sharing of links by transfers.

Raise the rates of all transfers together until a link is full; freeze the transfers that cross it; go on with the
others (progressive filling, Bertsekas and Gallager 1992, "Data Networks", section 6.5.2).  The result is the only
allocation in which every transfer crosses a full link on which no other transfer is faster.

Symbols: usage :math:`u_{lt} \ge 0` of link l by transfer t (bytes per byte of its payload), capacity :math:`c_l`,
rate :math:`x_t`; for every link :math:`\sum_t u_{lt} x_t \le c_l`.

Fair in what?  A transfer's usage is 1 on its own busiest link, so its payload rate is the rate of its bottleneck: two
collectives that meet at a network card get half of the card each, however lightly either loads other links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

__all__ = ["max_min_rates"]


def max_min_rates(usage: Sequence[Sequence[tuple[int, float]]], capacity: Sequence[float]) -> list[float]:
    """Max-min fair progress of transfers that share links.

    Parameters
    ----------
    usage : (transfers,), each a sparse column of (link, usage > 0)
        Bytes a transfer puts on a link per byte of its payload [B/B].
    capacity : (links,), > 0
        Bandwidth in one direction [B/s].

    Returns
    -------
    (transfers,)
        [B/s]; infinite for a transfer that uses no link.

    Examples
    --------
    Three transfers over two links: the first link is shared by two, what is left of the second goes to the third.

    >>> max_min_rates([[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(1, 1.0)]], [1.0, 2.0])
    [0.5, 0.5, 1.5]
    """
    rate = [float("inf")] * len(usage)
    left = {link: capacity[link] for column in usage for link, _ in column}
    rising = {index: column for index, column in enumerate(usage) if column}
    level = 0.0
    while rising:
        demand: dict[int, float] = defaultdict(float)
        for column in rising.values():
            for link, share in column:
                demand[link] += share
        grow, full = min((left[link] / share, link) for link, share in demand.items())
        level += grow
        for link, share in demand.items():
            left[link] = max(0.0, left[link] - grow * share)
        left[full] = 0.0  # exactly, so that rounding cannot keep the loop alive
        for index, column in list(rising.items()):
            if any(left[link] <= 0.0 for link, _ in column):
                rate[index] = level
                del rising[index]
    return rate
