"""The reference engine: host, streams and communicators as SimPy processes.

* One host per rank class works through the program.  It launches without waiting and blocks only in ``HostWork`` and
  ``Synchronize``.
* A stream works off its entries first in, first out; while the rank communicates, kernels may run slower.
* A communicator serves its collectives in the order in which the host *issued* them, whatever streams they were put
  into, one at a time; each starts when the last of its rank classes has reached it.

Which classes meet, what operations cost and which links they use is decided before (:mod:`simulator.clock.stage`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import simpy

from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage, occupancy
from simulator.clock.network import Network
from simulator.clock.processor import Processor
from simulator.clock.timeline import ClassTimeline, Happened, HostWait, Released, Span, Timeline, memory_changes
from simulator.errors import BrokenLawError
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.interference import Occupancy
from simulator.laws.offload import Transfer
from simulator.schedules.program import Event, HostWork, Launch, Synchronize, Wait

__all__ = ["simulate"]

ROUNDING = 1e-9
"""Relative error that sums of floats may have."""

Process = Generator[simpy.Event, Any, None]


def simulate(ready: Stage) -> Timeline:
    """Replay the programs of all rank classes until everything is done.

    Raises
    ------
    BrokenLawError
        Some operation can never start: ranks issue different collectives, or wait for each other in a circle.
    """
    env = simpy.Environment()
    network = Network(env, ready.links, ready.changes, ready.rivals)
    only = len(ready.members) == 1 and not (ready.changes or ready.rivals)
    communicators = [_Communicator(env, network, members, nothing_shares=only) for members in ready.members]
    players = [_Player(env, rank_class, communicators) for rank_class in ready.classes]
    env.run()
    stuck = [place for player in players for place in player.unfinished()]
    if stuck:
        raise BrokenLawError(f"the step never ends: {'; '.join(stuck[:3])}")
    classes = tuple(player.timeline() for player in players)
    step_time = max((span.end for item in classes for span in item.spans), default=0.0)
    _check_work_bound(network.carried, ready.links, step_time)
    return Timeline(classes=classes, step_time=step_time, links=ready.links, carried=tuple(network.carried))


def _check_work_bound(carried: Sequence[float], links: Sequence[Link], step_time: float) -> None:
    """No link can have carried more than its bandwidth allows in the step."""
    for amount, link in zip(carried, links, strict=True):
        if amount > link.bandwidth * step_time * (1 + ROUNDING):
            raise BrokenLawError(f"{link.name} carried {amount} B in {step_time} s, more than its bandwidth allows")


class _Collective(NamedTuple):
    """What is known of a collective before it runs."""

    phases: tuple[Phase, ...]
    latency: float
    """[s]"""
    alone: float
    """Time if nothing else uses the links [s]."""
    occupancy: Occupancy

    @classmethod
    def of(cls, phases: tuple[Phase, ...]) -> _Collective:
        """Add up *phases*."""
        latency, alone = sum(phase.latency for phase in phases), sum(phase.duration for phase in phases)
        return cls(phases, latency, alone, occupancy(phases))


class _Meeting:
    """One collective on its communicator: who has come, when it ran."""

    __slots__ = ("collective", "complete", "done", "met_at", "missing", "processors", "start")

    def __init__(self, env: simpy.Environment, members: int, collective: _Collective) -> None:
        self.missing, self.collective = members, collective
        self.done = env.event()
        self.complete: simpy.Event | None = None  # made when the communicator has to wait for it
        self.met_at = self.start = 0.0
        self.processors: list[Processor] = []

    def reach(self, now: float, processor: Processor | None) -> None:
        """One more rank class is there; its *processor*, if it has one, wants to know when the collective runs."""
        self.missing -= 1
        if processor is not None:
            self.processors.append(processor)
        if not self.missing:
            self.met_at = now
            if self.complete is not None:
                self.complete.succeed()


class _Communicator:
    """Serves meetings one after another, in issue order."""

    def __init__(self, env: simpy.Environment, network: Network, members: int, *, nothing_shares: bool) -> None:
        self._env, self._network, self._members = env, network, members
        self._nothing_shares = nothing_shares
        self._meetings: list[_Meeting] = []
        self._called: simpy.Event | None = None
        env.process(self._serve())

    def meeting(self, number: int, collective: _Collective) -> _Meeting:
        """Return the *number*-th meeting; the first class to issue it calls it."""
        if number == len(self._meetings):
            self._meetings.append(_Meeting(self._env, self._members, collective))
            if self._called is not None:
                self._called.succeed()
                self._called = None
        return self._meetings[number]

    def _serve(self) -> Process:
        served = 0
        while True:
            if served == len(self._meetings):
                self._called = self._env.event()
                yield self._called
            meeting = self._meetings[served]
            served += 1
            if meeting.missing:
                meeting.complete = self._env.event()
                yield meeting.complete
            meeting.start = self._env.now
            for processor in meeting.processors:
                processor.beside(meeting.collective.occupancy)
            if self._nothing_shares:  # the time is known; a whole step takes a quarter less
                self._network.count(meeting.collective.phases)
                yield self._env.timeout(meeting.collective.alone)
            else:
                yield from self._carry(meeting.collective.phases)
            for processor in meeting.processors:
                processor.done(meeting.collective.occupancy)
            meeting.done.succeed()

    def _carry(self, phases: tuple[Phase, ...]) -> Process:
        for phase in phases:
            if phase.latency:
                yield self._env.timeout(phase.latency)
            if phase.payload:
                self._network.count((phase,))
                yield self._network.carry(phase)


class _Launched(NamedTuple):
    """A launch on its way through a stream."""

    launch: Launch
    number: int
    """Of its span."""
    issued_at: float
    meeting: _Meeting | None
    behind: int
    """Number of the span before it on its communicator."""


class _Stream:
    """Entries that wait for their turn, and when those that somebody waits for were done."""

    __slots__ = ("arrival", "done", "entries", "events", "marked", "queue", "watchers")

    def __init__(self, marked: frozenset[int]) -> None:
        self.queue: deque[_Launched | Wait] = deque()
        self.arrival: simpy.Event | None = None
        self.entries = self.done = 0
        self.marked = marked
        self.events: dict[int, Happened] = {}
        """By position."""
        self.watchers: dict[int, simpy.Event] = {}

    def put(self, entry: _Launched | Wait) -> None:
        """Add *entry* at the end."""
        self.entries += 1
        self.queue.append(entry)
        if self.arrival is not None:
            self.arrival.succeed()
            self.arrival = None

    def mark(self, happened: Happened) -> None:
        """Somebody waits for what has just been done."""
        self.events[self.done] = happened
        if self.done in self.watchers:
            self.watchers.pop(self.done).succeed()

    def reaching(self, position: int, env: simpy.Environment) -> simpy.Event:
        """Return the event that *position* entries are done."""
        if position not in self.watchers:
            self.watchers[position] = env.event()
        return self.watchers[position]


class _Player:
    """The host and the streams of one rank class."""

    def __init__(self, env: simpy.Environment, cast: RankClass, communicators: list[_Communicator]) -> None:
        self._env, self._cast, self._communicators = env, cast, communicators
        # a timeout each is faster where nothing interferes
        self._processor = Processor(env, cast.interference) if cast.interferes else None
        self._streams = [_Stream(marked) for marked in cast.program.awaited()]
        self._copies = [isinstance(item, Transfer) for item in cast.program.operations]  # they hold no multiprocessor
        self._collectives = [_Collective.of(phases) for phases in cast.phases]
        self._issued = [0] * len(communicators)
        self._last_on = [-1] * len(communicators)
        self._spans: list[Span | None] = []
        self._host_waits: list[HostWait] = []
        self._host_is_done = False
        env.process(self._host())
        for stream in self._streams:
            env.process(self._work_off(stream))

    def unfinished(self) -> list[str]:
        """Where the player got stuck."""
        stuck = [] if self._host_is_done else [f"{self._cast.name}: the host is blocked"]
        for name, stream in zip(self._cast.program.streams, self._streams, strict=True):
            if stream.done < stream.entries:
                stuck.append(f"{self._cast.name}: stream {name} stops after {stream.done} entries")
        return stuck

    def timeline(self) -> ClassTimeline:
        """What happened."""
        spans = tuple(span for span in self._spans if span is not None)
        return ClassTimeline(
            name=self._cast.name,
            ranks=self._cast.ranks,
            program=self._cast.program,
            spans=spans,
            events={
                Event(number, position): happened
                for number, stream in enumerate(self._streams)
                for position, happened in stream.events.items()
            },
            host_waits=tuple(self._host_waits),
            memory=memory_changes(spans),
        )

    def _host(self) -> Process:
        for instruction in self._cast.program.instructions:
            if isinstance(instruction, Launch):
                self._streams[instruction.stream].put(self._launched(instruction))
            elif isinstance(instruction, HostWork):
                yield self._env.timeout(instruction.time)
            elif isinstance(instruction, Synchronize):
                start, stream = self._env.now, self._streams[instruction.event.stream]
                if stream.done < instruction.event.position:
                    yield stream.reaching(instruction.event.position, self._env)
                self._host_waits.append(HostWait(start, self._env.now, instruction.event, instruction.reason))
            else:
                self._streams[instruction.stream].put(instruction)
        self._host_is_done = True

    def _launched(self, launch: Launch) -> _Launched:
        """Give *launch* its span and, if it is a collective, its place on the communicator."""
        number, meeting, behind = len(self._spans), None, -1
        self._spans.append(None)
        communicator = self._cast.communicators[launch.operation]
        if communicator != NO_COMMUNICATOR:
            collective = self._collectives[launch.operation]
            meeting = self._communicators[communicator].meeting(self._issued[communicator], collective)
            self._issued[communicator] += 1
            behind, self._last_on[communicator] = self._last_on[communicator], number
        return _Launched(launch, number, self._env.now, meeting, behind)

    def _work_off(self, stream: _Stream) -> Process:
        env, before, source, source_at = self._env, -1, -1, 0.0
        waits: list[Released] = []
        while True:
            if not stream.queue:
                stream.arrival = env.event()
                yield stream.arrival
            entry = stream.queue.popleft()
            if isinstance(entry, _Launched):
                reached_at = start = met_at = env.now
                if entry.meeting is None:
                    alone, latency = self._cast.times[entry.launch.operation], 0.0
                    if alone:
                        yield (
                            self._processor.run(alone, self._cast.movement[entry.launch.operation])
                            if self._processor
                            else env.timeout(alone)
                        )
                else:
                    meeting = entry.meeting
                    meeting.reach(reached_at, None if self._copies[entry.launch.operation] else self._processor)
                    yield meeting.done
                    start, met_at = meeting.start, meeting.met_at
                    alone, latency = meeting.collective.alone, meeting.collective.latency
                self._spans[entry.number] = Span(
                    entry.launch, entry.number, entry.issued_at, before, tuple(waits), reached_at, met_at,
                    entry.behind, start, env.now, alone, latency,
                )  # fmt: skip
                before, waits = entry.number, []
                source, source_at = before, env.now
            else:
                other, position = self._streams[entry.event.stream], entry.event.position
                if other.done < position:
                    yield other.reaching(position, env)
                happened = other.events[position]
                waits.append(Released(happened.at, entry.event, entry.reason))
                if happened.at > source_at:  # the stream had nothing of its own to wait for
                    source, source_at = happened.source, happened.at
            stream.done += 1
            if stream.done in stream.marked:
                stream.mark(Happened(env.now, before, source, tuple(waits)))
