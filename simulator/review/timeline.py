"""The step of one variant as lanes of bars, small enough for a page whatever the step is long.

All lanes together have room for so many bars.  Where there are more, each lane gets the same room, the step is cut into
as many cells, and what begins in the same cell becomes one bar that says how many operations it stands for and how long
they take together.

A bar is six integers: the gap since the end of the bar before it and its length in nanoseconds, the places of its kind,
name and remark among ``texts``, and twice the number of its micro-batch, plus one if it is on the critical path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from simulator.clock.timeline import ClassTimeline, Span
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.readings.colours import colour, known_order
from simulator.readings.critical import CriticalPath, Piece
from simulator.readings.exposure import Exposure
from simulator.review.parts import Material, Section
from simulator.schedules.program import Operation
from simulator.units import readable

__all__ = ["Bar", "crowded", "timeline_section"]

MOST: Final = 40_000
"""Bars of a page: a megabyte."""

NANOSECOND: Final = 1e-9

ELSEWHERE: Final = {"host": "host bound", "skew": "skew"}
"""Kinds of the critical path that have the colour of a cause; the others that of what ran."""


class Bar(NamedTuple):
    """A stretch of a lane [s]."""

    start: float
    end: float
    what: str
    """Kind, role or cause: its colour."""
    name: str
    about: str
    micro_batch: int = 0
    on_path: bool = False


def timeline_section(asked: Material) -> Section:
    """Write the timeline of the variant that is looked into."""
    outcome = asked.closer
    played, step, path = outcome.timeline.classes[0], outcome.timeline.step_time, outcome.path()
    lanes = _lanes(played, outcome.reading, path)
    most = MOST if sum(map(len, lanes.values())) <= MOST else MOST // len(lanes)
    fewer = {name: crowded(bars, most, step) for name, bars in lanes.items()}
    return Section(
        key="timeline",
        topic="Timeline",
        finding=_finding(asked),
        remarks=tuple(_remarks(lanes, fewer, len(outcome.timeline.classes), step / most)),
        timeline={"step": round(step / NANOSECOND), **_packed(fewer)},
    )


def _finding(asked: Material) -> str:
    result, stalled = asked.closest, asked.closest["exposed"]["stalled"]
    told = f"{result['name']} waits {readable(stalled, 's')} of a step of {readable(result['step_time'], 's', 4)}"
    if not stalled:
        return f"{result['name']} never waits for communication in a step of {readable(result['step_time'], 's', 4)}"
    cause, time = max(result["exposed_by_cause"].items(), key=lambda item: float(item[1]))
    return f"{told} for communication, {100 * time / stalled:.0f} % of that because of {cause}"


def _lanes(played: ClassTimeline, reading: Exposure, path: CriticalPath) -> dict[str, list[Bar]]:
    """Compute, why it is idle, the critical path, the other streams, and the host where it was blocked."""
    on_path = {item.span for item in path.stretches if item.rank_class == 0 and item.doing == "run"}
    compute, *others = (
        (name, [_bar(played, span, span.number in on_path) for span in played.stream(name)])
        for name in played.program.streams
    )
    stalls = [
        Bar(each.start, each.end, each.cause, _spoken(each.collective, each.label), "compute waits")
        for each in reading.stalls
    ]
    waits = [Bar(each.start, each.end, "blocked", f"blocked: {each.reason}", "") for each in played.host_waits]
    lanes = [compute, ("stalls", stalls), ("critical path", list(map(_piece, path.pieces))), *others, ("host", waits)]
    found = ((name, sorted(bar for bar in bars if bar.end > bar.start)) for name, bars in lanes)
    return {name.replace("_", " "): bars for name, bars in found if bars}


def _bar(played: ClassTimeline, span: Span, on_path: bool) -> Bar:
    operation, launch = played.program.operations[span.launch.operation], span.launch
    what = operation.kind if isinstance(operation, Kernel) else operation.role
    return Bar(
        span.start,
        span.end,
        what,
        _spoken(what, launch.label),
        ", ".join(_about(operation, launch.phase)),
        launch.micro_batch,
        on_path,
    )


def _about(operation: Operation, phase: str) -> Iterator[str]:
    if phase:
        yield f"in {phase}"
    if isinstance(operation, Transfer):
        yield readable(operation.amount, "B")
    elif not isinstance(operation, Kernel):
        yield f"{readable(operation.payload, 'B')} among {operation.group.size:,} ranks ({operation.group.name})"


def _piece(piece: Piece) -> Bar:
    after = f"waited last for: {piece.after}" if piece.after else ""
    about = ", ".join(part for part in (piece.kind, piece.link, after) if part)
    name = _spoken(piece.operation, piece.label)
    return Bar(piece.start, piece.end, ELSEWHERE.get(piece.kind, piece.operation), name, about, piece.micro_batch, True)


def _spoken(what: str, label: str) -> str:
    """What ran for which layer, without saying so twice."""
    return label if label.startswith(what) else f"{what.replace('_', ' ')} {label}".strip()


def crowded(bars: Sequence[Bar], most: int, step: float) -> list[Bar]:
    """Return at most *most* bars, in order: those of a cell as one where there are more.

    >>> crowded([Bar(0.0, 0.25, "a", "x", ""), Bar(0.25, 0.5, "b", "y", ""), Bar(1.0, 2.0, "a", "z", "")], 2, 2.0)[0]
    Bar(start=0.0, end=0.5, what='a', name='2 operations', about='busy for 500 ms', micro_batch=0, on_path=False)
    """
    if len(bars) <= most:
        return list(bars)
    cells = groupby(bars, key=lambda bar: min(most - 1, int(most * bar.start / step)))
    return [_together(list(each)) for _, each in cells]


def _together(bars: Sequence[Bar]) -> Bar:
    if len(bars) == 1:
        return bars[0]
    busy: dict[str, float] = defaultdict(float)
    for bar in bars:
        busy[bar.what] += bar.end - bar.start
    first, last = bars[0], bars[-1]
    about = f"busy for {readable(sum(busy.values()), 's')}"
    what = max(busy, key=busy.__getitem__)
    on_path = any(bar.on_path for bar in bars)
    return Bar(first.start, last.end, what, f"{len(bars)} operations", about, first.micro_batch, on_path)


def _packed(lanes: Mapping[str, Sequence[Bar]]) -> dict[str, Any]:
    """Return what the script reads."""
    texts: dict[str, int] = {}

    def place(content: str) -> int:
        return texts.setdefault(content, len(texts))

    packed = []
    for name, bars in lanes.items():
        numbers: list[int] = []
        at = 0
        for bar in bars:
            start, end = round(bar.start / NANOSECOND), round(bar.end / NANOSECOND)
            about = 2 * bar.micro_batch + bar.on_path
            numbers += [start - at, end - start, place(bar.what), place(bar.name), place(bar.about), about]
            at = end
        packed.append({"name": name, "bars": numbers})
    kinds = sorted({bar.what for bars in lanes.values() for bar in bars}, key=known_order)
    return {"lanes": packed, "texts": list(texts), "colours": {kind: colour(kind) for kind in kinds}}


def _remarks(
    lanes: Mapping[str, Sequence[Bar]], fewer: Mapping[str, Sequence[Bar]], classes: int, cell: float
) -> Iterable[str]:
    for name, bars in lanes.items():
        if len(fewer[name]) < len(bars):
            yield (
                f"{name}: {len(bars):,} operations are drawn as {len(fewer[name]):,} bars, those that begin within "
                f"{readable(cell, 's')} of each other as one; zerosim trace writes all of them"
            )
    if classes > 1:
        yield f"The first of {classes} kinds of ranks is drawn; zerosim trace writes all of them"
