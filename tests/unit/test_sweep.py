"""Sweeps: what varies, under which key it is stored, and that nothing is simulated twice."""

import csv
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import BrokenLawError, InputError
from simulator.explore import run_variant
from simulator.schedules.record import record
from simulator.sweep import (
    BUG,
    Row,
    Store,
    axis,
    axis_of_table,
    dask_cluster,
    evaluate,
    grid,
    latin_hypercube,
    load_study,
    missing,
    sweep,
    tasks,
    together,
    workers,
)
from simulator.sweep.executors import Inline
from simulator.world.scenario import load_scenario
from tests.command import ROOT, zerosim
from tests.conftest import content
from tests.stored import stored

VARIANTS = [{"name": "zero3", "zero_stage": 3}, {"name": "zero1", "zero_stage": 1}]
GUIDE = ROOT / "docs/guides/sweeps.md"
here = partial(workers, 1)
ABOUT = {"code": "code", "scenario": "test"}


def values(text):
    (key,) = axis(f"key={text}").keys
    return [point[key] for point in axis(f"key={text}").points]


@pytest.mark.parametrize(("text", "expected"), [
    ("2", [2]),
    ("2,4,8", [2, 4, 8]),
    ("1e9, 2.5", [1e9, 2.5]),
    ("ring,tree", ["ring", "tree"]),
    ("true,false", [True, False]),
    ("100 Gbit/s,400 Gbit/s", ["100 Gbit/s", "400 Gbit/s"]),
    ("{a: 1, b: [2, 3]},null", [{"a": 1, "b": [2, 3]}, None]),
    ("../a.json,7b/../b.json", ["../a.json", "7b/../b.json"]),
    ("2..5", [2, 3, 4, 5]),
    ("3..3", [3]),
    ("-1..1", [-1, 0, 1]),
    ("0..1:5", [0, 0.25, 0.5, 0.75, 1]),
    ("0.5..1.5:3", [0.5, 1.0, 1.5]),
    ("0..0.3:4", [0.0, 0.1, 0.2, 0.3]),
    ("100..800Gbit/s:3", ["100 Gbit/s", "450 Gbit/s", "800 Gbit/s"]),
    ("100 Gbit/s .. 800 Gbit/s:2", ["100 Gbit/s", "800 Gbit/s"]),
    ("1..3us", ["1 us", "2 us", "3 us"]),
    ("1GB/s..2GB/s:2", ["1 GB/s", "2 GB/s"]),
    ("1..64:7:log", [1, 2, 4, 8, 16, 32, 64]),
    ("1..1000us:4:log", ["1 us", "10 us", "100 us", "1000 us"]),
    ("1e-3..1e3:3:log", [0.001, 1.0, 1000.0]),
    ("1..4:7:whole", [1, 2, 3, 4]),
    ("1..10:4:log:whole", [1, 2, 5, 10]),
])  # fmt: skip
def test_values_of_an_axis(text, expected):
    assert values(text) == expected
    assert [type(value) for value in values(text)] == [type(value) for value in expected]


@pytest.mark.parametrize(("text", "expected"), [
    ("topology.hosts", "expected KEY=VALUE"),
    ("=1,2", "expected KEY=VALUE"),
    ("key=", "no value"),
    ("key=5..2", "the first number is larger"),
    ("key=1..2.5", "say how many values: 1..2.5:10"),
    ("key=1..x", "not a range"),
    ("key=1..", "not a range"),
    ("key=1..2..3", "not a range"),
    ("key=1,2..4", "not a range"),
    ("key=1..4:0", "two values at least"),
    ("key=1..4:1", "two values at least"),
    ("key=4..4:2", "not smaller"),
    ("key=1..4:-2", "not a range"),
    ("key=1..4:2.5", "not a range"),
    ("key=1..4:log", "not a range"),
    ("key=1..4:3:lin", "not a range"),
    ("key=0..4:3:log", "equal ratios"),
    ("key=1MB/s..4GB/s:3", "different units"),
    ("key=1GB/s..4:3", "different units"),
    ("key=1..9999999", "more than 1,000,000 values"),
    ("key=1..2:9999999", "more than 1,000,000 values"),
    ("key=1,.nan", "not a finite number"),
    ("key=[1", "not valid YAML"),
])  # fmt: skip
def test_a_wrong_axis_is_one_line_that_names_it(text, expected):
    with pytest.raises(InputError) as refused:
        axis(text)
    assert expected in str(refused.value)
    assert "--over" in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.integers(-1000, 1000), st.integers(1, 1000), st.integers(2, 50))
def test_a_range_has_its_ends_and_equal_distances(low, width, count):
    found = values(f"{low}..{low + width}:{count}")
    assert (len(found), found[0], found[-1]) == (count, low, low + width)
    distances = [after - before for before, after in pairwise(found)]
    assert distances == pytest.approx([width / (count - 1)] * (count - 1), abs=1e-8)


def test_axes_together_go_side_by_side():
    both = together([axis("a=1,2"), axis("b=x,y")])
    assert both.points == ({"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    with pytest.raises(InputError, match="a has 2, b has 3"):
        together([axis("a=1,2"), axis("b=1..3")])


def test_points_of_a_table(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("topology.hosts,topology.algorithm\n2,ring\n4,\n")
    assert axis_of_table(path).points == (
        {"topology.hosts": 2, "topology.algorithm": "ring"}, {"topology.hosts": 4}
    )  # fmt: skip
    path.write_text("topology.hosts,\n2,ring\n")
    with pytest.raises(InputError, match="a column has no name"):
        axis_of_table(path)


def test_a_grid_is_all_combinations():
    assert grid([axis("a=1,2"), axis("b=3,4")]) == [{"a": a, "b": b} for a in (1, 2) for b in (3, 4)]
    with pytest.raises(InputError, match="varied twice"):
        grid([axis("a=1,2"), axis("a=3,4")])
    with pytest.raises(InputError, match="4,000,000 points"):
        grid([axis("a=1..2000"), axis("b=1..2000")])


@given(st.integers(1, 30), st.integers(0, 5))
def test_a_latin_hypercube_sees_every_value_of_every_axis_once(count, seed):
    pytest.importorskip("scipy")
    points = latin_hypercube([axis(f"a=1..{count}"), axis(f"b=1..{count}")], count, seed)
    assert sorted(point["a"] for point in points) == list(range(1, count + 1))
    assert sorted(point["b"] for point in points) == list(range(1, count + 1))
    assert points == latin_hypercube([axis(f"a=1..{count}"), axis(f"b=1..{count}")], count, seed)


def test_a_latin_hypercube_without_scipy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats.qmc", None)
    with pytest.raises(InputError, match=r"pip install 'zerosim\[sample\]'"):
        latin_hypercube([axis("a=1,2")], 1, 0)


@pytest.fixture
def path(tmp_path):
    """A scenario of two variants that simulates in milliseconds."""
    file = tmp_path / "small.yaml"
    file.write_bytes(msgspec.yaml.encode(content(variants=VARIANTS)))
    return file


@pytest.fixture
def study(path):
    return load_study(path)


def test_results_of_other_code_are_not_stored(study, tmp_path):
    other = replace(study, code="other")
    with Store(tmp_path / "store.sqlite") as store:
        found = tasks(other, [{}], other.variants())
        with pytest.raises(InputError, match="a worker runs other code"):
            sweep(other, found, store, here)
        assert len(missing(found, store)) == 2


def keys(study, *texts):
    return [task.key for task in tasks(study, grid([axis(text) for text in texts]), study.variants())]


def test_a_key_depends_on_what_a_result_depends_on(study):
    base = keys(study, "training.micro_batch=1,2")
    assert len(set(base)) == 4
    assert keys(study, "training.micro_batch=1,2") == base
    assert keys(study, "training.micro_batch=2,3")[:2] == base[2:]
    assert not set(keys(replace(study, code="newer"), "training.micro_batch=1,2")) & set(base)
    renamed = replace(study, raw={**study.raw, "name": "another", "notes": "said"})
    assert keys(renamed, "training.micro_batch=1,2") == base


def test_a_key_does_not_depend_on_the_order_of_axes(study):
    one, other = "training.gradient_accumulation=2", "run.step=first"
    assert keys(study, one, other) == keys(study, other, one)


def test_an_axis_of_one_variant_makes_no_new_points_of_another(study):
    found = keys(study, "variants.zero3.prefetch=0,1")
    assert len(found) == 4
    assert len(set(found)) == 3


def test_a_key_depends_on_the_content_of_files_and_of_those_that_they_name(study, tmp_path):
    cluster, outer, inner = (tmp_path / name for name in ("mine.yaml", "accelerate.yaml", "ds_config.json"))
    cluster.write_bytes((ROOT / "topologies/flat.yaml").read_bytes())
    inner.write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}')
    outer.write_text(
        "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 2\n"
        "deepspeed_config: {deepspeed_config_file: ds_config.json, zero3_init_flag: false}\n"
    )
    variants = [{"name": "zero3", "accelerate": "accelerate.yaml"}]
    study = replace(study, raw={**study.raw, "variants": variants})

    def key():
        return keys(study, "topology.cluster=mine", "topology.links={}")[0]

    found = [key()]
    for file in (cluster, outer):
        file.write_text(file.read_text() + "# changed\n")
        found.append(key())
    inner.write_text(inner.read_text() + "\n")
    found.append(key())
    assert len(set(found)) == 4
    (tmp_path / "unrelated.yaml").write_text("name: nothing")
    assert key() == found[-1]


def test_a_key_that_spoils_every_point_is_refused_before_any_work(study):
    with pytest.raises(InputError, match="did you mean 'hosts'"):
        keys(study, "topology.hots=1,2")
    with pytest.raises(InputError, match="not a mapping"):
        keys(study, "topology.hosts.more=1,2")
    with pytest.raises(InputError, match="unknown variant"):
        study.variants(["zero4"])


def row(key, step=1.0):
    return Row(key=key, point={"a": 1}, variant="v", result={"step_time": step})


def test_the_same_key_twice_is_one_row_and_the_first_stays(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        store.add([row("one"), row("two")], **ABOUT)
        store.add([row("one", step=2.0), row("three")], **ABOUT)
        assert [key in store for key in ("one", "two", "three", "four")] == [True, True, True, False]
        assert list(store.found(["three", "one"])) == [({"step_time": 1.0}, None)] * 2
        with pytest.raises(KeyError, match="four"):
            list(store.found(["four"]))


def writes(place, start):
    """One of several processes that write at once: 60 rows of which others write half."""
    with Store(place) as store:
        for number in range(start, start + 60):
            store.add([row(f"{number}")], **ABOUT)


def test_processes_that_write_at_once_spoil_nothing(tmp_path):
    place = tmp_path / "store.sqlite"
    processes = [get_context("fork").Process(target=writes, args=(place, 30 * number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    database = sqlite3.connect(place)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert {key for (key,) in database.execute("SELECT key FROM results")} == {str(number) for number in range(150)}
    assert database.execute("SELECT count(*) FROM results").fetchone() == (150,)


def test_what_is_stored_is_on_the_disk_before_it_counts(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        assert store._database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert store._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_full_disk_is_told_and_loses_nothing(tmp_path):
    place = tmp_path / "store.sqlite"
    with Store(place) as store:
        store.add([row("kept")], **ABOUT)
        (pages,) = store._database.execute("PRAGMA page_count").fetchone()
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        large = Row(key="large", point={}, variant="v", failure="x" * 100_000)
        with pytest.raises(InputError, match=r"store\.sqlite.*is full.*run the same command again"):
            store.add([row("also lost"), large], **ABOUT)
    with Store(place) as store:
        assert [key in store for key in ("kept", "also lost", "large")] == [True, False, False]
        store.add([large], **ABOUT)
        assert "large" in store


def test_files_of_others_are_refused_and_left_alone(tmp_path):
    other, text = tmp_path / "other.sqlite", tmp_path / "notes.txt"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE results (something)")
    database.commit()
    text.write_text("no database at all, but long enough to be asked " * 30)
    before = other.read_bytes(), text.read_bytes()
    with pytest.raises(InputError, match="a database of something else"):
        Store(other)
    with pytest.raises(InputError, match="file is not a database"):
        Store(text)
    with pytest.raises(InputError, match="unable to open"):
        Store(tmp_path / "nowhere" / "store.sqlite")
    assert (other.read_bytes(), text.read_bytes()) == before


class Counting(Inline):
    """Keeps what it was asked to evaluate."""

    def __init__(self):
        self.asked = []

    def submit(self, function, study, chunk):
        self.asked += [task.key for task in chunk]
        return super().submit(function, study, chunk)


def test_only_what_is_missing_is_simulated(study, tmp_path):
    def asked(text):
        return tasks(study, grid([axis(text)]), study.variants())

    some, all_of_them = asked("training.micro_batch=2,4"), asked("training.micro_batch=1..5")
    with Store(tmp_path / "store.sqlite") as store:
        first, second, third = Counting(), Counting(), Counting()
        for asked_for, executor in ((some, first), (all_of_them, second), (all_of_them, third)):
            sweep(study, asked_for, store, partial(nullcontext, (executor, 1)))
    assert sorted(first.asked) == sorted(task.key for task in some)
    assert sorted(first.asked + second.asked) == sorted(task.key for task in all_of_them)
    assert third.asked == []


def test_results_are_those_of_a_run(study, path):
    found = tasks(study, [{"training.micro_batch": 3}], study.variants())
    scenario = load_scenario(path, ["training.micro_batch=3"])
    alone = [run_variant(scenario, variant).result.as_json() for variant in scenario.variants]
    assert [row.result for row in evaluate(study, found)] == alone


def test_a_process_remembers_no_more_programs_than_fit(study, monkeypatch):
    recorded = []

    def counted(*asked):
        recorded.append(record(*asked))
        return recorded[-1]

    monkeypatch.setattr("simulator.schedules.record.record", counted)
    found = tasks(study, grid([axis("training.micro_batch=101..103")]), ["zero3"])
    evaluate(study, found)
    evaluate(study, found)
    assert len(recorded) == 3
    monkeypatch.setattr(sys.modules["simulator.sweep.evaluate"], "MOST", 1)  # the package has a function of that name
    evaluate(study, found)
    evaluate(study, found)
    assert len(recorded) == 6


def test_processes_give_the_rows_that_one_gives(study, tmp_path):
    found = tasks(study, grid([axis("training.micro_batch=1..6")]), study.variants())
    with Store(tmp_path / "store.sqlite") as store:
        sweep(study, found, store, partial(workers, 2))
        stored = list(store.found(task.key for task in found))
    expected = [json.loads(json.dumps(row.result)) for row in evaluate(study, found)]
    assert stored == [(result, None) for result in expected]


def test_a_point_that_fails_is_a_row_with_its_reason(study):
    found = tasks(study, grid([axis("training.micro_batch=1,0,zero")]), ["zero3"])
    runs, zero, word = evaluate(study, found)
    assert runs.failure is None
    assert (zero.result, word.result) == (None, None)
    assert "training.micro_batch: 0: expected int >= 1" in zero.failure
    assert "training.micro_batch: 'zero'" in word.failure


def breaks(scenario, program):
    raise BrokenLawError("bytes were lost")


def test_a_bug_of_ours_is_a_row_too_and_the_exit_code_says_so(study, path, monkeypatch, tmp_path):
    monkeypatch.setattr("simulator.crowd.stage", breaks)
    (row,) = evaluate(study, tasks(study, [{}], ["zero3"]))
    assert row.failure == f"{BUG}BrokenLawError: bytes were lost"
    arguments = ("--over", "training.micro_batch=1,2", "--store", tmp_path / "store.sqlite", "--workers", "1")
    done = zerosim("sweep", path, *arguments)
    assert done.returncode == 70
    assert "4 failed" in done.stdout
    assert len(done.stderr.splitlines()) == 1


class Losing(Inline):
    """Loses its worker after the first chunk, and starts no other."""

    def __init__(self):
        self.left = 1

    def submit(self, *work):
        self.left -= 1
        if self.left >= 0:
            return super().submit(*work)
        lost = Future()
        lost.set_exception(BrokenProcessPool("a process terminated abruptly"))
        return lost


def test_workers_that_cannot_start_end_it_and_lose_no_result_that_arrived(study, tmp_path):
    found = tasks(study, grid([axis("training.micro_batch=1..4")]), study.variants())
    with Store(tmp_path / "store.sqlite") as store:
        with pytest.raises(InputError, match=r"no worker can be started: Broken.*run the same command again"):
            sweep(study, found, store, partial(nullcontext, (Losing(), 1)))
        rest = missing(found, store)
        assert 0 < len(rest) < len(found)
        sweep(study, found, store, here)
        assert missing(found, store) == []


def test_a_cluster_without_dask_says_what_to_install(path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    options = ("--over", "training.micro_batch=1", "--store", tmp_path / "r.sqlite", "--scheduler", "tcp://127.0.0.1:1")
    done = zerosim("sweep", path, *options)
    assert done.returncode == 2
    assert "pip install 'zerosim[dask]'" in done.stderr


def test_a_dask_cluster_gives_the_rows_that_one_process_gives(study, tmp_path):
    distributed = pytest.importorskip("distributed")
    found = tasks(study, grid([axis("training.micro_batch=1..6")]), study.variants())
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        Store(tmp_path / "store.sqlite") as store,
    ):
        with dask_cluster(cluster.scheduler_address) as (_, parallel):
            assert parallel == 2
        sweep(study, found, store, partial(dask_cluster, cluster.scheduler_address))
        stored = list(store.found(task.key for task in found))
    assert stored == [(json.loads(json.dumps(row.result)), None) for row in evaluate(study, found)]


def test_any_executor_will_do():
    assert issubclass(Inline, Executor)
    assert Inline().submit(divmod, 7, 2).result() == (3, 1)
    with pytest.raises(ZeroDivisionError):
        Inline().submit(divmod, 7, 0).result()


def test_the_command_continues_and_exports(path, tmp_path):
    def run(*more):
        common = ("--store", tmp_path / "r.sqlite", "--workers", "1")
        done = zerosim("sweep", path, "--over", "training.micro_batch=1,2,0", *common, *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    table = run("--export", tmp_path / "r.csv")
    assert "6 results: 6 simulated now, 0 known before; 2 failed" in table
    assert "expected int >= 1" in table
    answer = json.loads(run("--json"))
    assert (answer["simulated"], answer["failed"]) == (0, 2)
    assert [result["point"] for result in answer["results"]] == [
        {"training.micro_batch": n} for n in (1, 1, 2, 2, 0, 0)
    ]
    with (tmp_path / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["training.micro_batch"] for row in rows] == ["1", "1", "2", "2", "0", "0"]
    for row, result in zip(rows, answer["results"], strict=True):
        assert row["name"] == result["name"]
        if result["failure"]:
            assert row["failure"] == result["failure"]
            assert row["step_time"] == ""
        else:
            assert float(row["exposed.stalled"]) == result["exposed"]["stalled"]


def test_variants_overrides_and_tables_of_points_are_taken(path, tmp_path):
    points = tmp_path / "points.csv"
    points.write_text("training.micro_batch,run.step\n1,first\n2,\n")
    options = ("--points", points, "--together", "topology.hosts=2,4", "--together", "topology.algorithm=ring,tree",
               "--variant", "zero1", "--set", "training.gradient_accumulation=2", "--workers", "1")  # fmt: skip
    done = zerosim("sweep", path, *options, "--store", tmp_path / "r.sqlite", "--json")
    answer = json.loads(done.stdout)
    found = [tuple(result["point"].values()) for result in answer["results"]]
    assert found == [(2, "ring", 1, "first"), (2, "ring", 2), (4, "tree", 1, "first"), (4, "tree", 2)]
    assert {result["name"] for result in answer["results"]} == {"zero1"}
    assert answer["scenario"]["training"]["gradient_accumulation"] == 2


@pytest.mark.parametrize(("arguments", "expected"), [
    (("--over", "training.micro_batch=1,2"), "Missing option '--store'"),
    (("--store", "r.sqlite"), "nothing varies"),
    (("--store", "r.sqlite", "--over", "training.micro_bach=1,2"), "did you mean 'micro_batch'?"),
    (("--store", "r.sqlite", "--over", "training.micro_batch=1..x"), "not a range"),
    (("--store", "r.sqlite", "--over", "a=1", "--variant", "zero4"), "unknown variant"),
    (("--store", "r.sqlite", "--points", "nowhere.csv"), "nowhere.csv"),
    (("--store", "nowhere/r.sqlite", "--over", "training.micro_batch=1,2"), "unable to open"),
    (("--store", "small.yaml", "--over", "training.micro_batch=1,2"), "not a database"),
    (("--store", "r.sqlite", "--over", "training.micro_batch=1,2", "--export", "r.xlsx"), "ends in .csv"),
    (("--store", "r.sqlite", "--over", "training.micro_batch=1,2", "--export", "nowhere/r.csv"), "folder"),
    (("--store", "r.sqlite", "--over", "training.micro_batch=1,2", "--workers", "0"), "--workers"),
    (("--store", "r.sqlite", "--over", "training.micro_batch=1,2", "--sample", "0"), "--sample"),
])  # fmt: skip
def test_wrong_arguments_are_one_line(arguments, expected, path, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = zerosim("sweep", path, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert expected in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_ctrl_c_leaves_a_store_that_the_same_command_continues(path, tmp_path):
    place = tmp_path / "r.sqlite"
    arguments = ["sweep", str(path), "--over", "training.micro_batch=1..200", "--store", str(place)]
    command = [sys.executable, "-m", "simulator.cli", *arguments, "--workers", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and stored(place) < 5:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    assert process.returncode == 130, errors
    assert (out, errors.strip()) == ("", "zerosim: interrupted")
    known = stored(place)
    answer = json.loads(zerosim(*arguments, "--workers", "1", "--json").stdout)
    assert 5 <= known < answer["simulated"] + known == len(answer["results"]) == 400


@pytest.mark.slow
def test_the_python_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.S | re.M)[1]
    names = {}
    exec(code, names)
    assert len(names["steps"]) == 3 * len(names["study"].variants()) == stored(tmp_path / "hosts.sqlite")


@pytest.mark.slow
def test_the_table_of_the_guide_is_what_is_simulated():
    rows = re.findall(r"^\| (zero\S*(?: \S+)?) \|(.+)\|$", GUIDE.read_text(encoding="utf-8"), re.M)
    assert len(rows) == 5
    for name, cells in rows:
        for network, cell in zip((25, 50, 100, 200, 400), cells.split("|"), strict=True):
            asked = load_scenario("llama-2-7b-cloud-ethernet", [f"topology.links.network.bandwidth={network} Gbit/s"])
            result = run_variant(asked, asked.variant(name)).result
            assert 100 * result.exposed["stalled"] / result.step_time == pytest.approx(float(cell), abs=0.051)
