"""The question what happens over ranges of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.ask.answer import Answer
from simulator.ask.source import AS_IT_IS, Source, content_of
from simulator.errors import InputError
from simulator.readings.best_table import best_points
from simulator.readings.layout import default_figure
from simulator.readings.rows import flat_rows
from simulator.sweep import Axis, Store, Study, as_results, axis, code_version, grid, missing, tasks, workers
from simulator.sweep import sweep as simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["Points", "sweep"]


@dataclass(frozen=True, kw_only=True)
class Points(Answer):
    """Variants at many points: ``zerosim sweep``."""

    name: str
    new: int = field(repr=False)
    """Results that no store had before."""

    @property
    def results(self) -> list[dict[str, Any]]:
        """One for each variant and point."""
        found: list[dict[str, Any]] = self.content["results"]
        return found

    def tables(self) -> Iterator[Table | str]:
        """Yield the best points, and why others failed."""
        return best_points(self.results, self.new)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per variant and point: the varied keys, then those of a result."""
        return flat_rows(self.results)

    def plot(self, figure: str | None = None, **places: str | None) -> Figure:
        """Draw ``curves``, ``heatmap``, ``best`` or ``pareto``.

        Parameters
        ----------
        places
            What stands at ``x``, ``y``, ``color``, ``rows`` and ``cols``, as ``zerosim sweep`` takes them.

        Raises
        ------
        InputError
            It cannot be drawn so.
        """
        from simulator.readings.plots import sweep_figure

        return sweep_figure(figure or default_figure(self.results), self.results, self.name, **places)


def sweep(
    source: Source,
    over: Mapping[str, str | Sequence[Any]],
    changes: Mapping[str, Any] = AS_IT_IS,
    *,
    variants: str | Sequence[str] = (),
    store: str | Path = ":memory:",
    processes: int = 1,
) -> Points:
    """Simulate every variant at every combination of values.

    Parameters
    ----------
    over
        Values by dotted key: a list, or text like ``100..800Gbit/s:20``.
    store
        A file that keeps results, and has those of earlier calls.
    processes
        Workers; one is this process.

    Raises
    ------
    InputError
        The scenario cannot be used, a key leads nowhere, or nothing can be resolved at any point.
    """
    if not over:
        raise InputError("nothing varies", key="over", remedy="say what does, like {'topology.hosts': [2, 4, 8]}")
    raw, file = content_of(source, changes)
    study = Study(raw=raw, file=file, code=code_version())
    names = study.variants([variants] if isinstance(variants, str) else variants)
    found = tasks(study, grid([_axis(key, values) for key, values in over.items()]), names)
    with Store(Path(store)) as kept:
        rest = missing(found, kept)
        simulate(study, rest, kept, partial(workers, processes))
        results = list(as_results(found, kept))
    counts = {"simulated": len(rest), "failed": sum(result["failure"] is not None for result in results)}
    content = {"scenario": study.raw, "version": __version__, **counts, "results": results}
    return Points(content=content, name=study.name, new=len(rest))


def _axis(key: str, values: str | Sequence[Any]) -> Axis:
    if isinstance(values, str):
        return axis(f"{key}={values}", "over")
    return Axis(keys=(key,), points=tuple({key: value} for value in values))
