"""Results of many variants at once: those that share a program side by side, the others one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.clock.batch.evaluate import evaluate
from simulator.clock.batch.lanes import infinitely_fast, lanes_of
from simulator.clock.batch.plan import Plan, outline, plan_of
from simulator.clock.cast import Stage
from simulator.clock.stage import stage
from simulator.explore import play_staged, run_variant
from simulator.played import traffic_of
from simulator.readings.batch_steps import steps
from simulator.readings.report import Result, states_of, summarise
from simulator.readings.step import Step
from simulator.readings.volume import Volume
from simulator.schedules.program import Program
from simulator.schedules.record import Recorder
from simulator.world.scenario import Scenario, Variant

__all__ = ["Crowd"]

FEWEST: Final = 6
"""Lanes for which it pays to plan a program."""

LONG: Final = 64
"""Micro-batches from which on it pays to read a step off shorter ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A variant that is ready to run."""

    number: int
    scenario: Scenario
    variant: Variant
    program: Program
    traffic: Volume
    ready: Stage


class Crowd:
    """Runs variants; remembers the programs and plans of those that it ran.

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

    @property
    def instructions(self) -> int:
        """Of all programs that it remembers: each takes about 300 B, and as much for a plan."""
        return self._recorder.instructions

    def run(self, asked: Iterable[tuple[Scenario, Variant]]) -> list[Result | Exception]:
        """Return for each variant the result that :func:`~simulator.explore.run_variant` has, or what it raises."""
        found: dict[int, Result | Exception] = {}
        groups: dict[object, list[_Member]] = defaultdict(list)
        for number, (scenario, variant) in enumerate(asked):
            try:
                if scenario.training.gradient_accumulation >= LONG:
                    found[number] = run_variant(scenario, variant).result
                    continue
                member = self._member(number, scenario.at(variant), variant)
            except Exception as error:  # what is wrong with one must not spoil the others
                found[number] = error
            else:
                groups[self._group(member)].append(member)
        for key, members in groups.items():
            pays = key is not None and (key in self._plans or len(members) >= self._fewest)
            found |= self._together(key, members) if pays else _one_by_one(members)
        return [found[number] for number in range(len(found))]

    def _member(self, number: int, scenario: Scenario, variant: Variant) -> _Member:
        program = self._recorder.record(scenario, variant)
        return _Member(
            number=number,
            scenario=scenario,
            variant=variant,
            program=program,
            traffic=traffic_of(scenario, program),
            ready=stage(scenario, program),
        )

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

    def _together(self, key: object, members: Sequence[_Member]) -> dict[int, Result | Exception]:
        try:
            return self._side_by_side(key, members)
        except Exception:  # as above: the engine says whose it is
            return _one_by_one(members)

    def _side_by_side(self, key: object, members: Sequence[_Member]) -> dict[int, Result | Exception]:
        if key not in self._plans:
            cast = members[0].ready.classes[0]
            self._plans[key] = plan_of(cast.program, cast.communicators)
        lanes = lanes_of([member.ready for member in members], self._plans[key])
        found: dict[int, Result | Exception] = {}
        for numbers, part in lanes.parts():
            ideal = evaluate(infinitely_fast(part)).step_time
            mine = [members[number] for number in numbers]
            read = steps(evaluate(part), [states_of(member.scenario, member.variant) for member in mine])
            for member, step, ideal_step in zip(mine, read, ideal.tolist(), strict=True):
                found[member.number] = _summarised(member, step, ideal_step)
        return found


def _summarised(member: _Member, read: Step, ideal_step: float) -> Result | Exception:
    try:
        return summarise(member.scenario, member.variant, read, member.traffic, ideal_step)
    except Exception as error:  # as above
        return error


def _one_by_one(members: Iterable[_Member]) -> dict[int, Result | Exception]:
    return {member.number: _alone(member) for member in members}


def _alone(member: _Member) -> Result | Exception:
    try:
        return play_staged(member.scenario, member.variant, member.ready).result
    except Exception as error:  # as above
        return error
