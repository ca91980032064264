"""Unions of intervals, as trace analysers count them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["length", "merged", "overlap"]


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Union of *intervals* as disjoint intervals in order.

    >>> merged([(3, 4), (0, 2), (1, 2.5), (5, 5)])
    [(0, 2.5), (3, 4)]
    """
    union: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def length(intervals: Iterable[tuple[float, float]]) -> float:
    """Total length of disjoint *intervals*."""
    return sum(end - start for start, end in intervals)


def overlap(some: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> float:
    """Total length of the intersection of two unions of disjoint intervals in order."""
    total, index = 0.0, 0
    for start, end in some:
        while index < len(others) and others[index][1] <= start:
            index += 1
        following = index
        while following < len(others) and others[following][0] < end:
            total += min(end, others[following][1]) - max(start, others[following][0])
            following += 1
    return total
