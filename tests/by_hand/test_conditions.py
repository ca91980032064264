"""Traffic of others and faults, drawn by hand.

Two ranks of `flat` at 1 GB/s: gathering or reducing a layer of P parameters takes P / 1e9 seconds.  All numbers are
exact in binary, so equality is exact.
"""

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant
from tests.by_hand.test_overlap import layer, model, outcome
from tests.conftest import flat

GATHER = {"model": model(layer("l", 0, 0, 10))}
"""One layer that computes in no time: gather 10, gather 10, reduce 10, so 30 seconds if nothing disturbs."""


FLAT = flat(hosts=2, bandwidth="1 GB/s")


def step(scenario, **topology):
    return outcome(scenario, **GATHER, topology=FLAT | topology).result.step_time


def undisturbed(scenario):
    return step(scenario)


def test_half_of_the_link_takes_twice_as_long(scenario):
    assert step(scenario, background=[{"link": "link", "bandwidth": "0.5 GB/s"}]) == 2 * undisturbed(scenario)


def test_a_transfer_that_never_ends_takes_half_of_the_link(scenario):
    assert step(scenario, background=[{"link": "link", "transfers": 1}]) == 2 * undisturbed(scenario)


def test_three_transfers_leave_a_quarter(scenario):
    assert step(scenario, background=[{"link": "link", "transfers": 3}]) == 4 * undisturbed(scenario)


def test_a_link_that_degrades_slows_what_is_left(scenario):
    """|- at full speed -|---- at a quarter ----

    0                    a                    a + 4 (T - a)
    """
    whole = undisturbed(scenario)
    moment = whole / 4
    found = step(scenario, faults=[{"link": "link", "at": f"{moment} s", "remaining": 0.25}])
    assert found == moment + 4 * (whole - moment)


def test_a_link_that_fails_and_comes_back_costs_exactly_its_absence(scenario):
    """|- 8 -|  down 16  |- the rest -|"""
    whole = undisturbed(scenario)
    assert whole > 8
    found = step(scenario, faults=[{"link": "link", "at": "8 s", "until": "24 s", "remaining": 0}])
    assert found == whole + 16


def test_what_a_fault_costs_is_contention(scenario):
    asked = scenario(**GATHER, topology=FLAT | {"faults": [{"link": "link", "remaining": 0.5}]})
    whole = undisturbed(scenario)
    causes = run_variant(asked, asked.variants[0]).result.as_json()["exposed_by_cause"]
    assert (causes["bandwidth"] + causes["queueing"], causes["contention"]) == (whole, whole)


def test_one_link_of_many_slows_only_who_crosses_it(scenario):
    """Under `ranks: all` a fault of host 0's link slows the collectives that cross it: in a world of two, all."""
    whole = undisturbed(scenario)
    asked = {"faults": [{"link": "link", "remaining": 0.5, "host": 0}]}
    everyone = outcome(scenario, **GATHER, topology=FLAT | asked, run={"ranks": "all"}).result.step_time
    assert everyone == 2 * whole == step(scenario, **asked)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"faults": [{"link": "lnik", "remaining": 0.5}]}, ["did you mean 'link'?", "faults[0].link"]),
        ({"faults": [{"link": "link", "remaining": 0}]}, ["until"]),
        ({"faults": [{"link": "link", "remaining": 0.5, "at": "3 s", "until": "2 s"}]}, ["ends before it starts"]),
        ({"faults": [{"link": "link", "remaining": 0.5, "host": 7}]}, ["use 0 to 1"]),
        ({"faults": [{"link": "link", "remaining": 1}]}, ["remaining"]),
        ({"background": [{"link": "link"}]}, ["bandwidth", "transfers"]),
        ({"background": [{"link": "link", "bandwidth": "1 GB/s"}]}, ["leaves nothing"]),
    ],
)
def test_wrong_entries_are_told(scenario, entry, words):
    with pytest.raises(InputError) as caught:
        scenario(**GATHER, topology=FLAT | entry)
    assert all(word in str(caught.value) for word in words)
