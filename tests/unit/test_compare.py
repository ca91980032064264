"""Two scenarios or results told apart."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.explore import run_variant
from simulator.readings.difference import changed, difference, pairs
from tests.command import ROOT, zerosim
from tests.laws import strategies

SCENARIO = ROOT / "scenarios/llama-2-7b-one-host.yaml"
SHORT = ("--set", "training.gradient_accumulation=1")
VARIANTS = ("ddp", "zero1", "zero2", "zero3")
SLOW = ("--with", "topology.links.nvlink.bandwidth=25 GB/s")


@settings(max_examples=40)
@given(st.lists(strategies.scenarios(), min_size=2, max_size=2))
def test_differences_of_parts_add_up_to_that_of_the_steps(scenario, sections):
    before, after = (
        run_variant(asked, asked.variants[0]).result.as_json() for asked in (scenario(**item) for item in sections)
    )
    found = difference(before, after)
    parts = sum(pair[1] - pair[0] for pair in found.parts.values())
    assert math.isclose(
        parts, found.step_time[1] - found.step_time[0], rel_tol=1e-9, abs_tol=1e-9 * sum(found.step_time)
    )
    sizes = [abs(pair[1] - pair[0]) for pair in found.parts.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_variants_are_named_in_changed_keys():
    before = {"variants": [{"name": "a", "zero_stage": 3}, {"name": "b", "zero_stage": 1}], "model": {"config": "x"}}
    after = {"variants": [{"name": "b", "zero_stage": 2}, {"name": "a", "zero_stage": 3}], "model": {"config": "x"}}
    assert [(item.key, item.before, item.after) for item in changed(before, after)] == [("variants.b.zero_stage", 1, 2)]
    assert changed(before, before) == []


def test_what_is_written_on_one_side_only():
    assert [(item.before, item.after) for item in changed({}, {"jitter": {"kernel": 0.1}})] == [(None, 0.1)]


def test_pairs_are_of_one_name_or_the_only_ones():
    a, b, c, lost = (
        {"name": name, "failure": failure} for name, failure in (("a", None), ("b", None), ("c", None), ("b", "no"))
    )
    assert pairs([a, b], [b, c]) == [(b, b)]
    assert pairs([a], [c]) == [(a, c)]
    assert pairs([a, b], [c]) == []
    assert pairs([a, b], [a, lost]) == [(a, a)]


def test_the_command_tells_inputs_and_parts():
    done = zerosim("compare", SCENARIO, SCENARIO, *SHORT, *SLOW, "--variant", "zero3", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["inputs"] == [{"key": "topology.links.nvlink.bandwidth", "before": None, "after": "25 GB/s"}]
    (found,) = content["differences"]
    assert found["step_time"][1] > found["step_time"][0]
    told = zerosim("compare", SCENARIO, SCENARIO, *SHORT, *SLOW, "--variant", "zero3").stdout
    for words in ("topology.links.nvlink.bandwidth", "zero3: the step takes +", "bandwidth [s]", "tokens/s/GPU"):
        assert words in told


def test_results_of_a_run_are_as_good_as_the_scenario(tmp_path):
    file = tmp_path / "results.json"
    file.write_text(zerosim("run", SCENARIO, *SHORT, "--json").stdout)
    done = zerosim("compare", file, SCENARIO, "--with", "training.gradient_accumulation=1", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["inputs"] == []
    assert [item["names"] for item in content["differences"]] == [[name] * 2 for name in VARIANTS]
    assert all(item["step_time"][0] == item["step_time"][1] for item in content["differences"])
    assert "The inputs are the same." in zerosim("compare", file, file).stdout


@pytest.mark.parametrize(("arguments", "words"), [
    (("nothing.json", SCENARIO), ["nothing.json", "cannot be read"]),
    (("scenarios/models/llama-2-7b.json", SCENARIO), ["llama-2-7b.json", "not results", "zerosim run"]),
    ((SCENARIO, SCENARIO, "--with", "training.micro=2"), ["micro"]),
])  # fmt: skip
def test_wrong_input_is_one_line(arguments, words):
    done = zerosim("compare", *arguments, *SHORT)
    assert done.returncode == 2, done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in words)


def test_results_cannot_be_changed(tmp_path):
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"scenario": {}, "results": []}))
    done = zerosim("compare", file, file, "--with", "topology.hosts=2")
    assert done.returncode == 2
    assert "results cannot be changed" in done.stderr
    assert "no two variants" in zerosim("compare", file, file).stderr
