"""A rank class with a pace of its own: the same program, other times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulator.clock.cast import RankClass
from simulator.laws.kernels import Kernel
from simulator.schedules.program import HostWork, Instruction, Launch, Program
from simulator.world.uneven import EVEN, Pace

__all__ = ["is_timed_by_micro_batch", "paced"]

TIMED_BY_MICRO_BATCH = ("forward", "recompute", "backward")
"""Phases whose kernels work on a micro-batch."""


def paced(cast: RankClass, pace: Pace) -> RankClass:
    """Return *cast* with kernels and a host that take so much longer."""
    if pace == EVEN:
        return cast
    slower = replace(
        cast,
        times=tuple(time * pace.kernels for time in cast.times),
        program=replace(
            cast.program, instructions=tuple(_hosted(item, pace.host) for item in cast.program.instructions)
        ),
    )
    return _by_micro_batch(slower, pace) if pace.micro_batches else slower


def _hosted(item: Instruction, factor: float) -> Instruction:
    return HostWork(item.time * factor) if isinstance(item, HostWork) else item


def _by_micro_batch(cast: RankClass, pace: Pace) -> RankClass:
    """Give kernels an operation for each factor that they run with."""
    numbers: dict[tuple[int, float], int] = {}
    instructions = []
    for item in cast.program.instructions:
        if isinstance(item, Launch):
            key = item.operation, _factor(cast.program, item, pace)
            item = item._replace(operation=numbers.setdefault(key, len(numbers)))  # noqa: PLW2901
        instructions.append(item)
    old = [operation for operation, _ in numbers]
    rows: dict[str, Any] = {
        name: tuple(getattr(cast, name)[operation] for operation in old)
        for name in ("movement", "phases", "communicators")
    }
    return replace(
        cast,
        **rows,
        times=tuple(cast.times[operation] * factor for operation, factor in numbers),
        program=replace(
            cast.program,
            operations=tuple(cast.program.operations[operation] for operation in old),
            instructions=tuple(instructions),
        ),
    )


def _factor(program: Program, launch: Launch, pace: Pace) -> float:
    return pace.of(launch.micro_batch) if is_timed_by_micro_batch(program, launch) else 1.0


def is_timed_by_micro_batch(program: Program, launch: Launch) -> bool:
    """Whether *launch* is a kernel that works on a micro-batch."""
    return launch.phase in TIMED_BY_MICRO_BATCH and isinstance(program.operations[launch.operation], Kernel)
