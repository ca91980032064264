"""What differs from lane to lane: times, links and interference, as arrays.

Rows run over the operations of the program, columns over lanes; a row of one column holds for all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.meeting import Meeting
from simulator.clock.batch.plan import Plan, outline, plan_of
from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage, occupancy
from simulator.clock.stage import infinitely_fast_network
from simulator.laws.collectives.fabric import Phase
from simulator.laws.interference import Taken
from simulator.laws.offload import Transfer
from simulator.schedules.program import HostWork, Operation

__all__ = ["PART", "Array", "Fallback", "Lanes", "Numbers", "infinitely_fast", "lanes_of"]

Array = npt.NDArray[np.float64]

Numbers = npt.NDArray[np.intp]

Number = TypeVar("Number", np.float64, np.uint64)

PART: Final = 4096
"""Lanes that are best evaluated at a time: fewer pay for the interpreter, more for the caches."""
MEMORY: Final = 2**28
"""What the times of a part may occupy [B]."""
BYTES_PER_INSTRUCTION: Final = 16
"""Start and end, in each lane."""

LINK_BITS: Final = 64
"""Links that a row of :attr:`Lanes.links` tells apart; more than that are taken for each other, which is safe."""


class Fallback(IntEnum):
    """Why the engine has to simulate a lane."""

    NONE = 0
    CLASSES = 1
    """Several rank classes meet."""
    CONDITIONS = 2
    """Links change, or carry the traffic of others."""
    SHARING = 3
    """Two collectives, or transfers, that use the same link ran at the same time."""
    UNSETTLED = 4
    """Kernels of several streams and the collectives beside them did not come to rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Scenarios that share a program."""

    plan: Plan
    count: int
    """Number of lanes."""
    alone: Array
    """Time of each operation when nothing slows it, (operations, lanes) [s]."""
    latency: Array
    """The part of it in which no byte flows, (operations, lanes) [s]."""
    movement: Array
    """The part of a kernel that memory traffic bounds, (operations, lanes)."""
    held: Array
    """Share of the multiprocessors that a collective takes, (operations, lanes)."""
    moved: Array
    """Share of the memory's bandwidth that it takes, (operations, lanes)."""
    most: Array
    """What all collectives can take together of either, (1, lanes)."""
    links: npt.NDArray[np.uint64]
    """Links that a collective or transfer puts bytes on, one bit each, (operations, lanes)."""
    host: Array
    """Time of each host work of the program, in issue order, (host works, lanes) [s]."""
    at_once: npt.NDArray[np.int8]
    """Lanes that do not qualify whatever happens, as :class:`Fallback`, (1, lanes)."""
    stages: tuple[Stage, ...] = ()
    """One per lane for the engine to fall back on; without them such a lane has no result."""
    meeting: Meeting | None = None
    """Where lanes are ranks of one job: who waits for whom."""

    def parts(self, most: int = PART) -> Iterator[tuple[Numbers, Lanes]]:
        """Yield groups of at most so many lanes, whose times fit the memory, with the numbers of their lanes.

        A kernel is compared with every collective that runs beside it in any lane of a group.  So those lanes go
        together that communicate for about the same part of their time: their kernels have the same neighbours.
        """
        size = max(1, min(most, MEMORY // (BYTES_PER_INSTRUCTION * max(1, len(self.plan.order)))))
        order = np.argsort(self._communication(), kind="stable")
        for first in range(0, self.count, size):
            numbers = order[first : first + size]
            yield numbers, self._picked(numbers)

    def _communication(self) -> Array:
        """Time of all collectives over that of all kernels, as an angle."""
        launches = np.array([operation for operation in self.plan.operations if operation >= 0])
        times = self.alone * np.bincount(launches, minlength=len(self.alone))[:, np.newaxis]
        is_kernel = np.array(self.plan.communicators) == NO_COMMUNICATOR
        angle: Array = np.arctan2(times[~is_kernel].sum(axis=0), times[is_kernel].sum(axis=0))
        return np.broadcast_to(angle, self.count)

    def _picked(self, numbers: Numbers) -> Lanes:
        arrays = [(item.name, getattr(self, item.name)) for item in fields(self)]
        wide: dict[str, Any] = {
            name: np.take(rows, numbers, axis=1)  # not rows[:, numbers], whose rows do not lie in one piece
            for name, rows in arrays
            if isinstance(rows, np.ndarray) and rows.shape[1] > 1
        }
        stages = tuple(self.stages[number] for number in numbers) if self.stages else ()
        return replace(self, **wide, count=len(numbers), stages=stages)


def infinitely_fast(lanes: Lanes) -> Lanes:
    """Return the same lanes on a network on which collectives take no time."""
    is_kernel = np.array([[number == NO_COMMUNICATOR] for number in lanes.plan.communicators])
    nothing = np.zeros((len(is_kernel), 1))
    return replace(
        lanes,
        alone=lanes.alone * is_kernel,
        latency=nothing,
        held=nothing,
        moved=nothing,
        links=nothing.astype(np.uint64),
        at_once=np.where(lanes.at_once == Fallback.CONDITIONS, np.int8(Fallback.NONE), lanes.at_once),
        stages=tuple(infinitely_fast_network(stage) for stage in lanes.stages),
    )


class _Costs(NamedTuple):
    """Of one collective or transfer in one lane."""

    alone: float
    latency: float
    held: float
    moved: float
    links: int


FREE = _Costs(0.0, 0.0, 0.0, 0.0, 0)
NOTHING = Taken(0.0, 0.0)


def lanes_of(stages: Sequence[Stage], plan: Plan | None = None) -> Lanes:
    """Line up *stages*, at least one, whose first rank classes run the same program.

    Parameters
    ----------
    plan
        Of that program, if known; nobody checks then that it is theirs.

    Raises
    ------
    ValueError
        The programs differ in more than the time of host work and the sizes of operations.
    """
    casts = [stage.classes[0] for stage in stages]
    if plan is None:
        plan = plan_of(casts[0].program, casts[0].communicators)
        _check_outlines(casts)
    costs = [_collectives(cast) for cast in casts]
    times = _rows([cast.times for cast in casts])
    return Lanes(
        plan=plan,
        count=len(stages),
        alone=times + _rows([[item.alone for item in lane] for lane in costs]),
        latency=_rows([[item.latency for item in lane] for lane in costs]),
        movement=_rows([cast.movement or (0.0,) * len(cast.times) for cast in casts]),
        held=_rows([[item.held for item in lane] for lane in costs]),
        moved=_rows([[item.moved for item in lane] for lane in costs]),
        most=_rows([[cast.interference.most] for cast in casts]),
        links=_bits([[item.links for item in lane] for lane in costs]),
        host=_rows([_host_times(cast) for cast in casts]),
        at_once=np.array([[_unfit(stage) for stage in stages]], dtype=np.int8),
        stages=tuple(stages),
    )


def _check_outlines(casts: Sequence[RankClass]) -> None:
    seen = {id(casts[0].program): (outline(casts[0].program), casts[0].communicators)}
    first = seen[id(casts[0].program)]
    for lane, cast in enumerate(casts):
        if id(cast.program) not in seen:
            seen[id(cast.program)] = (outline(cast.program), cast.communicators)
        if seen[id(cast.program)][0] != first[0] or cast.communicators != first[1]:
            raise ValueError(f"lane {lane} has another program than lane 0")


def _unfit(stage: Stage) -> Fallback:
    if len(stage.classes) > 1:
        return Fallback.CLASSES
    return Fallback.CONDITIONS if stage.changes or stage.rivals else Fallback.NONE


def _host_times(cast: RankClass) -> list[float]:
    return [item.time for item in cast.program.instructions if isinstance(item, HostWork)]


def _collectives(cast: RankClass) -> list[_Costs]:
    return [
        _costs(cast, operation, phases) if phases else FREE
        for operation, phases in zip(cast.program.operations, cast.phases, strict=True)
    ]


def _costs(cast: RankClass, operation: Operation, phases: Sequence[Phase]) -> _Costs:
    # copy engines hold no multiprocessor
    taken = NOTHING if isinstance(operation, Transfer) else cast.interference.taken(occupancy(phases))
    links = {link % LINK_BITS for phase in phases if phase.payload for link, _ in phase.usage}
    return _Costs(
        alone=sum(phase.duration for phase in phases),
        latency=sum(phase.latency for phase in phases),
        held=taken.held,
        moved=taken.moved,
        links=sum(1 << link for link in links),
    )


def _rows(lanes: Sequence[Sequence[float]]) -> Array:
    """Turn one sequence per lane into rows of lanes; one column if they are all the same."""
    return _columns(np.array(lanes, dtype=np.float64))


def _bits(lanes: Sequence[Sequence[int]]) -> npt.NDArray[np.uint64]:
    return _columns(np.array(lanes, dtype=np.uint64))


def _columns(by_lane: npt.NDArray[Number]) -> npt.NDArray[Number]:
    same = bool((by_lane == by_lane[:1]).all())
    return np.ascontiguousarray(by_lane[:1].T if same else by_lane.T)
