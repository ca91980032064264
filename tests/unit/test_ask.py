"""Questions from Python: the numbers of the command, tables that survive any name, frames with units, figures."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from rich.table import Table

from simulator import ask
from simulator.answers.job import load_job
from simulator.errors import InputError, UnknownNameError
from simulator.readings.rendered import html
from simulator.world.scenario import load_scenario
from tests.command import ROOT, zerosim
from tests.conftest import content

NAME = "<b>zero3</b> [/x] & [red]"
SMALL = content(name="<i>test</i>", variants=[{"name": NAME, "zero_stage": 3}, {"name": "zero0", "zero_stage": 0}])
JOB = "llama-2-7b-one-host"
KEPT = ("stage", "reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
        "stage3_max_live_parameters", "stage3_max_reuse_distance", "timers.throughput.synchronized",
        "micro_batch x accumulation")  # fmt: skip
"""Of tuning, so that little is tried."""


class Page(HTMLParser):
    """Reads tables back: captions, and cells by row."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.captions, self.rows, self.words = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.words = self.words + "\n" if tag == "br" else self.words if tag == "strong" else ""
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data):
        self.words += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[-1].append(self.words)
        elif tag == "caption":
            self.captions.append(self.words)


@pytest.fixture(scope="module")
def small():
    return ask.run(SMALL)


def answers():
    run = ask.run(SMALL)
    yield pytest.param(run, id="run")
    yield pytest.param(ask.compare(run, ask.run(SMALL, {"topology.hosts": 4})), id="compare")
    yield pytest.param(ask.whatif(SMALL), id="whatif")
    yield pytest.param(ask.require(SMALL, exposed="20%", knobs="link.bandwidth"), id="require")
    yield pytest.param(ask.sweep(SMALL, {"topology.hosts": [2, 4]}), id="sweep")
    yield pytest.param(ask.tune(SMALL, keep=KEPT), id="tune")


# the same as the command


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["run", JOB, "--detail"], lambda: ask.run(JOB, detail=True)),
        (["run", JOB, "--set", "topology.hosts=2", "--variant", "zero3"],
         lambda: ask.run(JOB, {"topology.hosts": 2}, variants="zero3")),
        (["whatif", JOB, "--variant", "zero3"], lambda: ask.whatif(JOB, variants=["zero3"])),
        (["require", JOB, "--mfu", "30%", "--variant", "zero3", "--knob", "micro_batch"],
         lambda: ask.require(load_scenario(JOB), variants="zero3", knobs="micro_batch", mfu="30%")),
        (["ladder", JOB, "--textbook"], lambda: ask.ladder(ask.job(JOB, textbook=True))),
        pytest.param(["rent", JOB, "--brief"], lambda: ask.rent(JOB, brief=True), marks=pytest.mark.slow),
        (["tune", JOB, "--workers", "1", *(f"--keep={knob}" for knob in KEPT)], lambda: ask.tune(JOB, keep=KEPT)),
    ],
    ids=["run", "changed", "whatif", "require", "ladder", "rent", "tune"],
)  # fmt: skip
def test_answers_are_what_the_command_prints(arguments, answer):
    done = zerosim(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    answered = answer()
    assert json.loads(json.dumps(answered.as_json())) == json.loads(done.stdout)
    assert zerosim(*arguments).stdout == str(answered)


def test_a_mapping_a_path_and_a_scenario_are_asked_alike(small, tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(SMALL))
    loaded = load_scenario(path)
    assert ask.run(path).results == ask.run(loaded).results == small.results
    assert ask.run(loaded, {"topology.hosts": 4}).results == ask.run(SMALL, {"topology.hosts": 4}).results
    assert loaded.raw["topology"]["hosts"] == SMALL["topology"]["hosts"] == 2


def test_a_sweep_is_the_same_in_a_file_and_in_memory(tmp_path, small):
    over = {"topology.hosts": [2, 4], "training.gradient_accumulation": "1..2"}
    swept = ask.sweep(SMALL, over, variants="zero0")
    kept = [ask.sweep(SMALL, over, variants="zero0", store=tmp_path / "kept.sqlite") for _ in range(2)]
    assert swept.results == kept[0].results == kept[1].results
    assert [item.content["simulated"] for item in (swept, *kept)] == [4, 4, 0]
    assert swept.results[0]["point"] == {"topology.hosts": 2, "training.gradient_accumulation": 1}
    assert swept.results[0]["step_time"] == small.results[1]["step_time"]


def test_runs_and_printed_results_are_compared_alike(small):
    other = ask.run(SMALL, {"topology.links.link.bandwidth": "2 GB/s"})
    compared = ask.compare(small, other, variants="zero0")
    assert compared.as_json() == ask.compare(small.as_json(), other.as_json(), variants=["zero0"]).as_json()
    frame = compared.frame().set_index("part")
    assert frame["difference"]["bandwidth"] == frame["difference"]["step"] == -1.0
    assert compared.inputs[0].key == "topology.links.link.bandwidth"


# tables


@pytest.mark.parametrize("answer", list(answers()))
def test_names_are_escaped_and_columns_have_heads(answer):
    found = answer._repr_html_()
    page = Page(found)
    assert set(page.tags) <= {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "br", "strong", "p"}
    assert not re.search(r"#[0-9a-f]{3}|rgb|(?<!-)color:(?!inherit)|background", found)
    text = "".join(page.captions) + "".join(cell for row in page.rows for cell in row)
    assert NAME in text
    assert found.count("<table") == found.count("</table>") == len(page.captions)
    assert found.count('scope="row"') == len(page.rows) - found.count("<thead>")
    assert NAME in str(answer)


def test_a_table_is_rendered_as_it_was_described():
    table = Table(title="title [bold]strong[/]")
    table.add_column("name", no_wrap=True)
    table.add_column("time\n\\[s]", justify="right")
    table.add_row("a < b", "1.5")
    table.add_row("\\[c]", "[red]no[/red]", style="bold", end_section=True)
    found = html([table, "line \\[s]"])
    page = Page(found)
    assert page.captions == ["title strong"]
    assert page.rows == [["name", "time\n[s]"], ["a < b", "1.5"], ["[c]", "no"]]
    assert "<p>line [s]</p>" in found
    assert "<strong>[c]</strong>" in found
    assert "<strong>a" not in found
    assert found.count("text-align:right") == 3
    assert '<tr style="border-bottom:1px solid">' in found


def test_the_table_of_a_run_shows_its_numbers(small):
    head, first, *_ = Page(small._repr_html_()).rows
    assert head[:4] == ["variant", "step\n[s]", "compute\n[s]", "exposed\n[s]"]
    assert first[:4] == [NAME, "27.00", "24.00", "3.000"]


# frames and figures


@pytest.mark.parametrize("answer", list(answers()))
def test_frames_have_a_row_for_each_thing_and_units_for_columns(answer):
    frame = answer.frame()
    assert len(frame) == len(list(answer.rows())) > 0
    units = frame.attrs["units"]
    assert units
    assert set(units) <= set(frame.columns)


def test_columns_of_a_run_are_dotted_keys_with_units(small):
    frame = small.frame().set_index("name")
    assert frame["exposed.stalled"][NAME] == 3.0
    units = frame.attrs["units"]
    assert (units["step_time"], units["memory.peak"], units["mfu"], units["volume.in_psi"]) == ("s", "B", "1", "Ψ")
    assert "schedule" not in units


def test_without_pandas_a_frame_says_what_to_install(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"needs pandas; install the extra: pip install 'zerosim\[pandas\]'"):
        small.frame()


def test_figures(small):
    for kind in ("exposed", "timeline", "memory"):
        assert isinstance(small.plot(kind), Figure)
    assert NAME in small.plot("timeline").get_suptitle()
    assert "zero0" in small.plot("timeline", "zero0").get_suptitle()
    assert isinstance(ask.whatif(SMALL, variants="zero0").plot(), Figure)
    needs = ask.require(SMALL, exposed="20%", variants="zero0", knobs=["link.bandwidth", "micro_batch"])
    drawn = [needs.plot(), needs.plot("micro_batch")]
    assert [figure.axes[0].get_xlabel().split(" ")[0] for figure in drawn] == ["link.bandwidth", "micro_batch"]
    swept = ask.sweep(SMALL, {"topology.hosts": [2, 4]})
    assert swept.plot(y="step_time").axes[0].get_xlabel() == "topology.hosts"


# mistakes


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (lambda: ask.run(SMALL, {"topolgy.hosts": 2}), "scenario: 'topolgy': unknown key; did you mean 'topology'?"),
        (
            lambda: ask.run(SMALL, {"name.x": 2}),
            "scenario: changes: name.x: leads into something",
        ),
        (lambda: ask.run(SMALL, variants="zero1"), "'zero1': unknown variant; did you mean 'zero0'?"),
        (lambda: ask.require(SMALL), "exposed, step_time, tokens, mfu: expected one goal"),
        (lambda: ask.require(SMALL, speed="3 s"), "'speed': unknown goal"),
        (lambda: ask.require(SMALL, exposed="5"), "exposed: '5': the unit is missing"),
        (lambda: ask.require(SMALL, exposed="5%", span="1..4 GB/s"), "span: '1..4 GB/s': is of one knob"),
        (lambda: ask.sweep(SMALL, {}), "over: nothing varies"),
        (
            lambda: ask.sweep(SMALL, {"topology.hosts": "4..2"}),
            "over topology.hosts: '4..2': the first number",
        ),
    ],
)
def test_mistakes_name_key_value_and_remedy(question, said):
    with pytest.raises(InputError, match=re.escape(said)):
        question()


def test_pictures_and_names_that_are_not_there(small):
    with pytest.raises(UnknownNameError, match="unknown figure; did you mean 'timeline'"):
        small.plot("timelin")
    with pytest.raises(InputError, match="nothing is random"):
        small.plot("jitter")
    with pytest.raises(UnknownNameError, match="unknown variant"):
        small.plot("memory", "zero2")
    with pytest.raises(InputError, match="no two variants to compare"):
        ask.compare(small, small, variants="none")
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        ask.walk  # noqa: B018


# jobs


def test_a_job_of_a_mapping_is_that_of_the_file():
    job = ask.job(JOB, {"topology.hosts": 2}, variant="zero3")
    loaded = load_job(JOB, ["topology.hosts=2"], "zero3", textbook=False)
    assert (job.content, job.config, job.variant.name) == (loaded.content, loaded.config, "zero3")
    assert ask.ladder(job).chosen == ask.ladder(JOB, {"topology.hosts": 2}).chosen


def test_rungs_are_rows():
    ladder = ask.ladder(JOB)
    frame = ladder.frame()
    assert list(frame[frame["chosen"]]["rung"]) == [ladder.chosen]
    assert list(frame["rung"]) == [rung["name"] for rung in ladder.content["rungs"]]


def test_one_question_loads_none_of_the_others():
    """Neither does it load matplotlib or pandas."""
    script = "import sys; from simulator.ask import whatif; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "simulator.ask.gains" in loaded
    assert loaded & {"matplotlib", "pandas", "sqlite3", "simulator.sweep", "simulator.ask.renting"} == set()
