"""A sweep that is killed at some moment goes on where it ended: each point once, no finished point again.

A trigger inside the store, of which the package knows nothing, notes every attempt to store a row.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from simulator.sweep import Row, Store
from tests.command import ROOT, zerosim
from tests.conftest import content
from tests.stored import stored

VARIANTS = [{"name": "zero3", "zero_stage": 3}, {"name": "zero1", "zero_stage": 1}]

WATCH = """
CREATE TABLE attempts (key TEXT);
CREATE TRIGGER watch BEFORE INSERT ON results BEGIN INSERT INTO attempts VALUES (NEW.key); END;
"""


def watched(place):
    """Make a store that notes every attempt to store a row, those included that change nothing."""
    Store(place).close()
    with sqlite3.connect(place) as database:
        database.executescript(WATCH)


def told(place, query):
    database = sqlite3.connect(place)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_the_trigger_sees_a_second_attempt(tmp_path):
    place = tmp_path / "r.sqlite"
    watched(place)
    with Store(place) as store:
        for _ in range(2):
            store.add([Row(key="one", point={}, variant="v", failure="x")], code="code", scenario="test")
    assert told(place, "SELECT count(*) FROM results") == [(1,)]
    assert told(place, "SELECT key FROM attempts") == [("one",), ("one",)]


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def killed(command, place, more, chance):
    """Start *command*, kill it a moment after *more* rows are there; return the processes that it had started."""
    goal = stored(place) + more
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and stored(place) < goal:
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.05))
    workers = children(process.pid) if process.poll() is None else []
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was done before it was killed"
    return workers


def test_the_states_of_processes_are_seen():
    process = subprocess.Popen(["sleep", "60"])
    assert process.pid in children(os.getpid())
    assert alive(process.pid)
    process.kill()
    process.wait()
    assert not alive(process.pid)


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_sweep_stores_each_point_once_and_computes_none_again(times, tmp_path):
    path, place, chance = tmp_path / "small.yaml", tmp_path / "r.sqlite", random.Random(times)
    path.write_bytes(msgspec.yaml.encode(content(variants=VARIANTS)))
    points = 60 * times
    arguments = ["sweep", str(path), "--over", f"training.micro_batch=1..{points}", "--store", str(place), "--json"]
    watched(place)
    for number in range(times):
        count = 1 + (number % 2)
        command = [sys.executable, "-m", "simulator.cli", *arguments, "--workers", str(count)]
        workers = killed(command, place, chance.randint(1, 40), chance)
        assert told(place, "PRAGMA integrity_check") == [("ok",)]
        patience = time.monotonic() + 20
        while any(alive(worker) for worker in workers) and time.monotonic() < patience:
            time.sleep(0.01)
        assert [worker for worker in workers if alive(worker)] == []
    known = stored(place)
    answer = json.loads(zerosim(*arguments, "--workers", "1").stdout)
    assert answer["simulated"] + known == len(answer["results"]) == stored(place) == 2 * points
    assert told(place, "SELECT max(n) FROM (SELECT count(*) AS n FROM attempts GROUP BY key)") == [(1,)]
    assert told(place, "SELECT count(DISTINCT key) FROM attempts") == [(2 * points,)]
