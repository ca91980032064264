"""Settings of a configuration: one option of each knob.

A knob is a thing that somebody decides, such as the ZeRO stage; an option is a value and the keys that it changes in
the user's configuration and in what the scenario trains.  Option 0 of every knob is to leave it as it is, so the
setting of zeros is the user's own, and a configuration keeps whatever no option speaks of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

__all__ = ["Knob", "Option", "Setting", "Space", "always"]

Setting = tuple[int, ...]
"""The number of an option for each knob."""

Values = Mapping[str, Any]
"""Values by the names of knobs."""


def always(values: Values) -> bool:
    """Hold in every setting."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A value of a knob."""

    value: Any
    config: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the configuration, dotted, and their new values, which may be :data:`~simulator.world.edits.REMOVED`."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the scenario's ``training``."""
    applies: Callable[[Values], bool] = always
    """Whether it makes a difference, given the values of the other knobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A thing to decide."""

    name: str
    options: tuple[Option, ...]
    """The first changes nothing."""
    coarse: bool = False
    """It decides what fits and how much is computed; all combinations of such knobs are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All settings of some knobs."""

    knobs: tuple[Knob, ...]

    @property
    def start(self) -> Setting:
        """Everything as it is."""
        return (0,) * len(self.knobs)

    def values(self, setting: Setting) -> dict[str, Any]:
        """Values by knob."""
        return {knob.name: option.value for knob, option in self._chosen(setting)}

    def canonical(self, setting: Setting) -> Setting:
        """Return the setting that is the same, with every option that makes no difference left out."""
        values = self.values(setting)
        return tuple(
            number if option.applies(values) else 0
            for number, (_, option) in zip(setting, self._chosen(setting), strict=True)
        )

    def count(self) -> int:
        """Number of settings, those that are the same counted apart."""
        return prod(len(knob.options) for knob in self.knobs)

    def combinations(self, *, coarse: bool) -> Iterator[Setting]:
        """Yield all settings, or all of the coarse knobs with the others as they are; those that are the same once."""
        ranges = (range(len(knob.options) if knob.coarse or not coarse else 1) for knob in self.knobs)
        yield from dict.fromkeys(self.canonical(setting) for setting in product(*ranges))

    def changes(self, setting: Setting, *, coarse: bool) -> Iterator[tuple[int, Setting]]:
        """Yield the settings that differ from *setting* in one knob, with its place; *coarse*: in those too."""
        for place, knob in enumerate(self.knobs):
            if coarse or not knob.coarse:
                for number in range(len(knob.options)):
                    changed = self.canonical((*setting[:place], number, *setting[place + 1 :]))
                    if changed != setting:
                        yield place, changed

    def config(self, setting: Setting) -> dict[str, Any]:
        """Keys of the configuration that *setting* changes."""
        return {key: value for _, option in self._chosen(setting) for key, value in option.config.items()}

    def training(self, setting: Setting) -> dict[str, Any]:
        """Keys of ``training`` that *setting* changes."""
        return {key: value for _, option in self._chosen(setting) for key, value in option.training.items()}

    def _chosen(self, setting: Setting) -> Iterator[tuple[Knob, Option]]:
        for knob, number in zip(self.knobs, setting, strict=True):
            yield knob, knob.options[number]
