"""The best settings that were found, and what each change is worth.

The gain of a change is told by taking it alone back: gains of changes that help each other add up to more than the
whole, of changes that replace each other to less.  A change that is worth nothing is not proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Final

from simulator.errors import InputError
from simulator.readings.difference import difference
from simulator.sweep.run import Crew
from simulator.tune.deepspeed import BATCH
from simulator.tune.knobs import space_of
from simulator.tune.lab import Lab, excess
from simulator.tune.search import WORTH, searched
from simulator.tune.space import Setting, Space
from simulator.tune.target import BATCHES, Target
from simulator.units import readable
from simulator.world.edits import REMOVED

__all__ = ["Line", "Rival", "Tuned", "tune"]

FINAL: Final = 3
"""Definition: settings that are simulated whole before one of them is called the best."""

RIVALS: Final = 5
"""Definition: other settings that are told."""

PARTS: Final = 2
"""Definition: parts of a step that a reason names."""

GB: Final = 1e9  # definition: bytes

OUTSIDE: Final = {
    "activation_checkpointing": "your model or trainer (gradient checkpointing)",
    "micro_batch x accumulation": "your trainer's arguments (batch size per GPU, gradient accumulation)",
}
"""Where to change what a configuration says nothing of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One change."""

    knob: str
    before: Any
    after: Any
    keys: Mapping[str, Any]
    """Of the configuration that change, dotted, and their new values; None: the key goes, or is null in ``fsdp1``."""
    where: str | None
    """Where to change it if the configuration says nothing of it, or not all."""
    gain: float | None
    """Part of the step that taking it back costs; None if the step then cannot run or does not fit."""
    why: str

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another setting, as it was compared."""

    values: Mapping[str, Any]
    """Of the knobs that are not as they are now."""
    step_time: float
    """[s]"""
    excess: float
    """Part of the memory that is allowed, by which it needs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What to change."""

    variant: str
    format: str
    headroom: float
    fits: bool
    """Whether anything fits; else the result is the setting that lacks least."""
    before: Mapping[str, Any] | None
    """The result of the configuration as it is, as ``zerosim run --json`` has it; None if it cannot run."""
    failure: str | None
    """Why it cannot."""
    after: Mapping[str, Any]
    """The result of the configuration with all changes."""
    lines: tuple[Line, ...]
    """The changes, most valuable first."""
    rivals: tuple[Rival, ...]
    """The best of other combinations of the coarse knobs, fastest first."""
    simulated: int
    """Simulations that were needed."""
    changes: Mapping[str, Any]
    """Dotted keys of the configuration and their new values; None: the key goes."""
    config: Mapping[str, Any]
    """The configuration with all changes."""
    training: Mapping[str, Any]
    """Keys of the scenario's ``training`` that change."""

    @property
    def gain(self) -> float | None:
        """Part of the present step by which the new one is shorter; None if the present one cannot run."""
        return None if self.before is None else 1 - self.after["step_time"] / self.before["step_time"]

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        own = ("variant", "format", "headroom", "fits", "gain", "before", "failure", "after", "simulated")
        return {name: getattr(self, name) for name in own} | {
            "lines": [line.as_json() for line in self.lines],
            "rivals": [asdict(rival) for rival in self.rivals],
            "changes": dict(self.changes),
            "config": dict(self.config),
            "training": dict(self.training),
        }


def tune(
    target: Target,
    crew: Crew,
    *,
    headroom: float = 0.1,
    kept: Sequence[str] = (),
    lossy: bool = True,
    done: Callable[[int], object] = lambda count: None,
) -> Tuned:
    """Look for the settings of *target* with the shortest step that fits in memory.

    Parameters
    ----------
    crew
        Who simulates, as :func:`~simulator.sweep.executors.workers` makes it.
    headroom
        Part of the memory of a GPU that is to stay free.
    kept
        Knobs that stay as they are.
    lossy
        Communication may round weights and gradients.
    done
        Is told how many simulations were done.

    Raises
    ------
    InputError
        One of *kept* is no knob, or nothing can run.
    BrokenLawError
        A timeline contradicts a law.
    """
    found = _Tuning(target, space_of(target, kept=kept, lossy=lossy), headroom, crew, done).answer()
    if found.fits or target.format != "deepspeed":
        return found
    # nothing fits on the GPU alone: optimizer states may leave it
    wider = space_of(target, kept=kept, lossy=lossy, offload=True)
    return _Tuning(target, wider, headroom, crew, done).answer()


class _Tuning:
    """One search and its answer."""

    def __init__(
        self, target: Target, space: Space, headroom: float, crew: Crew, done: Callable[[int], object]
    ) -> None:
        self._target, self._space, self._headroom = target, space, headroom
        self._crew, self._done = crew, done
        self._simulated = 0

    def answer(self) -> Tuned:
        """Search, simulate the best whole, and take back what is worth nothing."""
        with Lab(self._target, self._space, self._headroom, self._crew, self._count) as lab:
            ranked = searched(self._space, lab.scores)
            finalists = dict.fromkeys(self._simplified(lab, setting) for setting in ranked[:FINAL])
            best, after = self._best(lab, [*finalists, self._space.start])
            (now,) = lab.results([self._space.start])
            return Tuned(
                variant=self._target.variant.name,
                format=self._target.format,
                headroom=self._headroom,
                fits=self._excess(after) == 0,
                before=None if isinstance(now, str) else now,
                failure=now if isinstance(now, str) else None,
                after=after,
                lines=tuple(self._lines(lab, best, after)),
                rivals=tuple(self._rivals(lab, ranked, best)),
                simulated=self._simulated,
                changes=_plain(self._target.keys(self._space.config(best))),
                config=lab.config(best),
                training=self._space.training(best),
            )

    def _count(self, count: int) -> None:
        self._simulated += count
        self._done(count)

    def _excess(self, result: Mapping[str, Any]) -> float:
        return excess(result["memory"], self._headroom)

    def _order(self, result: Mapping[str, Any] | str) -> tuple[float, float]:
        return (inf, inf) if isinstance(result, str) else (self._excess(result), result["step_time"])

    def _best(self, lab: Lab, settings: Sequence[Setting]) -> tuple[Setting, Mapping[str, Any]]:
        pairs = list(zip(settings, lab.results(settings), strict=True))
        setting, result = min(pairs, key=lambda pair: self._order(pair[1]))
        if isinstance(result, str):
            raise InputError(f"no setting can run: {result}", file=self._target.scenario.file)
        return setting, result

    def _simplified(self, lab: Lab, best: Setting, *, coarse: bool = True) -> Setting:
        """Take changes back, the least valuable first, as long as all that were are not worth :data:`WORTH`."""
        (target,) = lab.scores([best])
        while True:
            places = [place for place in self._changed(best) if coarse or not self._space.knobs[place].coarse]
            without = [self._without(best, place) for place in places]
            pairs = list(zip(without, lab.scores(without), strict=True))
            spared = [(score.order, setting) for setting, score in pairs if not target.beats(score, WORTH)]
            if not spared:
                return best
            best = min(spared)[1]

    def _changed(self, setting: Setting) -> list[int]:
        return [place for place, number in enumerate(setting) if number]

    def _without(self, setting: Setting, place: int) -> Setting:
        return self._space.canonical((*setting[:place], 0, *setting[place + 1 :]))

    def _lines(self, lab: Lab, best: Setting, after: Mapping[str, Any]) -> Iterator[Line]:
        places = self._changed(best)
        without = lab.results([self._without(best, place) for place in places])
        found = [self._line(best, place, result, after) for place, result in zip(places, without, strict=True)]
        yield from sorted(found, key=lambda line: -inf if line.gain is None else -line.gain)

    def _line(self, best: Setting, place: int, without: Mapping[str, Any] | str, after: Mapping[str, Any]) -> Line:
        knob = self._space.knobs[place]
        option = knob.options[best[place]]
        keys = self._target.keys(option.config)
        possible = not isinstance(without, str) and self._excess(without) <= self._excess(after)
        return Line(
            knob=knob.name,
            before=knob.options[0].value,
            after=option.value,
            keys=_plain(keys),
            where=OUTSIDE.get(knob.name) if not keys or self._shared(keys) else None,
            gain=without["step_time"] / after["step_time"] - 1 if possible and not isinstance(without, str) else None,
            why=_why(without, after, self._headroom),
        )

    def _shared(self, keys: Mapping[str, Any]) -> bool:
        """Whether a trainer, which fills in what is "auto", has to say the same as *keys*."""
        return not set(BATCH).isdisjoint(keys) and "auto" in map(self._target.config.get, BATCHES)

    def _rivals(self, lab: Lab, ranked: Sequence[Setting], best: Setting) -> Iterator[Rival]:
        """The best setting of each other combination of coarse knobs, of those that can run."""
        coarse = [place for place, knob in enumerate(self._space.knobs) if knob.coarse]
        firsts: dict[tuple[int, ...], Setting] = {}
        for setting in ranked:
            firsts.setdefault(tuple(setting[place] for place in coarse), setting)
        others = [setting for key, setting in firsts.items() if key != tuple(best[place] for place in coarse)][:RIVALS]
        others = [self._simplified(lab, setting, coarse=False) for setting in others]
        for setting, score in zip(others, lab.scores(others), strict=True):
            if score.time < inf:
                values = self._space.values(setting)
                changed = [self._space.knobs[place].name for place in self._changed(setting)]
                told = {name: values[name] for name in changed}
                yield Rival(values=told, step_time=score.time, excess=score.excess)


def _plain(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if value is REMOVED else value for key, value in keys.items()}


def _why(without: Mapping[str, Any] | str, after: Mapping[str, Any], headroom: float) -> str:
    """What is different without the change."""
    if isinstance(without, str):
        return f"without it the step cannot run: {without}"
    saved = without["memory"]["needed"] - after["memory"]["needed"]
    if excess(without["memory"], headroom) > excess(after["memory"], headroom):
        most = (1 - headroom) * after["memory"]["capacity"]
        return f"without it {without['memory']['needed'] / GB:.1f} GB are needed of the {most / GB:.1f} GB allowed"
    parts = difference(after, without).parts
    told = [f"{name} {_signed(pair[1] - pair[0])}" for name, pair in list(parts.items())[:PARTS] if pair[0] != pair[1]]
    if abs(saved) > GB / 2:
        told.append(f"{abs(saved) / GB:.1f} GB {'more' if saved > 0 else 'less'} memory")
    return f"without it: {', '.join(told)}"


def _signed(time: float) -> str:
    return f"{'+' if time >= 0 else '-'}{readable(abs(time), 's', 3)}"
