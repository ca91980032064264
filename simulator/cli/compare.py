"""The command that tells two scenarios or results apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from simulator import __version__
from simulator.cli.common import load, print_json, print_tables, progress

__all__ = ["compare"]


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--set", "both", multiple=True, metavar="KEY=VALUE", help="Change a key of both scenarios.")
@click.option("--with", "second", multiple=True, metavar="KEY=VALUE", help="Change a key of B alone.")
@click.option("--variant", "names", multiple=True, metavar="NAME", help="Only these variants; may be repeated.")
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def compare(
    before: str, after: str, both: Sequence[str], second: Sequence[str], names: Sequence[str], machine: bool
) -> None:
    """Say what is different in A and B, scenarios or results of `zerosim run --json`, and what that changes.

    Variants of the same name are compared; of each with one variant, these.
    """
    from simulator.ask import compare as ask

    answer = ask(_content(before, both, names), _content(after, [*both, *second], names))
    if machine:
        print_json(answer.as_json())
    else:
        print_tables(*answer.tables())


def _content(source: str, overrides: Sequence[str], names: Sequence[str]) -> Mapping[str, Any]:
    """Read a file of results, or simulate a scenario; only the variants called *names*."""
    from simulator.explore import attempt, report

    content = _results(Path(source), overrides) if source.endswith(".json") else None
    if content is None:
        asked = load(source, overrides, None)
        variants = tuple(item for item in asked.variants if not names or item.name in names) or asked.variants
        with progress("simulating", len(variants)) as done:
            return report(asked, attempt(asked, variants, done), __version__)
    chosen = [result for result in content["results"] if not names or result["name"] in names]
    return {**content, "results": chosen}


def _results(file: Path, overrides: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the content of a file of results; None if it is something else."""
    from simulator.errors import InputError

    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", file=file) from None
    if not (isinstance(content, dict) and {"scenario", "results"} <= content.keys()):
        raise InputError("not results", file=file, remedy="write them with: zerosim run SCENARIO --json > FILE.json")
    if overrides:
        raise InputError("results cannot be changed", file=file, key="--set", remedy="give the scenario instead")
    return content
