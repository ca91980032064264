"""What the critical path foresees, against the step simulated again, for random steps and every resource of theirs.

Where no two transfers share a link and no kernel is slowed, a step is the longest of sums of times.  Then the path of
today's step at better prices is a lower bound of the better step, and is the better step if the path stays the same.
"""

import math
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.readings.critical import critical_path
from simulator.readings.held import held_path
from simulator.readings.released import added
from simulator.schedules.record import Recorder
from simulator.steady import shortened
from simulator.whatif.answer import PROBE
from simulator.whatif.resources import resources
from simulator.whatif.times import step_times
from tests.laws import strategies
from tests.laws.test_frameworks import asked, llama  # noqa: F401
from tests.laws.test_frameworks import scenarios as frameworks

MANY = settings(max_examples=100)

CARRIED = {
    "every kernel": ("compute", "copy"),
    "every bandwidth": ("bandwidth",),
    "every latency": ("latency",),
}
"""Kinds of pieces that a resource carries and nothing else does."""


class Played:
    """A step on a stage, with its path."""

    def __init__(self, ready):
        self.ready, self.timeline = ready, simulate(ready)
        self.time = self.timeline.step_time
        self.path = critical_path(self.timeline.classes, ready, self.time)

    @property
    def chain(self):
        """What is on the path, without the times."""
        return [(item.doing, item.span, item.work) for item in self.path.stretches]

    @property
    def shares(self):
        """Whether anything took longer than it takes alone."""
        return any(added(span) for item in self.timeline.classes for span in item.spans)

    def at(self, prices):
        return held_path(self.path.stretches, self.timeline.classes, prices)


def is_foreseen(found, factor):
    """For each resource of the first variant of *found*."""
    found = replace(found, compute=replace(found.compute, overlap_slowdown=1.0))
    variant, recorder = found.variants[0], Recorder()
    step = Played(stage(found, recorder.record(found, variant)))
    assume(step.time > 0 and not step.shares)
    assert math.isclose(step.at(step.ready), step.time, rel_tol=1e-9)
    for resource in resources(found.at(variant), variant, step.ready, recorder):
        if not resource.has_slope:
            continue
        better = Played(resource.at(factor))
        if better.shares:
            continue
        foreseen = step.at(better.ready)
        assert better.time >= foreseen * (1 - 1e-9), resource.name
        if better.chain == step.chain:
            assert math.isclose(better.time, foreseen, rel_tol=1e-9), resource.name
        if resource.name in CARRIED:
            carried = sum(step.path.total("kind").get(kind, 0.0) for kind in CARRIED[resource.name])
            said = carried * (1 - 1 / factor)
            assert math.isclose(step.time - foreseen, said, rel_tol=1e-6, abs_tol=1e-9 * step.time), resource.name


@MANY
@given(strategies.scenarios(), st.sampled_from([PROBE, 1.1, 2.0]))
def test_a_textbook_step_with_a_better_resource_is_foreseen(scenario, sections, factor):
    is_foreseen(scenario(**sections), factor)


@MANY
@given(frameworks(), st.sampled_from([PROBE, 1.1, 2.0]))
def test_a_frameworks_step_with_a_better_resource_is_foreseen(scenario, llama, sections, factor):  # noqa: F811
    is_foreseen(asked(scenario, llama, sections), factor)


def are_the_whole_steps(asked):
    """Each of the changed steps, told by its period or not; return how many lengths other than the whole were set."""
    variant, recorder = asked.variants[0], Recorder()
    asked, counts = asked.at(variant), []

    def at(factor):
        def made(micro_batches):
            counts.append(micro_batches)
            short = shortened(asked, micro_batches)
            ready = stage(short, recorder.record(short, variant))
            found = resources(short, variant, ready, recorder)
            return next(item for item in found if item.name == "every kernel").at(factor)

        return made

    steps = [at(factor) for factor in (1.0, 1.01, 1.1, 1.5, 2.0)]
    times = step_times(asked, steps)
    told = len(steps) - counts.count(asked.training.gradient_accumulation)
    for time, step in zip(times, steps, strict=True):
        assert math.isclose(time, simulate(step(asked.training.gradient_accumulation)).step_time, rel_tol=1e-9)
    return told


def test_steps_that_are_told_by_their_period_are_the_whole_steps(scenario):
    told = []

    @settings(max_examples=40)
    @given(strategies.scenarios(), st.integers(8, 24))
    def holds(sections, micro_batches):
        training = {**sections["training"], "gradient_accumulation": micro_batches}
        told.append(are_the_whole_steps(scenario(**{**sections, "training": training})))

    holds()
    assert sum(told) >= 50


def test_steps_of_frameworks_that_are_told_by_their_period_are_the_whole_steps(scenario, llama):  # noqa: F811
    told = []

    @settings(max_examples=15)
    @given(frameworks(), st.integers(8, 16))
    def holds(sections, micro_batches):
        training = {**sections["training"], "gradient_accumulation": micro_batches}
        told.append(are_the_whole_steps(asked(scenario, llama, {**sections, "training": training})))

    holds()
    assert sum(told) >= 20
