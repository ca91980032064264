"""The timeline of one lane, as the engine would have recorded it."""

from __future__ import annotations

from simulator.clock.batch.evaluate import Batch
from simulator.clock.batch.lanes import Array, Fallback
from simulator.clock.cast import NO_COMMUNICATOR
from simulator.clock.timeline import ClassTimeline, Happened, HostWait, Released, Span, memory_changes
from simulator.schedules.program import Event, HostWork, Launch, Synchronize, Wait

__all__ = ["timeline_of"]

NOBODY = -1


def timeline_of(batch: Batch, lane: int, name: str = "all ranks", ranks: int = 1) -> ClassTimeline:
    """What the first rank class of *lane* did.

    Raises
    ------
    ValueError
        The lane fell back, and there was no stage for the engine.
    """
    if lane in batch.timelines:
        return batch.timelines[lane].classes[0]
    if batch.fallback[lane] != Fallback.NONE:
        raise ValueError(f"lane {lane} needs the engine: {Fallback(batch.fallback[lane]).name.lower()}")
    if batch.lanes.stages:
        name, ranks = batch.lanes.stages[lane].classes[0].name, batch.lanes.stages[lane].classes[0].ranks
    return _Recorder(batch, lane).timeline(name, ranks)


class _Tail:
    """What a stream has come to."""

    __slots__ = ("at", "before", "entries", "source", "source_at", "waits")

    def __init__(self) -> None:
        self.at = self.source_at = 0.0
        self.entries = 0
        self.before = self.source = NOBODY
        self.waits: list[Released] = []


class _Recorder:
    """Goes through the program in issue order and writes down what :class:`~simulator.clock.engine` does."""

    def __init__(self, batch: Batch, lane: int) -> None:
        self._plan, self._lanes, self._lane = batch.lanes.plan, batch.lanes, lane
        stages = batch.lanes.stages
        self._program = stages[lane].classes[0].program if stages else self._plan.program
        self._starts = [float(row[lane]) for row in batch.starts]
        self._ends = [float(row[lane]) for row in batch.ends]
        self._met = batch.met
        self._host = 0.0
        self._tails = [_Tail() for _ in self._program.streams]
        self._awaited = self._program.awaited()
        self._last_on: dict[int, int] = {}
        self._spans: list[Span] = []
        self._events: dict[Event, Happened] = {}
        self._host_waits: list[HostWait] = []

    def timeline(self, name: str, ranks: int) -> ClassTimeline:
        """Record everything."""
        for index, item in enumerate(self._program.instructions):
            if isinstance(item, HostWork):
                self._host = self._ends[index]
            elif isinstance(item, Synchronize):
                self._host_waits.append(HostWait(self._host, self._ends[index], item.event, item.reason))
                self._host = self._ends[index]
            elif isinstance(item, Wait):
                self._wait(index, item)
            else:
                self._launch(index, item)
        return ClassTimeline(
            name=name,
            ranks=ranks,
            program=self._program,
            spans=tuple(self._spans),
            events=self._events,
            host_waits=tuple(self._host_waits),
            memory=memory_changes(self._spans),
        )

    def _wait(self, index: int, wait: Wait) -> None:
        tail, happened = self._tails[wait.stream], self._events[wait.event]
        tail.waits.append(Released(happened.at, wait.event, wait.reason))
        if happened.at > tail.source_at:
            tail.source, tail.source_at = happened.source, happened.at
        self._mark(index, wait.stream)

    def _launch(self, index: int, launch: Launch) -> None:
        tail, number, communicator = self._tails[launch.stream], len(self._spans), self._communicator(launch)
        reached_at, end = max(self._host, tail.at), self._ends[index]
        behind = self._last_on.get(communicator, NOBODY) if communicator != NO_COMMUNICATOR else NOBODY
        self._last_on[communicator] = number
        met_at = float(self._met[index][self._lane]) if index in self._met else reached_at
        self._spans.append(
            Span(
                launch, number, self._host, tail.before, tuple(tail.waits), reached_at, met_at, behind,
                self._starts[index], end, self._of(self._lanes.alone, launch), self._of(self._lanes.latency, launch),
            )
        )  # fmt: skip
        tail.before, tail.waits = number, []
        tail.source, tail.source_at = number, end
        self._mark(index, launch.stream)

    def _mark(self, index: int, stream: int) -> None:
        """An entry of *stream* is done."""
        tail = self._tails[stream]
        tail.at, tail.entries = self._ends[index], tail.entries + 1
        if tail.entries in self._awaited[stream]:
            event = Event(stream, tail.entries)
            self._events[event] = Happened(tail.at, tail.before, tail.source, tuple(tail.waits))

    def _communicator(self, launch: Launch) -> int:
        return self._plan.communicators[launch.operation]

    def _of(self, rows: Array, launch: Launch) -> float:
        """Element of *rows* for an operation in this lane."""
        row = rows[launch.operation]
        return float(row[self._lane if len(row) > 1 else 0])
