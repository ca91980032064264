"""The command that looks for better settings and writes them down."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli.common import Percent, only_one, print_json, print_tables, scenario_options, written_to

if TYPE_CHECKING:
    from rich.console import RenderableType

    from simulator.ask import Settings

__all__ = ["tune"]


@click.command()
@scenario_options
@click.option("--headroom", type=Percent(), default="10%", show_default=True, help="Of a GPU's memory, kept free.")
@click.option("--keep", "keep", multiple=True, metavar="KNOB", help="Leave this as it is; may be repeated.")
@click.option("--exact", is_flag=True, help="No communication that rounds weights or gradients.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the configuration there, in its own format, and show what is different.")  # fmt: skip
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def tune(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], output: Path | None,
    machine: bool, workers: int | None, **asked: Any,
) -> None:  # fmt: skip
    """Look for the settings of a variant of SCENARIO with the shortest step that fits in memory.

    Every step trains on as many tokens as now.  What is told of a change is what taking it back costs.
    """
    from simulator.ask import tune as ask
    from simulator.tune import load_target
    from simulator.tune.file import check_output

    cluster = [f"topology.cluster={topology}"] if topology else []
    target = load_target(scenario, [*overrides, *cluster], only_one(names))
    if output is not None:
        check_output(target, output)
    with _counting() as done:
        answer = ask(target, processes=workers or os.cpu_count() or 1, done=done, **asked)
    if output is not None:
        answer.write(output)
    if machine:
        print_json(answer.as_json())
        return
    print_tables(*answer.tables(), *([] if output is None else _difference(answer, output)))


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


def _difference(answer: Settings, output: Path) -> Iterator[RenderableType]:
    """What is different from the user's file, line by line."""
    from rich.text import Text

    from simulator.tune.file import loses_comments

    target = answer.target
    old = str(target.source or f"{target.scenario.file}: {target.variant.name}")
    before, after = answer.text_before.splitlines(), answer.text.splitlines()
    for line in difflib.unified_diff(before, after, old, str(output), lineterm=""):
        yield Text(line, style={"+": "green", "-": "red"}.get(line[:1], ""))
    if loses_comments(target):
        yield "comments of the present file are not kept, and what is shown starts from it without them"
    yield written_to(output)
