"""The question which settings would be better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.answers.job import HEADROOM
from simulator.ask.answer import Answer
from simulator.ask.source import AS_IT_IS, Source, content_of
from simulator.readings.files import write_atomically
from simulator.readings.rendered import lines
from simulator.readings.tuned_table import changes_table, headline, remarks, rivals_table
from simulator.sweep import workers
from simulator.tune import Target, target_of
from simulator.tune import tune as look
from simulator.tune.file import check_output, text_of
from simulator.world.scenario import resolve_scenario

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Settings", "tune"]


@dataclass(frozen=True, kw_only=True)
class Settings(Answer):
    """What to change in a configuration, why, and what that gains: ``zerosim tune``."""

    target: Target = field(repr=False)

    def tables(self) -> Iterator[Table | str]:
        """Yield the changes, what is to be done elsewhere, and other settings."""
        if self.content["lines"]:
            yield changes_table(self.content)
        else:
            yield from lines([headline(self.content)])
        yield from lines(dict.fromkeys(remarks(self.content)))
        yield from lines(f"{self.target.variant.name}: {note}" for note in self._notes())
        if self.content["rivals"]:
            yield rivals_table(self.content)
        yield f"{self.content['simulated']} simulations"

    def _notes(self) -> Sequence[str]:
        """What the configuration with all changes says otherwise than the scenario."""
        target, content = self.target, self.content
        raw = target.study.at(target.point(content["config"], content["training"]), target.variant.name)
        return resolve_scenario(raw, target.study.file).variants[0].notes

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per change."""
        for line in self.content["lines"]:
            yield {key: str(value) if key in ("before", "after") else value for key, value in line.items()
                   if key != "keys"}  # fmt: skip

    def units(self) -> Mapping[str, str]:
        """Of the gain, a part of the step."""
        return {"gain": "1"}

    @property
    def text(self) -> str:
        """The configuration with all changes, in its own format."""
        return text_of(self.target, self.content["changes"])

    @property
    def text_before(self) -> str:
        """The configuration without any."""
        return text_of(self.target, {})

    def write(self, path: str | Path) -> None:
        """Write :attr:`text` to *path*.

        Raises
        ------
        InputError
            The format is not written to files of that name, or there is no such folder.
        """
        check_output(self.target, Path(path))
        write_atomically(Path(path), lambda path: path.write_text(self.text, encoding="utf-8"))


def tune(
    source: Source | Target,
    changes: Mapping[str, Any] = AS_IT_IS,
    *,
    variant: str | None = None,
    headroom: float = HEADROOM,
    keep: Sequence[str] = (),
    exact: bool = False,
    processes: int = 1,
    done: Callable[[int], object] = lambda count: None,
) -> Settings:
    """Look for the settings of a variant with the shortest step that fits in memory.

    Parameters
    ----------
    variant
        What to start from, by default the first that can be tuned.
    headroom
        Part of the memory of a GPU that is to stay free.
    keep
        Knobs that stay as they are.
    exact
        No communication that rounds weights or gradients.
    processes
        Workers; one is this process.
    done
        Is told how many simulations were done.

    Raises
    ------
    InputError
        The scenario cannot be used, or nothing in it can be tuned or run.
    """
    target = source if isinstance(source, Target) else target_of(*content_of(source, changes), variant)
    found = look(target, partial(workers, processes), headroom=headroom, kept=keep, lossy=not exact, done=done)
    head = {"scenario": dict(target.scenario.raw), "version": __version__}
    return Settings(content=head | found.as_json(), target=target)
