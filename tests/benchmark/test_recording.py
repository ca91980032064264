"""What recording a framework's program costs, next to replaying it."""

from pathlib import Path

import pytest

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.schedules.prepare import prepared
from simulator.schedules.record import first_step, record
from simulator.world.scenario import load_scenario
from tests.benchmark.timing import fastest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ROOT / "scenarios" / "llama-2-7b-frameworks.yaml"


@pytest.fixture(scope="module")
def scenario():
    return load_scenario(FRAMEWORKS, ["model.config=models/llama-2-70b.json", "topology.hosts=8"])


@pytest.mark.parametrize("name", ["zero2 deepspeed", "zero3 deepspeed", "zero++ deepspeed", "fsdp1", "fsdp2", "hsdp"])
def test_recording_a_70b_step_costs_no_more_than_replaying_it(scenario, name):
    """The step itself; a steady step is preceded by a rehearsal of one micro-batch, measured below."""
    variant = scenario.variant(name)
    job = prepared(scenario, 1e9)
    program = first_step(job, variant.policy)
    ready = stage(scenario, program)
    assert fastest(lambda: first_step(job, variant.policy)) <= 1.5 * fastest(lambda: simulate(ready))


@pytest.mark.parametrize("name", ["zero2 deepspeed", "zero3 deepspeed", "fsdp2"])
def test_a_rehearsal_makes_a_steady_step_at_most_half_as_dear_again(scenario, name):
    variant = scenario.variant(name)
    job = prepared(scenario, 1e9)
    assert fastest(lambda: record(scenario, variant)) <= 1.75 * fastest(lambda: first_step(job, variant.policy))
