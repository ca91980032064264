"""What a software stack makes of a cluster."""

import pytest

from simulator.errors import InputError
from simulator.laws.kernels import rates
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
