"""What holds for every simulated step."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.explore import run_variant
from simulator.readings.exposure import exposure
from simulator.schedules.record import record
from tests.laws import checks
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
    checks.keeps_the_work_bound(*played(scenario, sections))


@EVERY
@given(scenarios())
def test_the_parts_of_a_step_and_of_its_stalls_add_up(scenario, sections):
    asked = scenario(**sections)
    result = run_variant(asked, asked.variants[0]).result
    checks.parts_add_up(result)
    checks.ceilings_bound_the_step(result)


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


@given(scenarios(), st.sampled_from([1.0, 1.2, 3.0]))
def test_streams_and_communicators_are_first_in_first_out(scenario, sections, slowdown):
    checks.is_first_in_first_out(*played(scenario, {**sections, "compute": {"overlap_slowdown": slowdown}}))


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
    checks.is_same_by_rank(by_class, by_rank, ranks)


@given(scenarios())
def test_without_sharing_the_recurrence_is_the_engine(scenario, sections):
    """One communicator serves one collective at a time, so only a second one can make transfers share a link."""
    if sections["variants"][0]["reduce_communicator"] == "separate":
        sections["variants"][0]["reduce_communicator"] = "shared"
    sections["variants"][0].pop("zero_hpz_partition_size", None)
    checks.recurrence_is_the_engine_without_sharing(*played(scenario, sections))


@given(scenarios())
def test_the_recurrence_is_the_engine_on_an_infinitely_fast_network(scenario, sections):
    checks.recurrence_is_the_engine_on_an_infinitely_fast_network(played(scenario, sections)[0])


@given(scenarios(), st.sampled_from([2, 8, 1000]))
def test_everything_k_times_faster_takes_a_kth_of_the_time(scenario, sections, factor):
    checks.is_faster_by(*played(scenario, sections), factor)


@given(scenarios())
def test_memory_taken_is_given_back(scenario, sections):
    checks.memory_is_given_back(played(scenario, sections)[1])
