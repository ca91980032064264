"""`zerosim whatif` as a user meets it: table, JSON, picture, mistakes; and what `zerosim run --detail` adds."""

import json

import pytest

from simulator.readings.plots import tornado_figure
from tests.command import zerosim
from tests.conftest import SMALL


@pytest.fixture
def answers(small):
    return json.loads(zerosim("whatif", small, "--json").stdout)["variants"]


def test_the_table_says_what_is_gained_and_what_was_foreseen(small):
    done = zerosim("whatif", small, "--variant", "zero0")
    assert done.returncode == 0, done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith(" link bandwidth"))
    # 8 of 17.5 s are on the link; at twice its bandwidth 2.5 s are saved, not 4
    assert row[-5:] == ["2500.0", "14.29", "no,", "2x:", "4000.0"]
    assert row[5:7] == ["8000.0", "8000.0"]
    assert "hardly depends on" in done.stdout


def test_resources_come_with_most_gain_first(answers):
    assert [answer["name"] for answer in answers] == ["zero0", "zero3"]
    for answer in answers:
        gains = [item["gains"][-1]["gain"] for item in answer["sensitivities"]]
        assert gains == sorted(gains, reverse=True)
        assert [gain["factor"] for gain in answer["sensitivities"][0]["gains"]] == [1.1, 2.0]
        for item in answer["sensitivities"]:
            for gain in item["gains"]:
                assert gain["step_time"] + gain["gain"] == pytest.approx(answer["step_time"])


def test_the_picture_has_a_panel_per_variant_and_bars_as_long_as_the_gains(answers):
    figure = tornado_figure(answers, "title")
    assert figure.get_suptitle() == "title"
    assert [axes.get_title(loc="left").split(":")[0] for axes in figure.axes] == ["zero0", "zero3"]
    assert figure.axes[0].get_title(loc="left") == "zero0: 17.5 s"
    assert figure.axes[-1].get_xlabel() == "gain [% of the step]"
    axes = figure.axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    row = next(-number for number, name in enumerate(names) if name.startswith("link bandwidth"))
    widths = [bar.get_width() for bar in axes.patches if bar.get_y() + bar.get_height() / 2 == pytest.approx(row)]
    assert max(widths) == pytest.approx(100 * 2.5 / 17.5)
    markers = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
    assert pytest.approx(100 * 4 / 17.5) in markers


def test_the_picture_goes_where_asked(small, tmp_path):
    done = zerosim("whatif", small, "-o", tmp_path / "gains.svg")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "gains.svg").read_text()


def test_a_variant_that_cannot_run_is_told_and_the_others_are_answered(small):
    twice = SMALL.replace("micro_batch: 1", "micro_batch: 1, gradient_accumulation: 2")
    small.write_text(twice + "  - {name: fails, ddp: {static_graph: true, no_sync: true}}\n")
    found = json.loads(zerosim("whatif", small, "--json").stdout)
    assert [answer["name"] for answer in found["variants"]] == ["zero0", "zero3"]
    assert "fails in PyTorch" in found["failures"]["fails"]
    assert "fails cannot run: static_graph" in zerosim("whatif", small).stdout
    refused = zerosim("whatif", small, "--variant", "fails")
    assert refused.returncode == 2
    assert refused.stderr.startswith("zerosim: fails cannot run: static_graph")


def test_detail_prints_the_critical_path(small):
    done = zerosim("run", small, "--variant", "zero0", "--detail")
    assert "Critical path of zero0" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["forward", "forward", "compute", "4", "8000.00", "45.7"] in lines
    assert ["backward", "all", "reduce", "bandwidth", "link", "4", "8000.00", "45.7"] in lines
    assert "Critical path" not in zerosim("run", small, "--variant", "zero0").stdout


def test_json_has_the_critical_path(small):
    result = json.loads(zerosim("run", small, "--variant", "zero0", "--json", "--detail").stdout)["results"][0]
    path = result["critical_path"]
    assert path["by_kind"] == {
        "compute": 9.5, "slowed": 0.0, "copy": 0.0, "bandwidth": 8.0, "latency": 0.0, "contention": 0.0, "host": 0.0,
        "skew": 0.0,
    }  # fmt: skip
    assert path["by_link"] == {"link": 8.0}
    assert sum(result["exposed_by_layer"].values()) == result["exposed"]["stalled"]
    assert sum(result["exposed_by_link"].values()) == result["exposed"]["stalled"]


def test_without_detail_json_says_no_more_than_a_sweep(small):
    result = json.loads(zerosim("run", small, "--variant", "zero0", "--json").stdout)["results"][0]
    assert not {"critical_path", "exposed_by_layer", "exposed_by_link"} & result.keys()
