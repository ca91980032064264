r"""Where lines cross, and where another one becomes the best.

Between two points where two lines are known, both are straight on the axes that they are drawn on.  With the
difference :math:`d_0` of the lines at the left point and :math:`d_1` of the other sign at the right one, they cross at
the fraction

.. math:: t = \frac{d_0}{d_0 - d_1}

of the way: at :math:`x_0 + t (x_1 - x_0)` on a linear axis, at :math:`x_0 (x_1/x_0)^t` on a logarithmic one; likewise
for the height.  Differences are taken of heights, on a logarithmic axis of their logarithms.  The truth between points
that were not simulated may differ: what is certain is that the order changes between the two points.

Heights count as equal if nine digits are: the rest is rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["Change", "Crossing", "Scale", "changes", "crossings"]

Heights = Sequence[float]
"""Of a line at each place; NaN where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis: linear or logarithmic."""

    logarithmic: bool = False

    def between(self, start: float, end: float, share: float) -> float:
        """Value at *share* of the way.

        >>> Scale().between(1.0, 3.0, 0.5), Scale(logarithmic=True).between(1.0, 16.0, 0.5)
        (2.0, 4.0)
        """
        return start * (end / start) ** share if self.logarithmic else start + share * (end - start)

    def height(self, value: float) -> float:
        """Place of *value* on the axis."""
        return math.log(value) if self.logarithmic else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Two lines meet and go on in the other order."""

    at: float
    height: float
    lines: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From here on another line is the best one."""

    at: float
    height: float
    before: str
    after: str
    met: bool
    """True where they cross; False where one of them begins or ends."""


def crossings(
    places: Sequence[float], lines: Mapping[str, Heights], x: Scale = Scale(), y: Scale = Scale()
) -> list[Crossing]:
    """All crossings of *lines*, which are known at the ascending *places*.

    Lines that run together and part in the other order cross where they meet first.

    >>> crossings([0.0, 4.0], {"rising": [0.0, 8.0], "level": [2.0, 2.0]})
    [Crossing(at=1.0, height=2.0, lines=('rising', 'level'))]
    """
    exact = {name: _rounded(heights) for name, heights in lines.items()}
    return [
        Crossing(at=_at(places, number, share, x), height=_at(exact[one], number, share, y), lines=(one, other))
        for one, other in combinations(exact, 2)
        for number, share in _meetings(exact[one], exact[other], y)
    ]


def changes(
    places: Sequence[float],
    lines: Mapping[str, Heights],
    x: Scale = Scale(),
    y: Scale = Scale(),
    *,
    upward: bool = True,
) -> list[Change]:
    """Where the best of *lines* is overtaken, from left to right.

    Of several that are best at a place, the one that has led goes on to lead.

    Parameters
    ----------
    upward
        Whether the highest line is the best one, rather than the lowest.

    >>> changes([0.0, 4.0], {"rising": [0.0, 8.0], "level": [2.0, 2.0]})
    [Change(at=1.0, height=2.0, before='level', after='rising', met=True)]
    """
    exact = {name: _rounded(heights) for name, heights in lines.items()}
    sign = 1 if upward else -1
    found: list[Change] = []
    leader: str | None = None
    for number in range(len(places)):
        for share, after in _overtakings(exact, leader, number - 1, y, sign):
            at, height = _at(places, number - 1, share, x), _at(exact[after], number - 1, share, y)
            found.append(Change(at=at, height=height, before=str(leader), after=after, met=True))
            leader = after
        best = _best(exact, leader, number, sign)
        if best is None or best == leader:
            continue
        if leader is not None:
            height = _at(exact[best], number, 0.0, y)
            found.append(Change(at=places[number], height=height, before=leader, after=best, met=False))
        leader = best
    return found


def _rounded(heights: Heights) -> Heights:
    return [float(f"{height:.9g}") for height in heights]


def _at(values: Sequence[float], number: int, share: float, scale: Scale) -> float:
    """*share* of the way from the value of that *number* to the next one."""
    return scale.between(values[number], values[number + 1], share) if share else values[number]


def _meetings(one: Heights, other: Heights, y: Scale) -> Iterator[tuple[int, float]]:
    """Yield number of the point to the left, and share of the way to the next one."""
    sign, met = 0, -1
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        if a == b:
            met = number if met < 0 else met
            continue
        new = (a > b) - (a < b)  # none if one of them is unknown
        if sign * new < 0:
            yield (met, 0.0) if met >= 0 else (number - 1, _share(one, other, number - 1, y))
        sign, met = new, -1


def _share(one: Heights, other: Heights, left: int, y: Scale) -> float:
    """Where in the interval that begins at *left* the difference of two lines vanishes; see the module."""
    before, after = (y.height(one[number]) - y.height(other[number]) for number in (left, left + 1))
    return before / (before - after)


def _overtakings(
    lines: Mapping[str, Heights], leader: str | None, left: int, y: Scale, sign: int
) -> Iterator[tuple[float, str]]:
    """Yield share of the way and name of each line that takes the lead between *left* and the next point."""
    while leader is not None:
        end = sign * lines[leader][left + 1]
        ahead = {name: line for name, line in lines.items() if sign * line[left + 1] > end and line[left] == line[left]}
        if not ahead or lines[leader][left] != lines[leader][left]:
            return
        first = {name: (_share(lines[leader], line, left, y), -sign * line[left + 1]) for name, line in ahead.items()}
        leader = min(first, key=lambda name: first[name])
        yield first[leader][0], leader


def _best(lines: Mapping[str, Heights], leader: str | None, number: int, sign: int) -> str | None:
    """Who is best at a point; of several that are, *leader*, else who is best soonest after it."""
    known = [name for name, line in lines.items() if not math.isnan(line[number])]
    if leader in known and all(sign * lines[leader][number] >= sign * lines[name][number] for name in known):
        return leader

    def merit(name: str) -> list[float]:
        return [-math.inf if math.isnan(height) else sign * height for height in lines[name][number:]]

    return max(known, key=merit, default=None)
