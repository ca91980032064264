"""The numbers of the world that the page rests on, with their sources."""

from __future__ import annotations

from typing import Final

from simulator.readings.report import numbers_of
from simulator.review.parts import Cell, Material, Section, Table, text
from simulator.schedules.record import record
from simulator.units import readable
from simulator.world.catalog import Number, sources

__all__ = ["assumptions_section"]

ORDER: Final = ("assumed", "derived", "measured", "published", "datasheet", "chosen")
"""Of how a number is known: what deserves most doubt first."""

PLAIN: Final = ("", "x")
"""Units of fractions and factors."""


def assumptions_section(asked: Material) -> Section:
    """Write every number that some variant used, those without a source first."""
    used = sorted(_used(asked), key=lambda item: ORDER.index(item.basis))
    counts = {basis: sum(item.basis == basis for item in used) for basis in ORDER}
    told = ", ".join(f"{count} {basis}" for basis, count in counts.items() if count)
    return Section(
        key="assumptions",
        topic="Assumptions",
        finding=f"{counts['assumed']} of the {len(used)} numbers that the page rests on are assumed",
        tables=(
            Table(
                caption=f"Numbers of the catalogue that were used: {told}",
                columns=("number", "value", "basis", "source", "place in it"),
                rows=tuple(_row(item) for item in used),
            ),
        ),
    )


def _used(asked: Material) -> list[Number]:
    """Of all variants, each once."""
    found: dict[Number, None] = {}
    for outcome in asked.outcomes:
        where = asked.scenario.at(outcome.variant)
        program = record(where, outcome.variant)
        found |= dict.fromkeys(numbers_of(where, outcome.variant, program, outcome.result.links))
    found |= dict.fromkeys(number for item in asked.scenario.measured for number in item.numbers())
    return list(found)


def _row(item: Number) -> tuple[Cell, ...]:
    value = f"{item.value:.4g}" if item.unit in PLAIN else readable(item.value, item.unit, 4)
    listed = sources().get(item.source, {})
    title = listed.get("title", item.source) if isinstance(listed, dict) else item.source
    return (
        text(item.name),
        Cell(text=value, value=item.value),
        Cell(text=item.basis, alarm=item.basis == "assumed"),
        text(title),
        text(item.at),
    )
