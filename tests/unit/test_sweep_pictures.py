"""What ``zerosim sweep`` draws and exports, from the command line."""

import sys
from functools import partial

import msgspec
import pytest

from simulator.errors import InputError
from simulator.sweep import Store, as_frame, as_results, axis, grid, load_study, sweep, tasks, workers, write_parquet
from tests.command import zerosim
from tests.conftest import content
from tests.stored import stored

VARIANTS = [{"name": "zero3", "zero_stage": 3}, {"name": "zero1", "zero_stage": 1}]
BATCH, LINK = "training.micro_batch=1,2,4", "topology.links.link.bandwidth=1..4GB/s:3:log"


@pytest.fixture
def path(tmp_path):
    """A scenario of two variants that simulates in milliseconds."""
    file = tmp_path / "small.yaml"
    file.write_bytes(msgspec.yaml.encode(content(variants=VARIANTS)))
    return file


@pytest.fixture
def run(path, tmp_path):
    """The command on two axes."""

    def command(*more):
        common = ("--over", BATCH, "--over", LINK, "--store", "r.sqlite", "--workers", "1")
        return zerosim("sweep", path, *common, *more, cwd=tmp_path)

    return command


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_a_picture_needs_no_option_but_its_name(run, tmp_path, name, begins):
    done = run("--plot", name)
    assert done.returncode == 0, done.stderr
    assert f"written to {name}" in done.stdout
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([name, "r.sqlite", "small.yaml"])


def test_a_finished_store_is_drawn_again_without_simulating(run, tmp_path):
    run()
    for figure in ("curves", "heatmap", "best", "pareto"):
        done = run("--plot", f"{figure}.svg", "--figure", figure)
        assert "18 results: 0 simulated now, 18 known before" in done.stdout, done.stderr
        assert (tmp_path / f"{figure}.svg").stat().st_size > 10_000


@pytest.mark.parametrize(("arguments", "expected"), [
    (("--plot", "a.png", "--x", "training.micro_bach"), "did you mean 'training.micro_batch'"),
    (("--plot", "a.png", "--y", "step_tim"), "did you mean 'step_time'"),
    (("--plot", "a.png", "--y", "cost.per_step"), "add --set 'prices.per_gpu_hour=2 USD/h'"),
    (("--plot", "a.png", "--x", "variant"), "not a key of numbers"),
    (("--plot", "a.png", "--rows", "variant"), "stands at two places"),
    (("--plot", "a.gif"), ".png"),
    (("--plot", "nowhere/a.png"), "no such folder"),
    (("--plot", "a.png", "--figure", "pie"), "--figure"),
    (("--figure", "best"), "add --plot"),
    (("--cols", "variant"), "add --plot"),
    (("--export", "a.xlsx"), "ends in .csv or .parquet"),
])  # fmt: skip
def test_wrong_pictures_are_one_line_before_anything_is_simulated(run, tmp_path, arguments, expected):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert expected in done.stderr
    assert stored(tmp_path / "r.sqlite") == 0
    assert [file.name for file in tmp_path.iterdir()] == ["small.yaml"]


def test_results_that_cannot_be_drawn_are_kept(run, tmp_path):
    done = run("--plot", "a.png", "--y", "links.nothing")
    assert done.returncode == 2
    assert "it has no links.nothing" in done.stderr
    assert stored(tmp_path / "r.sqlite") == 18
    assert not (tmp_path / "a.png").exists()


def test_parquet_without_pyarrow_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("--export", "a.parquet")
    assert done.returncode == 2
    assert "pip install 'zerosim[parquet]'" in done.stderr
    assert not (tmp_path / "r.sqlite").exists()


def test_a_frame_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'zerosim\[pandas\]'"):
        as_frame([])


def results(path, tmp_path, *texts):
    study = load_study(path)
    found = tasks(study, grid([axis(text) for text in texts]), study.variants())
    store = Store(tmp_path / "r.sqlite")
    sweep(study, found, store, partial(workers, 1))
    return found, store


def test_parquet_holds_what_the_results_hold_with_their_types(path, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pip install 'zerosim[parquet]'")
    found, store = results(path, tmp_path, "training.micro_batch=1,2,0", "topology.algorithm=ring,null")
    with store:
        write_parquet(tmp_path / "r.parquet", found, store)
        expected = list(as_results(found, store))
    rows = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert [row["training.micro_batch"] for row in rows] == [item["point"]["training.micro_batch"] for item in expected]
    assert [row["topology.algorithm"] for row in rows] == [item["point"]["topology.algorithm"] for item in expected]
    assert [row["step_time"] for row in rows] == [item["step_time"] for item in expected]
    assert [row["failure"] for row in rows] == [item["failure"] for item in expected]
    assert [row["memory.fits"] for row in rows] == [(item["memory"] or {}).get("fits") for item in expected]


def test_mixed_values_become_text_in_parquet(path, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pip install 'zerosim[parquet]'")
    found, store = results(path, tmp_path, "training.micro_batch=1,many")
    with store:
        write_parquet(tmp_path / "r.parquet", found, store)
    column = parquet.read_table(tmp_path / "r.parquet")["training.micro_batch"].to_pylist()
    assert column == ["1", "1", "many", "many"]


def test_a_frame_has_a_row_per_variant_and_point(path, tmp_path):
    pytest.importorskip("pandas", reason="needs pip install 'zerosim[pandas]'")
    found, store = results(path, tmp_path, "training.micro_batch=1,2,0")
    with store:
        expected = list(as_results(found, store))
    frame = as_frame(expected)
    assert list(frame["training.micro_batch"]) == [1, 1, 2, 2, 0, 0]
    assert list(frame.dropna(subset="step_time")["exposed.stalled"]) == [
        item["exposed"]["stalled"] for item in expected if not item["failure"]
    ]
    assert frame.groupby("name")["step_time"].count().to_dict() == {"zero1": 2, "zero3": 2}
