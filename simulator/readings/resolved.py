"""The resolved scenario: every knob, every number with its basis and source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from simulator.laws.kernels import rates
from simulator.units import readable
from simulator.world.catalog import Number
from simulator.world.scenario import Scenario, Variant

__all__ = ["numbers_table", "resolved", "resolved_tables"]


def resolved(scenario: Scenario, variants: Sequence[Variant]) -> dict[str, Any]:
    """Return what a simulation of *scenario* would start from."""
    cluster, model = scenario.cluster, scenario.model
    at = rates(scenario.accelerator, scenario.training.precision, scenario.achieved)
    return {
        "name": scenario.name,
        "file": str(scenario.file),
        "model": {
            "name": model.name,
            "parameters": model.elements,
            "layers": len(model.layers),
            "sequence_length": model.sequence_length,
            "flop_per_token": model.model_flop,
        },
        "training": {**asdict(scenario.training), "tokens_per_step_and_gpu": scenario.tokens_per_step},
        "topology": {
            "cluster": cluster.name,
            "title": cluster.title,
            "hosts": cluster.hosts,
            "accelerators_per_host": cluster.accelerators_per_host,
            "ranks": cluster.ranks,
            "algorithm": scenario.algorithm,
        },
        "rates": {"achieved_flop_per_second": dict(at.flop)},
        "variants": [{"name": item.name, "schedule": item.schedule, **asdict(item.policy)} for item in variants],
        "numbers": [asdict(number) for number in cluster.numbers()],
    }


def resolved_tables(content: Mapping[str, Any]) -> Iterable[Table]:
    """Lay *content* out as tables."""
    settings = Table(title=content["name"], title_justify="left", show_header=False)
    for section in ("model", "training", "topology"):
        for key, value in content[section].items():
            settings.add_row(f"{section}.{key}", _shown(value))
        settings.add_section()
    yield settings
    variants = Table(title="Variants", title_justify="left")
    for key in content["variants"][0]:
        variants.add_column(key.replace("_", " "))
    for item in content["variants"]:
        variants.add_row(*(_shown(value) for value in item.values()))
    yield variants
    yield numbers_table(Number(**item) for item in content["numbers"])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def numbers_table(numbers: Iterable[Number]) -> Table:
    """Numbers with basis and source; assumed ones stand out."""
    table = Table(title="Numbers", title_justify="left")
    for heading in ("number", "value", "basis", "source", "place"):
        table.add_column(heading, overflow="fold")
    for number in numbers:
        value = readable(number.value, number.unit, 4) if number.unit else f"{number.value:.4g}"
        style = "yellow" if number.basis == "assumed" else None
        table.add_row(number.name, value, number.basis, number.source, number.at, style=style)
    return table
