"""What a page of a review is made of: sections with tables and pictures.  The template knows nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from simulator.explore import Outcome
from simulator.world.scenario import Scenario, Variant

__all__ = ["Cell", "During", "Material", "Picture", "Section", "Table", "number", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in a table."""

    text: str
    value: float | None = None
    """What it is sorted by, in SI; None sorts by the text."""
    alarm: bool = False
    """Something to worry about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that a reader can sort."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    keys: tuple[str, ...] = ()
    """Names of the columns for programs, dotted keys of a result; as many as there are columns, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure, and what it says."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A question and its answer."""

    key: str
    topic: str
    """What it is about."""
    finding: str
    """What was found: its heading."""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()
    timeline: Mapping[str, Any] | None = None
    """What the script draws."""


class During(Protocol):
    """Says what takes long while it does."""

    def __call__(self, what: str, /) -> AbstractContextManager[None]:
        """Enter when it begins, leave when it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What all sections are written from."""

    scenario: Scenario
    variants: tuple[Variant, ...]
    """All that were asked for."""
    outcomes: tuple[Outcome, ...]
    """Of those that ran; never empty."""
    results: tuple[Mapping[str, Any], ...]
    """Of all, as ``zerosim run --json`` has them."""
    closer: Outcome
    """The one that is looked into."""

    @property
    def ran(self) -> list[Mapping[str, Any]]:
        """Results of the variants that ran."""
        return [result for result in self.results if not result["failure"]]

    @property
    def closest(self) -> Mapping[str, Any]:
        """Result of the one that is looked into."""
        return next(result for result in self.ran if result["name"] == self.closer.variant.name)

    def best(self, count: int) -> Iterator[Outcome]:
        """The one that is looked into, then the fastest of the others."""
        yield self.closer
        others = [item for item in self.outcomes if item is not self.closer]
        yield from sorted(others, key=lambda item: (not item.result.memory["fits"], item.result.step_time))[: count - 1]


def text(content: str) -> Cell:
    """Return a cell of words."""
    return Cell(text=content)


def number(value: float | None, form: str, size: float = 1.0) -> Cell:
    """Return a cell of a number, shown in units of *size*; a dash where there is none.

    >>> number(0.0731, ".1f", 0.01).text, number(None, ".1f").text
    ('7.3', '-')
    """
    return Cell(text="-") if value is None else Cell(text=format(value / size, form), value=float(value))
