"""The question which stage a job needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.answers.job import HEADROOM, Job, job_of
from simulator.answers.ladder import ladder as climb
from simulator.ask.answer import Answer
from simulator.ask.source import AS_IT_IS, Source, content_of
from simulator.readings.advice import ladder_table
from simulator.readings.rendered import lines
from simulator.readings.rows import flat_rows

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Rungs", "job", "job_title", "ladder"]


@dataclass(frozen=True, kw_only=True)
class Rungs(Answer):
    """Stages 0 to 3, checkpointing, offload and more GPUs, and which to take: ``zerosim ladder``."""

    job: Job = field(repr=False)

    @property
    def chosen(self) -> str | None:
        """The first that fits with headroom; None if none does."""
        name: str | None = self.content["chosen"]
        return name

    def tables(self) -> Iterator[Table | str]:
        """Yield the rungs, and why that one."""
        yield ladder_table(self.content, job_title(self.job))
        yield from lines(self.content["why"])

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per rung."""
        for rung in self.content["rungs"]:
            head = {"rung": rung["name"], "chosen": rung["name"] == self.chosen}
            head |= {key: rung[key] for key in ("fits", "passed", "micro_steps")}
            yield from flat_rows([{**head, **(rung["result"] or {})}])


def job(
    source: Source, changes: Mapping[str, Any] = AS_IT_IS, *, variant: str | None = None, textbook: bool = False
) -> Job:
    """Return what a scenario trains, to be tried in other settings.

    Parameters
    ----------
    variant
        The one to start from, by default the first.
    textbook
        The published idealisations instead of DeepSpeed's schedules.
    """
    return job_of(*content_of(source, changes), variant, textbook=textbook)


def ladder(source: Source | Job, changes: Mapping[str, Any] = AS_IT_IS, *, headroom: float = HEADROOM) -> Rungs:
    """Simulate the rungs of a job; the number of hosts doubles on until something fits.

    Parameters
    ----------
    headroom
        Part of the memory of a GPU that is to stay free.

    Raises
    ------
    InputError
        The scenario cannot be used.
    """
    asked = source if isinstance(source, Job) else job(source, changes)
    head = {"scenario": dict(asked.scenario.raw), "version": __version__}
    return Rungs(content=head | climb(asked, headroom).as_json(), job=asked)


def job_title(asked: Job) -> str:
    """Say what is trained where."""
    where = f"{asked.cluster.hosts} x {asked.cluster.name} = {asked.cluster.ranks} x {asked.scenario.accelerator.name}"
    return f"{asked.scenario.name}; {where}; {'textbook' if asked.textbook else 'DeepSpeed'}"
