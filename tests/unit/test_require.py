"""`zerosim require` as a user meets it: table, JSON, picture, mistakes."""

import json

import pytest

from simulator.readings.plots import curves_figure
from simulator.require import default_knobs, goal, knob, require
from simulator.world.scenario import load_scenario
from tests.command import zerosim

BANDWIDTH = ("--knob", "link.bandwidth")


def row_of(done, knob):
    return next(line.split() for line in done.stdout.splitlines() if line.startswith(f" {knob} "))


def test_the_table_says_what_is_enough_and_what_is_not(small):
    done = zerosim("require", small, "--step-time", "16.5 s", "--variant", "zero0")
    assert done.returncode == 0, done.stderr
    assert "zero0: step time at most 16.5 s, now 17.5 s" in done.stdout
    _, now, _, value, _, reached, _, below, _, fails, _ = row_of(done, "link.bandwidth")
    assert (now, float(below) < 8 / 7 < float(value)) == ("1", True)  # tests/by_hand/test_require.py
    assert float(reached) < 16.5 < float(fails)
    assert "micro_batch" not in done.stdout  # another step


def test_what_cannot_be_reached_is_told_with_its_reason(small):
    done = zerosim("require", small, "--exposed", "0%", "--variant", "zero0", *BANDWIDTH)
    row = " ".join(row_of(done, "link.bandwidth"))
    assert "not alone the floor is 0.2227 % at 64 GB/s because of bandwidth 31.2 ms" in row


def test_json_has_every_trial(small):
    found = json.loads(zerosim("require", small, "--step-time", "16.5 s", *BANDWIDTH, "--json").stdout)
    assert found["goal"] == {"metric": "step_time", "value": 16.5, "at_least": False}
    assert [answer["name"] for answer in found["variants"]] == ["zero0", "zero3"]
    (item,) = found["variants"][0]["requirements"]
    values = [trial["value"] for trial in item["trials"]]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (1e9 / 64, 64e9)
    place = values.index(item["value"])
    assert item["trials"][place - 1] == item["below"]
    assert [trial["met"] for trial in item["trials"]] == [False] * place + [True] * (len(values) - place)


def test_tokens_and_mfu_are_at_least(small):
    tokens, mfu = (
        json.loads(zerosim("require", small, *asked, "--variant", "zero0", *BANDWIDTH, "--json").stdout)
        for asked in (("--tokens", "0.0625"), ("--mfu", "90%"))
    )
    (item,) = tokens["variants"][0]["requirements"]
    assert tokens["goal"]["at_least"]
    assert item["below"]["reached"] < 1 / 16 <= item["reached"]  # 16 s for one token: 9.5 + 8/b
    assert item["below"]["value"] < 8e9 / 6.5 <= item["value"]
    (item,) = mfu["variants"][0]["requirements"]
    assert item["value"] is None
    assert next(iter(item["floor"]["causes"])) == "compute"


def test_the_picture_marks_the_goal(small, tmp_path):
    done = zerosim("require", small, "--exposed", "20%", "-o", tmp_path / "needed.svg")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "needed.svg").read_text()


def test_the_line_of_the_goal_is_at_its_height(small):
    asked = load_scenario(small)
    bound, variant = goal("exposed", "20%"), asked.variants[0]
    answer = require(asked, variant, bound, [knob(asked, variant, "link.bandwidth", "1..4GB/s")])
    figure = curves_figure(answer.curves["link.bandwidth"], "small", y=bound.metric.name, goal=bound.value)
    (line,) = [line for line in figure.axes[0].lines if line.get_gid() == "goal"]
    assert list(line.get_ydata()) == [20.0, 20.0]
    drawn = max(figure.axes[0].lines, key=lambda line: len(line.get_xdata()))
    assert (drawn.get_xdata()[0], drawn.get_xdata()[-1]) == (1.0, 4.0)
    assert drawn.get_ydata()[0] == pytest.approx(100 * 3.5 / 17.5)


def test_a_micro_batch_that_does_not_fit_is_no_answer():
    overrides = ["training.gradient_accumulation=1"]
    asked = load_scenario("llama-2-7b-cloud-ethernet", overrides)
    variant = asked.variant("zero3")
    turned = knob(asked, variant, "micro_batch", "8..40")
    (item,) = require(asked, variant, goal("exposed", "10%"), [turned]).requirements
    assert item.value == 8
    assert item.lost.value == item.until + 1
    assert item.lost.problem == "does not fit in memory"
    assert item.lost.reached < 0.1
    turned = knob(asked, variant, "micro_batch", "40..48")
    (item,) = require(asked, variant, goal("exposed", "10%"), [turned]).requirements
    assert (item.value, item.floor) == (None, None)


def test_smaller_domains_have_more_hosts(tmp_path):
    asked = load_scenario("llama-2-7b-cloud-ethernet", ["topology.hosts=2"])
    variant = asked.variant("zero3 hpZ")
    turned = knob(asked, variant, "accelerators_per_host", None)
    assert turned.first == (1, 2, 4, 8)
    changed, there = turned.at(4.0)
    assert (there.place.cluster.hosts, there.place.cluster.accelerators_per_host) == (4, 4)
    assert changed.mesh.ranks == asked.mesh.ranks


def test_knobs_are_those_of_the_variant():
    asked = load_scenario("llama-2-7b-frameworks")
    found = {
        variant.name: {item.name for item in default_knobs(asked, variant, same_work=True)}
        for variant in asked.variants
    }
    for name, knobs in found.items():
        assert {"nvlink.bandwidth", "network.bandwidth", "accelerators_per_host"} <= knobs, name
        assert not {"micro_batch", "gradient_accumulation"} & knobs
    assert any("stage3_prefetch_bucket_size" in knobs for knobs in found.values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--exposed, --step-time, --tokens, --mfu: expected one goal"),
        (["--exposed", "5%", "--mfu", "40%"], "expected one goal"),
        (["--exposed", "5"], "--exposed: '5': the unit is missing; write it like '5 %'"),
        (["--step-time", "3"], "--step-time: '3': the unit is missing; write it like '4 us'"),
        (["--tokens", "many"], "--tokens: 'many': expected tokens per second and GPU; write it like 1500"),
        (["--exposed", "5%", "--knob", "lnk.bandwidth"], "--knob lnk.bandwidth: its values are not known; add --range"),
        (["--exposed", "5%", "--knob", "prefech"], "--knob: 'prefech': unknown knob; did you mean 'prefetch'?"),
        (["--exposed", "5%", "--range", "1..4"], "--range: '1..4': is of one knob; say of which: --knob NAME"),
        (["--exposed", "5%", *BANDWIDTH, "--range", "1..4"], "a bare number has no unit"),
        (["--exposed", "5%", *BANDWIDTH, "--range", "4..1GB/s"], "the first number is not smaller"),
        (["--exposed", "5%", "--knob", "micro_batch", "--range", "1..4GB"], "not a range of whole numbers"),
        (["--exposed", "5%", "--knob", "a.b", "--range", "1..4"], "unknown key"),
        (["--exposed", "5%", "--knob", "training.precision", "--range", "0.0..1.5"], "starts at zero or below"),
    ],
)
def test_mistakes_are_told_on_one_line(small, arguments, said):
    done = zerosim("require", small, "--variant", "zero3", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
