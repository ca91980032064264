"""Results of many variants at once: those that share a program side by side, the others one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.clock.batch.evaluate import Batch, evaluate
from simulator.clock.batch.lanes import infinitely_fast, lanes_of
from simulator.clock.batch.plan import Plan, outline, plan_of
from simulator.clock.batch.track import lane_periods
from simulator.clock.cast import Stage
from simulator.clock.periodic import Window, windows
from simulator.clock.stage import stage
from simulator.explore import play_staged
from simulator.played import Read, play, traffic_of
from simulator.readings.batch_steps import steps
from simulator.readings.report import Result, states_of, summarise
from simulator.readings.volume import Volume
from simulator.schedules.program import Program
from simulator.schedules.record import Recorder
from simulator.steady import is_periodic, lengths, read_off, shortened
from simulator.world.scenario import Scenario, Variant

__all__ = ["Crowd"]

FEWEST: Final = 6
"""Lanes for which it pays to plan a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A variant, where it runs, and how its step can be found."""

    scenario: Scenario
    variant: Variant
    tries: Iterator[tuple[int, ...]]
    """Micro-batches of the steps to simulate: of three short ones, in the end of the step itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A step that is ready to run."""

    key: tuple[int, int]
    """Number of what was asked, and of micro-batches."""
    scenario: Scenario
    variant: Variant
    program: Program
    traffic: Volume
    ready: Stage
    windows: Sequence[Sequence[Window]]
    """For each rank class what it does more than in a step that is a period shorter; nothing if that is not asked."""


class _Ran(NamedTuple):
    """A step."""

    read: Read
    periodic: bool


Found = Mapping[tuple[int, int], _Ran | Result | Exception]
"""By key."""


class Crowd:
    """Runs variants; remembers the programs and plans of those that it ran.

    Long steps are read off shorter ones (:mod:`simulator.steady`), which are run beside each other.

    Parameters
    ----------
    fewest
        Variants of one program that are simulated side by side; fewer are simulated one by one.
    """

    def __init__(self, fewest: int = FEWEST) -> None:
        self._fewest = fewest
        self._recorder = Recorder()
        self._marks: dict[object, object] = {}
        self._marked: dict[int, tuple[Program, object]] = {}
        self._plans: dict[object, Plan] = {}
        self._windows: dict[tuple[int, int], tuple[Window, ...]] = {}

    @property
    def instructions(self) -> int:
        """Of all programs that it remembers: each takes about 300 B, and as much for a plan."""
        return self._recorder.instructions

    def run(self, asked: Iterable[tuple[Scenario, Variant]]) -> list[Result | Exception]:
        """Return for each variant the result that :func:`~simulator.explore.run_variant` has, or what it raises."""
        found: dict[int, Result | Exception] = {}
        rest: dict[int, _Asked] = {}
        for number, (scenario, variant) in enumerate(asked):
            try:
                rest[number] = _asked(scenario.at(variant), variant)
            except Exception as error:  # what is wrong with one must not spoil the others
                found[number] = error
        while rest:
            found |= self._tried(rest)
            rest = {number: item for number, item in rest.items() if number not in found}
        return [found[number] for number in range(len(found))]

    def _tried(self, rest: Mapping[int, _Asked]) -> dict[int, Result | Exception]:
        """Try the next number of micro-batches of each; what is not found then must be tried again."""
        found: dict[tuple[int, int], _Ran | Result | Exception] = {}
        groups: dict[object, list[_Member]] = defaultdict(list)
        tried = {number: next(item.tries) for number, item in rest.items()}
        for number, item in rest.items():
            try:
                for member in self._members(number, item, tried[number]):
                    groups[self._group(member)].append(member)
            except Exception as error:  # as above
                found[number, tried[number][0]] = error
        for key, members in groups.items():
            pays = key is not None and (key in self._plans or len(members) >= self._fewest)
            found |= self._together(key, members) if pays else _one_by_one(members)
        told = {number: _told(number, item, tried[number], found) for number, item in rest.items()}
        return {number: result for number, result in told.items() if result is not None}

    def _members(self, number: int, item: _Asked, counts: Sequence[int]) -> list[_Member]:
        members: list[_Member] = []
        for count in counts:
            scenario = shortened(item.scenario, count)
            program = self._recorder.record(scenario, item.variant)
            ready = stage(scenario, program)
            members.append(
                _Member(
                    key=(number, count),
                    scenario=scenario,
                    variant=item.variant,
                    program=program,
                    traffic=traffic_of(scenario, program),
                    ready=ready,
                    windows=self._windows_of(members[-1], ready, program) if members and count == counts[-1] else (),
                )
            )
        return members

    def _group(self, member: _Member) -> object:
        """What it must have in common with others to run beside them; None if it needs the engine."""
        ready = member.ready
        if len(ready.classes) > 1 or ready.changes or ready.rivals or member.scenario.jitter:
            return None
        if ready.classes[0].program is not member.program:  # all ranks are uneven, each point in its own way
            return None
        number = id(member.program)  # of one that is kept, so that no other gets it
        if number not in self._marked:
            # one mark for all outlines that are equal, as to compare these takes as long as to evaluate a lane
            mark = self._marks.setdefault(outline(member.program), object())
            self._marked[number] = member.program, mark
        return self._marked[number][1], ready.classes[0].communicators

    def _together(self, key: object, members: Sequence[_Member]) -> Found:
        try:
            return self._side_by_side(key, members)
        except Exception:  # as above: the engine says whose it is
            return _one_by_one(members)

    def _side_by_side(self, key: object, members: Sequence[_Member]) -> Found:
        if key not in self._plans:
            cast = members[0].ready.classes[0]
            self._plans[key] = plan_of(cast.program, cast.communicators)
        lanes = lanes_of([member.ready for member in members], self._plans[key])
        found: dict[tuple[int, int], _Ran | Result | Exception] = {}
        for numbers, part in lanes.parts():
            batch, ideal = evaluate(part), evaluate(infinitely_fast(part))
            mine = [members[number] for number in numbers]
            read = steps(batch, [states_of(member.scenario, member.variant) for member in mine])
            periodic = _periodic(mine, batch) & _periodic(mine, ideal)
            for member, step, ideal_step, repeats in zip(mine, read, ideal.step_time.tolist(), periodic, strict=True):
                found[member.key] = _Ran(Read(step, member.traffic, ideal_step), bool(repeats))
        return found

    def _windows_of(self, shorter: _Member, longer: Stage, program: Program) -> list[tuple[Window, ...]]:
        """For each rank class of *longer*; of programs that are kept they are found once."""
        key = id(shorter.program), id(program)
        if key not in self._windows:
            self._windows[key] = tuple(windows(shorter.program, program))
        return [
            self._windows[key] if others.program is program else tuple(windows(some.program, others.program))
            for some, others in zip(shorter.ready.classes, longer.classes, strict=True)
        ]


def _periodic(members: Sequence[_Member], batch: Batch) -> npt.NDArray[np.bool_]:
    """Lanes that are to be periodic, and are."""
    return ~np.isnan(lane_periods(batch, [tuple(member.windows[0]) if member.windows else () for member in members]))


def _asked(scenario: Scenario, variant: Variant) -> _Asked:
    whole = (scenario.training.gradient_accumulation,)
    return _Asked(scenario=scenario, variant=variant, tries=chain(lengths(scenario), [whole]))


def _told(number: int, item: _Asked, counts: Sequence[int], found: Found) -> Result | Exception | None:
    """Return what *found* says of a variant; None if it is not periodic yet."""
    ran = []
    for count in counts:
        each = found[number, count]
        if not isinstance(each, _Ran):
            return each
        ran.append(each)
    if len(counts) == 1:
        return _summarised(item, ran[0].read)
    read = read_off(item.scenario, counts, [each.read for each in ran]) if ran[-1].periodic else None
    return None if read is None else _summarised(item, read)


def _summarised(item: _Asked, read: Read) -> Result | Exception:
    try:
        return summarise(item.scenario, item.variant, read.step, read.traffic, read.ideal_step)
    except Exception as error:  # as above
        return error


def _one_by_one(members: Iterable[_Member]) -> Found:
    return {member.key: _alone(member) for member in members}


def _alone(member: _Member) -> _Ran | Result | Exception:
    try:
        if member.scenario.jitter is not None:
            return play_staged(member.scenario, member.variant, member.ready).result
        played = play(member.scenario, member.variant, member.ready)
        periodic = bool(member.windows) and is_periodic(member.windows, member.ready, played.timeline)
        return _Ran(played.read, periodic)
    except Exception as error:  # as above
        return error
