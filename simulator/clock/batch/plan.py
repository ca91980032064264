r"""What of a program is the same in every lane: what each instruction waits for, and an order to evaluate them in.

Streams, the host and communicators are first in, first out, so what an instruction waits for, directly or not, is a
prefix of the host's instructions and of each stream.  A *clock* holds the length of these prefixes (Lamport 1978,
"Time, Clocks, and the Ordering of Events"; vector clocks: Mattern 1989); a dependency that the clock of another one
contains adds nothing to a maximum and is left out.

The order takes kernels last: whatever can be evaluated without a kernel comes before it, so the collectives that run
beside it are known.  Where kernels stand in one stream this is true for every collective that does not wait for the
kernel.  Where they stand in several, two kernels can each wait to hear of what follows the other; then one pass is not
enough (:attr:`Plan.one_pass`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heappop, heappush

from simulator.clock.stage import NO_COMMUNICATOR
from simulator.laws.kernels import Kernel
from simulator.schedules.program import HostWork, Launch, Program, Synchronize, Wait

__all__ = ["Plan", "outline", "plan_of"]

HOST = 0
"""Place of the host in a clock; stream s stands at s + 1."""

Clock = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A program, ready to be evaluated.  Tuples run parallel to its instructions unless said otherwise."""

    program: Program
    communicators: tuple[int, ...]
    """Of operations, as :attr:`~simulator.clock.stage.RankClass.communicators`."""
    after: tuple[tuple[int, ...], ...]
    """Instructions that must be done before."""
    order: tuple[int, ...]
    """All instructions, kernels as late as possible."""
    served: tuple[tuple[int, ...], ...]
    """For each communicator, its collectives in order."""
    one_pass: bool
    """Whether every collective that can run beside a kernel comes before it in the order."""


def outline(program: Program) -> tuple[object, ...]:
    """Return what scenarios must agree in to be lanes of one batch: the instructions but for the time of host work.

    >>> from simulator.schedules.program import HostWork, Program
    >>> programs = [Program(streams=("compute",), operations=(), instructions=(HostWork(t),)) for t in (1.0, 2.0)]
    >>> outline(programs[0]) == outline(programs[1])
    True
    """
    steps = tuple(None if isinstance(item, HostWork) else item for item in program.instructions)
    kinds = tuple(
        (item.kind, item.is_copy, item.serves) if isinstance(item, Kernel) else (item.role,)
        for item in program.operations
    )
    return program.streams, steps, kinds


def plan_of(program: Program, communicators: tuple[int, ...]) -> Plan:
    """Find what each instruction of *program* waits for, and an order."""
    after, clocks, served = _dependencies(program, communicators)
    kernels = _kernels(program)
    order = _order(after, kernels)
    return Plan(
        program=program,
        communicators=communicators,
        after=after,
        order=order,
        served=served,
        one_pass=_knows_all_beside(program, order, clocks, kernels),
    )


def _kernels(program: Program) -> frozenset[int]:
    is_kernel = [isinstance(item, Kernel) for item in program.operations]
    return frozenset(
        index
        for index, item in enumerate(program.instructions)
        if isinstance(item, Launch) and is_kernel[item.operation]
    )


def _dependencies(
    program: Program, communicators: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], list[Clock], tuple[tuple[int, ...], ...]]:
    """For each instruction what it waits for and its clock; for each communicator its collectives."""
    chains: list[list[int]] = [[] for _ in range(len(program.streams) + 1)]
    served: list[list[int]] = [[] for _ in range(max(communicators, default=NO_COMMUNICATOR) + 1)]
    after: list[tuple[int, ...]] = []
    clocks: list[Clock] = []
    for index, item in enumerate(program.instructions):
        place = HOST if isinstance(item, HostWork | Synchronize) else item.stream + 1
        needs = [chains[HOST][-1:], chains[place][-1:]]
        if isinstance(item, Wait | Synchronize):
            needs.append(chains[item.event.stream + 1][: item.event.position][-1:])
        elif isinstance(item, Launch) and (communicator := communicators[item.operation]) != NO_COMMUNICATOR:
            needs.append(served[communicator][-1:])
            served[communicator].append(index)
        found = [need for some in needs for need in some]
        after.append(_only_last(found, clocks))
        chains[place].append(index)
        clocks.append(_clock(found, clocks, place, len(chains[place]), len(chains)))
    return tuple(after), clocks, tuple(tuple(item) for item in served)


def _clock(needs: Iterable[int], clocks: Sequence[Clock], place: int, position: int, size: int) -> Clock:
    """Clock of the instruction that is number *position* of its chain, once *needs* are done."""
    known = reduce(lambda some, other: tuple(map(max, some, other)), (clocks[need] for need in needs), (0,) * size)
    return (*known[:place], position, *known[place + 1 :])


def _only_last(needs: Iterable[int], clocks: Sequence[Clock]) -> tuple[int, ...]:
    """Leave out what others of *needs* wait for themselves."""
    distinct = tuple(dict.fromkeys(needs))
    return tuple(
        need
        for need in distinct
        if not any(other != need and all(map(int.__le__, clocks[need], clocks[other])) for other in distinct)
    )


def _order(after: Sequence[tuple[int, ...]], kernels: frozenset[int]) -> tuple[int, ...]:
    """Sort topologically; a kernel comes only when nothing else can, the first issued first."""
    missing = [len(needs) for needs in after]
    followers: list[list[int]] = [[] for _ in after]
    for index, needs in enumerate(after):
        for need in needs:
            followers[need].append(index)
    ready = [(index in kernels, index) for index, number in enumerate(missing) if not number]
    heapify(ready)
    order = []
    while ready:
        _, index = heappop(ready)
        order.append(index)
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                heappush(ready, (follower in kernels, follower))
    return tuple(order)


def _knows_all_beside(
    program: Program, order: Iterable[int], clocks: Sequence[Clock], kernels: frozenset[int]
) -> bool:
    """Say whether each collective waits for all kernels that come before it in the order."""
    past = [0] * (len(program.streams) + 1)
    for index in order:
        item, clock = program.instructions[index], clocks[index]
        if not isinstance(item, Launch):
            continue
        if index in kernels:
            past[item.stream + 1] = clock[item.stream + 1]
        elif any(map(int.__lt__, clock, past)):
            return False
    return True
