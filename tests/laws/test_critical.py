"""What holds for the critical path of every step, whatever the schedule."""

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.explore import run_variant
from simulator.readings.by_link import NO_LINK
from simulator.readings.critical import busiest, critical_path
from simulator.readings.intervals import merged, overlap
from simulator.schedules.record import record
from tests.laws import strategies
from tests.laws.test_frameworks import asked, llama  # noqa: F401
from tests.laws.test_frameworks import scenarios as frameworks

MANY = settings(max_examples=250)


def is_contiguous(path, step):
    """The pieces lie side by side from the start to the end of the step, and sum to it exactly."""
    bounds = [0.0, *(bound for piece in path.pieces for bound in (piece.start, piece.end)), step]
    assert all(left == right for left, right in zip(bounds[0::2], bounds[1::2], strict=True))
    assert all(piece.start < piece.end for piece in path.pieces)
    for key in ("kind", "operation", "phase"):
        if step:
            assert math.isclose(sum(path.total(key).values()), step, rel_tol=1e-12)
    assert math.isclose(sum(row["time"] for row in path.rows()), step, rel_tol=1e-12)


def was_there(path, timeline):
    """Whatever runs on the path did so at that time; between host and path there is nothing but launches."""
    for item in path.stretches:
        span = timeline.classes[item.rank_class].spans[item.span]
        if item.doing == "run":
            assert (item.start, item.end) == (span.start, span.end)
        elif item.doing == "work":
            assert item.end <= span.issued_at
            assert not any(
                wait.start < wait.end and wait.start < item.end and item.start < wait.end
                for wait in timeline.classes[item.rank_class].host_waits
            )


def stalls_by_layer_and_link(outcome):
    """Both divide all of what is stalled; a link is waited for only while something is under way on it."""
    stalled, step, details = outcome.reading.stalled, outcome.timeline.step_time, outcome.details()
    for charges in (details["exposed_by_layer"], details["exposed_by_link"]):
        assert math.isclose(sum(charges.values()), stalled, rel_tol=1e-9, abs_tol=1e-12 * step)
    stalls = merged((item.start, item.end) for item in outcome.reading.stalls if item.collective)
    for link, time in details["exposed_by_link"].items():
        if link != NO_LINK:
            assert time <= overlap(stalls, merged(under_way(outcome, link))) + 1e-9 * step


def under_way(outcome, link):
    """When collectives and copies ran that *link* bounds, on the first rank class."""
    ready, played = outcome.watch().ready, outcome.timeline.classes[0]
    bounding = [busiest(phases, ready.links) for phases in ready.classes[0].phases]
    return [(span.start, span.end) for span in played.spans if bounding[span.launch.operation] == link]


def keeps_the_laws(asked):
    outcome = run_variant(asked, asked.variants[0])
    path = outcome.path()
    is_contiguous(path, outcome.timeline.step_time)
    was_there(path, outcome.timeline)
    stalls_by_layer_and_link(outcome)
    assert "skew" not in path.total("kind")


@MANY
@given(strategies.scenarios())
def test_the_path_of_a_textbook_step_is_the_step(scenario, sections):
    keeps_the_laws(scenario(**sections))


@MANY
@given(frameworks())
def test_the_path_of_a_frameworks_step_is_the_step(scenario, llama, sections):  # noqa: F811
    keeps_the_laws(asked(scenario, llama, sections))


@settings(max_examples=60)
@given(
    strategies.scenarios(strategies.topologies(devices=st.sampled_from([1, 2]), hosts=st.integers(1, 2))),
    st.integers(0, 3),
    st.sampled_from([1.0, 1.5, 3.0]),
)
def test_the_path_of_a_step_with_a_slow_rank_goes_through_several_ranks(scenario, sections, slow, factor):
    """One rank of all has kernels that take longer; the first rank alone knows it as skew."""
    asked = scenario(**sections, run={"ranks": "all"})
    ready = stage(asked, record(asked, asked.variants[0]))
    classes = list(ready.classes)
    cast = classes[slow % len(classes)]
    classes[slow % len(classes)] = replace(cast, times=tuple(factor * time for time in cast.times))
    ready = replace(ready, classes=tuple(classes))
    timeline = simulate(ready)
    path = critical_path(timeline.classes, ready, timeline.step_time)
    is_contiguous(path, timeline.step_time)
    was_there(path, timeline)
    assert "skew" not in path.total("kind")
    alone = critical_path(timeline.classes[:1], ready, timeline.step_time)
    is_contiguous(alone, timeline.step_time)
    if slow % len(classes) == 0 or factor == 1:
        assert "skew" not in alone.total("kind")
