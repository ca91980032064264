"""Tasks to workers, results to the store.

A task may take its worker with it: memory runs out, native code crashes.  Which of the tasks under way it was, nobody
says.  So all of them are simulated again, in pieces, each alone in a fresh executor, and a piece that loses its worker
is cut into smaller ones.  A single task that does is the one: it is a row with this reason, and the sweep goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager
from typing import Final

from simulator.errors import InputError
from simulator.sweep.evaluate import evaluate
from simulator.sweep.store import Row, Store
from simulator.sweep.study import Study, Task, code_version

__all__ = ["LOST", "Crew", "missing", "sweep"]

LOST: Final = "a worker was lost while it simulated this and nothing else: out of memory? "
"""How failures begin that are not a point's own, but of the machine that it was simulated on."""

SMALLEST, LARGEST = 8, 256
"""Tasks that travel together, are simulated together if they share a program, and are lost together."""

WORK: Final = 2.0  # definition: that long a worker should need for those [s]

AHEAD: Final = 2  # definition: chunks that wait or run, per worker

PIECES: Final = 8  # definition: into so many a chunk is cut that lost its worker

Crew = Callable[[], AbstractContextManager[tuple[Executor, int]]]
"""Makes a fresh executor, and says how many chunks it works on at once."""


def missing(tasks: Sequence[Task], store: Store) -> list[Task]:
    """Return those of *tasks* that *store* has no row for, each key once."""
    return [task for key, task in {task.key: task for task in tasks}.items() if key not in store]


def sweep(
    study: Study, tasks: Sequence[Task], store: Store, crew: Crew, *, done: Callable[[int], object] = lambda count: None
) -> None:
    """Evaluate those of *tasks* that *store* does not hold, and store rows as they arrive, in any order.

    Parameters
    ----------
    crew
        Is asked for an executor, and for another one whenever a worker was lost.
    done
        Is told how many rows were stored.

    Raises
    ------
    InputError
        No worker can be started, one runs other code, or the store cannot be written.
    """
    chunks, suspects, again = _Chunks(missing(tasks, store)), list[list[Task]](), False
    while chunks or suspects:
        with crew() as (executor, parallel):
            if again:
                _check_starts(executor)
            if suspects:
                arriving = _each_alone(study, suspects, executor)
            else:
                arriving = _side_by_side(study, chunks, suspects, executor, AHEAD * parallel)
            for rows in arriving:
                store.add(rows, code=study.code, scenario=study.name)
                done(len(rows))
        again = True


def _check_starts(executor: Executor) -> None:
    """Tell workers that a task has killed from those that cannot start at all."""
    try:
        executor.submit(code_version).result()
    except Exception as error:  # each executor has its own
        remedy = "run the same command again, with fewer --workers if memory ran out"
        raise InputError(f"no worker can be started: {type(error).__name__}: {error}", remedy=remedy) from None


class _Chunks:
    """Tasks of one variant after the other, which may share a program, in pieces of about equal work."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._rest = deque(sorted(tasks, key=lambda task: task.variant))
        self._size = SMALLEST

    def __bool__(self) -> bool:
        return bool(self._rest)

    def take(self, ahead: int) -> list[Task]:
        """Take the next piece; there should be enough for *ahead* of them."""
        size = max(1, min(self._size, len(self._rest) // ahead))
        return [self._rest.popleft() for _ in range(size)]

    def took(self, seconds: float, tasks: int) -> None:
        """Learn from a piece how long tasks take."""
        self._size = max(SMALLEST, min(LARGEST, 2 * self._size, int(WORK * tasks / max(seconds, 1e-3))))


def _timed(study: Study, tasks: Sequence[Task]) -> tuple[list[Row], float]:
    """Evaluate *tasks* and tell how long it took [s]."""
    start = time.monotonic()
    return evaluate(study, tasks), time.monotonic() - start


def _side_by_side(
    study: Study, chunks: _Chunks, suspects: list[list[Task]], executor: Executor, ahead: int
) -> Iterator[list[Row]]:
    """Yield rows as they arrive, with no more than *ahead* chunks on their way, until all have or a worker is lost.

    What was on its way then is added to *suspects*.
    """
    running: dict[Future[tuple[list[Row], float]], list[Task]] = {}
    while running or (chunks and not suspects):
        if chunks and not suspects:
            chunk = chunks.take(ahead)
            running[_submitted(study, chunk, executor)] = chunk
        patience = 0.0 if chunks and not suspects and len(running) < ahead else None
        for future in wait(running, patience, return_when=FIRST_COMPLETED).done:
            chunk = running.pop(future)
            try:
                rows, seconds = future.result()
            except InputError:
                raise
            except Exception:  # each executor has its own; what is wrong with a point is no exception but a row
                suspects += _pieces(chunk)
            else:
                chunks.took(seconds, len(rows))
                yield rows


def _each_alone(study: Study, suspects: list[list[Task]], executor: Executor) -> Iterator[list[Row]]:
    """Yield rows of one of *suspects* after the other, until all are there or a worker is lost."""
    while suspects:
        chunk = suspects.pop()
        try:
            rows, _ = _submitted(study, chunk, executor).result()
        except InputError:
            raise
        except Exception as error:  # as above
            if len(chunk) == 1:
                yield [_blamed(chunk[0], error)]
            else:
                suspects += _pieces(chunk)
            return
        yield rows


def _submitted(study: Study, chunk: list[Task], executor: Executor) -> Future[tuple[list[Row], float]]:
    """Submit *chunk*; an executor that has broken meanwhile loses it."""
    try:
        return executor.submit(_timed, study, chunk)
    except Exception as error:  # as above
        lost: Future[tuple[list[Row], float]] = Future()
        lost.set_exception(error)
        return lost


def _pieces(chunk: list[Task]) -> list[list[Task]]:
    size = -(-len(chunk) // PIECES)
    return [chunk[first : first + size] for first in range(0, len(chunk), size)]


def _blamed(task: Task, error: Exception) -> Row:
    return Row(key=task.key, point=task.point, variant=task.variant, failure=f"{LOST}({type(error).__name__})")
