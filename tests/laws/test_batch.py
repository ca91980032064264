"""One program for many scenarios at once gives what the engine gives for each."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.batch.evaluate import evaluate
from simulator.clock.batch.lane import timeline_of
from simulator.clock.batch.lanes import Fallback, infinitely_fast, lanes_of
from simulator.clock.cast import Change
from simulator.clock.engine import simulate
from simulator.clock.stage import infinitely_fast_network, stage
from simulator.laws.interference import Contention, Measured, Occupancy
from simulator.readings.batch import exposures
from simulator.readings.exposure import exposure
from simulator.schedules.program import HostWork
from simulator.schedules.record import record
from tests.laws import strategies, test_frameworks

LANES = 4

FACTORS = st.sampled_from([0.1, 0.5, 1.0, 1.7, 8.0])

INTERFERENCES = st.sampled_from(
    [
        Measured(1.0),
        Measured(1.3),
        Measured(3.0),
        Contention(multiprocessors=108.0, memory=2e12),
        Contention(multiprocessors=20.0, memory=1e11),
    ]
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(test_frameworks.LLAMA))
    return str(path)


@st.composite
def networks(draw, topology):
    """The same cluster with other links."""
    links = {
        name: {
            "bandwidth": f"{draw(st.sampled_from([1, 12.5, 50, 300]))} GB/s",
            "latency": f"{draw(st.sampled_from([0, 1, 10]))} us",
        }
        for name in topology["links"]
    }
    return {**topology, "links": links}


def varied(draw, ready):
    """The same stage with other kernels, another host and another interference."""
    (cast,) = ready.classes
    host = draw(FACTORS)
    instructions = tuple(
        HostWork(item.time * host) if isinstance(item, HostWork) else item for item in cast.program.instructions
    )
    factors = draw(st.lists(FACTORS, min_size=3, max_size=3))
    times = tuple(time * factors[index % len(factors)] for index, time in enumerate(cast.times))
    changed = replace(
        cast,
        program=replace(cast.program, instructions=instructions),
        times=times,
        interference=draw(INTERFERENCES),
        phases=tuple(
            tuple(replace(phase, channels=draw(st.integers(1, 8)), traffic=phase.payload) for phase in phases[:1])
            + phases[1:]
            for phases in cast.phases
        ),
    )
    return replace(ready, classes=(changed,))


def lined_up(data, scenario, sections, asked):
    """Some stages of one program."""
    program = record(asked, asked.variants[0])
    others = [scenario(**{**sections, "topology": data.draw(networks(sections["topology"]))}) for _ in range(LANES - 1)]
    return [varied(data.draw, stage(each, program)) for each in (asked, *others)]


def is_the_engine(stages):
    """Lanes that qualify are the engine's timelines, and every lane has the engine's step time."""
    lanes = lanes_of(stages)
    batch, found = evaluate(lanes), exposures(lanes)
    for lane, ready in enumerate(stages):
        timeline = simulate(ready)
        assert batch.step_time[lane] == pytest.approx(timeline.step_time, rel=1e-9)
        if not batch.fallback[lane]:
            is_the_same(timeline_of(batch, lane), timeline.classes[0], timeline.step_time)
        reads_the_same(found, lane, exposure(timeline.classes[0], timeline.step_time), timeline.step_time)
    return batch.fallback.tolist()


READINGS = ("compute", "slowed", "recomputed", "stalled", "copies", "host_bound", "uncovered", "communication")


def reads_the_same(found, lane, expected, step):
    close = {"rel": 1e-9, "abs": 1e-9 * step}
    for name in READINGS:
        assert getattr(found, name)[lane] == pytest.approx(getattr(expected, name), **close), name
    assert {name: row[lane] for name, row in found.by_cause.items()} == pytest.approx(expected.by_cause(), **close)
    by_collective = {name: row[lane] for name, row in found.by_collective.items()}
    other = expected.by_collective()
    assert by_collective == pytest.approx({name: other.get(name, 0.0) for name in {**by_collective, **other}}, **close)


def is_the_same(found, expected, step):
    close = {"rel": 1e-9, "abs": 1e-9 * step}
    for name in ("issued_at", "reached_at", "met_at", "start", "end", "alone", "latency"):
        times = [[getattr(span, name) for span in item.spans] for item in (found, expected)]
        assert times[0] == pytest.approx(times[1], **close), name
    for name in ("launch", "number", "before", "behind"):
        assert [getattr(span, name) for span in found.spans] == [getattr(span, name) for span in expected.spans]
    assert found.events.keys() == expected.events.keys()
    for event, happened in found.events.items():
        assert happened.at == pytest.approx(expected.events[event].at, **close)
        assert happened.last_span == expected.events[event].last_span
    assert [wait.end for wait in found.host_waits] == pytest.approx([w.end for w in expected.host_waits], **close)
    some, other = changes(found), changes(expected)
    assert [change[:2] for change in some] == [change[:2] for change in other]
    assert [change[2] for change in some] == pytest.approx([change[2] for change in other], **close)


def changes(timeline):
    """Memory by item and amount, in order of time."""
    return sorted((change.item, change.amount, change.at) for change in timeline.memory)


TEXTBOOK, FRAMEWORKS = settings(max_examples=200), settings(max_examples=150)


def test_lanes_of_textbook_schedules_are_the_engines_timelines(scenario):
    reasons = []

    @TEXTBOOK
    @given(strategies.scenarios(), st.data())
    def holds(sections, data):
        reasons.extend(is_the_engine(lined_up(data, scenario, sections, scenario(**sections))))

    holds()
    assert reasons.count(Fallback.NONE) >= 600
    assert set(reasons) == {Fallback.NONE, Fallback.SHARING}


def test_lanes_of_frameworks_are_the_engines_timelines(scenario, llama):
    reasons = []

    @FRAMEWORKS
    @given(test_frameworks.scenarios(), st.data())
    def holds(sections, data):
        asked = test_frameworks.asked(scenario, llama, sections)
        model = sections["model"]
        if model["layers"] is None:
            sections = {**sections, "model": {"sequence_length": model["sequence_length"], "config": llama}}
        reasons.extend(is_the_engine(lined_up(data, scenario, sections, asked)))

    holds()
    assert reasons.count(Fallback.NONE) >= 500
    assert set(reasons) == {Fallback.NONE, Fallback.SHARING}


def separate(sections):
    """The same, with reductions on a communicator of their own that waits for nobody."""
    (variant,) = sections["variants"]
    return {**sections, "variants": [{**variant, "zero_stage": 3, "reduce_communicator": "separate"}]}


def test_lanes_that_share_links_are_found(scenario):
    """Gathers and reductions of ZeRO-3 on two communicators: equal to the engine or left to it, and both happen."""
    reasons = []

    @settings(max_examples=100)
    @given(strategies.scenarios().map(separate), st.data())
    def holds(sections, data):
        reasons.extend(is_the_engine(lined_up(data, scenario, sections, scenario(**sections))))

    holds()
    assert reasons.count(Fallback.NONE) >= 50
    assert reasons.count(Fallback.SHARING) >= 200


@given(strategies.scenarios(), st.data())
def test_an_infinitely_fast_network_takes_the_collectives_time(scenario, sections, data):
    stages = lined_up(data, scenario, sections, scenario(**sections))
    found = evaluate(infinitely_fast(lanes_of(stages)))
    expected = [simulate(infinitely_fast_network(ready)).step_time for ready in stages]
    assert found.step_time == pytest.approx(expected, rel=1e-9)
    assert not found.fallback.any()


@given(strategies.scenarios(), st.data(), st.integers(1, 5))
def test_lanes_may_be_read_in_parts_of_any_size(scenario, sections, data, size):
    lanes = lanes_of(lined_up(data, scenario, sections, scenario(**sections)))
    whole = evaluate(lanes).step_time
    for numbers, part in lanes.parts(size):
        assert part.count == len(numbers) <= size
        assert evaluate(part).step_time == pytest.approx(whole[numbers], rel=1e-12)
    assert sorted(number for numbers, _ in lanes.parts(size) for number in numbers) == list(range(lanes.count))


SHARED = Contention(multiprocessors=100.0, memory=10.0)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.floats(0, 6)), min_size=1, max_size=4),
    st.floats(0, 1),
    st.sampled_from([SHARED, Measured(1.5), Measured(1.0)]),
)
def test_shares_say_what_an_interference_does(collectives, movement, interference):
    """The sums that lanes use stretch a kernel as the engine does."""
    beside = [Occupancy(channels, traffic) for channels, traffic in collectives]
    held, moved = (min(sum(taken), interference.most) for taken in zip(*map(interference.taken, beside), strict=True))
    stretch = (1 - movement) / (1 - held) + movement / (1 - moved)
    assert stretch == pytest.approx(interference.stretch(movement, beside), rel=1e-12)


def test_several_classes_and_conditions_are_for_the_engine(scenario):
    sections = {"topology": {"cluster": "flat", "hosts": 2, "links": {"link": {"bandwidth": "1 GB/s"}}}}
    asked = scenario(**sections)
    program = record(asked, asked.variants[0])
    plain = stage(asked, program)
    slower = replace(plain, changes=(Change(1.0, 0, plain.links[0].bandwidth / 2),))
    each = stage(scenario(**sections, run={"ranks": "all"}), program)
    lanes = lanes_of([plain, slower, each])
    batch, found = evaluate(lanes), exposures(lanes)
    assert batch.fallback.tolist() == [Fallback.NONE, Fallback.CONDITIONS, Fallback.CLASSES]
    assert batch.reasons() == {"classes": 1, "conditions": 1, "sharing": 0, "unsettled": 0}
    for lane, ready in enumerate([plain, slower, each]):
        timeline = simulate(ready)
        assert batch.step_time[lane] == found.step_time[lane] == timeline.step_time
        reads_the_same(found, lane, exposure(timeline.classes[0], timeline.step_time), timeline.step_time)


def test_without_stages_a_lane_for_the_engine_has_no_result(scenario):
    asked = scenario()
    plain = stage(asked, record(asked, asked.variants[0]))
    lanes = replace(lanes_of([plain, replace(plain, rivals=(0,))]), stages=())
    found = exposures(lanes)
    assert np.isnan(found.step_time).tolist() == [False, True]
    assert np.isnan(found.stalled).tolist() == [False, True]
    with pytest.raises(ValueError, match="lane 1 needs the engine: conditions"):
        timeline_of(evaluate(lanes), 1)


def test_other_programs_are_refused(scenario):
    asked = scenario(variants=[{"name": "a", "zero_stage": 3}, {"name": "b", "zero_stage": 2}])
    stages = [stage(asked, record(asked, variant)) for variant in asked.variants]
    with pytest.raises(ValueError, match="lane 1 has another program than lane 0"):
        lanes_of(stages)
