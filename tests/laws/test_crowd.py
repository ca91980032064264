"""Many variants at once have the results that each has alone."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.stage import stage
from simulator.crowd import FEWEST, Crowd
from simulator.errors import BrokenLawError, InputError
from simulator.explore import play_staged, run_variant
from simulator.readings.report import Result
from simulator.schedules.record import Recorder, record
from simulator.steady import shortened
from tests.laws import strategies, test_frameworks

MOST = 6

CHANGES = {
    ("topology", "hosts"): (1, 2, 3, 4),
    ("training", "micro_batch"): (1, 2, 3),
    ("training", "activation_checkpointing"): ("none", "full"),
    ("model", "sequence_length"): (64, 128),
    ("topology", "accelerator"): ("a100-sxm-80gb", "h100-sxm-80gb"),
    ("compute", "overlap_slowdown"): (1.0, 1.5),
    ("compute", "attention"): ("flash", "naive"),
    ("prices", "per_gpu_hour"): ("1 US$", "3 US$"),
}

LATENCIES = ("0 us", "3 us", "20 us")

SEEDS = st.integers(0, 2**32)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(test_frameworks.LLAMA))
    return str(path)


def varied(chance, sections):
    """The same scenario with other values here and there."""
    changed = {name: dict(section) for name, section in sections.items() if isinstance(section, dict)}
    for (section, key), values in CHANGES.items():
        if chance.random() < 0.3:
            changed.setdefault(section, {})[key] = chance.choice(values)
    links = changed["topology"]["links"]
    changed["topology"]["links"] = {name: {**link, "latency": chance.choice(LATENCIES)} for name, link in links.items()}
    return {**sections, **changed}


def alone(asked):
    try:
        return run_variant(asked, asked.variants[0]).result
    except InputError as error:
        return error


def is_the_same(found, expected):
    if isinstance(expected, InputError):
        assert isinstance(found, InputError)
        assert str(found) == str(expected)
        return
    assert isinstance(found, Result), found
    agrees(found.as_json(), expected.as_json(), expected.step_time)


def agrees(found, expected, step, key=""):
    """Times may differ by rounding, and so may what is derived from them."""
    if isinstance(expected, dict):
        for name in {**found, **expected}:
            agrees(found.get(name, 0.0), expected.get(name, 0.0), step, name)
    elif isinstance(expected, tuple):
        for some, other in zip(found, expected, strict=True):
            agrees(some, other, step, key)
    elif isinstance(expected, float):
        # a share of a communication that may be a tiny part of the step
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-6 if key == "hidden" else 1e-9 * step), key
    else:
        assert found == expected, key


def scenarios_of(seed, scenario, sections, llama):
    made, chance = [], Random(seed)
    if sections["model"]["layers"] is None:
        sections = {**sections, "model": {"sequence_length": 64, "config": llama}}
    for changed in [sections, *(varied(chance, sections) for _ in range(MOST - 1))]:
        try:
            made.append(scenario(**changed))
        except InputError:
            continue
    return made


class Strict(Crowd):
    """Lets the engine hide nothing that is wrong with a batch, and counts what ran side by side."""

    def __init__(self):
        super().__init__(fewest=1)
        self.side_by_side = 0

    def _together(self, key, members):
        self.side_by_side += len(members)
        return self._side_by_side(key, members)


def check(seed, scenario, sections, llama):
    """Return how many ran side by side."""
    asked, crowd = scenarios_of(seed, scenario, sections, llama), Strict()
    found = crowd.run((each, each.variants[0]) for each in asked)
    for result, each in zip(found, asked, strict=True):
        is_the_same(result, alone(each))
    return crowd.side_by_side


def no_batch(*_):
    raise BrokenLawError("one lane spoils all")


def test_what_is_wrong_with_a_batch_is_left_to_the_engine(scenario, monkeypatch):
    asked = [scenario(training={"micro_batch": number}) for number in range(1, 2 + FEWEST)]
    monkeypatch.setattr("simulator.crowd.steps", no_batch)
    found = Crowd().run((each, each.variants[0]) for each in asked)
    assert found == [alone(each) for each in asked]


def test_ranks_that_all_have_uneven_micro_batches(scenario):
    """The program that runs has other operations for each of them, so it is not the one that was recorded."""
    paces = [1.0], [2.0], [1.0, 2.0], [1.0, 3.0], [2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 2.0, 2.0], [2.0, 2.0, 1.0]
    training = {"micro_batch": 1, "gradient_accumulation": 3}
    asked = [scenario(training=training, uneven=[{"hosts": 2, "micro_batches": pace}]) for pace in paces]
    for result, each in zip(Strict().run((each, each.variants[0]) for each in asked), asked, strict=True):
        is_the_same(result, alone(each))


def test_textbook_schedules_beside_each_other(scenario):
    side_by_side = []

    @settings(max_examples=40)
    @given(strategies.scenarios(), SEEDS)
    def holds(sections, seed):
        side_by_side.append(check(seed, scenario, sections, None))

    holds()
    assert sum(side_by_side) >= 150


def test_frameworks_beside_each_other(scenario, llama):
    side_by_side = []

    @settings(max_examples=60)
    @given(test_frameworks.scenarios(), SEEDS)
    def holds(sections, seed):
        side_by_side.append(check(seed, scenario, sections, llama))

    holds()
    assert sum(side_by_side) >= 150


def whole(asked):
    """The step itself, not read off shorter ones."""
    variant = asked.variants[0]
    asked = asked.at(variant)
    return play_staged(asked, variant, stage(asked, record(asked, variant))).result


def test_long_steps_beside_each_other(scenario, llama):
    """Read off short ones, which run side by side: three for each, and more where those are not periodic."""
    side_by_side = []

    @settings(max_examples=15)
    @given(test_frameworks.scenarios(), SEEDS, st.integers(18, 30))
    def holds(sections, seed, micro_batches):
        training = {**sections["training"], "gradient_accumulation": micro_batches}
        asked = scenarios_of(seed, scenario, {**sections, "training": training}, llama)
        asked = [shortened(each, micro_batches) for each in asked]
        crowd = Strict()
        for result, each in zip(crowd.run((each, each.variants[0]) for each in asked), asked, strict=True):
            if isinstance(result, InputError):
                is_the_same(result, alone(each))
            else:
                is_the_same(result, whole(each))
        side_by_side.append((len(asked), crowd.side_by_side))

    holds()
    assert sum(members >= 3 * lanes for lanes, members in side_by_side) >= 5


@settings(max_examples=60)
@given(test_frameworks.scenarios(), SEEDS)
def test_a_recorder_knows_all_that_a_program_depends_on(scenario, llama, sections, seed):
    recorder = Recorder()
    for each in scenarios_of(seed, scenario, sections, llama):
        try:
            expected = record(each.at(each.variants[0]), each.variants[0])
        except InputError:
            continue
        assert recorder.record(each.at(each.variants[0]), each.variants[0]) == expected
