"""From axes to points: all combinations, or a Latin hypercube among them.

A Latin hypercube of n points cuts every axis into n parts of equal probability and puts one point into each part of
each axis (McKay, Beckman and Conover, Technometrics 21(2), 1979), so that few points see all of every axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import product
from math import prod

from simulator.errors import InputError
from simulator.sweep.axes import MOST_POINTS, Axis, Point

__all__ = ["grid", "latin_hypercube"]


def grid(axes: Sequence[Axis]) -> list[Point]:
    """All combinations, the last axis changing fastest.

    Raises
    ------
    InputError
        Two axes have the same key, or there are too many combinations.
    """
    _check_keys(axes)
    size = prod(len(axis.points) for axis in axes)
    if size > MOST_POINTS:
        remedy = "use fewer values, or --sample"
        raise InputError(f"{size:,} points are more than {MOST_POINTS:,}", key="--over", remedy=remedy)
    return [_joined(sides) for sides in product(*(axis.points for axis in axes))]


def latin_hypercube(axes: Sequence[Axis], count: int, seed: int) -> list[Point]:
    """*count* of all combinations, each only once, so that there may be fewer.

    Raises
    ------
    InputError
        As :func:`grid`, or SciPy is not installed.
    """
    _check_keys(axes)
    try:
        qmc = import_module("scipy.stats.qmc")
    except ImportError:
        remedy = "install the extra: pip install 'zerosim[sample]'"
        raise InputError("a Latin hypercube needs SciPy", key="--sample", remedy=remedy) from None
    unit = qmc.LatinHypercube(d=len(axes), seed=seed).random(count)
    places = [tuple(int(share * len(axis.points)) for share, axis in zip(row, axes, strict=True)) for row in unit]
    return [_joined(axis.points[at] for axis, at in zip(axes, place, strict=True)) for place in dict.fromkeys(places)]


def _check_keys(axes: Sequence[Axis]) -> None:
    keys = [key for axis in axes for key in axis.keys]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError("the key is varied twice", key="--over", value=key, remedy="leave one of them out")


def _joined(sides: Iterator[Point] | Sequence[Point]) -> Point:
    return {key: value for side in sides for key, value in side.items()}
