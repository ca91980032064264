"""A slow host: small models become host-bound, and the report says so."""

import pytest

from simulator.explore import run_variant
from simulator.readings.table import notes
from tests.conftest import flat

MODEL = {
    "sequence_length": 1,
    "layers": [{"name": "l", "count": 8, "parameters": 1e6, "forward_time": "10 us", "backward_time": "20 us"}],
}
VARIANTS = [
    {"name": "ddp", "ddp": {}},
    {"name": "zero3", "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}},
    {"name": "fsdp2", "fsdp2": {}},
]


def results(scenario, host):
    asked = scenario(model=MODEL, variants=VARIANTS, host=host, topology=flat(hosts=2, bandwidth="1 TB/s"))
    return [run_variant(asked, variant).result.as_json() for variant in asked.variants]


@pytest.mark.parametrize("index", range(len(VARIANTS)))
def test_a_slow_host_makes_a_small_model_host_bound_and_an_instantaneous_one_does_not(scenario, index):
    slow = results(scenario, {"hook_time": "100 us", "kernel_time": "50 us", "collective_time": "50 us"})[index]
    instant = results(scenario, {"hook_time": "0 s", "kernel_time": "0 s", "collective_time": "0 s"})[index]
    assert slow["step_time"] > 2 * instant["step_time"]
    assert slow["host_time"] + slow["exposed_by_cause"]["host"] > 0.5 * slow["step_time"]
    assert instant["host_time"] == pytest.approx(0, abs=1e-12)
    assert any("host-bound" in line for line in notes([slow]))
    assert not any("host-bound" in line for line in notes([instant]))


def test_the_host_numbers_of_the_catalogue_are_told_as_assumed(scenario):
    for result in results(scenario, {}):
        assert {"python.kernel", "python.collective", "python.hook"} <= set(result["assumed"])


def test_the_first_step_differs_from_the_steady_one_where_frameworks_learn(scenario):
    collectives = {}
    for step in ("first", "steady"):
        asked = scenario(model=MODEL, variants=VARIANTS, run={"step": step})
        for variant in asked.variants:
            roles = run_variant(asked, variant).result
            collectives[variant.name, step] = roles.volume["sent_per_rank"]
    assert collectives["zero3", "first"] > collectives["zero3", "steady"]  # the trace is recorded, nothing is kept
    assert collectives["fsdp2", "first"] == collectives["fsdp2", "steady"]
