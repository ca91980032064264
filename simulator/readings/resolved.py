"""The resolved scenario: every knob, every number with its basis and source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from simulator.laws.kernels import rates
from simulator.schedules.offloaded import offloaded
from simulator.units import readable
from simulator.world.catalog import Number
from simulator.world.policy.deepspeed_effects import NO_EFFECT
from simulator.world.policy.deepspeed_knobs import knobs, notes
from simulator.world.scenario import Scenario, Variant
from simulator.world.topology.servers import server_of

__all__ = ["numbers_table", "remarks", "resolved", "resolved_tables"]


def resolved(scenario: Scenario, variants: Sequence[Variant]) -> dict[str, Any]:
    """Return what a simulation of *scenario* would start from."""
    cluster, model = scenario.cluster, scenario.model
    at = rates(scenario.accelerator, scenario.compute)
    measured = (number for item in scenario.measured for number in item.numbers())
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
            "algorithm": scenario.place.library,
        },
        "compute": _compute(scenario),
        "rates": {"achieved_flop_per_second": dict(at.flop)},
        "variants": [_variant(scenario, item) for item in variants],
        "numbers": [
            asdict(number)
            for number in (*cluster.numbers(), *scenario.host.numbers(), *measured, *_servers(scenario, variants))
        ],
    }


def _servers(scenario: Scenario, variants: Sequence[Variant]) -> tuple[Number, ...]:
    """Numbers of the hosts' memory, CPUs and drives, where something is offloaded to them."""
    used = [item for item in variants if offloaded(scenario.at(item), item.policy) is not None]
    return tuple(dict.fromkeys(number for item in used for number in server_of(item.place.cluster).numbers()))


def _compute(scenario: Scenario) -> dict[str, Any]:
    """Kernels and how they are timed; the precision stands under ``training``."""
    settings = asdict(scenario.compute)
    del settings["precision"]
    return settings | {"overlap_slowdown": scenario.compute.overlap_slowdown or "channels"}


def _variant(scenario: Scenario, variant: Variant) -> dict[str, Any]:
    """The policy of one variant; of a DeepSpeed config also each key, where its value is from and what it does."""
    shown = {"name": variant.name, "schedule": variant.schedule, "policy": asdict(variant.policy)}
    if variant.config is None or variant.schedule != "deepspeed":
        return {**shown, "knobs": [], "notes": list(remarks(variant))}
    listed = knobs(variant.config, scenario.training.precision, hidden_size=scenario.model.hidden_size)
    return {**shown, "knobs": [asdict(knob) for knob in listed], "notes": list(remarks(variant))}


def remarks(variant: Variant) -> tuple[str, ...]:
    """What the author of a variant's configuration should know: keys that are ignored, renamed or left open."""
    of_config = notes(variant.config) if variant.config is not None and variant.schedule == "deepspeed" else ()
    return (*variant.notes, *of_config)


def _variant_table(item: Mapping[str, Any]) -> Table:
    table = Table(title=f"{item['name']}: schedule {item['schedule']}", title_justify="left")
    if not item["knobs"]:
        table.add_column("option", no_wrap=True)
        table.add_column("value", overflow="fold")
        for name, value in item["policy"].items():
            table.add_row(name, _shown(value))
        return table
    for heading in ("key", "value", "origin", "effect on communication"):
        table.add_column(heading, overflow="fold")
    for knob in item["knobs"]:
        effect = knob["effect"]
        style = "dim" if effect.startswith(NO_EFFECT) else None
        table.add_row(knob["name"], _shown(knob["value"]), knob["origin"], escape(effect), style=style)
    return table


def resolved_tables(content: Mapping[str, Any]) -> Iterable[Table | str]:
    """Lay *content* out as tables and notes."""
    settings = Table(title=content["name"], title_justify="left", show_header=False)
    for section in ("model", "training", "topology", "compute"):
        for key, value in content[section].items():
            settings.add_row(f"{section}.{key}", _shown(value))
        settings.add_section()
    yield settings
    for item in content["variants"]:
        yield _variant_table(item)
        yield from item["notes"]
    yield numbers_table(Number(**item) for item in content["numbers"])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else escape(str(value))


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
