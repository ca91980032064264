"""The command that simulates many scenarios."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator import __version__
from simulator.cli.common import print_json, print_tables, scenario_options, written_to
from simulator.cli.pictures import check_picture, draw, picture_of_sweep
from simulator.errors import BrokenLawError

if TYPE_CHECKING:
    from rich.progress import Task as Running

    from simulator.sweep import Axis, Store, Study, Task

__all__ = ["sweep"]

TABLES = (".csv", ".parquet")


class TablePath(click.Path):
    """A table that can be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse other formats and folders that are not there, before any work is done."""
        if Path(value).suffix not in TABLES:
            self.fail(f"{value!r}: expected a name that ends in {' or '.join(TABLES)}", param, ctx)
        if not os.access(Path(value).parent, os.W_OK):
            self.fail(f"{value!r}: the folder is not there or cannot be written to", param, ctx)
        return super().convert(value, param, ctx)


@click.command()
@scenario_options
@click.option("--over", multiple=True, metavar="KEY=VALUES", help="Vary a key: a,b,c or a..b or a..b:n[:log][:whole].")
@click.option("--together", "paired", multiple=True, metavar="KEY=VALUES", help="Vary such keys side by side.")
@click.option("--points", "file", type=click.Path(path_type=Path), help="A .csv of points; its columns are keys.")
@click.option("--sample", type=click.IntRange(min=1), help="Only so many of the points, by Latin hypercube.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of --sample.")
@click.option("--store", "place", type=click.Path(path_type=Path, dir_okay=False), required=True,
              help="Results; what is there already is not simulated again.")  # fmt: skip
@click.option("--retry-failed", "retry", is_flag=True, help="Simulate again what failed.")
@click.option("--workers", "processes", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask cluster instead, like tcp://10.0.0.1:8786.")
@click.option("--export", type=TablePath(path_type=Path, dir_okay=False), help="Also write a .csv or .parquet table.")
@picture_of_sweep
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def sweep(
    scenario: str, machine: bool, place: Path, retry: bool, processes: int | None, scheduler: str | None,
    export: Path | None, plot: Path | None, **asked: Any,
) -> None:  # fmt: skip
    """Simulate SCENARIO at many points: every variant, at every combination of the values of --over."""
    from simulator.readings.best_table import best_points
    from simulator.readings.files import write_atomically
    from simulator.sweep import Store, as_results, check_table, write_table

    picture = {name: asked.pop(name) for name in ("figure", "x", "y", "color", "rows", "cols")}
    study, found = _asked(scenario, **asked)
    check_picture(study, found, plot, picture)
    if export is not None:
        check_table(export)
    with Store(place) as store:
        if retry:
            store.forget_failures(task.key for task in found)
        new = _fill(study, found, store, processes or os.cpu_count() or 1, scheduler)
        if export is not None:
            write_atomically(export, lambda path: write_table(path, found, store))
        if machine:
            results = list(as_results(found, store))
            counts = {"simulated": new, "failed": sum(result["failure"] is not None for result in results)}
            print_json({"scenario": study.raw, "version": __version__, **counts, "results": results})
        else:
            results = [_shown(result) for result in as_results(found, store)]
            print_tables(*best_points(results, new), *([written_to(export)] if export else []))
        _check_bugs(results)
        if plot is not None:
            draw(study, as_results(found, store), plot, picture)
            print_tables(*([] if machine else [written_to(plot)]))


def _asked(
    scenario: str, *, overrides: Sequence[str], topology: str | None, names: Sequence[str], seed: int,
    sample: int | None, **varied: Any,
) -> tuple[Study, list[Task]]:  # fmt: skip
    """What is varied, and all simulations that this makes."""
    from simulator.sweep import grid, latin_hypercube, load_study, tasks

    cluster = [f"topology.cluster={topology}"] if topology else []
    study = load_study(scenario, [*overrides, *cluster])
    axes = _axes(**varied)
    points = grid(axes) if sample is None else latin_hypercube(axes, sample, seed)
    return study, tasks(study, points, study.variants(names))


def _axes(*, over: Sequence[str], paired: Sequence[str], file: Path | None) -> list[Axis]:
    from simulator.errors import InputError
    from simulator.sweep import axis, axis_of_table, together

    axes = [axis(text, "--over") for text in over]
    if paired:
        axes.append(together([axis(text, "--together") for text in paired]))
    if file is not None:
        axes.append(axis_of_table(file))
    if not axes:
        raise InputError("nothing varies", remedy="say what does, for instance --over topology.hosts=2,4,8")
    return axes


def _fill(study: Study, found: Sequence[Task], store: Store, processes: int, scheduler: str | None) -> int:
    """Simulate what *store* does not hold; return how much that was."""
    from simulator.sweep import dask_cluster, missing, workers
    from simulator.sweep import sweep as simulate

    rest = missing(found, store)
    crew = partial(dask_cluster, scheduler) if scheduler else partial(workers, processes)
    with _progress(len(rest)) as done:
        simulate(study, rest, store, crew, done=done)
    return len(rest)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar with rate and remaining time on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty() or not total:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Running) -> Text:
            return Text("" if task.speed is None else f"{task.speed:.1f}/s")

    columns = ("simulating", BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=total)
        yield lambda count: bar.advance(task, count)


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a result what the tables show: of thousands all would be too much."""
    keys = ("point", "name", "failure", "step_time", "exposed", "memory", "tokens_per_second_per_gpu", "mfu")
    return {key: result[key] for key in keys}


def _check_bugs(results: Iterable[Mapping[str, Any]]) -> None:
    """End as any command does that finds a bug of ours; what was found is stored and told."""
    from simulator.sweep import BUG

    for result in results:
        failure = str(result["failure"])
        if failure.startswith(BUG):
            raise BrokenLawError(f"{result['name']} at {result['point']}: {failure.removeprefix(BUG)}")
