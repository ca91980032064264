r"""What of a program is the same in every lane: what each instruction waits for, and an order to evaluate them in.

Streams, the host and communicators are first in, first out, so what an instruction waits for, directly or not, is a
prefix of the host's instructions and of each stream.  A *clock* holds the length of these prefixes (Lamport 1978,
"Time, Clocks, and the Ordering of Events"; vector clocks: Mattern 1989); a dependency that the clock of another one
contains adds nothing to a maximum and is left out.

The order takes kernels last, and those of the first stream last of all: whatever can be evaluated without them comes
before, so the collectives that run beside a kernel are known when its turn comes.  Only kernels of several streams can
each have to hear of what follows the other; :mod:`simulator.clock.batch.evaluate` then goes back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from simulator.clock.cast import NO_COMMUNICATOR
from simulator.laws.kernels import Kernel
from simulator.schedules.program import HostWork, Instruction, Launch, Program, Synchronize, Wait

__all__ = ["Arrival", "Plan", "outline", "plan_of"]

HOST = 0
"""Place of the host in a clock; stream s stands at s + 1."""

Clock = tuple[int, ...]


class Arrival(NamedTuple):
    """What comes before a collective on a rank."""

    communicator: int
    needs: tuple[int, ...]
    """Instructions of the host and of its stream that must be done before the rank has reached it."""
    behind: int | None
    """The collective before it on its communicator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A program, ready to be evaluated.  Tuples run parallel to its instructions unless said otherwise."""

    program: Program
    communicators: tuple[int, ...]
    """Of operations, as :attr:`~simulator.clock.stage.RankClass.communicators`."""
    operations: tuple[int, ...]
    """Of launches, -1 for others."""
    streams: tuple[int, ...]
    """Of launches, -1 for others."""
    after: tuple[tuple[int, ...], ...]
    """Instructions that must be done before."""
    followers: tuple[tuple[int, ...], ...]
    """Instructions that wait for it."""
    order: tuple[int, ...]
    """All instructions, kernels as late as possible."""
    places: tuple[int, ...]
    """Of instructions in that order."""
    served: tuple[tuple[int, ...], ...]
    """For each communicator that serves any, its collectives in order."""
    kernels: tuple[tuple[int, ...], ...]
    """For each stream, its kernels in order."""
    heard: Mapping[int, tuple[int, ...]]
    """For each collective, how many kernels of each stream it waits for, directly or not: they cannot run beside it."""
    independent: Mapping[int, tuple[int, ...]]
    """For each kernel, how many collectives of each in ``served`` do not wait for it."""
    arrivals: Mapping[int, Arrival]
    """For each collective, what a rank does before it reaches it."""


def outline(program: Program) -> tuple[object, ...]:
    """Return what scenarios must agree in to be lanes of one batch: the instructions, but for times and bytes.

    >>> from simulator.schedules.program import HostWork, Program
    >>> programs = [Program(streams=("compute",), operations=(), instructions=(HostWork(t),)) for t in (1.0, 2.0)]
    >>> outline(programs[0]) == outline(programs[1])
    True
    """
    steps = tuple(_without_sizes(item) for item in program.instructions)
    kinds = tuple(
        (item.kind, item.is_copy, item.serves) if isinstance(item, Kernel) else (item.role,)
        for item in program.operations
    )
    return program.streams, steps, kinds


def _without_sizes(item: Instruction) -> tuple[object, ...]:
    if isinstance(item, Launch):
        names = tuple(name for name, _ in item.takes), tuple(name for name, _ in item.gives)
        return (item.stream, item.operation, item.label, item.phase, item.micro_batch, *names)
    return () if isinstance(item, HostWork) else item


def plan_of(program: Program, communicators: tuple[int, ...]) -> Plan:
    """Find what each instruction of *program* waits for, and an order."""
    after, clocks = _dependencies(program, communicators)
    served, kernels = _served(program, communicators), _kernels(program, communicators)
    return Plan(
        program=program,
        communicators=communicators,
        operations=tuple(item.operation if isinstance(item, Launch) else -1 for item in program.instructions),
        streams=tuple(item.stream if isinstance(item, Launch) else -1 for item in program.instructions),
        after=after,
        followers=(followers := _followers(after)),
        order=(order := _order(after, followers, kernels)),
        places=tuple(sorted(range(len(order)), key=order.__getitem__)),
        served=served,
        kernels=kernels,
        heard=_heard(served, kernels, clocks),
        independent=_independent(served, kernels, clocks),
        arrivals=_arrivals(program, communicators),
    )


def _heard(
    served: Sequence[Sequence[int]], kernels: Sequence[Sequence[int]], clocks: Sequence[Clock]
) -> dict[int, tuple[int, ...]]:
    """For each collective, how many kernels of each stream it waits for: they are the first."""
    places = [[clocks[index][place] for index in of_stream] for place, of_stream in enumerate(kernels, HOST + 1)]
    return {
        index: tuple(bisect_right(places[stream], known) for stream, known in enumerate(clocks[index][HOST + 1 :]))
        for of_one in served
        for index in of_one
    }


def _independent(
    served: Sequence[Sequence[int]], kernels: Sequence[Sequence[int]], clocks: Sequence[Clock]
) -> dict[int, tuple[int, ...]]:
    """For each kernel, how many collectives of each communicator do not wait for it: they are the first."""
    found = {}
    for place, of_stream in enumerate(kernels, HOST + 1):
        known = [[clocks[index][place] for index in of_one] for of_one in served]
        for index in of_stream:
            found[index] = tuple(bisect_left(of_one, clocks[index][place]) for of_one in known)
    return found


def _arrivals(program: Program, communicators: Sequence[int]) -> dict[int, Arrival]:
    found: dict[int, Arrival] = {}
    last: dict[int, int] = {}
    last_served: dict[int, int] = {}
    for index, item in enumerate(program.instructions):
        place = HOST if isinstance(item, HostWork | Synchronize) else item.stream + 1
        if isinstance(item, Launch) and (communicator := communicators[item.operation]) != NO_COMMUNICATOR:
            needs = tuple(last[chain] for chain in (HOST, place) if chain in last)
            found[index] = Arrival(communicator, needs, last_served.get(communicator))
            last_served[communicator] = index
        last[place] = index
    return found


def _served(program: Program, communicators: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each communicator that serves any, its collectives in order."""
    served: dict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(program.instructions):
        if isinstance(item, Launch) and communicators[item.operation] != NO_COMMUNICATOR:
            served[communicators[item.operation]].append(index)
    return tuple(tuple(served[number]) for number in sorted(served))


def _kernels(program: Program, communicators: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each stream, its kernels in order."""
    kernels: tuple[list[int], ...] = tuple([] for _ in program.streams)
    for index, item in enumerate(program.instructions):
        if isinstance(item, Launch) and communicators[item.operation] == NO_COMMUNICATOR:
            kernels[item.stream].append(index)
    return tuple(map(tuple, kernels))


def _dependencies(
    program: Program, communicators: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], tuple[Clock, ...]]:
    """For each instruction what it waits for, and its clock."""
    chains: list[list[int]] = [[] for _ in range(len(program.streams) + 1)]
    last_served: dict[int, int] = {}
    after: list[tuple[int, ...]] = []
    clocks: list[Clock] = []
    for index, item in enumerate(program.instructions):
        place = HOST if isinstance(item, HostWork | Synchronize) else item.stream + 1
        needs = [*chains[HOST][-1:], *chains[place][-1:]]
        if isinstance(item, Wait | Synchronize) and item.event.position:
            needs.append(chains[item.event.stream + 1][item.event.position - 1])
        elif isinstance(item, Launch) and (communicator := communicators[item.operation]) != NO_COMMUNICATOR:
            needs += [last_served[communicator]] if communicator in last_served else []
            last_served[communicator] = index
        after.append(_only_last(needs, clocks))
        chains[place].append(index)
        clocks.append(_clock(after[-1], clocks, place, len(chains[place]), len(chains)))
    return tuple(after), tuple(clocks)


def _clock(needs: Iterable[int], clocks: Sequence[Clock], place: int, position: int, size: int) -> Clock:
    """Clock of the instruction that is number *position* of its chain, once *needs* are done."""
    known = [max(column) for column in zip((0,) * size, *(clocks[need] for need in needs), strict=True)]
    known[place] = position
    return tuple(known)


def _only_last(needs: Iterable[int], clocks: Sequence[Clock]) -> tuple[int, ...]:
    """Leave out what others of *needs* wait for themselves."""
    distinct = tuple(dict.fromkeys(needs))
    return tuple(
        need
        for need in distinct
        if not any(other != need and all(map(int.__le__, clocks[need], clocks[other])) for other in distinct)
    )


def _followers(after: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    followers: list[list[int]] = [[] for _ in after]
    for index, needs in enumerate(after):
        for need in needs:
            followers[need].append(index)
    return tuple(map(tuple, followers))


def _order(
    after: Sequence[tuple[int, ...]], followers: Sequence[tuple[int, ...]], kernels: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Sort topologically: a kernel when nothing else can come, one of the first stream when no other kernel can."""
    rank = dict.fromkeys((index for of_stream in kernels[1:] for index in of_stream), 1) | dict.fromkeys(kernels[0], 2)
    missing = [len(needs) for needs in after]
    ready = [(rank.get(index, 0), index) for index, number in enumerate(missing) if not number]
    heapify(ready)
    order = []
    while ready:
        _, index = heappop(ready)
        order.append(index)
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                heappush(ready, (rank.get(follower, 0), follower))
    return tuple(order)
