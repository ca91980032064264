"""The certificate of what is enough, for random steps, against the scenario with that number written into its file."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.explore import run_variant
from simulator.readings.table import has_room
from simulator.require import Trial, goal, knob, narrowed, require
from tests.laws import strategies

SOME = settings(max_examples=25)


def at(scenario, sections, link, bandwidth):
    """Step with a bandwidth [B/s], and whether it fits in memory."""
    links = sections["topology"]["links"]
    changed = {**links, link: {**links[link], "bandwidth": f"{bandwidth!r} B/s"}}
    asked = scenario(**{**sections, "topology": {**sections["topology"], "links": changed}})
    result = run_variant(asked, asked.variants[0]).result
    return result.step_time, has_room(result.memory)


@SOME
@given(strategies.scenarios(), st.sampled_from([-0.1, 0.05, 0.3, 0.7, 0.95]), st.data())
def test_it_is_enough_and_just_beyond_it_is_not(scenario, sections, share, data):
    """A step between those at both ends of the range; below that of the wide end where *share* is negative."""
    link = data.draw(st.sampled_from(sorted(sections["topology"]["links"])))
    found = scenario(**sections)
    variant = found.variants[0]
    turned = knob(found, variant, f"{link}.bandwidth", None)
    (slow, fits), (fast, _) = (at(scenario, sections, link, turned.first[end]) for end in (0, -1))
    assume(fits and slow > 1.001 * fast > 0)
    most = fast + share * (slow - fast)
    assume(most > 0)
    (item,) = require(found, variant, goal("step time", f"{most!r} s"), [turned]).requirements
    if item.value is None:
        assert all(at(scenario, sections, link, trial.value)[0] > most for trial in item.trials[::6])
        assert item.floor.reached > most
        return
    assert at(scenario, sections, link, item.value)[0] <= most * (1 + 1e-6)
    for end, beyond in ((item.value, item.below), (item.until, item.lost)):
        if beyond is not None:
            assert max(end, beyond.value) <= 1.01 * (1 + 1e-6) * min(end, beyond.value)
            assert at(scenario, sections, link, beyond.value)[0] >= most * (1 - 1e-6)
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
