"""Commands on the variants of a scenario."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator import __version__
from simulator.cli.common import (
    chosen,
    load,
    picture_option,
    print_json,
    print_tables,
    progress,
    scenario_options,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.explore import Outcome
    from simulator.world.scenario import Scenario, Variant

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
    from simulator.explore import Outcome, attempt, report

    asked = load(scenario, overrides, topology)
    variants = chosen(asked, names)
    with progress("simulating", len(variants)) as done:
        attempts = attempt(asked, variants, done)
    content = report(asked, attempts, __version__, detail=detail or out is not None)
    if out is not None:
        _write_all(out, asked, [item for item in attempts if isinstance(item, Outcome)], content)
    if machine:
        print_json(content)
        return
    _print_comparison(asked, variants, content["results"])
    if detail:
        from simulator.readings.detail import details

        print_tables(*details(content["results"]))
    if out is not None:
        print_tables(f"written to {out}/")


def _print_comparison(asked: Scenario, variants: tuple[Variant, ...], results: list[dict[str, Any]]) -> None:
    from simulator.readings.resolved import remarks
    from simulator.readings.spread_table import jittered, rank_classes
    from simulator.readings.table import ceilings, comparison, exposed_by, notes

    mesh = asked.mesh
    cluster = f"{asked.cluster.hosts} x {asked.cluster.name} = {mesh.ranks} x {asked.accelerator.name}"
    title = f"{asked.name}; {cluster}"
    print_tables(
        comparison(results, title),
        exposed_by(results, "exposed_by_collective", "Exposed communication by collective [ms]"),
        exposed_by(results, "exposed_by_cause", "Exposed communication by cause [ms]"),
        ceilings(results),
        *rank_classes(results),
        *jittered(results),
        *notes(results),
        *(f"{variant.name}: {remark}" for variant in variants for remark in remarks(variant)),
    )


def _write_all(out: Path, asked: Scenario, outcomes: Sequence[Outcome], content: dict[str, Any]) -> None:
    from simulator.readings.files import write_atomically, write_json
    from simulator.readings.plots import exposed_figure, jitter_figure, timeline_figure
    from simulator.readings.trace import chrome_trace

    out.mkdir(parents=True, exist_ok=True)
    with progress("drawing", len(outcomes)) as done:
        for outcome in outcomes:
            name = outcome.variant.name
            stem = re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)
            title = _finding(outcome)
            path = outcome.path()
            figure = timeline_figure(outcome.timeline.classes[0], outcome.reading, title, path=path)
            write_atomically(out / f"timeline-{stem}.png", figure.savefig)
            write_json(out / f"trace-{stem}.json", chrome_trace(outcome.timeline, outcome.readings(), name, path))
            done()
    figure = exposed_figure(content["results"], _exposed_title(asked))
    write_atomically(out / "exposed.png", figure.savefig)
    if asked.jitter is not None:
        write_atomically(out / "jitter.png", jitter_figure(content["results"], _jitter_title(asked)).savefig)
    write_json(out / "report.json", content)


def _exposed_title(asked: Scenario) -> str:
    return f"Exposed communication, {asked.name}, {asked.cluster.hosts} x {asked.cluster.name}"


def _jitter_title(asked: Scenario) -> str:
    return f"Steps with random times, {asked.name}, {asked.cluster.hosts} x {asked.cluster.name}"


def _finding(outcome: Outcome) -> str:
    step, stalled = outcome.result.step_time, outcome.reading.stalled
    share = 100 * stalled / step if step else 0.0
    return f"{outcome.variant.name}: {stalled:.3g} s of the {step:.4g} s step is exposed communication ({share:.1f} %)"


def _memory_figure(asked: Scenario, outcome: Outcome) -> Figure:
    from simulator.readings.footprint import fullest
    from simulator.readings.plots import memory_figure
    from simulator.readings.report import timeline_of

    variant, memory, giga = outcome.variant, outcome.result.memory, 1e9
    curve = timeline_of(asked.at(variant), variant, outcome.timeline)
    largest, size = next(iter(memory["items"].items()))
    title = (
        f"{variant.name}: memory peaks at {memory['peak'] / giga:.1f} GB in {fullest(memory)}; "
        f"the largest item is {largest}, {size / giga:.1f} GB"
    )
    verdict = "fits into" if memory["fits"] else "does not fit into"
    finding = (
        f"With context, communicators and holes the step needs {memory['needed'] / giga:.1f} GB and {verdict} "
        f"{memory['capacity'] / giga:.0f} GB"
    )
    return memory_figure(outcome.timeline.classes[0], memory, curve, title, finding)


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
    print_tables(f"{outcome.variant.name}: written to {output}")


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
    from simulator.errors import InputError
    from simulator.explore import attempt, report, run_variant
    from simulator.readings.files import write_atomically
    from simulator.readings.plots import exposed_figure, jitter_figure, timeline_figure, topology_figure

    asked = load(scenario, overrides, topology)
    variants = chosen(asked, names)
    if kind == "jitter" and asked.jitter is None:
        raise InputError("nothing is random", file=asked.file, key="jitter", remedy="--set jitter.kernel=0.02")
    if kind == "topology":
        figure = topology_figure(asked.cluster)
    elif kind == "timeline":
        outcome = run_variant(asked, variants[0])
        figure = timeline_figure(outcome.timeline.classes[0], outcome.reading, _finding(outcome), path=outcome.path())
    elif kind == "memory":
        figure = _memory_figure(asked, run_variant(asked, variants[0]))
    else:
        results = report(asked, attempt(asked, variants), __version__)["results"]
        figure = (
            jitter_figure(results, _jitter_title(asked)) if kind == "jitter"
            else exposed_figure(results, _exposed_title(asked))
        )  # fmt: skip
    write_atomically(output, figure.savefig)
    print_tables(f"written to {output}")
