"""The question of what the difference of two runs is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.ask.answer import Answer
from simulator.ask.runs import Run
from simulator.errors import InputError
from simulator.readings.difference import Change, Difference, changed, difference, pairs
from simulator.readings.difference_table import changes_table, difference_tables

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, kw_only=True)
class Comparison(Answer):
    """Two runs told apart: ``zerosim compare``."""

    inputs: tuple[Change, ...] = field(repr=False)
    differences: tuple[Difference, ...] = field(repr=False)

    def tables(self) -> Iterator[Table | str]:
        """Yield what is different in the inputs, and of what the difference of each pair of steps is made."""
        yield changes_table(self.inputs) if self.inputs else "The inputs are the same."
        for item in self.differences:
            yield from difference_tables(item)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per pair of variants and part of the step, the whole step last."""
        for item in self.differences:
            for part, (before, after) in {**item.parts, "step": item.step_time}.items():
                names = dict(zip(("before_name", "after_name"), item.names, strict=True))
                yield {**names, "part": part, "before": before, "after": after, "difference": after - before}

    def units(self) -> Mapping[str, str]:
        """Times, all of them."""
        return dict.fromkeys(("before", "after", "difference"), "s")


def compare(
    before: Run | Mapping[str, Any], after: Run | Mapping[str, Any], *, variants: str | Sequence[str] = ()
) -> Comparison:
    """Compare variants of the same name, or the only ones, of two runs.

    Parameters
    ----------
    before, after
        Runs, or what ``zerosim run --json`` printed.
    variants
        Names; all by default.

    Raises
    ------
    InputError
        There is nothing to compare.
    """
    names = {variants} if isinstance(variants, str) else set(variants)
    some, others = (_content(item) for item in (before, after))
    results = [
        [result for result in content["results"] if not names or result["name"] in names] for content in (some, others)
    ]
    found = pairs(*results)
    if not found:
        told = " and ".join(", ".join(result["name"] for result in side) for side in results)
        remedy = "name variants alike, or choose one of each"
        raise InputError(f"no two variants to compare: {told}", remedy=remedy)
    inputs = tuple(changed(some["scenario"], others["scenario"]))
    differences = tuple(difference(*pair) for pair in found)
    content = {
        "version": __version__,
        "inputs": [asdict(item) for item in inputs],
        "differences": [item.as_json() for item in differences],
    }
    return Comparison(content=content, inputs=inputs, differences=differences)


def _content(item: Run | Mapping[str, Any]) -> Mapping[str, Any]:
    return item.content if isinstance(item, Run) else item
