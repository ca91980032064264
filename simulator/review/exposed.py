"""What stands between compute and the step, and what was waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from simulator.clock.timeline import ClassTimeline
from simulator.laws.kernels import Kernel
from simulator.readings.critical import exposed_by_layer
from simulator.readings.exposure import COMPUTE, Stall
from simulator.readings.plots import exposed_figure, finding_of, inline_svg, waterfall_figure
from simulator.review.parts import Cell, Material, Picture, Section, Table, number, text
from simulator.units import readable

__all__ = ["exposed_section"]

LONGEST: Final = 10
"""Waits, and layers, that are told."""

MILLI: Final = 1e-3


def exposed_section(asked: Material) -> Section:
    """Write what each variant waits for, and the longest waits of the one that is looked into."""
    fall = waterfall_figure(asked.ran, asked.scenario.name)
    finding = finding_of(fall)
    bars = exposed_figure(asked.results, asked.scenario.name)
    said = finding_of(bars)
    caption = "From compute to the step: each bar begins where the one above it ends"
    return Section(
        key="exposed",
        topic="Exposed communication",
        finding=finding,
        pictures=(
            Picture(svg=inline_svg(fall, "waterfall", f"{caption}. {finding}"), caption=caption),
            Picture(svg=inline_svg(bars, "exposed", f"By collective and by cause. {said}"), caption=said),
        ),
        tables=tuple(_tables(asked)),
    )


def _tables(asked: Material) -> Iterator[Table]:
    """Layers, and single waits, of the variant that is looked into."""
    name, reading, step = asked.closer.variant.name, asked.closer.reading, asked.closest["step_time"]
    layers = exposed_by_layer(reading)
    if not layers:
        return
    told = list(layers.items())[:LONGEST]
    yield Table(
        caption=f"{name}: layers and buckets that compute waits for most, {len(told)} of {len(layers)}",
        columns=("layer or bucket", "exposed [ms]", "[% of step]"),
        rows=tuple(
            (text(layer), number(time, ",.2f", MILLI), number(time / step, ".2f", 0.01)) for layer, time in told
        ),
    )
    waits = _waits(reading.stalls)
    released = _began(asked.closer.timeline.classes[0])
    longest = sorted(waits, key=lambda wait: wait[0].start - wait[-1].end)[:LONGEST]
    yield Table(
        caption=f"{name}: the longest waits of compute, {len(longest)} of {len(waits):,}",
        columns=("at [ms]", "waited [ms]", "what waited", "released by the end of", "because of"),
        rows=tuple(_row(wait, released) for wait in longest),
    )


def _waits(stalls: Sequence[Stall]) -> list[list[Stall]]:
    """Pieces that lie side by side, together; what the host alone caused is no wait for communication."""
    found: list[list[Stall]] = []
    for stall in stalls:
        if found and found[-1][-1].end == stall.start:
            found[-1].append(stall)
        else:
            found.append([stall])
    return [wait for wait in found if any(stall.collective for stall in wait)]


def _row(wait: Sequence[Stall], released: Mapping[float, str]) -> tuple[Cell, ...]:
    start, end = wait[0].start, wait[-1].end
    last = next(stall for stall in reversed(wait) if stall.collective)
    causes: dict[str, float] = defaultdict(float)
    for stall in wait:
        causes[stall.cause] += stall.end - stall.start
    told = (f"{cause} {readable(time, 's')}" for cause, time in sorted(causes.items(), key=lambda item: -item[1]))
    return (
        number(start, ",.3f", MILLI),
        number(end - start, ",.3f", MILLI),
        text(released.get(end, "the end of the step")),
        text(_spoken(last.collective, last.label)),
        text(", ".join(told)),
    )


def _began(played: ClassTimeline) -> dict[float, str]:
    """What the compute stream began when [s]."""
    operations = played.program.operations
    began = {}
    for span in played.spans:
        operation = operations[span.launch.operation]
        if span.launch.stream == COMPUTE and isinstance(operation, Kernel):
            began[span.start] = _spoken(operation.kind, span.launch.label)
    return began


def _spoken(what: str, label: str) -> str:
    return label if label.startswith(what) else f"{what.replace('_', ' ')} {label}".strip()
