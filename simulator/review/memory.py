"""Memory at the peak of all variants, and over the step of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simulator.readings.colours import known_order
from simulator.readings.plots import finding_of, footprints_figure, inline_svg, memory_figure
from simulator.readings.report import timeline_of
from simulator.review.parts import Cell, Material, Picture, Section, Table, number, text

__all__ = ["memory_section"]

GIGA: Final = 1e9  # definition: bytes in a GB


def memory_section(asked: Material) -> Section:
    """Write what fills the device, and when."""
    bars = footprints_figure(asked.ran, asked.scenario.name)
    finding = finding_of(bars)
    caption = "Needed at the peak, by item, against what the device has"
    picture = Picture(svg=inline_svg(bars, "footprints", f"{caption}. {finding}"), caption=caption)
    return Section(
        key="memory",
        topic="Memory",
        finding=finding,
        pictures=(picture, _over_time(asked)),
        tables=(_items(asked),),
    )


def _over_time(asked: Material) -> Picture:
    outcome = asked.closer
    where = asked.scenario.at(outcome.variant)
    curve = timeline_of(where, outcome.variant, outcome.timeline)
    memory = outcome.result.memory
    caption = (
        f"{outcome.variant.name} over the step: peak of {memory['peak'] / GIGA:.1f} GB, "
        f"with context and holes {memory['needed'] / GIGA:.1f} of {memory['capacity'] / GIGA:.0f} GB"
    )
    figure = memory_figure(outcome.timeline.classes[0], memory, curve, "", "")
    return Picture(svg=inline_svg(figure, "memory", caption), caption=caption)


def _items(asked: Material) -> Table:
    """Every item of every variant."""
    items = sorted({item for result in asked.ran for item in result["memory"]["items"]}, key=known_order)
    return Table(
        caption="Memory at the peak by item [GB]",
        columns=("variant", "fits", "peak", "needed", "capacity", *items),
        rows=tuple((text(result["name"]), *_cells(result["memory"], items)) for result in asked.ran),
    )


def _cells(memory: Any, items: list[str]) -> Iterator[Cell]:
    yield Cell(text="yes" if memory["fits"] else "no", alarm=not memory["fits"])
    yield from (number(memory[key], ".1f", GIGA) for key in ("peak", "needed", "capacity"))
    yield from (number(memory["items"].get(item, 0.0), ".1f", GIGA) for item in items)
