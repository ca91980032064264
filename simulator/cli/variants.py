"""Commands on the variants of a scenario."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli.common import (
    chosen,
    load,
    picture_option,
    print_json,
    print_tables,
    progress,
    scenario_options,
    written_to,
)

if TYPE_CHECKING:
    from simulator.ask import Run

__all__ = ["memory", "plot", "program", "run", "show", "trace", "volume"]

as_json = click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")


@click.command()
@scenario_options
@as_json
@click.option("--detail", is_flag=True, help="Also print the critical path, and what is exposed by layer and link.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write report.json, figures and traces.")
def run(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool,
    detail: bool, out: Path | None,
) -> None:  # fmt: skip
    """Simulate the variants of SCENARIO and compare them."""
    from simulator.ask import run as ask

    asked = load(scenario, overrides, topology)
    with progress("simulating", len(chosen(asked, names))) as done:
        answer = ask(asked, variants=names, detail=detail or out is not None, done=done)
    if out is not None:
        _write_all(out, answer)
    if machine:
        print_json(answer.as_json())
        return
    print_tables(*(answer.tables() if detail else answer.comparison()))
    if out is not None:
        print_tables(written_to(f"{out}/"))


def _write_all(out: Path, answer: Run) -> None:
    from simulator.explore import Outcome
    from simulator.readings.files import write_atomically, write_json
    from simulator.readings.trace import chrome_trace

    outcomes = [item for item in answer.attempts if isinstance(item, Outcome)]
    out.mkdir(parents=True, exist_ok=True)
    with progress("drawing", len(outcomes)) as done:
        for outcome in outcomes:
            name = outcome.variant.name
            stem = re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)
            write_atomically(out / f"timeline-{stem}.png", answer.plot("timeline", name).savefig)
            trace = chrome_trace(outcome.timeline, outcome.readings(), name, outcome.path())
            write_json(out / f"trace-{stem}.json", trace)
            done()
    write_atomically(out / "exposed.png", answer.plot().savefig)
    if answer.scenario.jitter is not None:
        write_atomically(out / "jitter.png", answer.plot("jitter").savefig)
    write_json(out / "report.json", answer.content)


@click.command()
@scenario_options
@as_json
def show(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool
) -> None:
    """Print the resolved SCENARIO, every number with its source; nothing runs."""
    from simulator.readings.resolved import resolved, resolved_tables

    asked = load(scenario, overrides, topology)
    content = resolved(asked, chosen(asked, names))
    if machine:
        print_json(content)
    else:
        print_tables(*resolved_tables(content))


@click.command()
@scenario_options
@as_json
def program(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool
) -> None:
    """Print the collectives, and copies to and from hosts, that SCENARIO issues, in issue order."""
    from simulator.readings.issued import issued
    from simulator.schedules.record import record

    asked = load(scenario, overrides, topology)
    rows = {variant.name: issued(record(asked.at(variant), variant)) for variant in chosen(asked, names)}
    if machine:
        print_json(rows)
        return
    from simulator.readings.table import program_table

    print_tables(*(program_table(items, f"{name}: {_counted(items)}") for name, items in rows.items()))


def _counted(rows: Sequence[dict[str, Any]]) -> str:
    copies = sum(row["communicator"] == "host" for row in rows)
    return f"{len(rows) - copies} collectives" + (f", {copies} copies to and from the host" if copies else "")


@click.command()
@scenario_options
@as_json
def volume(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool
) -> None:
    """Print the bytes that SCENARIO communicates, as published and exact."""
    from dataclasses import asdict

    from simulator.explore import volume_of

    asked = load(scenario, overrides, topology)
    volumes = {variant.name: volume_of(asked, variant) for variant in chosen(asked, names)}
    if machine:
        print_json({name: asdict(item) for name, item in volumes.items()})
        return
    from simulator.readings.table import transfer_table, volume_table

    offloads = {name: item for name, item in volumes.items() if item.transfers}
    print_tables(volume_table(volumes), *([transfer_table(offloads)] if offloads else []))


@click.command()
@scenario_options
@as_json
def memory(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], machine: bool
) -> None:
    """Print the memory that SCENARIO needs, by item at the peak."""
    from simulator.explore import Outcome, attempt
    from simulator.readings.report import timeline_of

    asked = load(scenario, overrides, topology)
    variants = chosen(asked, names)
    with progress("simulating", len(variants)) as done:
        attempts = attempt(asked, variants, done)
    outcomes = [item for item in attempts if isinstance(item, Outcome)]
    if machine:
        found = {
            item.variant.name: {
                **item.result.memory,
                "timeline": timeline_of(asked.at(item.variant), item.variant, item.timeline),
            }
            for item in outcomes
        }
        print_json({item.variant.name: found.get(item.variant.name) for item in attempts})
        return
    from simulator.readings.table import host_table, memory_table

    offloads = {item.variant.name: item.result.memory for item in outcomes if "host" in item.result.memory}
    print_tables(
        memory_table({item.variant.name: item.result.memory for item in outcomes}),
        *([host_table(offloads)] if offloads else []),
        *(f"{item.variant.name} cannot run: {item.error}" for item in attempts if not isinstance(item, Outcome)),
    )


@click.command()
@scenario_options
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="A .json file.")
def trace(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], output: Path
) -> None:
    """Write a trace of one variant of SCENARIO for https://ui.perfetto.dev."""
    from simulator.explore import run_variant
    from simulator.readings.files import write_json
    from simulator.readings.trace import chrome_trace

    asked = load(scenario, overrides, topology)
    outcome = run_variant(asked, chosen(asked, names)[0])
    write_json(output, chrome_trace(outcome.timeline, outcome.readings(), outcome.variant.name, outcome.path()))
    print_tables(written_to(output, outcome.variant.name))


@click.command()
@scenario_options
@click.option(
    "--kind",
    type=click.Choice(["timeline", "exposed", "jitter", "memory", "topology"]),
    default="exposed",
    show_default=True,
)
@picture_option
def plot(
    scenario: str, overrides: tuple[str, ...], topology: str | None, names: tuple[str, ...], kind: str, output: Path
) -> None:
    """Draw SCENARIO: timeline or memory of one variant, exposed communication or jitter of all, or the cluster."""
    from simulator.ask import run as ask
    from simulator.ask.runs import check_picture
    from simulator.readings.files import write_atomically
    from simulator.readings.plots import topology_figure

    asked = load(scenario, overrides, topology)
    if kind == "topology":
        figure = topology_figure(asked.cluster)
    else:
        check_picture(kind, asked)
        variants = chosen(asked, names)
        shown = variants[:1] if kind in ("timeline", "memory") else variants
        figure = ask(asked, variants=[variant.name for variant in shown]).plot(kind)
    write_atomically(output, figure.savefig)
    print_tables(written_to(output))
