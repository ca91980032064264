"""The one place where points become results; runs in the processes of workers."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from multiprocessing import parent_process
from typing import Final

from simulator.crowd import Crowd
from simulator.errors import InputError
from simulator.readings.report import Result
from simulator.sweep.store import Row
from simulator.sweep.study import Study, Task, code_version
from simulator.world.scenario import Scenario, Variant, resolve_scenario
from simulator.world.topology.asked import Place

__all__ = ["BUG", "MOST", "become_worker", "evaluate"]

BUG: Final = "this is a bug of zerosim, please report it: "
"""How failures begin that are not the user's."""


MOST: Final = 1_000_000  # definition: instructions of programs that a process remembers; some hundred megabytes


def evaluate(study: Study, tasks: Sequence[Task]) -> list[Row]:
    """Simulate *tasks*; one that fails is a row with its reason, and the others go on.

    Raises
    ------
    InputError
        The code here is not the one that the keys speak of.
    MemoryError
        There is not enough for one of them.
    """
    if study.code != code_version():
        raise InputError("a worker runs other code", remedy="install the same version of zerosim for all workers")
    places: dict[str, Place] = {}
    resolved = [_resolved(study, task, places) for task in tasks]
    crowd = _crowd()
    results = iter(crowd.run(item for item in resolved if not isinstance(item, Exception)))
    if crowd.instructions > MOST:
        _crowd.cache_clear()
    return [
        _row(task, item if isinstance(item, Exception) else next(results))
        for task, item in zip(tasks, resolved, strict=True)
    ]


@cache
def _crowd() -> Crowd:
    """Of this process: what it recorded serves later tasks too."""
    return Crowd()


def _resolved(study: Study, task: Task, places: dict[str, Place]) -> tuple[Scenario, Variant] | Exception:
    """Resolve *task*; of equal *places* there is one only, so that what is known of its cluster serves all."""
    try:
        raw = study.at(task.point, task.variant)
        scenario = resolve_scenario(raw, study.file)
        variant = scenario.variant(task.variant)
        where = json.dumps([raw["topology"], raw.get("compute"), raw["variants"]], default=str)
        return scenario, replace(variant, place=places.setdefault(where, variant.place))
    except Exception as error:  # whatever is wrong with one point, thousands of others must not go with it
        return error


def _row(task: Task, found: Result | Exception) -> Row:
    row = Row(key=task.key, point=task.point, variant=task.variant)
    if isinstance(found, Result):
        return replace(row, result=found.as_json())
    if isinstance(found, InputError):
        return replace(row, failure=str(found))
    if isinstance(found, MemoryError):  # of this machine: as if the worker were lost
        raise found
    return replace(row, failure=f"{BUG}{type(found).__name__}: {found}")


def become_worker() -> None:
    """Prepare a process that evaluates: it ends with its parent, and at once with Ctrl-C."""
    gc.set_threshold(1_000_000, 20, 20)  # as the command does
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the parent: a pool whose parent was killed would wait for work forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
