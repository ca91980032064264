"""One program for many scenarios at once gives what the engine gives for each."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.batch.evaluate import evaluate
from simulator.clock.batch.lane import timeline_of
from simulator.clock.batch.lanes import lanes_of
from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.laws.interference import Contention, Measured
from simulator.readings.batch import exposures
from simulator.readings.exposure import exposure
from simulator.schedules.program import HostWork
from simulator.schedules.record import record
from tests.laws import strategies, test_frameworks

MANY = settings(max_examples=150)

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


def lined_up(data, scenario, sections, asked, count=4):
    """Some stages of one program."""
    program = record(asked, asked.variants[0])
    others = [
        scenario(**{**sections, "topology": data.draw(networks(sections["topology"]))}) for _ in range(count - 1)
    ]
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
    from collections import Counter
    for k in batch.fallback: COUNT[int(k)]=COUNT.get(int(k),0)+1
    return batch


READINGS = ("compute", "slowed", "recomputed", "stalled", "copies", "host_bound", "communication")


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


@MANY
@given(strategies.scenarios(), st.data())
def test_lanes_of_textbook_schedules_are_the_engines_timelines(scenario, sections, data):
    is_the_engine(lined_up(data, scenario, sections, scenario(**sections)))


@MANY
@given(test_frameworks.scenarios(), st.data())
def test_lanes_of_frameworks_are_the_engines_timelines(scenario, llama, sections, data):
    asked = test_frameworks.asked(scenario, llama, sections)
    model = sections["model"]
    if model["layers"] is None:
        sections = {**sections, "model": {"sequence_length": model["sequence_length"], "config": llama}}
    is_the_engine(lined_up(data, scenario, sections, asked))


COUNT={}
def teardown_module():
    print(COUNT)
