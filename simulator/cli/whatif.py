"""The command that asks what a better resource would gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator import __version__
from simulator.cli.common import PicturePath, chosen, load, print_json, print_tables, progress, scenario_options
from simulator.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["whatif"]


@click.command()
@scenario_options
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "-o", "--output", type=PicturePath(path_type=Path, dir_okay=False), help="Draw a .png, .svg or .pdf file."
)
def whatif(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool,
    output: Path | None,
) -> None:  # fmt: skip
    """Say how much shorter the step of each variant of SCENARIO were, were a resource 1.1 or 2 times better."""
    from simulator.whatif import whatif as ask

    asked = load(scenario, overrides, topology)
    variants = chosen(asked, names)
    answers, failures = [], {}
    with progress("simulating", len(variants)) as done:
        for variant in variants:
            try:
                answers.append(ask(asked, variant).as_json())
            except InputError as error:
                failures[variant.name] = str(error)
            done()
    if not answers:
        raise InputError("; ".join(f"{name} cannot run: {reason}" for name, reason in failures.items()))
    if output:
        from simulator.readings.files import write_atomically
        from simulator.readings.plots import tornado_figure

        write_atomically(output, tornado_figure(answers, f"What if it were better: {asked.name}").savefig)
    if machine:
        print_json({"scenario": dict(asked.raw), "version": __version__, "failures": failures, "variants": answers})
        return
    print_tables(
        *(part for answer in answers for part in _told(answer)),
        *(f"{name} cannot run: {reason}" for name, reason in failures.items()),
        *([f"written to {output}"] if output else []),
    )


def _told(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield _table(answer)
    if answer["without_effect"]:
        yield f"{answer['name']} hardly depends on: {', '.join(answer['without_effect'])}"


def _table(answer: Mapping[str, Any]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from simulator.units import readable

    title = escape(
        f"{answer['name']}: what a better resource gains of a step of {readable(answer['step_time'], 's', 4)}"
    )
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("resource", "now", ""):
        table.add_column(heading, no_wrap=True)
    factors = [f"{gain['factor']:g}x" for item in answer["sensitivities"][:1] for gain in item["gains"]]
    headings = (
        "on the\npath [ms]",
        "slope\n[ms]",
        *(text for name in factors for text in (f"{name}\n[ms]", f"{name}\n[%]")),
    )
    for heading in headings:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    table.add_column("as foreseen", no_wrap=True)
    for item in answer["sensitivities"]:
        table.add_row(
            item["resource"], item["now"], item["change"], *(_milliseconds(item[key]) for key in ("on_path", "slope")),
            *(text for gain in item["gains"] for text in _gain(gain, answer["step_time"])), _foreseen(item["gains"]),
        )  # fmt: skip
    return table


def _milliseconds(time: float | None) -> str:
    return "" if time is None else f"{1e3 * time:.1f}"


def _gain(gain: Mapping[str, Any], step: float) -> tuple[str, str]:
    return _milliseconds(gain["gain"]), f"{100 * gain['gain'] / step:.2f}"


def _foreseen(gains: Sequence[Mapping[str, Any]]) -> str:
    """Whether what the path says comes true; what it says where it does not."""
    if gains[0]["holds"] is None:
        return ""
    missed = [f"{gain['factor']:g}x: {_milliseconds(gain['foreseen'])}" for gain in gains if not gain["holds"]]
    return "no, " + ", ".join(missed) if missed else "yes"
