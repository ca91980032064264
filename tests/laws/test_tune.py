"""The search for settings, on made-up scores, and against all settings of small jobs."""

from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.sweep import workers
from simulator.tune import load_target, target_of, tune
from simulator.tune.knobs import space_of
from simulator.tune.lab import Lab, excess
from simulator.tune.search import GAIN, WORTH, Score, searched
from simulator.tune.space import Knob, Option, Space
from simulator.world.scenario import read_scenario

INLINE = partial(workers, 1)

times = st.floats(0.5, 2.0)


@st.composite
def spaces(draw):
    """Knobs of which the first is the strategy; some options matter with one strategy only."""
    strategies = draw(st.integers(1, 3))
    knobs = [Knob(name="k0", options=tuple(Option(value=value) for value in range(strategies)), coarse=True)]
    for place in range(1, draw(st.integers(2, 4))):
        only = draw(st.none() | st.integers(0, strategies - 1))

        def applies(values, only=only):
            return only is None or values["k0"] == only

        count = draw(st.integers(2, 4))
        options = [Option(value=0), *(Option(value=value, applies=applies) for value in range(1, count))]
        knobs.append(Knob(name=f"k{place}", options=tuple(options), coarse=draw(st.booleans())))
    return Space(knobs=tuple(knobs))


def everything(space):
    return {space.canonical(setting) for setting in product(*(range(len(knob.options)) for knob in space.knobs))}


def recorded(score):
    """An attempt that scores by a function, and what it was asked."""
    asked = []

    def attempt(found):
        asked.extend(found)
        return [score(setting) for setting in found]

    return attempt, asked


@st.composite
def separable(draw, space):
    """Every knob takes its own part of the time."""
    parts = [[draw(times) for _ in knob.options] for knob in space.knobs]

    def score(setting):
        return Score(excess=0.0, time=sum(part[number] for part, number in zip(parts, setting, strict=True)), floor=0.0)

    return score


@given(spaces(), st.data())
def test_few_settings_are_all_scored(space, data):
    attempt, asked = recorded(data.draw(separable(space)))
    ranked = searched(space, attempt, few=10_000)
    assert sorted(asked) == sorted(everything(space)) == sorted(ranked)
    orders = [score.order for score in attempt(ranked)]
    assert orders == sorted(orders)


@given(spaces(), st.data())
def test_no_change_of_one_knob_improves_the_best_and_nothing_is_scored_twice(space, data):
    """Whatever the scores are."""
    table = {}
    for setting in sorted(everything(space)):
        lacks = data.draw(st.sampled_from([0.0, 0.0, 0.5]))
        table[setting] = Score(excess=lacks, time=data.draw(times), floor=0.0)
    attempt, asked = recorded(table.__getitem__)
    best = searched(space, attempt, few=0)[0]
    assert len(asked) == len(set(asked))
    assert table[best].order <= table[space.start].order
    assert not any(table[changed].beats(table[best]) for _, changed in space.changes(best, coarse=True))


@given(spaces(), st.data())
def test_the_best_of_all_is_found_where_knobs_do_not_depend_on_each_other(space, data):
    score = data.draw(separable(space))
    attempt, _ = recorded(score)
    found = score(searched(space, attempt, few=0)[0])
    best = min(score(setting).time for setting in everything(space))
    assert found.time <= best * (1 + GAIN) ** len(space.knobs)  # each may be left where it is for less than GAIN


def test_a_strategy_that_no_network_makes_the_best_is_not_refined():
    """Two strategies, and a knob that saves up to 0.5 s of communication: 4 s of compute are not made up for."""
    fine = Knob(name="fine", options=tuple(Option(value=value) for value in range(6)))
    space = Space(knobs=(Knob(name="strategy", options=(Option(value="a"), Option(value="b")), coarse=True), fine))

    def score(setting):
        compute = (1.0, 4.0)[setting[0]]
        return Score(excess=0.0, time=compute + 0.5 - 0.1 * setting[1], floor=compute)

    attempt, asked = recorded(score)
    assert searched(space, attempt, few=0)[0] == (0, 5)
    assert [setting for setting in asked if setting[0] == 1] == [(1, 0)]


JOB = """
name: small
model:
  sequence_length: 1
  layers: [{{name: layer, count: 3, parameters: 1e6, forward_time: 2 ms, backward_time: 3 ms}}]
training: {{micro_batch: {micro_batch}, gradient_accumulation: {steps}}}
topology: {{cluster: dgx-a100-80gb, hosts: 2}}
variants:
  - name: job
    {policy}
"""

POLICIES = (
    "deepspeed: {zero_optimization: {stage: 3}, bf16: {enabled: true}}",
    "deepspeed: {zero_optimization: {stage: 1}, bf16: {enabled: true}}",
    "fsdp2: {param_dtype: bf16}",
    "fsdp1: {param_dtype: bf16}",
)
SOME_KNOBS = ("stage", "ZeRO++", "overlap_comm", "sharding_strategy", "replicate", "requires_gradient_sync", "no_sync",
              "activation_checkpointing")  # fmt: skip
"""What is not among them is kept, so that all settings can be simulated."""


def small(tmp_path, policy, micro_batch=2, steps=4):
    path = tmp_path / "small.yaml"
    path.write_text(JOB.format(policy=policy, micro_batch=micro_batch, steps=steps))
    return load_target(path)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_search_finds_what_trying_everything_finds(tmp_path, policy):
    target = small(tmp_path, policy)
    kept = [knob.name for knob in space_of(target).knobs if knob.name not in SOME_KNOBS]
    space = space_of(target, kept=kept)
    with Lab(target, space, 0.1, INLINE, lambda count: None) as lab:
        settings_ = sorted(everything(space))
        results = [result for result in lab.results(settings_) if not isinstance(result, str)]
        best = min(result["step_time"] for result in results if not excess(result["memory"], 0.1))
        assert len(results) > 6
        quick = lab.results(searched(space, lab.scores, few=0)[:1])[0]["step_time"]
        assert quick == pytest.approx(best, rel=2 * GAIN)
    found = tune(target, INLINE, kept=kept)
    assert found.after["step_time"] == pytest.approx(best, rel=WORTH + 2 * GAIN)
    assert found.fits


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(POLICIES), st.integers(4, 7), st.data())
def test_comparing_short_steps_tells_whole_ones(tmp_path_factory, policy, steps, data):
    target = small(tmp_path_factory.mktemp("job"), policy, micro_batch=1, steps=steps)
    space = space_of(target)
    _, setting = data.draw(st.sampled_from([*space.changes(space.start, coarse=False)]))
    with Lab(target, space, 0.1, INLINE, lambda count: None) as lab:
        (score,), (whole,) = lab.scores([setting]), lab.results([setting])
        if isinstance(whole, str):
            assert score.time == float("inf")
        else:
            assert score.time == pytest.approx(whole["step_time"], rel=0.02)


JOBS = (
    "llama-2-13b-two-hosts",
    "llama-2-7b-cloud-ethernet",
    "llama-2-7b-one-host",
    "llama-2-70b-fabrics",
    "zeropp-on-v100",
)


@pytest.mark.slow
def test_deepspeeds_defaults_are_beaten_on_most_shipped_jobs(tmp_path):
    """By the best stage at its defaults that fits; nothing is rounded, micro-batch and checkpointing stay."""
    gains = [gain(tmp_path, name) for name in JOBS]
    assert sum(gain > 0.01 for gain in gains) >= 3
    assert all(gain > -GAIN for gain in gains)


def gain(tmp_path, name):
    """Part of the step that tuning saves."""
    raw, file = read_scenario(name)
    first, precision = raw["variants"][0], raw["training"].get("precision", "bf16")
    place = {"topology": first["topology"]} if "topology" in first else {}
    configs = [{"zero_optimization": {"stage": stage}, precision: {"enabled": True}} for stage in range(4)]
    raw["variants"] = [{"name": f"{stage}", "deepspeed": config, **place} for stage, config in enumerate(configs)]
    targets = [target_of(raw, file, f"{stage}") for stage in range(4)]
    times = []
    for target in targets:
        with Lab(target, space_of(target), 0.1, INLINE, lambda count: None) as lab:
            (result,) = lab.results([space_of(target).start])
            if not isinstance(result, str) and not excess(result["memory"], 0.1):
                times.append(result["step_time"])
    kept = ("micro_batch x accumulation", "activation_checkpointing")
    found = tune(targets[-1], INLINE, kept=kept, lossy=False)
    assert found.fits
    return 1 - found.after["step_time"] / min(times)


def test_an_option_that_makes_no_difference_is_left_out():
    """It matters with strategy b alone."""
    only_b = Option(value=1, applies=lambda values: values["strategy"] == "b")
    strategies = Knob(name="strategy", options=(Option(value="a"), Option(value="b")), coarse=True)
    space = Space(knobs=(strategies, Knob(name="fine", options=(Option(value=0), only_b))))
    assert [space.canonical(setting) for setting in ((0, 1), (1, 1))] == [(0, 0), (1, 1)]
    assert list(space.combinations(coarse=False)) == [(0, 0), (1, 0), (1, 1)]
    assert list(space.changes((1, 1), coarse=True)) == [(0, (0, 0)), (1, (1, 0))]


@pytest.mark.parametrize("policy", POLICIES[2:])
def test_changes_that_are_worth_nothing_are_taken_back(tmp_path, policy):
    target = small(tmp_path, policy, steps=2)
    space = space_of(target)
    with Lab(target, space, 0.1, INLINE, lambda count: None) as lab:
        best = searched(space, lab.scores)[0]
        (whole,) = lab.results([best])
    found = tune(target, INLINE)
    assert 0 < len(found.lines) < sum(map(bool, best))
    assert found.after["step_time"] <= whole["step_time"] / (1 - WORTH)


def test_the_fastest_that_almost_fits_is_made_to_fit():
    """The fast strategy lacks a tenth of the memory, which a fine knob saves; the slow one fits as it is."""
    strategies = Knob(name="strategy", options=(Option(value="slow"), Option(value="fast")), coarse=True)
    work = Knob(name="work", options=(Option(value="much"), Option(value="little")), coarse=True)
    saving = Knob(name="saving", options=(Option(value=False), Option(value=True)))
    space = Space(knobs=(strategies, work, saving))

    def score(setting):
        strategy, little, saves = setting
        lacks = 0.1 if strategy and little and not saves else 0.0
        return Score(excess=lacks, time=4.0 - 0.1 * strategy - 2.0 * (strategy and little) + 0.2 * saves, floor=0.0)

    attempt, _ = recorded(score)
    assert searched(space, attempt, few=0)[0] == (1, 1, 1)
