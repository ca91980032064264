"""Tasks to workers, results to the store."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Final

from simulator.errors import InputError
from simulator.sweep.evaluate import become_worker, evaluate
from simulator.sweep.store import Row, Store
from simulator.sweep.study import Study, Task

__all__ = ["Inline", "dask_cluster", "missing", "sweep", "workers"]

SMALLEST, LARGEST = 8, 256
"""Tasks that travel together, are simulated together if they share a program, and are lost together."""

WORK: Final = 2.0  # definition: that long a worker should need for those [s]

AHEAD: Final = 2  # definition: chunks that wait or run, per worker


class Inline(Executor):
    """Does the work where it is asked for."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # as every executor does
            future.set_exception(error)
        return future


@contextmanager
def workers(count: int) -> Iterator[tuple[Executor, int]]:
    """Make *count* processes, which start with nothing inherited; for one, none is made.

    Yields the executor and how many chunks it works on at once.
    """
    if count == 1:
        yield Inline(), 1
        return
    executor = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=become_worker)
    try:
        yield executor, count
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def dask_cluster(scheduler: str) -> Iterator[tuple[Executor, int]]:
    """Send work to the Dask cluster whose scheduler listens at an address like ``tcp://10.0.0.1:8786``.

    Its workers must have this version of the package and see the scenario's files under the same paths.  Yields the
    executor and how many chunks it works on at once.

    Raises
    ------
    InputError
        Dask is not installed, or nobody listens.
    """
    try:
        distributed = import_module("distributed")
    except ImportError:
        remedy = "install the extra: pip install 'zerosim[dask]'"
        raise InputError("a cluster needs Dask", key="--scheduler", remedy=remedy) from None
    try:
        client = distributed.Client(scheduler)
    except (OSError, ValueError) as error:
        remedy = "start one with: dask scheduler, dask worker"
        raise InputError(f"no scheduler: {error}", key="--scheduler", value=scheduler, remedy=remedy) from None
    with client:
        yield client.get_executor(), max(1, sum(client.nthreads().values()))


def missing(tasks: Sequence[Task], store: Store) -> list[Task]:
    """Return those of *tasks* that *store* has no row for, each key once."""
    return [task for key, task in {task.key: task for task in tasks}.items() if key not in store]


def sweep(
    study: Study,
    tasks: Sequence[Task],
    store: Store,
    executor: Executor,
    *,
    parallel: int = 1,
    done: Callable[[int], object] = lambda count: None,
) -> None:
    """Evaluate those of *tasks* that *store* does not hold, and store rows as they arrive, in any order.

    Parameters
    ----------
    parallel
        Chunks that *executor* works on at once.
    done
        Is told how many rows were stored.

    Raises
    ------
    InputError
        A worker was lost, or the store cannot be written.
    """
    chunks = _Chunks(missing(tasks, store), AHEAD * parallel)
    for rows in _arriving(study, chunks, executor, AHEAD * parallel):
        store.add(rows, code=study.code, scenario=study.name)
        done(len(rows))


class _Chunks(Iterator[list[Task]]):
    """Tasks of one variant after the other, which may share a program, in pieces of about equal work.

    Parameters
    ----------
    tasks
        That have to be done.
    ahead
        Chunks on their way at once: there should be enough for all.
    """

    def __init__(self, tasks: Sequence[Task], ahead: int) -> None:
        self._rest = deque(sorted(tasks, key=lambda task: task.variant))
        self._ahead, self._size = ahead, SMALLEST

    def __next__(self) -> list[Task]:
        if not self._rest:
            raise StopIteration
        size = max(1, min(self._size, len(self._rest) // self._ahead))
        return [self._rest.popleft() for _ in range(size)]

    def took(self, seconds: float, tasks: int) -> None:
        """Learn from a chunk how long tasks take."""
        self._size = max(SMALLEST, min(LARGEST, 2 * self._size, int(WORK * tasks / max(seconds, 1e-3))))


def _timed(study: Study, tasks: Sequence[Task]) -> tuple[list[Row], float]:
    """Evaluate *tasks* and tell how long it took [s]."""
    start = time.monotonic()
    return evaluate(study, tasks), time.monotonic() - start


def _arriving(study: Study, chunks: _Chunks, executor: Executor, ahead: int) -> Iterator[list[Row]]:
    """Yield rows as they arrive, with no more than *ahead* chunks on their way."""
    running: set[Future[tuple[list[Row], float]]] = set()
    try:
        for chunk in chunks:
            running.add(executor.submit(_timed, study, chunk))
            patience = None if len(running) >= ahead else 0.0
            done, running = wait(running, patience, return_when=FIRST_COMPLETED)
            for rows, seconds in (future.result() for future in done):
                chunks.took(seconds, len(rows))
                yield rows
        yield from (future.result()[0] for future in as_completed(running))
    except InputError:
        raise
    except Exception as error:  # each executor has its own; what is wrong with a point is no exception but a row
        remedy = "run the same command again, with fewer --workers if memory ran out"
        raise InputError(f"a worker was lost: {type(error).__name__}: {error}", remedy=remedy) from None
