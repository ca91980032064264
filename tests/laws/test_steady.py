"""A long step that is read off short ones is the long step."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.stage import stage
from simulator.errors import InputError
from simulator.explore import play_staged, run_variant
from simulator.played import play
from simulator.readings.report import summarise
from simulator.schedules.record import record
from simulator.steady import extended
from simulator.world.scenario import load_scenario
from tests.command import ROOT
from tests.laws import strategies, test_frameworks
from tests.laws.test_crowd import agrees
from tests.laws.test_uneven import uneven

LONG = st.integers(24, 40)

SMALL = strategies.topologies(st.sampled_from([1, 2, 4]), st.integers(1, 3))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(test_frameworks.LLAMA))
    return str(path)


def is_the_long_step(asked):
    """Whether the step was read off shorter ones; if so, every reading is that of the step in full."""
    variant = asked.variants[0]
    read = extended(asked, variant)
    if read is None:
        return False
    found = summarise(asked, variant, read.step, read.traffic, read.ideal_step)
    whole = play_staged(asked, variant, stage(asked, record(asked, variant))).result
    agrees(found.as_json(), whole.as_json(), whole.step_time)
    return True


def long(sections, micro_batches):
    return {**sections, "training": {**sections["training"], "gradient_accumulation": micro_batches}}


def test_textbook_schedules(scenario):
    read_off = []

    @settings(max_examples=60)
    @given(strategies.scenarios(SMALL), LONG, st.data())
    def holds(sections, micro_batches, data):
        entries = data.draw(uneven(sections["topology"])) if data.draw(st.booleans()) else []
        read_off.append(is_the_long_step(scenario(**{**long(sections, micro_batches), "uneven": entries})))

    holds()
    assert read_off.count(True) >= 20


def test_schedules_of_frameworks(scenario, llama):
    read_off = []

    @settings(max_examples=60)
    @given(test_frameworks.scenarios(SMALL), LONG)
    def holds(sections, micro_batches):
        if sections["model"]["layers"] is None:
            sections = {**sections, "model": {"sequence_length": 64, "config": llama}}
        try:
            read_off.append(is_the_long_step(scenario(**long(sections, micro_batches))))
        except InputError:
            return

    holds()
    assert read_off.count(True) >= 20


@pytest.mark.parametrize("name", ["zero3 qgZ", "zero++"])
def test_the_last_micro_batch_may_share_links_with_the_end_of_the_step(name):
    """Then the one before it is the one that repeats."""
    asked = load_scenario(ROOT / "scenarios/llama-2-13b-two-hosts.yaml", ["training.gradient_accumulation=24"])
    (variant,) = (item for item in asked.variants if item.name == name)
    assert is_the_long_step(replace(asked, variants=(variant,)))


def test_readings_that_lie_on_no_line_are_not_extended(scenario, monkeypatch):
    """The second check: whatever the state says, one reading that bends is enough."""
    asked = scenario(training={"micro_batch": 1, "gradient_accumulation": 64})
    variant = asked.variants[0]
    assert extended(asked, variant) is not None

    def bent(scenario, variant, ready):
        played = play(scenario, variant, ready)
        if scenario.training.gradient_accumulation % 2:
            return played
        step = played.read.step
        totals = replace(step.totals, uncovered=step.totals.uncovered + 1e-6 * step.time)
        return replace(played, read=played.read._replace(step=replace(step, totals=totals)))

    monkeypatch.setattr("simulator.steady.play", bent)
    assert extended(asked, variant) is None


def test_an_outcome_shows_the_whole_step(scenario):
    asked = scenario(training={"micro_batch": 1, "gradient_accumulation": 64})
    variant = asked.variants[0]
    assert extended(asked, variant) is not None
    outcome = run_variant(asked, variant)
    assert {span.launch.micro_batch for span in outcome.timeline.classes[0].spans} == set(range(64))
    assert outcome.timeline.step_time == pytest.approx(outcome.result.step_time, rel=1e-9)
    assert outcome.reading.stalled == pytest.approx(outcome.result.exposed["stalled"], rel=1e-9)


@pytest.mark.parametrize("reason", [
    {"jitter": {"kernel": 0.1}},
    {"topology": {"cluster": "flat", "hosts": 2, "faults": [{"link": "link", "remaining": 0.5, "at": "9 s"}]}},
    {"training": {"micro_batch": 1, "gradient_accumulation": 8}},
])  # fmt: skip
def test_steps_that_are_short_or_not_periodic_are_simulated(scenario, reason):
    asked = scenario(**{"training": {"micro_batch": 1, "gradient_accumulation": 64}, **reason})
    assert extended(asked, asked.variants[0]) is None


def test_numbers_of_micro_batches_follow_the_period_of_uneven_ones(scenario):
    """Long and short in turn: 63 micro-batches end with a short one, and so do those that are simulated."""
    asked = scenario(
        training={"micro_batch": 1, "gradient_accumulation": 63}, uneven=[{"host": 0, "micro_batches": [1, 2]}]
    )
    read = extended(asked, asked.variants[0])
    assert read is not None
    whole = run_variant(replace(asked, jitter=None), asked.variants[0]).timeline
    assert read.step.time == pytest.approx(whole.step_time, rel=1e-9)
