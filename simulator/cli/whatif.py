"""The command that asks what a better resource would gain."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.cli.common import (
    PicturePath,
    chosen,
    load,
    print_json,
    print_tables,
    progress,
    scenario_options,
    written_to,
)

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
    from simulator.ask import whatif as ask

    asked = load(scenario, overrides, topology)
    with progress("simulating", len(chosen(asked, names))) as done:
        answer = ask(asked, variants=names, done=done)
    if output:
        from simulator.readings.files import write_atomically

        write_atomically(output, answer.plot().savefig)
    if machine:
        print_json(answer.as_json())
        return
    print_tables(*answer.tables(), *([written_to(output)] if output else []))
