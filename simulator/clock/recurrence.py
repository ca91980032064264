r"""The (max, +) recurrence: a step in which no two transfers share a link and nothing slows kernels.

Everything an entry waits for was issued before it, so one pass in issue order finds all times:

.. math:: start = \max(issued, tail_{stream}, events, tail_{communicator}, arrivals), \quad end = start + duration

Several rank classes go through the same instructions side by side; a collective waits for the arrivals of all that
meet.
Many scenarios at once, and kernels that slow down: :mod:`simulator.clock.batch`, which has to prepare a program first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from simulator.clock.cast import NO_COMMUNICATOR, RankClass
from simulator.clock.timeline import ClassTimeline, Happened, HostWait, Span
from simulator.schedules.program import Event, HostWork, Launch, Synchronize, Wait

__all__ = ["replayed", "step_time"]

NOBODY = -1


def step_time(classes: Sequence[RankClass]) -> float:
    """Time of the step on an infinitely fast network, where operations take the classes' ``times`` [s]."""
    return max((span.end for played in replayed(classes) for span in played.spans), default=0.0)


def replayed(classes: Sequence[RankClass]) -> list[ClassTimeline]:
    """What happens on an infinitely fast network; nothing is told of what released what."""
    players = [_Player(cast) for cast in classes]
    served: dict[int, float] = {}
    for index, item in enumerate(classes[0].program.instructions):
        if isinstance(item, Launch):
            _launch(index, players, served)
        else:
            for player in players:
                player.pass_over(index)
    return [player.timeline() for player in players]


def _launch(index: int, players: Sequence[_Player], served: dict[int, float]) -> None:
    """Let all players reach what they launch, then start it when all that meet are there."""
    arrivals: dict[int, float] = defaultdict(float)
    for player in players:
        communicator, reached = player.reach(index)
        arrivals[communicator] = max(arrivals[communicator], reached)
    ends: dict[int, float] = {}
    for player in players:
        communicator, reached = player.reach(index)
        if communicator == NO_COMMUNICATOR:
            player.run(index, reached, reached)
        else:
            met = arrivals[communicator]
            ends[communicator] = player.run(index, met, max(met, served.get(communicator, 0.0)))
    served.update(ends)


class _Player:
    """The host and the streams of one rank class."""

    def __init__(self, cast: RankClass) -> None:
        self._cast, self._instructions = cast, cast.program.instructions
        self._host = 0.0
        self._finished = [[0.0] for _ in cast.program.streams]
        self._spans: list[Span] = []
        self._host_waits: list[HostWait] = []

    def pass_over(self, index: int) -> None:
        """Do what is no launch."""
        item = self._instructions[index]
        if isinstance(item, HostWork):
            self._host += item.time
        elif isinstance(item, Synchronize):
            end = max(self._host, self._finished[item.event.stream][item.event.position])
            self._host_waits.append(HostWait(self._host, end, item.event, item.reason))
            self._host = end
        elif isinstance(item, Wait):
            stream = self._finished[item.stream]
            stream.append(max(self._host, stream[-1], self._finished[item.event.stream][item.event.position]))

    def reach(self, index: int) -> tuple[int, float]:
        """Return the communicator of a launch, and when its stream gets there."""
        item = self._instructions[index]
        assert isinstance(item, Launch)
        return self._cast.communicators[item.operation], max(self._host, self._finished[item.stream][-1])

    def run(self, index: int, met: float, start: float) -> float:
        """Run a launch and return its end."""
        item = self._instructions[index]
        assert isinstance(item, Launch)
        stream, time = self._finished[item.stream], self._cast.times[item.operation]
        reached, number = max(self._host, stream[-1]), len(self._spans)
        stream.append(start + time)
        self._spans.append(
            Span(item, number, self._host, NOBODY, (), reached, met, NOBODY, start, start + time, time, 0.0)
        )
        return start + time

    def timeline(self) -> ClassTimeline:
        """What happened."""
        events = {
            Event(stream, position): Happened(self._finished[stream][position], NOBODY, NOBODY, ())
            for stream, positions in enumerate(self._cast.program.awaited())
            for position in positions
        }
        return ClassTimeline(
            name=self._cast.name,
            ranks=self._cast.ranks,
            program=self._cast.program,
            spans=tuple(self._spans),
            events=events,
            host_waits=tuple(self._host_waits),
            memory=(),
        )
