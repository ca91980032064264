"""What holds for every simulated step."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.recurrence import step_time
from simulator.clock.stage import infinitely_fast_network, stage
from simulator.explore import run_variant
from simulator.laws.collectives.base import Collective
from simulator.readings.exposure import exposure
from simulator.schedules.record import record
from tests.laws.strategies import scenarios, topologies

EVERY = settings(max_examples=500)


def played(scenario, sections):
    asked = scenario(**sections)
    program = record(asked, asked.variants[0])
    ready = stage(asked, program)
    return ready, simulate(ready)


@EVERY
@given(scenarios())
def test_no_link_carries_more_than_its_bandwidth_allows(scenario, sections):
    """The work bound, with bytes counted from the program rather than by the network."""
    ready, timeline = played(scenario, sections)
    cast = ready.classes[0]
    carried = [0.0] * len(ready.links)
    for launch in cast.program.launches:
        for phase in cast.phases[launch.operation]:
            for link, share in phase.usage:
                carried[link] += share * phase.payload
    assert carried == pytest.approx(timeline.carried)
    for amount, link in zip(carried, ready.links, strict=True):
        assert timeline.step_time >= amount / link.bandwidth * (1 - 1e-9)


@EVERY
@given(scenarios())
def test_the_parts_of_a_step_and_of_its_stalls_add_up(scenario, sections):
    asked = scenario(**sections)
    result = run_variant(asked, asked.variants[0]).result
    step, exposed = result.step_time, result.exposed
    parts = result.compute_time + exposed["stalled"] + result.copy_time + result.host_time
    assert math.isclose(parts, step, rel_tol=1e-9)
    for charges in (result.exposed_by_cause, result.exposed_by_collective):
        assert math.isclose(sum(charges.values()), exposed["stalled"], rel_tol=1e-9, abs_tol=1e-9 * step)
        assert all(value >= 0 for value in charges.values())
    # what runs under a copy is covered for the compute stream and uncovered for a trace analyser, and nothing else
    assert exposed["uncovered"] <= exposed["stalled"] + result.host_time + result.copy_time + 1e-9 * step
    assert exposed["counterfactual"] >= -1e-9 * step
    assert exposed["skew"] == 0


@given(scenarios())
def test_stalls_lie_in_order_inside_the_idle_stretches_of_compute(scenario, sections):
    _, timeline = played(scenario, sections)
    item = timeline.classes[0]
    busy = [(span.start, span.end) for span in item.stream("compute")]
    stalls = exposure(item).stalls
    assert all(a.end <= b.start for a, b in itertools.pairwise(stalls))
    for stall in stalls:
        assert stall.start < stall.end
        assert all(end <= stall.start or stall.end <= start for start, end in busy if start < end)


@given(scenarios())
def test_streams_and_communicators_are_first_in_first_out(scenario, sections):
    ready, timeline = played(scenario, sections)
    item, cast = timeline.classes[0], ready.classes[0]
    for number in range(len(item.program.streams)):
        spans = [span for span in item.spans if span.launch.stream == number]
        assert all(a.end <= b.start for a, b in itertools.pairwise(spans))
    for number in range(len(ready.members)):
        spans = [span for span in item.spans if cast.communicators[span.launch.operation] == number]
        assert all(a.end <= b.start for a, b in itertools.pairwise(spans))
    for span in item.spans:
        assert span.issued_at <= span.reached_at <= span.met_at <= span.start <= span.end
        assert all(wait.at <= span.reached_at for wait in span.waits)


ON_RANKS = {2: (1, 2), 8: (1, 8), 16: (2, 8), 24: (3, 8)}


@pytest.mark.parametrize("ranks", ON_RANKS)
@given(data=st.data())
@settings(max_examples=15)
def test_one_class_gives_the_same_answer_as_all_ranks(scenario, ranks, data):
    hosts, devices = ON_RANKS[ranks]
    topology = topologies(devices=st.just(devices), hosts=st.just(hosts)).filter(lambda item: item["cluster"] != "flat")
    sections = data.draw(scenarios(topology))
    _, by_class = played(scenario, sections)
    _, by_rank = played(scenario, {**sections, "run": {"ranks": "all"}})
    assert len(by_rank.classes) == ranks
    ends = [span.end for span in by_class.classes[0].spans]
    for item in by_rank.classes:
        assert [span.end for span in item.spans] == pytest.approx(ends, rel=1e-12, abs=1e-12 * by_class.step_time)


@given(scenarios())
def test_without_sharing_the_recurrence_is_the_engine(scenario, sections):
    """One communicator serves one collective at a time, so only a second one can make transfers share a link."""
    if sections["variants"][0]["reduce_communicator"] == "separate":
        sections["variants"][0]["reduce_communicator"] = "shared"
    sections["variants"][0].pop("zero_hpz_partition_size", None)
    ready, timeline = played(scenario, sections)
    cast = ready.classes[0]
    durations = [
        sum(phase.duration for phase in phases) if isinstance(operation, Collective) else time
        for operation, phases, time in zip(cast.program.operations, cast.phases, cast.times, strict=True)
    ]
    assert math.isclose(step_time(cast, durations), timeline.step_time, rel_tol=1e-9)


@given(scenarios())
def test_the_recurrence_is_the_engine_on_an_infinitely_fast_network(scenario, sections):
    ready, _ = played(scenario, sections)
    cast = ready.classes[0]
    assert math.isclose(step_time(cast, cast.times), simulate(infinitely_fast_network(ready)).step_time, rel_tol=1e-9)


@given(scenarios(), st.sampled_from([2, 8, 1000]))
def test_everything_k_times_faster_takes_a_kth_of_the_time(scenario, sections, factor):
    ready, timeline = played(scenario, {**sections, "host": {"launch_time": "0 s"}})
    links = tuple(replace(link, bandwidth=link.bandwidth * factor) for link in ready.links)
    classes = tuple(
        replace(
            item,
            times=tuple(time / factor for time in item.times),
            phases=tuple(
                tuple(
                    replace(phase, latency=phase.latency / factor, rate=phase.rate * factor) for phase in of_operation
                )
                for of_operation in item.phases
            ),
        )
        for item in ready.classes
    )
    faster = simulate(replace(ready, links=links, classes=classes))
    assert math.isclose(faster.step_time * factor, timeline.step_time, rel_tol=1e-9)


@given(scenarios())
def test_memory_taken_is_given_back(scenario, sections):
    _, timeline = played(scenario, sections)
    held = {}
    for change in timeline.classes[0].memory:
        held[change.item] = held.get(change.item, 0.0) + change.amount
        assert held[change.item] >= -1e-3
    assert all(abs(amount) < 1e-3 for amount in held.values())
