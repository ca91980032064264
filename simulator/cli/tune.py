"""The command that looks for better settings and writes them down."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator import __version__
from simulator.cli.answers import Percent
from simulator.cli.common import print_json, print_tables

if TYPE_CHECKING:
    from simulator.tune import Target, Tuned

__all__ = ["tune"]


@click.command()
@click.argument("scenario")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenario.")
@click.option("--topology", metavar="NAME", help="Another cluster: the same as --set topology.cluster=NAME.")
@click.option("--variant", "name", metavar="NAME", help="What to start from.  [default: the first that can be tuned]")
@click.option("--headroom", type=Percent(), default="10%", show_default=True, help="Of a GPU's memory, kept free.")
@click.option("--keep", "kept", multiple=True, metavar="KNOB", help="Leave this as it is; may be repeated.")
@click.option("--exact", is_flag=True, help="No communication that rounds weights or gradients.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the configuration there, in its own format, and show what is different.")  # fmt: skip
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def tune(
    scenario: str, overrides: tuple[str, ...], topology: str | None, name: str | None, output: Path | None,
    machine: bool, workers: int | None, **asked: Any,
) -> None:  # fmt: skip
    """Look for the settings of a variant of SCENARIO with the shortest step that fits in memory.

    Every step trains on as many tokens as now.  What is told of a change is what taking it back costs.
    """
    from simulator.readings.files import write_atomically
    from simulator.tune import load_target
    from simulator.tune.file import check_output, text_of

    target = load_target(scenario, [*overrides, *([f"topology.cluster={topology}"] if topology else [])], name)
    if output is not None:
        check_output(target, output)
    found = _tuned(target, workers or os.cpu_count() or 1, **asked)
    text = text_of(target, found.changes)
    if output is not None:
        write_atomically(output, lambda path: path.write_text(text, encoding="utf-8"))
    if machine:
        print_json({"scenario": dict(target.scenario.raw), "version": __version__, **found.as_json()})
        return
    print_tables(*_told(found))
    if output is not None:
        _print_difference(text_of(target, {}), text, target, output)


def _tuned(target: Target, processes: int, *, headroom: float, kept: tuple[str, ...], exact: bool) -> Tuned:
    from simulator.sweep import workers
    from simulator.tune import tune as look

    with _counting() as done:
        return look(target, partial(workers, processes), headroom=headroom, kept=kept, lossy=not exact, done=done)


@contextmanager
def _counting() -> Iterator[Callable[[int], None]]:
    """Count on a terminal what was simulated, nothing in a pipe; nobody knows how much it will be."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), "simulated", MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulated", total=None)
        yield lambda count: bar.advance(task, count)


def _told(found: Tuned) -> Iterator[Any]:
    from rich.markup import escape

    from simulator.readings.tuned_table import changes_table, headline, remarks, rivals_table

    content = found.as_json()
    yield changes_table(content) if found.lines else escape(headline(content))
    yield from (escape(line) for line in dict.fromkeys(remarks(content)))
    if found.rivals:
        yield rivals_table(content)
    yield f"{found.simulated} simulations"


def _print_difference(before: str, after: str, target: Target, output: Path) -> None:
    """Show what is different from the user's file, line by line."""
    from rich.text import Text

    old = str(target.source or f"{target.scenario.file}: {target.variant.name}")
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), old, str(output), lineterm="")
    print_tables(*(Text(line, style={"+": "green", "-": "red"}.get(line[:1], "")) for line in lines))
    print_tables(f"written to {output}")
