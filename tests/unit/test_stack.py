"""What a software stack makes of a cluster."""

import pytest

from simulator.errors import InputError
from simulator.laws.kernels import rates
from simulator.world.scenario import load_scenario
from simulator.world.stack import software_stack

MINE = "topology.links.network.efficiency=0.8"


def network(*overrides):
    """Efficiency of the link behind the cards."""
    cluster = load_scenario("zeropp-log", overrides).cluster
    return next(link.efficiency.value for link in cluster.links if link.name == "network")


def test_n_cards_give_less_than_n_times_one():
    """Over n cards collectives reach n^x times the rate of one, so each gives n^(x - 1) of it."""
    reached = software_stack("pytorch").reached["volta"]
    one, four = network(), network("topology.cards=4")
    assert one == reached.network.value
    assert 4 * four / one == pytest.approx(4**reached.cards.value)


def test_what_a_scenario_chooses_stands():
    assert network("topology.cards=4", MINE) == 0.8
    assert load_scenario("zeropp-log", ["compute.overlap_slowdown=1"]).compute.overlap_slowdown == 1.0


def test_a_stack_without_such_numbers_changes_no_link():
    scenario = load_scenario("llama-2-7b-one-host", ["compute.stack=pytorch"])
    plain = load_scenario("llama-2-7b-one-host")
    assert [link.efficiency for link in scenario.cluster.links] == [link.efficiency for link in plain.cluster.links]
    assert scenario.compute.overlap_slowdown is None


def test_kernels_that_quantise_have_a_rate_of_their_own():
    scenario = load_scenario("zeropp-log")
    at = rates(scenario.accelerator, scenario.compute)
    part, reached = scenario.accelerator, software_stack("pytorch").reached["volta"]
    assert at.quantize == part.memory_bandwidth.value * reached.quantize.value
    assert rates(load_scenario("llama-2-7b-one-host").accelerator, scenario.compute).quantize > at.quantize


def test_cards_are_a_divisor_of_those_there_are():
    with pytest.raises(InputError, match="cards: 3: cards cannot be spread evenly; use a divisor of its 8"):
        load_scenario("zeropp-log", ["topology.cards=3"])
