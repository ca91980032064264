"""What a software stack makes of a cluster."""

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.laws.kernels import rates
from simulator.world.catalog import accelerator
from simulator.world.scenario import load_scenario
from simulator.world.stack import software_stack


def test_kernels_that_quantise_have_a_rate_of_their_own():
    scenario = load_scenario("zeropp-log")
    at = rates(scenario.accelerator, scenario.compute)
    part, reached = scenario.accelerator, software_stack("pytorch").reached["volta"]
    assert at.quantize == part.memory_bandwidth.value * reached.quantize.value
    assert rates(load_scenario("llama-2-7b-one-host").accelerator, scenario.compute).quantize > at.quantize


def test_cards_are_a_divisor_of_those_there_are():
    with pytest.raises(InputError, match="cards: 3: cards cannot be spread evenly; use a divisor of its 8"):
        load_scenario("zeropp-log", ["topology.cards=3"])


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("compute.attention=flash3", "flash3': unknown attention on a100-sxm-80gb"),
        ("compute.matrix_precision=fp8", "fp8': unknown precision of a100-sxm-80gb"),
        ("compute.element_wise=fused", "fused': unknown choice"),
        ("compute.stack=pytorc", "did you mean 'pytorch'"),
        ("compute.overlap_slowdown=0.5", "0.5: expected"),
        ("training.checkpointed_share=0", "0: expected"),
        ("topology.server=amper", "did you mean 'ampere'"),
    ],
)
def test_kernels_that_do_not_exist_are_refused_with_file_and_key(override, told):
    with pytest.raises(InputError) as refused:
        load_scenario("llama-2-13b-two-hosts", [override])
    assert told in str(refused.value)
    assert "llama-2-13b-two-hosts.yaml" in str(refused.value)
    assert override.partition("=")[0] in str(refused.value)


def test_without_a_stack_kernels_reach_what_single_ones_do_at_best():
    plain, usual = (load_scenario("llama-2-13b-two-hosts", [f"compute.stack={name}"]) for name in ("none", "pytorch"))
    assert plain.accelerator == accelerator("a100-sxm-80gb")
    assert usual.accelerator.matrix_efficiency.value < plain.accelerator.matrix_efficiency.value
    assert (plain.step_per_layer, usual.step_per_layer) == (
        None,
        software_stack("pytorch").reached["ampere"].step_per_layer,
    )


def test_a_generation_that_was_not_measured_loses_what_the_others_lose():
    part, others = accelerator("b200-sxm-180gb"), software_stack("pytorch").others
    reached = load_scenario("llama-2-13b-two-hosts", ["topology.cluster=dgx-b200"]).accelerator
    assert reached.matrix_efficiency.value == part.matrix_efficiency.value * others.matrix.value
    assert reached.attention_efficiency.value == part.attention_efficiency.value * others.attention.value


def test_a_measured_rate_needs_no_stack():
    scenario = load_scenario("llama-2-13b-two-hosts", ["compute.achieved=200 TFLOP/s"])
    assert (scenario.compute.stack, scenario.step_per_layer, scenario.compute.overlap_slowdown) == (None, None, 1.0)


def test_a_report_names_the_assumed_numbers_of_kernels():
    """A generation without measurements of its own, products in 8 bits, compiled kernels."""
    settings = ["topology.cluster=dgx-b200", "compute.element_wise=compiled", "compute.matrix_precision=fp8"]
    scenario = load_scenario("llama-2-13b-two-hosts", settings)
    named = set(run_variant(scenario, scenario.variant("zero3")).result.assumed)
    assert {"gemm.operand_cost", "gemm.shortest_sum", "pytorch.others.step_per_layer", "pytorch.others.fused"} <= named
    measured = load_scenario("llama-2-13b-two-hosts")
    assert "pytorch.ampere.step_per_layer" not in run_variant(measured, measured.variant("zero3")).result.assumed
