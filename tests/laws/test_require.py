"""The certificate of what is enough, for random steps, against the scenario with that number written into its file."""

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.explore import run_variant
from simulator.readings.table import has_room
from simulator.require import Trial, goal, knob, narrowed, require
from tests.laws import strategies

SOME = settings(max_examples=25)


def told(scenario, sections, link, bandwidth):
    """Share of exposed communication, and whether the step fits in memory, at a bandwidth [B/s]."""
    links = sections["topology"]["links"]
    changed = {**links, link: {**links[link], "bandwidth": f"{bandwidth!r} B/s"}}
    asked = scenario(**{**sections, "topology": {**sections["topology"], "links": changed}})
    result = run_variant(asked, asked.variants[0]).result
    share = result.exposed["stalled"] / result.step_time if result.step_time else 0.0
    return share, has_room(result.memory)


def enough(found, most):
    share, fits = found
    return fits and share <= most * (1 + 1e-6)


def short(found, most):
    share, fits = found
    return not fits or share >= most * (1 - 1e-6)


@SOME
@given(strategies.scenarios(), st.sampled_from([1, 5, 20, 50]), st.data())
def test_it_is_enough_and_just_below_it_is_not(scenario, sections, percent, data):
    link = data.draw(st.sampled_from(sorted(sections["topology"]["links"])))
    found = scenario(**sections)
    variant = found.variants[0]
    turned = knob(found, variant, f"{link}.bandwidth", None)
    (item,) = require(found, variant, goal("exposed", f"{percent}%"), [turned]).requirements
    most = percent / 100
    if item.value is None:
        assert all(short(told(scenario, sections, link, trial.value), most) for trial in item.trials[::6])
        return
    assert enough(told(scenario, sections, link, item.value), most)
    for end, beyond in ((item.value, item.below), (item.until, item.lost)):
        if beyond is not None:
            assert max(end, beyond.value) <= 1.01 * (1 + 1e-6) * min(end, beyond.value)
            assert short(told(scenario, sections, link, beyond.value), most)
    assert item.below or item.value == item.trials[0].value
    assert item.lost or item.until == item.trials[-1].value


@given(st.sets(st.integers(1, 64)))
def test_whole_numbers_are_certified_to_the_next(scenario, good):
    """Whatever values reach a goal."""
    found = scenario()
    item = knob(found, found.variants[0], "gradient_accumulation", "1..64")

    def attempt(values):
        return [Trial(value=value, reached=value, met=value in good, problem=None) for value in values]

    trials = narrowed(item, attempt)
    values = [trial.value for trial in trials]
    assert values == sorted(set(values))
    met = [trial.value for trial in trials if trial.met]
    if not met:
        assert not good & set(values)
        return
    end = max(met)
    start = min(value for value in met if all(other in good for other in values if value <= other <= end))
    assert end == 64 or (end + 1 in values and end + 1 not in good)
    assert start == 1 or (start - 1 in values and start - 1 not in good)
