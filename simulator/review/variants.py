"""The variants beside each other: which is fastest, what each costs in time and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from simulator.readings.metrics import metric
from simulator.readings.resolved import remarks
from simulator.readings.table import SAME, has_room, notes
from simulator.review.parts import Cell, Material, Section, Table, number, text
from simulator.units import readable

__all__ = ["fastest", "head", "variants_section"]

GIGA: Final = 1e9  # definition: bytes in a GB

COLUMNS: Final = (
    ("step [s]", "step_time", ".4g", 1.0),
    ("tokens/s per GPU", "tokens_per_second_per_gpu", ",.0f", 1.0),
    ("MFU [%]", "mfu", ".1f", 0.01),
    ("stalled [s]", "exposed.stalled", ".3f", 1.0),
    ("stalled [% of step]", "exposed.stalled/step_time", ".2f", 0.01),
    ("memory peak [GB]", "memory.peak", ".1f", GIGA),
    ("memory needed [GB]", "memory.needed", ".1f", GIGA),
    ("capacity [GB]", "memory.capacity", ".0f", GIGA),
)
"""Heading, metric, form and size of the unit in SI."""

PRICED: Final = ("cost [$ per billion tokens]", "cost.per_billion_tokens", ",.2f", 1.0)


def fastest(results: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the shortest step of those that fit in memory, of all if none does."""
    return min(results, key=lambda result: (not has_room(result["memory"]), result["step_time"]))


def head(asked: Material) -> Iterator[tuple[str, str]]:
    """What was simulated: names and values."""
    scenario, model = asked.scenario, asked.scenario.model
    cluster, training = scenario.cluster, scenario.training
    batch = f"micro-batch {training.micro_batch}, gradient accumulation {training.gradient_accumulation}"
    yield "Model", f"{model.name}: {model.elements / GIGA:.3g} billion parameters, {model.sequence_length:,} tokens"
    yield "Training", f"{batch}, {training.precision}, checkpointing {training.activation_checkpointing}"
    yield "Cluster", f"{cluster.hosts:,} x {cluster.title} ({cluster.name})"
    yield "GPUs", f"{cluster.ranks:,} x {scenario.accelerator.name}"
    yield "Scenario", scenario.file.name


def variants_section(asked: Material) -> Section:
    """Write the table of the variants."""
    priced = any(result["cost"] for result in asked.ran)
    columns = (*COLUMNS, *([PRICED] if priced else []))
    rows = tuple((text(result["name"]), *_cells(result, columns)) for result in asked.results)
    said = (f"{item.name}: {remark}" for item in asked.variants for remark in remarks(item))
    return Section(
        key="variants",
        topic="Variants",
        finding=_finding(asked),
        tables=(
            Table(
                caption="Variants; click a heading to sort",
                columns=("variant", *(heading for heading, *_ in columns), "fits"),
                keys=("name", *(key for _, key, *_ in columns), "fits"),
                rows=rows,
            ),
        ),
        remarks=(*notes(asked.results), *said),
    )


def _cells(result: Mapping[str, Any], columns: tuple[tuple[str, str, str, float], ...]) -> Iterator[Cell]:
    yield from (number(metric(key).of(result), form, size) for _, key, form, size in columns)
    if result["failure"]:
        yield Cell(text="does not run", alarm=True)
    else:
        fits = has_room(result["memory"])
        yield Cell(text="yes" if fits else "no", alarm=not fits)


def _finding(asked: Material) -> str:
    best = fastest(asked.ran)
    fits = "that fits in memory" if has_room(best["memory"]) else "although it does not fit in memory"
    name = f"{best['name']} is the fastest {fits}: " if len(asked.results) > 1 else f"{best['name']}: "
    near = sum(_as_good(result, best) for result in asked.ran) - 1
    others = f", {near} more within 1 %" if near else ""
    return f"{name}{readable(best['step_time'], 's', 4)} a step, MFU {100 * best['mfu']:.1f} %{others}"


def _as_good(result: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    """Whether the table of ``zerosim run`` would call it equally fast."""
    fits = has_room(result["memory"]) or not has_room(best["memory"])
    return fits and bool(result["step_time"] <= SAME * best["step_time"])
