"""The command that writes a page for a design review."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from simulator import __version__
from simulator.cli.common import PagePath, chosen, load, print_tables, scenario_options, waiting, written_to

__all__ = ["report"]


@click.command()
@scenario_options
@click.option("-o", "--output", type=PagePath(path_type=Path, dir_okay=False), required=True, help="A .html file.")
@click.option("--timeline", "closer", metavar="NAME", help="Variant to look into.  [default: the fastest that fits]")
@click.option("--quick", is_flag=True, help="Leave out what simulates many times: whatif and breakeven.")
@click.option("--without", default="", metavar="SECTIONS", help="Leave these out, like whatif,breakeven.")
def report(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], output: Path,
    closer: str | None, quick: bool, without: str,
) -> None:  # fmt: skip
    """Write a page for a design review of SCENARIO: one HTML file with everything in it."""
    from simulator.readings.files import write_atomically
    from simulator.review import LEFT_OUT_BY_QUICK, rendered, review

    asked = load(scenario, overrides, topology)
    left_out = [*(LEFT_OUT_BY_QUICK if quick else ()), *(name.strip() for name in without.split(",") if name.strip())]
    found = review(asked, chosen(asked, names), __version__, closer=closer, without=left_out, during=waiting)
    options = [("--set", item) for item in overrides] + [("--variant", item) for item in names]
    options += [(name, item) for name, item in (("--topology", topology), ("--timeline", closer)) if item]
    command = _command(scenario, options, left_out, output)
    page = rendered(found, command=command, date=datetime.now(UTC).date().isoformat())
    write_atomically(output, lambda path: path.write_text(page, encoding="utf-8"))
    print_tables(written_to(output))


def _command(scenario: str, options: Sequence[tuple[str, str]], left_out: Sequence[str], output: Path) -> str:
    """What makes the page again."""
    without = ["--without", ",".join(dict.fromkeys(left_out))] if left_out else []
    said = [part for option in options for part in option]
    return shlex.join(["zerosim", "report", scenario, *said, *without, "-o", output.name])
