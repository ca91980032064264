"""Laws that hold for the steps of every schedule."""

import itertools
import math
from dataclasses import replace

import pytest

from simulator.clock.engine import simulate
from simulator.clock.recurrence import step_time
from simulator.clock.stage import infinitely_fast_network
from simulator.laws.kernels import Kernel
from simulator.schedules.program import HostWork


def parts_add_up(result):
    """Compute, stalls, copies and host are the step; the charges of the stalls are what is stalled."""
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
    assert step >= result.compute_time * (1 - 1e-9)


def ceilings_bound_the_step(result):
    """What would be gained is no less than nothing, and communication has no more than all of its time hidden."""
    bounds, step = result.ceilings, result.step_time * (1 + 1e-9)
    assert (bounds["hidden"] is None) == (result.communication_time == 0)
    assert -1e-9 <= (bounds["hidden"] or 0.0) <= 1
    for name in ("perfect_overlap", "no_recompute"):
        assert 0 <= bounds[f"{name}_step_time"] <= step
        assert bounds[f"{name}_mfu"] >= result.mfu * (1 - 1e-9)
    assert bounds["perfect_overlap_step_time"] >= result.compute_time * (1 - 1e-9)
    assert bounds["perfect_overlap_step_time"] >= result.communication_time * (1 - 1e-9)


def keeps_the_work_bound(ready, timeline):
    """No link carries more than its bandwidth allows, with bytes counted from the program, not by the network."""
    cast = ready.classes[0]
    carried = [0.0] * len(ready.links)
    for launch in cast.program.launches:
        for phase in cast.phases[launch.operation]:
            for link, share in phase.usage:
                carried[link] += share * phase.payload
    assert carried == pytest.approx(timeline.carried)
    for amount, link in zip(carried, ready.links, strict=True):
        assert timeline.step_time >= amount / link.bandwidth * (1 - 1e-9)
    compute = sum(cast.times[launch.operation] for launch in cast.program.launches if launch.stream == 0)
    assert timeline.step_time >= compute * (1 - 1e-9)


def is_first_in_first_out(ready, timeline):
    """Streams and communicators do one thing at a time, in the order of issue."""
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


def is_same_by_rank(by_class, by_rank, ranks):
    """Simulating each rank gives the timeline of the one class."""
    assert len(by_rank.classes) == ranks
    ends = [span.end for span in by_class.classes[0].spans]
    for item in by_rank.classes:
        assert [span.end for span in item.spans] == pytest.approx(ends, rel=1e-12, abs=1e-12 * by_class.step_time)


def recurrence_is_the_engine_without_sharing(ready, timeline):
    """Nothing shares a link: operations take what they take alone."""
    cast = ready.classes[0]
    durations = tuple(
        time if isinstance(operation, Kernel) else sum(phase.duration for phase in phases)
        for operation, phases, time in zip(cast.program.operations, cast.phases, cast.times, strict=True)
    )
    assert math.isclose(step_time([replace(cast, times=durations)]), timeline.step_time, rel_tol=1e-9)


def recurrence_is_the_engine_on_an_infinitely_fast_network(ready):
    """Collectives take no time."""
    assert math.isclose(step_time(ready.classes), simulate(infinitely_fast_network(ready)).step_time, rel_tol=1e-9)


def memory_is_given_back(timeline):
    """Nothing is given back before it is taken, and nothing is left at the end."""
    held = {}
    for change in timeline.classes[0].memory:
        held[change.item] = held.get(change.item, 0.0) + change.amount
        assert held[change.item] >= -1e-3, change
    assert all(abs(amount) < 1e-3 for amount in held.values()), held


def is_faster_by(ready, timeline, factor):
    """Everything *factor* times faster takes so much less time."""
    faster = simulate(_faster_by(ready, factor))
    assert math.isclose(faster.step_time * factor, timeline.step_time, rel_tol=1e-9)


def _faster_by(ready, factor):
    """Return the same stage on which kernels, links and hosts are *factor* times faster."""
    links = tuple(replace(link, bandwidth=link.bandwidth * factor) for link in ready.links)
    classes = tuple(
        replace(
            item,
            program=replace(
                item.program,
                instructions=tuple(
                    HostWork(step.time / factor) if isinstance(step, HostWork) else step
                    for step in item.program.instructions
                ),
            ),
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
    return replace(ready, links=links, classes=classes)
