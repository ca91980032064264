"""The one place where points become results; runs in the processes of workers."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing import parent_process
from typing import Any, Final

from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.sweep.store import Row
from simulator.sweep.study import Study, Task, code_version
from simulator.world.scenario import resolve_scenario

__all__ = ["BUG", "become_worker", "evaluate"]

BUG: Final = "this is a bug of zerosim, please report it: "
"""How failures begin that are not the user's."""


def evaluate(study: Study, tasks: Sequence[Task]) -> list[Row]:
    """Simulate *tasks*; one that fails is a row with its reason, and the others go on.

    Raises
    ------
    InputError
        The code here is not the one that the keys speak of.
    """
    if study.code != code_version():
        raise InputError("a worker runs other code", remedy="install the same version of zerosim for all workers")
    return [_evaluated(study, task) for task in tasks]


def _evaluated(study: Study, task: Task) -> Row:
    try:
        return Row(key=task.key, point=task.point, variant=task.variant, result=_result(study, task))
    except InputError as error:
        failure = str(error)
    except Exception as error:  # whatever is wrong with one point, thousands of others must not go with it
        failure = f"{BUG}{type(error).__name__}: {error}"
    return Row(key=task.key, point=task.point, variant=task.variant, failure=failure)


def _result(study: Study, task: Task) -> dict[str, Any]:
    scenario = resolve_scenario(study.at(task.point, task.variant), study.file)
    return run_variant(scenario, scenario.variant(task.variant)).result.as_json()


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
