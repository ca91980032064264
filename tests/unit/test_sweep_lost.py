"""Tasks that kill the process that simulates them: the sweep goes on, and only the guilty ones have no result."""

import json
import multiprocessing
import os
import signal
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import partial

import msgspec
import pytest

from simulator.errors import InputError
from simulator.sweep import Row, Store, axis, dask_cluster, evaluate, grid, load_study, missing, sweep, tasks, workers
from simulator.sweep.executors import Inline
from simulator.sweep.run import LOST
from tests.command import zerosim
from tests.conftest import content

DEADLY = (3, 11, 600)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_bytes(msgspec.yaml.encode(content()))
    return file


@pytest.fixture
def study(path):
    return load_study(path)


def micro_batches(study, text):
    return tasks(study, grid([axis(f"training.micro_batch={text}")]), study.variants())


def deadly(function, *work):
    """Do the work, or die of it as if memory had run out."""
    chunk = work[1] if work else ()
    if any(task.point["training.micro_batch"] in DEADLY for task in chunk):
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*work)


class Deadly(Executor):
    """Has some points kill the processes of another executor, and counts what it is asked to evaluate."""

    def __init__(self, executor, asked):
        self._executor, self._asked = executor, asked

    def submit(self, function, *work):
        self._asked += [len(work[1])] if work else []
        return self._executor.submit(deadly, function, *work)


@contextmanager
def dying(crew, asked):
    with crew() as (executor, parallel):
        yield Deadly(executor, asked), parallel


def check(study, found, crew, place):
    """All points but the deadly ones have their result; those have a reason."""
    told, again = [], []
    with Store(place) as store:
        sweep(study, found, store, partial(dying, crew, []), done=told.append)
        stored = list(store.found(task.key for task in found))
        sweep(study, found, store, partial(dying, crew, again))
    lost = [task.point["training.micro_batch"] in DEADLY for task in found]
    assert [bool(failure) for _, failure in stored] == lost
    assert all(failure.startswith(LOST) for _, failure in stored if failure)
    expected = [json.loads(json.dumps(row.result)) for row in evaluate(study, found)]
    assert [result for result, failure in stored if not failure] == [
        result for result, is_lost in zip(expected, lost, strict=True) if not is_lost
    ]
    assert sum(told) == len(found)
    assert again == []


def test_a_task_that_kills_its_process_is_a_failure_and_the_others_have_results(study, tmp_path):
    check(study, micro_batches(study, "1..40"), partial(workers, 2), tmp_path / "r.sqlite")


def test_a_task_that_kills_its_process_and_nothing_else_to_do(study, tmp_path):
    check(study, micro_batches(study, "3"), partial(workers, 2), tmp_path / "r.sqlite")


def test_a_task_that_kills_workers_of_a_dask_cluster_is_a_failure(study, tmp_path):
    distributed = pytest.importorskip("distributed", reason="needs pip install 'zerosim[dask]'")
    one_try = pytest.importorskip("dask.config").set({"distributed.scheduler.allowed-failures": 0})
    with (
        one_try,
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
    ):
        check(study, micro_batches(study, "1..12"), partial(dask_cluster, cluster.scheduler_address), tmp_path / "r")


def test_a_worker_that_is_killed_from_outside_leaves_no_failure(study, tmp_path):
    found = micro_batches(study, "1..60")
    killed = []

    def kill_one(_):
        if not killed:
            killed.append(multiprocessing.active_children()[0])
            killed[0].kill()

    with Store(tmp_path / "r.sqlite") as store:
        sweep(study, found, store, partial(workers, 2), done=kill_one)
        stored = list(store.found(task.key for task in found))
    assert killed[0].exitcode == -signal.SIGKILL
    assert [failure for _, failure in stored] == [None] * len(found)


def no_memory(*_):
    raise MemoryError


def test_memory_that_runs_out_is_no_bug(study, tmp_path, monkeypatch):
    """Only a limit on a process lets Python tell it; the kernel kills."""
    monkeypatch.setattr("simulator.crowd.stage", no_memory)
    found = micro_batches(study, "1..3")
    with Store(tmp_path / "r.sqlite") as store:
        sweep(study, found, store, partial(workers, 1))
        assert {failure for _, failure in store.found(task.key for task in found)} == {f"{LOST}(MemoryError)"}


class Fake(Inline):
    """Simulates nothing, and loses every worker that is asked for the deadly points."""

    def __init__(self, asked):
        self._asked = asked

    def submit(self, function, *work):
        return super().submit(self._pretend, *work)

    def _pretend(self, *work):
        if not work:
            return "it starts"
        _, chunk = work
        self._asked.append([task.key for task in chunk])
        if any(task.point["training.micro_batch"] in DEADLY for task in chunk):
            raise BrokenProcessPool
        return [Row(key=task.key, point=task.point, variant=task.variant, failure="none") for task in chunk], 0.0


def test_what_was_under_way_is_cut_into_pieces_until_the_guilty_is_alone(study, tmp_path):
    """Pieces of 8, 16, .. 256: 3 is among the first 8, 600 in one of 256, of 32, of 4 and alone."""
    found, asked = micro_batches(study, "1..2000"), []
    with Store(tmp_path / "r.sqlite") as store:
        sweep(study, found, store, lambda: nullcontext((Fake(asked), 1)))
        failures = [failure for _, failure in store.found(task.key for task in found)]
    names = {task.key: task.point["training.micro_batch"] for task in found}
    sizes = {number: [len(chunk) for chunk in asked if number in map(names.get, chunk)] for number in (1, 3, 600)}
    assert sizes == {1: [8, 1], 3: [8, 1], 600: [256, 32, 4, 1]}
    assert [number for number, failure in enumerate(failures, 1) if failure != "none"] == [*DEADLY]


@contextmanager
def still_born():
    """Processes that end as soon as they start."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), os._exit, (1,)) as executor:
        yield executor, 2


def test_processes_that_cannot_start_end_the_sweep(study, tmp_path):
    found = micro_batches(study, "1..9")
    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(InputError, match="no worker can be started: BrokenProcessPool"):
            sweep(study, found, store, still_born)
        assert missing(found, store) == found


def test_what_failed_is_simulated_again_if_asked(path, study, tmp_path):
    place, found = tmp_path / "r.sqlite", micro_batches(study, "1,2,0")
    with Store(place) as store:
        row = Row(key=found[0].key, point=found[0].point, variant="zero3", failure=f"{LOST}(BrokenProcessPool)")
        store.add([row], code=study.code, scenario=study.name)

    def counts(*options):
        arguments = ("--over", "training.micro_batch=1,2,0", "--store", place, "--workers", "1", "--json")
        answer = json.loads(zerosim("sweep", path, *arguments, *options).stdout)
        return answer["simulated"], answer["failed"]

    assert [counts(), counts(), counts("--retry-failed"), counts()] == [(2, 2), (0, 2), (2, 1), (0, 1)]
