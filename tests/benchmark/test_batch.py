"""What a lane of a batch costs, next to the engine on the same lanes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.clock.batch.evaluate import evaluate
from simulator.clock.batch.lanes import PART, lanes_of
from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.readings.batch import exposures
from simulator.readings.exposure import exposure
from simulator.schedules.record import record
from simulator.world.scenario import load_scenario
from tests.benchmark.timing import fastest

SCENARIOS = Path(__file__).parents[2] / "scenarios"
LANES, SAMPLE = 10_000, 8


def scaled(ready, kernels, network):
    """The same stage with kernels and collectives that take so many times as long."""
    (cast,) = ready.classes
    phases = tuple(
        tuple(replace(phase, latency=phase.latency * network, rate=phase.rate / network) for phase in of_one)
        for of_one in cast.phases
    )
    links = tuple(replace(link, bandwidth=link.bandwidth / network) for link in ready.links)
    times = tuple(time * kernels for time in cast.times)
    return replace(ready, classes=(replace(cast, times=times, phases=phases),), links=links)


@pytest.fixture(scope="module")
def lanes():
    """A 32-layer step of ZeRO-3 with kernels that slow down, on networks and accelerators of many speeds.

    A stage for each of the first lanes; the others are made as arrays, from the same random numbers.
    """
    asked = load_scenario(SCENARIOS / "llama-2-7b-one-host.yaml", ["training.gradient_accumulation=1"])
    ready = stage(asked, record(asked, asked.variant("zero3")))
    random = np.random.default_rng(1)
    kernels, network = np.exp(random.normal(0, 0.3, LANES)), np.exp(random.normal(0, 0.7, LANES))
    sample = [scaled(ready, *pair) for pair in zip(kernels[:SAMPLE].tolist(), network[:SAMPLE].tolist(), strict=True)]
    one = lanes_of([ready])
    is_kernel = np.array([[number < 0] for number in one.plan.communicators])
    wide = {
        "alone": one.alone * np.where(is_kernel, kernels, network),
        "latency": one.latency * network,
        "moved": one.moved / network,
    }
    return sample, replace(one, **wide, count=LANES, stages=())


def test_a_lane_costs_at_most_a_300th_of_the_engine(lanes, benchmark):
    """Step times; the engine's are those of the first lanes."""
    sample, many = lanes
    found = np.empty(LANES)

    def work():
        for numbers, part in many.parts():
            found[numbers] = evaluate(part).step_time

    benchmark(work)
    assert found[:SAMPLE] == pytest.approx([simulate(ready).step_time for ready in sample], rel=1e-9)
    engine = fastest(lambda: [simulate(ready) for ready in sample]) / SAMPLE
    assert engine >= 300 * fastest(work) / LANES


def test_readings_with_causes_are_100_times_the_engines(lanes):
    sample, many = lanes
    engine = fastest(lambda: [exposure(simulate(ready).classes[0]) for ready in sample]) / SAMPLE
    assert engine >= 100 * fastest(lambda: exposures(many)) / LANES


@pytest.mark.parametrize("name", ["zero3 deepspeed", "fsdp2"])
def test_lanes_of_a_framework_are_50_times_the_engine(name):
    asked = load_scenario(SCENARIOS / "llama-2-7b-frameworks.yaml", ["training.gradient_accumulation=1"])
    ready = stage(asked, record(asked, asked.variant(name)))
    network = np.exp(np.random.default_rng(1).normal(0, 0.2, PART))
    one = lanes_of([ready])
    is_kernel = np.array([[number < 0] for number in one.plan.communicators])
    many = replace(one, alone=one.alone * np.where(is_kernel, 1.0, network), count=PART, stages=())
    engine = fastest(lambda: simulate(ready), 2)
    assert engine >= 50 * fastest(lambda: evaluate(many), 2) / PART
