"""The Pareto front: what is left when everything goes that something else beats.

One row dominates another if it is at least as good in every column and better in one.  The front are the rows that no
row dominates (Pareto, Manuale di economia politica, 1906; Kung, Luccio and Preparata, J. ACM 22(4), 1975).  Equal
rows do not dominate each other: all of them are on the front, or none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["front"]


def front(rows: Sequence[Sequence[float]]) -> list[int]:
    """Numbers of the rows that are on the front, ascending.

    Parameters
    ----------
    rows
        ``(rows, columns)``; less is better in every column.

    >>> front([[1, 4], [2, 2], [3, 3], [4, 1]])
    [0, 1, 3]
    """
    if not rows:
        return []
    values = np.asarray(rows, dtype=np.float64)
    rest = np.lexsort(values.T[::-1])  # what dominates a row stands before it
    members: list[int] = []
    while len(rest):
        first = values[rest[0]]
        members.append(int(rest[0]))
        rest = rest[1:]
        beaten = (first <= values[rest]).all(axis=1) & (first < values[rest]).any(axis=1)
        rest = rest[~beaten]
    return sorted(members)
