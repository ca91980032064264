r"""Good settings among many, with few simulations.

Let :math:`s` be a setting, one option of each knob, and its score :math:`(e(s), T(s))`: by how many bytes the memory
that it needs exceeds what is allowed, and the time of a step.  Scores are compared in this order, so that a search that
starts where nothing fits goes where something does.  Knobs are of two sorts.  Coarse ones (stage, checkpointing,
micro-batch) decide what fits and how much is computed, depend on each other, and have few options: all their
combinations are looked at.  The others decide how much of the communication is hidden and depend on each other little:

1. Score every combination of the coarse knobs.
2. Start from the best of each option of the first knob, the strategies, and from the fastest one that almost fits.  A
   start that could not beat the best step on an infinitely fast network is left out: no knob of communication helps it.
3. From each start score every change of one fine knob.  Go to the better of the best change and all improving
   changes together; repeat until nothing improves.
4. Do the same once more from the best, with the coarse knobs too, unless it hardly waits for the network.

Where all settings are few, all are scored instead.  The result is a setting that no change of one knob improves; that
no two changes together do is not known, except where all were scored.  Descent along coordinates: Wright, "Coordinate
descent algorithms", Mathematical Programming 151, 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.tune.space import Setting, Space

__all__ = ["WORTH", "Attempt", "Score", "searched"]

FEW: Final = 48
"""Definition: settings of which all are scored."""

GAIN: Final = 0.001
"""Definition: part of a step that a change must gain to be one."""

WORTH: Final = 0.005
"""Definition: part of a step that changes must gain together to be proposed; less is not what a simulation can tell."""

ALMOST: Final = 0.15
"""Definition: part of the memory that is allowed, by which a start may exceed it; fine knobs save about so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a setting is worth."""

    excess: float
    """Part of the memory that is allowed, by which the need exceeds it; infinite if the setting cannot run."""
    time: float
    """Of a step [s]."""
    floor: float
    """Of it on an infinitely fast network [s]."""

    @property
    def order(self) -> tuple[float, float]:
        """Smaller is better."""
        return self.excess, self.time

    def beats(self, other: Score, gain: float = GAIN) -> bool:
        """Whether it lacks less memory, or as much and is faster by the part *gain* of the other's step."""
        if self.excess != other.excess:
            return self.excess < other.excess
        return self.time < (1 - gain) * other.time


Attempt = Callable[[Sequence[Setting]], Sequence[Score]]


def searched(space: Space, attempt: Attempt, few: int = FEW) -> list[Setting]:
    """Return all settings that were scored, best first.

    Parameters
    ----------
    attempt
        Scores settings, all at once.
    few
        So many are all scored.
    """
    search = _Search(space, attempt)
    if space.count() <= few:
        search.look(space.combinations(coarse=False))
    else:
        search.look([space.start, *space.combinations(coarse=True)])
        search.descend(search.starts(), coarse=False)
        search.descend([item for item in [search.best()] if search.may_win(item)], coarse=True)
    return search.ranked()


class _Search:
    """Remembers scores."""

    def __init__(self, space: Space, attempt: Attempt) -> None:
        self._space, self._attempt = space, attempt
        self._scores: dict[Setting, Score] = {}

    def look(self, settings: Iterable[Setting]) -> None:
        """Score those that have none."""
        new = [setting for setting in dict.fromkeys(settings) if setting not in self._scores]
        if new:
            self._scores |= dict(zip(new, self._attempt(new), strict=True))

    def ranked(self) -> list[Setting]:
        """All that were scored; of equal ones that first which changes least."""
        return sorted(self._scores, key=lambda setting: (*self._scores[setting].order, sum(map(bool, setting))))

    def best(self) -> Setting:
        """The first of them."""
        return self.ranked()[0]

    def starts(self) -> list[Setting]:
        """One of each strategy that may win, and one that almost fits."""
        ranked = self.ranked()
        best = self._scores[ranked[0]]
        strategies = {setting[0]: setting for setting in reversed(ranked)}
        almost = [item for item in ranked if best.excess < self._scores[item].excess <= best.excess + ALMOST]
        fastest = min(almost, key=lambda item: self._scores[item].time, default=None)
        chosen = [*strategies.values(), *([] if fastest is None else [fastest])]
        return [item for item in dict.fromkeys(chosen) if self.may_win(item)]

    def may_win(self, setting: Setting) -> bool:
        """Whether less waiting, and a little less memory, would make it better than the best by what counts."""
        score, best = self._scores[setting], self._scores[self.best()]
        return score.excess <= best.excess + ALMOST and score.floor < (1 - WORTH) * best.time

    def descend(self, here: Sequence[Setting], *, coarse: bool) -> None:
        """Go from each of *here* along one knob after the other as long as that improves something."""
        been = set(here)
        while here:
            self.look(changed for start in here for _, changed in self._space.changes(start, coarse=coarse))
            together = [self._together(start, coarse=coarse) for start in here]
            self.look(together)
            steps = [self._step(start, both, coarse=coarse) for start, both in zip(here, together, strict=True)]
            here = [step for step in dict.fromkeys(steps) if step not in been]
            been |= set(here)

    def _together(self, start: Setting, *, coarse: bool) -> Setting:
        """All knobs at their best options from here."""
        chosen: dict[int, Setting] = {}
        for place, changed in self._space.changes(start, coarse=coarse):
            rival = self._scores[chosen.get(place, start)]
            if self._scores[changed].beats(rival):
                chosen[place] = changed
        merged = tuple(chosen[place][place] if place in chosen else number for place, number in enumerate(start))
        return self._space.canonical(merged)

    def _step(self, start: Setting, together: Setting, *, coarse: bool) -> Setting:
        options = [changed for _, changed in self._space.changes(start, coarse=coarse)]
        found = min([together, *options], key=lambda item: self._scores[item].order)
        return found if self._scores[found].beats(self._scores[start]) else start
