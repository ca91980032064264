"""A timeline in the Chrome trace-event format, which ui.perfetto.dev and chrome://tracing open.

One process per rank class, one thread per stream; below ``compute`` a lane with the pieces of time in which it waited,
each named after its cause, and in the first process the critical path, whatever class it runs through; a counter of the
memory that the step takes and gives back.

The format counts in microseconds, and viewers reject slices of a lane that overlap.  Instants are therefore rounded to
1/1024 us, on which sums and differences of floats are exact: ``ts + dur`` of a slice *is* the ``ts`` of one that
follows at once.

References
----------
Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from simulator.clock.timeline import ClassTimeline, HostWait, Span, Timeline
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.readings.critical import CriticalPath, Piece
from simulator.readings.exposure import Exposure, Stall
from simulator.schedules.program import Operation

__all__ = ["chrome_trace"]

TraceEvent = dict[str, object]

TICKS = 1024
"""Per microsecond; a power of two."""

LANES = 100
"""Most threads of a process; thread numbers are unique in the whole trace."""


def chrome_trace(
    timeline: Timeline, exposures: Sequence[Exposure], title: str, path: CriticalPath
) -> dict[str, object]:
    """Timeline as a JSON object in the Chrome trace-event format.

    Parameters
    ----------
    exposures
        One for each rank class, in the order of ``timeline.classes``.
    title
        What was simulated; stands in ``otherData``.
    path
        Of the step.
    """
    events: list[TraceEvent] = []
    for pid, (played, reading) in enumerate(zip(timeline.classes, exposures, strict=True), start=1):
        events += _process(pid, played, reading, path.pieces if pid == 1 else ())
    other = {"title": title, "simulator": "zerosim", "step_time [s]": float(timeline.step_time)}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _process(pid: int, played: ClassTimeline, reading: Exposure, path: Sequence[Piece]) -> Iterator[TraceEvent]:
    """Yield everything of one rank class, and the path that stands beside it."""
    ranks = "" if played.ranks == 1 else f" ({played.ranks} ranks alike)"
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"{played.name}{ranks}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    compute, *others = ((name, _stream(played, name)) for name in played.program.streams)
    lanes: list[tuple[str, Iterable[TraceEvent]]] = [compute, ("stalls", _stalls(reading.stalls))]
    lanes += [("critical path", _path(path)), *others] if path else others
    if played.host_waits:
        lanes.append(("host", _host(played.host_waits)))
    for number, (name, slices) in enumerate(lanes):
        thread = {"pid": pid, "tid": LANES * pid + number}
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **thread, "args": {"sort_index": number}}
        yield from ({**item, **thread} for item in slices if item["dur"] != 0)
    yield from ({**item, "pid": pid} for item in _memory(played))


def _stream(played: ClassTimeline, name: str) -> Iterator[TraceEvent]:
    for span in played.stream(name):
        operation = played.program.operations[span.launch.operation]
        what = operation.kind if isinstance(operation, Kernel) else operation.role
        yield {
            **_slice(f"{what} {span.launch.label}".strip(), span.launch.phase, span.start, span.end),
            "args": _arguments(span, operation),
        }


def _arguments(span: Span, operation: Operation) -> dict[str, object]:
    """What a viewer shows beside a span."""
    found: dict[str, object] = {
        "label": span.launch.label,
        "micro_batch": span.launch.micro_batch,
        "issued_at [s]": float(span.issued_at),
        "reached_at [s]": float(span.reached_at),
    }
    if isinstance(operation, Kernel):
        return {"kind": operation.kind, **found}
    found |= {"role": operation.role, "alone [s]": float(span.alone), "latency [s]": float(span.latency)}
    if isinstance(operation, Transfer):
        return {"kind": operation.route, "amount [B]": float(operation.amount), "pinned": operation.pinned, **found}
    found |= {
        "kind": operation.kind,
        "payload [B]": float(operation.payload),
        "group": operation.group.name,
        "ranks": operation.group.size,
        "met_at [s]": float(span.met_at),
    }
    if operation.quantization:
        found["bits"] = operation.quantization.bits
    return found


def _stalls(stalls: Iterable[Stall]) -> Iterator[TraceEvent]:
    for stall in stalls:
        named = {"cause": stall.cause, "collective": stall.collective, "label": stall.label}
        arguments = {key: value for key, value in named.items() if value}
        yield {**_slice(stall.cause, "stall", stall.start, stall.end), "args": arguments}


def _path(pieces: Iterable[Piece]) -> Iterator[TraceEvent]:
    for piece in pieces:
        named = {"kind": piece.kind, "link": piece.link, "after": piece.after, "phase": piece.phase}
        arguments: dict[str, object] = {key: value for key, value in named.items() if value}
        arguments |= {"micro_batch": piece.micro_batch, "rank_class": piece.rank_class}
        name = f"{piece.kind}: {piece.operation} {piece.label}".strip()
        yield {**_slice(name, piece.kind, piece.start, piece.end), "args": arguments}


def _host(waits: Iterable[HostWait]) -> Iterator[TraceEvent]:
    for wait in waits:
        yield {**_slice(f"blocked: {wait.reason}", "host", wait.start, wait.end), "args": {"reason": wait.reason}}


def _slice(name: str, category: str, start: float, end: float) -> TraceEvent:
    """A complete event from *start* to *end* [s]."""
    first, last = _ticks(start), _ticks(end)
    return {"ph": "X", "name": name, "cat": category or "none", "ts": first / TICKS, "dur": (last - first) / TICKS}


def _ticks(instant: float) -> int:
    return round(float(instant) * 1e6 * TICKS)  # definition: 1e6 us in a second


def _memory(played: ClassTimeline) -> Iterator[TraceEvent]:
    """Yield memory by item [B], once for each moment at which it changes."""
    held = dict.fromkeys((change.item for change in played.memory), 0.0)
    moments: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for change in played.memory:
        moments[_ticks(change.at)].append((change.item, float(change.amount)))
    for ticks in sorted(moments):
        for item, amount in moments[ticks]:
            held[item] += amount
        whole = {item: round(amount) for item, amount in held.items()}
        yield {"ph": "C", "name": "memory [B]", "ts": ticks / TICKS, "args": whole}
