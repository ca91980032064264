r"""Tile and wave quantisation: the part of the multiprocessors' time that a matrix product uses.

A product of m x k and k x n elements is cut into tiles of a x b results, each worked out by one multiprocessor.  M of
them work at the same time, so the product takes whole *waves*, and what hangs over its edges is worked out for
nothing (NVIDIA, Matrix Multiplication Background, sections 3.1 to 3.3):

.. math:: u = \frac{m n}{a b \, M w} \, e(a, b), \qquad
   w = \left\lceil \frac{\lceil m/a \rceil \lceil n/b \rceil s}{M} \right\rceil \frac{1}{s}

Where there are few tiles the sum over k is split s times as well, into parts that are long enough.  Per element of
the sum a tile loads a + b operands for a b products, so with c the cost of a load in products, and relative to the
largest tile,

.. math:: e(a, b) = \frac{1 + c \,(a_0 + b_0) / (a_0 b_0)}{1 + c \,(a + b) / (a b)}

The library takes the best of the tiles that it has.  Large products of a training step use 0.9 to 1 of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from simulator.world.catalog import Tiles

__all__ = ["utilisation"]


@lru_cache(maxsize=4096)
def utilisation(m: float, n: float, k: float, multiprocessors: float, tiles: Tiles, count: int = 1) -> float:
    """Return the useful part of the time of all multiprocessors, at most 1.

    Parameters
    ----------
    m, n, k
        Sizes: m x k times k x n.
    count
        Products alike that run as one kernel.

    Examples
    --------
    Two tiles of 256 x 128 on four multiprocessors, too short to be split:

    >>> tiles = Tiles(sizes=((256, 128),), operand_cost=12.0, shortest_sum=1024)
    >>> utilisation(512, 128, 512, 4, tiles)
    0.5
    """
    return max(_used(m, n, k, multiprocessors, tile, tiles, count) for tile in tiles.sizes)


def _used(m: float, n: float, k: float, available: float, tile: tuple[int, int], tiles: Tiles, count: int) -> float:
    a, b = tile
    number = math.ceil(m / a) * math.ceil(n / b) * count
    waves = min(math.ceil(number * splits / available) / splits for splits in _splits(k, tiles.shortest_sum))
    return count * m * n / (a * b * available * waves) * _efficiency(tile, tiles)


def _splits(k: float, shortest: float) -> Iterator[int]:
    """Powers of two that leave each part long enough."""
    splits = 1
    while splits == 1 or k / splits >= shortest:
        yield splits
        splits *= 2


def _efficiency(tile: tuple[int, int], tiles: Tiles) -> float:
    """Rate within *tile*, over that of the largest."""
    largest = max(tiles.sizes, key=lambda size: size[0] * size[1])
    return _loads(largest, tiles.operand_cost) / _loads(tile, tiles.operand_cost)


def _loads(tile: tuple[int, int], cost: float) -> float:
    a, b = tile
    return 1 + cost * (a + b) / (a * b)
