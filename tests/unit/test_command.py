"""The command line as a user meets it: results, and one clear line for every mistake."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from simulator.explore import run_variant
from simulator.world.scenario import load_scenario
from simulator.world.topology.cluster import Library
from tests.command import zerosim

MAIN = "scenarios/llama-2-13b-two-hosts.yaml"
ROOT = Path(__file__).parents[2]
STAGES = ("zero2", "zero3")
KEYS = {
    "name", "schedule", "ranks", "step_time", "compute_time", "slowed_time", "host_time", "copy_time",
    "tokens_per_second_per_gpu", "mfu", "hfu", "exposed", "exposed_by_cause", "exposed_by_collective",
    "communication_time", "phases", "volume", "memory", "cost", "assumed", "failure",
}  # fmt: skip


def refused(*arguments, cwd=ROOT):
    """The one line that a mistake gets."""
    done = zerosim(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def report():
    return json.loads(zerosim("run", MAIN, "--json").stdout)


def test_json_has_the_promised_keys(report):
    assert set(report) == {"scenario", "version", "results"}
    assert [result["name"] for result in report["results"]][:4] == ["ddp", "zero1", "zero2", "zero3"]
    for result in report["results"]:
        assert set(result) >= KEYS
        assert set(result["exposed"]) == {"stalled", "uncovered", "counterfactual", "skew"}
        assert {"sent_per_rank", "intra_host_per_rank", "inter_host_per_rank", "in_psi"} <= set(result["volume"])
        assert {"peak", "fits", "items"} <= set(result["memory"])
        assert set(result["cost"]) == {"per_hour", "per_step", "per_billion_tokens", "exposed_per_step"}


def test_the_main_job_gives_the_published_volumes_and_states(report):
    results = {result["name"]: result for result in report["results"]}
    assert [results[name]["volume"]["in_psi"] for name in ("ddp", "zero1", "zero2", "zero3")] == [2, 2, 9, 24]
    assert not results["ddp"]["memory"]["fits"]
    assert results["zero1"]["memory"]["items"]["optimizer states"] == 12 * 13_015_864_320 / 16


def test_out_writes_report_figures_and_traces(tmp_path):
    done = zerosim("run", MAIN, "--variant", "zero3", "--variant", "zero2", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "exposed" in done.stdout
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    pairs = [f"{kind}-{name}.{suffix}" for kind, suffix in (("timeline", "png"), ("trace", "json")) for name in STAGES]
    assert names == ["exposed.png", "report.json", *pairs]
    json.loads((tmp_path / "out" / "trace-zero3.json").read_text())


def test_out_draws_random_times_if_there_are_any(tmp_path):
    small = ("--set", "training.gradient_accumulation=1", "--set", "jitter={rank: 0.1, replications: 2}")
    done = zerosim("run", MAIN, "--variant", "zero1", *small, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "jitter.png").is_file()
    assert zerosim("plot", MAIN, "--kind", "jitter", "--variant", "zero1", *small, "-o", tmp_path / "j.png").stdout


def test_a_picture_of_jitter_needs_jitter(tmp_path):
    done = zerosim("plot", MAIN, "--kind", "jitter", "-o", tmp_path / "jitter.png")
    assert done.returncode == 2
    assert "nothing is random; --set jitter.kernel=0.02" in done.stderr


@pytest.mark.parametrize(("command", "expected"), [
    (("show", MAIN), "nccl"),
    (("volume", MAIN), "forward_all_gather"),
    (("memory", MAIN, "--variant", "zero3"), "gathered weights"),
    (("program", MAIN, "--variant", "zero1"), "parameter_all_gather"),
    (("topology", "list"), "dgx-h100"),
    (("topology", "show", "dgx-h100"), "nvlink"),
    (("--version",), "0."),
])  # fmt: skip
def test_commands_print_what_they_promise(command, expected):
    done = zerosim(*command)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize("command", ["show", "volume", "memory", "program"])
def test_tables_are_also_json(command):
    assert json.loads(zerosim(command, MAIN, "--variant", "zero2", "--json").stdout)


def test_pictures_and_traces_go_where_asked(tmp_path):
    for arguments in (
        ("trace", MAIN, "--variant", "zero3", "-o", "trace.json"),
        ("plot", MAIN, "--variant", "zero3", "--kind", "timeline", "-o", "timeline.svg"),
        ("plot", MAIN, "--variant", "zero3", "--kind", "memory", "-o", "memory.png"),
        ("plot", MAIN, "--kind", "topology", "-o", "cluster.png"),
        ("topology", "draw", "dgx-h100", "-o", "dgx.png"),
    ):
        place = tmp_path / arguments[-1]
        done = zerosim(*arguments[:-1], place)
        assert done.returncode == 0, done.stderr
        assert place.stat().st_size > 1000


def test_memory_over_time_contains_the_peak():
    memory = json.loads(zerosim("memory", MAIN, "--variant", "zero3", "--json").stdout)["zero3"]
    curve = memory["timeline"]
    assert max(curve["total"]) == pytest.approx(memory["peak"])
    assert memory["peak_at"] in curve["time"]
    assert {len(item) for item in (curve["time"], curve["total"], *curve["items"].values())} == {len(curve["time"])}


def test_another_topology_by_name_and_another_key():
    done = zerosim("run", MAIN, "--variant", "zero3", "--topology", "dgx-h100", "--set", "topology.hosts=4", "--json")
    (result,) = json.loads(done.stdout)["results"]
    assert result["ranks"] == 32


def test_a_shipped_scenario_is_found_from_anywhere(tmp_path):
    done = zerosim("run", "llama-2-13b-two-hosts", "--variant", "zero1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


GOOD = """
name: small
model: {sequence_length: 16, layers: [{name: layer, count: 2, parameters: 1e6}]}
training: {micro_batch: 1}
topology: {cluster: dgx-a100-80gb, hosts: 2}
variants: [{name: zero3, zero_stage: 3}]
"""

MISTAKES = {
    "unknown key": ("micro_batch: 1", "micro_bach: 1", ["training", "'micro_bach'", "did you mean 'micro_batch'?"]),
    "unknown section": ("training:", "trainning:", ["unknown key", "did you mean 'training'?"]),
    "micro-batch of zero": ("micro_batch: 1", "micro_batch: 0", ["training.micro_batch", "0", ">= 1"]),
    "micro-batch in words": ("micro_batch: 1", "micro_batch: one", ["training.micro_batch", "int"]),
    "missing key": ("training: {micro_batch: 1}", "", ["'training' is missing"]),
    "missing config": ("layers: [{name: layer, count: 2, parameters: 1e6}]", "config: nowhere.json", ["nowhere.json"]),
    "empty model": ("[{name: layer, count: 2, parameters: 1e6}]", "[]", ["the model is empty"]),
    "layers without parameters": ("parameters: 1e6", "parameters: 0", ["the model is empty"]),
    "NaN": ("parameters: 1e6", "parameters: .nan", ["parameters", "not a finite number"]),
    "infinity": ("parameters: 1e6", "parameters: .inf", ["parameters", "not a finite number"]),
    "bare number for a quantity": (
        "parameters: 1e6", "parameters: 1e6, forward_time: 3", ["forward_time", "no unit", "'4 us'"]
    ),
    "wrong unit": ("parameters: 1e6", "parameters: 1e6, forward_time: 3 GB", ["forward_time", "3 GB", "'4 us'"]),
    "NaN with a unit": ("parameters: 1e6", "parameters: 1e6, forward_time: nan s", ["forward_time", "finite"]),
    "unknown cluster": ("dgx-a100-80gb", "dgx-a100-80g", ["did you mean 'dgx-a100-80gb'?"]),
    "unknown link": ("hosts: 2", "hosts: 2, links: {nvlik: {latency: 1 us}}", ["did you mean 'nvlink'?"]),
    "zero bandwidth": ("hosts: 2", "hosts: 2, links: {nvlink: {bandwidth: 0 GB/s}}", ["above zero", "Gbit/s"]),
    "more GPUs than a host has": ("hosts: 2", "hosts: 2, accelerators_per_host: 9", ["9", "use 1 to 8"]),
    "unknown algorithm": ("hosts: 2", "hosts: 2, algorithm: rign", ["did you mean 'ring'?"]),
    "group that does not divide": (
        "zero_stage: 3", "zero_stage: 3, zero_hpz_partition_size: 3", ["zero_hpz_partition_size", "3", "16"]
    ),
    "ZeRO++ without stage 3": (
        "zero_stage: 3", "zero_stage: 2, zero_quantized_weights: true", ["zero_quantized_weights", "stage 3"]
    ),
    "stage 4": ("zero_stage: 3", "zero_stage: 4", ["zero_stage", "4", "<= 3"]),
    "no stage": ("zero_stage: 3", "prefetch: 1", ["zero_stage"]),
    "unknown schedule": ("zero_stage: 3", "zero_stage: 3, schedule: textbok", ["did you mean 'textbook'?"]),
    "names twice": (
        "[{name: zero3, zero_stage: 3}]", "[{name: a, zero_stage: 3}, {name: a, zero_stage: 2}]", ["'a'", "twice"]
    ),
    "layers of one name": (
        "[{name: layer, count: 2, parameters: 1e6}]",
        "[{name: a, parameters: 1e6}, {name: a, parameters: 1e6}]",
        ["'a'", "twice"],
    ),
    "no variants": ("[{name: zero3, zero_stage: 3}]", "[]", ["variants"]),
    "a key twice": ("training:", "name: again\ntraining:", ["'name'", "twice"]),
    "no mapping": (GOOD, "- a\n- b\n", ["expected a mapping", "list"]),
    "nothing": (GOOD, "", ["expected a mapping", "nothing"]),
    "not YAML": (GOOD, "a: [1, 2", ["not valid YAML"]),
    "unknown key of DeepSpeed": (
        "zero_stage: 3", "deepspeed: {zero_optimization: {stag: 3}}, schedule: textbook", ["did you mean 'stage'?"]
    ),
    "contradicting batch": (
        "zero_stage: 3",
        "deepspeed: {train_micro_batch_size_per_gpu: 7}, schedule: textbook",
        ["train_micro_batch_size_per_gpu", "7", "the scenario says 1"],
    ),
    "more positions than the model has": (
        "sequence_length: 16, layers: [{name: layer, count: 2, parameters: 1e6}]",
        "sequence_length: 2048, config: models/gpt2-xl.json",
        ["model.sequence_length", "2048", "1024"],
    ),
    "precision that the GPU lacks": ("hosts: 2", "hosts: 2, accelerator: v100-sxm-32gb", ["bf16", "v100-sxm-32gb"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_it(mistake, tmp_path):
    right, wrong, expected = MISTAKES[mistake]
    path = tmp_path / "scenario.yaml"
    path.write_text(GOOD.replace(right, wrong))
    out = tmp_path / "out"
    line = refused("run", path, "--out", out)
    for part in expected:
        assert part in line, line
    assert not out.exists()


def test_the_good_scenario_of_these_tests_is_good(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(GOOD)
    assert zerosim("run", path, "--json").returncode == 0


@pytest.mark.parametrize(("arguments", "expected"), [
    (("run", "nowhere.yaml"), "no such file"),
    (("run", MAIN, "--variant", "zero4"), "unknown variant"),
    (("run", MAIN, "--set", "topology.hosts"), "KEY=VALUE"),
    (("run", MAIN, "--set", "topology.hosts=zero"), "topology.hosts"),
    (("run", MAIN, "--set", "topology.hosts.more=1"), "not a mapping"),
    (("run", MAIN, "--set", "uneven.0.slowdown=2"), "uneven"),
    (("run", MAIN, "--set", "variants.99.prefetch=2"), "not a mapping"),
    (("run", MAIN, "--set", "topology.links.network.bandwidth=100"), "topology.links.network.bandwidth"),
    (("trace", MAIN, "-o", "nowhere/trace.json"), "nowhere"),
    (("topology", "show", "dgx-h10"), "did you mean 'dgx-h100'?"),
    (("run",), "Missing argument 'SCENARIO'"),
    (("runn", MAIN), "No such command 'runn'"),
    (("run", MAIN, "--sett", "a=b"), "Did you mean '--set'?"),
    (("plot", MAIN, "-o", "nowhere/plot.png"), "no such folder"),
])  # fmt: skip
def test_wrong_arguments_are_one_line_too(arguments, expected):
    assert expected in refused(*arguments)


def test_a_picture_of_an_unknown_format_is_refused_before_any_work():
    done = zerosim("plot", MAIN, "-o", "picture.foo")
    assert done.returncode == 2
    assert "expected a name that ends in .png, .svg, .pdf" in done.stderr


def test_a_variant_can_be_changed_by_its_name():
    base = json.loads(zerosim("run", MAIN, "--variant", "zero3", "--json").stdout)["results"]
    deeper = json.loads(
        zerosim("run", MAIN, "--variant", "zero3", "--set", "variants.zero3.prefetch=0", "--json").stdout
    )["results"]
    assert deeper[0]["exposed"]["stalled"] > base[0]["exposed"]["stalled"]


def test_an_entry_of_a_list_can_be_changed_by_its_number():
    entries = ["uneven=[{host: 0}, {host: 1, slowdown: 3}]", "uneven.1.slowdown=2.5", "variants.0.name=first"]
    asked = load_scenario(MAIN, entries)
    assert [item.pace.kernels for item in asked.uneven] == [1, 2.5]
    assert asked.variants[0].name == "first"


def test_two_ranks_without_a_route_are_an_input_error(tmp_path):
    """A cluster whose hosts are not joined."""
    source = (ROOT / "topologies" / "flat.yaml").read_text()
    (tmp_path / "islands.yaml").write_text(
        source.replace("per: cluster", "per: host").replace("name: flat", "name: islands")
    )
    path = tmp_path / "scenario.yaml"
    path.write_text(GOOD.replace("dgx-a100-80gb", "islands.yaml"))
    assert "no route from device 0 of host 0 to device 0 of host 1" in refused("run", path)


def test_an_unwritable_folder_is_told_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    line = refused("run", MAIN, "--variant", "zero1", "--out", tmp_path / "file" / "out")
    assert "cannot be written" in line


@pytest.mark.parametrize("name", get_args(Library))
def test_every_library_that_a_scenario_may_name_can_be_run(name):
    asked = load_scenario(MAIN, [f"topology.algorithm={name}"])
    assert run_variant(asked, asked.variants[0]).result.step_time > 0


def test_the_command_runs_as_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-m", "simulator.cli", "run", MAIN, "--variant", "zero1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar in a pipe
    assert json.loads(done.stdout)["results"]


HEEDS_CTRL_C = """
import signal
from simulator.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
"""The command, though a shell that runs the tests in the background lets its children ignore Ctrl-C."""


def test_ctrl_c_leaves_no_half_written_file(tmp_path):
    """Interrupted at some moment of its work, the command leaves whole files or none, and says so."""
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", HEEDS_CTRL_C, "run", MAIN, "--out", str(out)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and not out.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "zerosim: interrupted"
    for path in out.iterdir():
        assert path.suffix in {".json", ".png"}, path
        if path.suffix == ".json":
            json.loads(path.read_text())


def test_all_ranks_are_drawn_and_traced_too(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(GOOD + "run: {ranks: all}\n")
    done = zerosim("run", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "out" / "trace-zero3.json").read_text())
    assert len({event["pid"] for event in trace["traceEvents"]}) == 16


@pytest.fixture
def refusing(tmp_path):
    """PyTorch refuses static_graph under no_sync(), the other variant runs."""
    text = (ROOT / "scenarios/llama-2-7b-frameworks.yaml").read_text().partition("variants:")[0]
    path = tmp_path / "refusing.yaml"
    path.write_text(
        f"{text}variants: [{{name: a, ddp: {{static_graph: true, no_sync: true}}}}, {{name: b, ddp: {{}}}}]"
    )
    (tmp_path / "models").symlink_to(ROOT / "scenarios/models")
    return path


def test_a_variant_that_cannot_run_is_a_result_with_a_reason(refusing, tmp_path):
    fails, runs = json.loads(zerosim("run", refusing, "--json").stdout)["results"]
    assert "fails in PyTorch" in fails["failure"]
    assert set(fails) == set(runs)
    assert fails["step_time"] is None
    assert runs["failure"] is None
    for command in ("run", "memory"):
        shown = " ".join(zerosim(command, refusing).stdout.split())
        assert "a cannot run: static_graph: fails in PyTorch" in shown
    assert json.loads(zerosim("memory", refusing, "--json").stdout)["a"] is None
    done = zerosim("run", refusing, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "exposed.png").exists()


def test_nothing_that_can_run_is_an_error(refusing):
    assert "a cannot run: static_graph: fails in PyTorch" in refused("run", refusing, "--variant", "a")
