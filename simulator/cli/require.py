"""The command that asks how much of a resource is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from simulator.errors import InputError

__all__ = ["require"]


@click.command()
@scenario_options
@click.option("--exposed", metavar="SHARE", help="At most so much exposed communication, like 5%.")
@click.option("--step-time", metavar="TIME", help="A step of at most so long, like '3 s'.")
@click.option("--tokens", metavar="NUMBER", help="At least so many tokens/s per GPU.")
@click.option("--mfu", metavar="SHARE", help="At least so much MFU, like 45%.")
@click.option("--knob", "knobs", multiple=True, metavar="NAME", help="What is turned; may be repeated.  [default: all]")
@click.option("--range", "span", metavar="A..B", help="Smallest and largest value of the knob, like 100..800Gbit/s.")
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("-o", "--output", type=PicturePath(path_type=Path, dir_okay=False),
              help="Draw the variants over the first knob: a .png, .svg or .pdf file.")  # fmt: skip
def require(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool,
    output: Path | None, **asked: Any,
) -> None:  # fmt: skip
    """Say how much bandwidth, prefetch or work per step each variant of SCENARIO needs to reach a goal."""
    from simulator.ask import require as ask
    from simulator.ask.needs import GOALS

    knobs, said = asked["knobs"], {name: asked[name] for name in GOALS if asked[name] is not None}
    found = load(scenario, overrides, topology)
    try:
        with progress("simulating", len(chosen(found, names))) as done:
            answer = ask(found, variants=names, knobs=knobs, span=asked["span"], done=done, **said)
    except InputError as error:
        _name_options(error)
        raise
    if output:
        from simulator.readings.files import write_atomically

        # of all knobs the bandwidth of the narrowest link
        narrowest = min(found.cluster.links, key=lambda link: link.nominal.value)
        write_atomically(output, answer.plot(None if knobs else f"{narrowest.name}.bandwidth").savefig)
    if machine:
        print_json(answer.as_json())
        return
    print_tables(*answer.tables(), *([written_to(output)] if output else []))


def _name_options(error: InputError) -> None:
    """Call what the function takes as the command does."""
    from simulator.ask.needs import GOALS

    if error.key == "span":
        error.key, error.remedy = "--range", "say of which: --knob NAME"
    elif error.key is not None and {*error.key.split(", ")} <= {*GOALS}:
        error.key = ", ".join(f"--{name.replace('_', '-')}" for name in error.key.split(", "))
