"""The command that holds predictions against measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli.common import PicturePath, print_json, print_tables, written_to

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from simulator.validate import Comparison, Verdict

__all__ = ["validate"]

WORST = 10
"""Rows that are shown."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE.csv...", type=click.Path(path_type=Path))
@click.option("--assume", is_flag=True, help="Predict rows without network (reference host) or size (8 GiB) too.")
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--plot", "output", type=PicturePath(path_type=Path, dir_okay=False), help="Draw a .png, .svg or .pdf file."
)
def validate(files: tuple[Path, ...], assume: bool, machine: bool, output: Path | None) -> None:
    """Predict what the tables FILE.csv measured, collectives or training runs, and print the errors per system."""
    from simulator.readings.files import write_atomically
    from simulator.validate import validate as compare

    comparison = compare(files, assume=assume)
    content = comparison.as_json()
    if output:
        from simulator.readings.plots import parity_figure

        write_atomically(output, parity_figure(content["rows"], "Predicted against measured").savefig)
    if machine:
        print_json(content)
        return
    tables = [_errors(content["sources"]), _worst(comparison)] if comparison.verdicts else []
    print_tables(*tables, *_unmapped(comparison), *([written_to(output)] if output else []))


def _errors(sources: Iterable[dict[str, Any]]) -> Table:
    from rich.markup import escape

    table = _table("Error of predictions by system and size")
    table.add_column("system", max_width=60)
    table.add_column("of")
    table.add_column("sizes", no_wrap=True)
    for heading in ("rows", "mean |error|", "median |error|", "bias"):
        table.add_column(heading, justify="right", no_wrap=True)
    for source in sources:
        table.add_section()
        table.add_row(escape(source["source"]), source["metric"], "all", *_cells(source), style="bold")
        for name, errors in source["sizes"].items():
            table.add_row("", "", name, *_cells(errors))
    return table


def _cells(errors: dict[str, Any]) -> Iterable[str]:
    absolute = (f"{errors[key]:.1%}" for key in ("mean_absolute_error", "median_absolute_error"))
    return (str(errors["runs"]), *absolute, f"{errors['bias']:+.1%}")


def _worst(comparison: Comparison) -> Table:
    from rich.markup import escape

    from simulator.units import binary
    from simulator.validate import worst

    table = _table(f"The {WORST} worst rows")
    table.add_column("system", max_width=48)
    for heading in ("row", "of", "GPUs", "size", "measured", "predicted", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for verdict in worst(comparison.verdicts, WORST):
        subject = verdict.details["op"] if "op" in verdict.details else f"{verdict.details['model']} {verdict.metric}"
        table.add_row(
            escape(verdict.source), str(verdict.row), escape(subject), str(verdict.details["ranks"]),
            binary(verdict.payload) if verdict.payload else "-", _value(verdict, verdict.measured),
            _value(verdict, verdict.predicted), f"{verdict.error:+.0%}",
        )  # fmt: skip
    return table


def _value(verdict: Verdict, value: float) -> str:
    """Write *value* with its unit, unless the metric's name holds it."""
    from simulator.units import readable

    unit = {"time": "s", "busbw": "B/s"}.get(verdict.metric)
    return f"{value:.4g}" if unit is None else readable(value, unit)


def _unmapped(comparison: Comparison) -> Iterator[RenderableType]:
    from rich.markup import escape

    from simulator.validate import unmapped_reasons

    missing, total = len(comparison.unmapped), len(comparison.verdicts) + len(comparison.unmapped)
    yield f"Not predicted: {missing} of {total} rows"
    table = _table()
    table.add_column("rows", justify="right")
    table.add_column("because")
    for reason, count in unmapped_reasons(comparison.unmapped):
        table.add_row(str(count), escape(reason))
    if missing:
        yield table


def _table(title: str | None = None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(title=title, title_justify="left", box=SIMPLE_HEAD)
