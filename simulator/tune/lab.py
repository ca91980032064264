r"""Simulated settings: quickly to compare them, whole to tell what they gain.

Compared are steps that are short.  A step of k micro-steps is one of two and k − 2 more of the same, so

.. math:: T(k) \approx T(1) + (k - 1)\,(T(2) - T(1))

which holds to the last bit where a micro-step always costs the same, as it does in a steady step of one that is not
the last (see :mod:`simulator.steady`).  What ends as the best was simulated with all its micro-steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from typing import Any, Final

from simulator.errors import BrokenLawError
from simulator.sweep.axes import Point
from simulator.sweep.evaluate import BUG
from simulator.sweep.run import Crew, sweep
from simulator.sweep.store import Store
from simulator.sweep.study import Task
from simulator.tune.search import Score
from simulator.tune.space import Setting, Space
from simulator.tune.target import Target
from simulator.world.edits import edited

__all__ = ["Lab", "excess"]

SHORT: Final = 3
"""Definition: micro-steps of a step up to which nothing is gained by comparing shorter ones."""

Found = Mapping[str, Any] | str
"""A result as ``zerosim run --json`` has it, or why there is none."""


def excess(memory: Mapping[str, Any], headroom: float) -> float:
    """By which part of what is allowed the memory that is needed exceeds it, on the GPU or beside it.

    >>> excess({"needed": 135.0, "capacity": 100.0}, 0.25)
    0.8
    """
    over: list[float] = [memory["needed"] / ((1 - headroom) * memory["capacity"]) - 1]
    over += [memory[place]["peak"] / memory[place]["capacity"] - 1 for place in ("host", "nvme") if place in memory]
    return max(0.0, *over)


class Lab:
    """Simulates settings, each once.

    Parameters
    ----------
    headroom
        Part of the memory of a GPU that is to stay free.
    crew
        Who simulates.
    done
        Is told how many simulations were done.
    """

    def __init__(
        self, target: Target, space: Space, headroom: float, crew: Crew, done: Callable[[int], object]
    ) -> None:
        self._target, self._space, self._headroom, self._done = target, space, headroom, done
        self._crew = _Lasting(crew)
        self._store = Store(Path(":memory:"))

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *error: object) -> None:
        self._crew.close()
        self._store.close()

    def scores(self, settings: Sequence[Setting]) -> list[Score]:
        """Compare *settings*, by short steps."""
        lengths = [_lengths(self._micro_steps(setting)) for setting in settings]
        points = [
            self._point(setting, count) for setting, counts in zip(settings, lengths, strict=True) for count in counts
        ]
        found = iter(self._simulated(points))
        return [
            self._score([next(found) for _ in counts], self._micro_steps(setting))
            for setting, counts in zip(settings, lengths, strict=True)
        ]

    def results(self, settings: Sequence[Setting]) -> list[Found]:
        """Simulate *settings* with all their micro-steps."""
        return self._simulated([self._point(setting, self._micro_steps(setting)) for setting in settings])

    def config(self, setting: Setting) -> dict[str, Any]:
        """Return the configuration in *setting*."""
        return edited(self._target.config, self._target.keys(self._space.config(setting)))

    def _micro_steps(self, setting: Setting) -> int:
        training = self._target.scenario.training
        return int(self._space.training(setting).get("gradient_accumulation", training.gradient_accumulation))

    def _point(self, setting: Setting, micro_steps: int) -> Point:
        training = self._space.training(setting) | {"gradient_accumulation": micro_steps}
        return self._target.point(self.config(setting), training)

    def _simulated(self, points: Sequence[Point]) -> list[Found]:
        name = self._target.variant.name
        tasks = [Task(key=repr(point), point=point, variant=name) for point in points]
        sweep(self._target.study, tasks, self._store, self._crew, done=self._done)
        return [_checked(*row) for row in self._store.found(task.key for task in tasks)]

    def _score(self, found: Sequence[Found], micro_steps: int) -> Score:
        if any(isinstance(item, str) for item in found):
            return Score(excess=inf, time=inf, floor=inf)
        results = [item for item in found if not isinstance(item, str)]
        over = max(excess(item["memory"], self._headroom) for item in results)
        times = [item["step_time"] for item in results]
        floors = [item["step_time"] - item["exposed"]["counterfactual"] for item in results]
        return Score(excess=over, time=_whole(times, micro_steps), floor=_whole(floors, micro_steps))


def _lengths(micro_steps: int) -> tuple[int, ...]:
    """Micro-steps of the steps that are simulated in place of one."""
    return (micro_steps,) if micro_steps <= SHORT else (1, 2)


def _whole(times: Sequence[float], micro_steps: int) -> float:
    """Of a step of *micro_steps* from that of it, or of one and two of them [s]."""
    return times[0] if len(times) == 1 else times[0] + (micro_steps - 1) * (times[1] - times[0])


def _checked(result: Mapping[str, Any] | None, failure: str | None) -> Found:
    """Tell what cannot run from a bug of ours."""
    if failure is not None and failure.startswith(BUG):
        raise BrokenLawError(failure.removeprefix(BUG))
    return result if result is not None else str(failure)


class _Lasting:
    """Lends one executor again and again, and gets a fresh one only when it is broken: what workers recorded stays."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._stack = crew, ExitStack()
        self._given: tuple[Executor, int] | None = None

    @contextmanager
    def __call__(self) -> Iterator[tuple[Executor, int]]:
        if self._given is None or not _works(self._given[0]):
            self._given = self._stack.enter_context(self._crew())
        yield self._given

    def close(self) -> None:
        """End the executors."""
        self._stack.close()


def _works(executor: Executor) -> bool:
    try:
        executor.submit(int).result()
    except Exception:  # each executor has its own
        return False
    return True
