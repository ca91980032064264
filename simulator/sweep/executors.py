"""Who simulates: this process, others, or a cluster of Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from simulator.errors import InputError
from simulator.sweep.evaluate import become_worker

__all__ = ["Inline", "dask_cluster", "workers"]


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
