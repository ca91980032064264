"""How much is enough, on steps that can be drawn by hand.

Two ranks of `flat`; an all-reduce R of a layer of 1e9 parameters takes 2/b s at b GB/s, F and B are forward and
backward of one of four layers.
"""

import pytest

from simulator.require import Trial, goal, knob, narrowed, require
from tests.conftest import flat


def zero0(scenario, **sections):
    layer = {"name": "layer", "count": 4, "parameters": 1e9, "forward_time": "2 s", "backward_time": "1500 ms"}
    model = {"sequence_length": 1, "layers": [layer]}
    return scenario(**{"model": model, "variants": [{"name": "zero0", "zero_stage": 0}], **sections})


def needed(found, asked, name, span=None):
    variant = found.variants[0]
    answer = require(found, variant, goal(*asked), [knob(found, variant, name, span)])
    (item,) = answer.requirements
    return item


def test_the_bandwidth_that_a_step_needs(scenario):
    """A step of 16.5 s leaves four R 7 s, so b = 8/7.

    compute    F 0-8    B 8-9.5 9.5-11 11-12.5 12.5-14
    network                   R 9.5-11.25 11.25-13 13-14.75 14.75-16.5
    """
    found = needed(zero0(scenario), ("step time", "16.5 s"), "link.bandwidth")
    assert found.below.value < 8e9 / 7 <= found.value <= 1.01 * found.below.value
    assert found.reached == pytest.approx(9.5 + 8e9 / found.value, rel=1e-12)
    assert found.below.reached == pytest.approx(9.5 + 8e9 / found.below.value, rel=1e-12)
    assert (found.lost, found.earlier, found.floor) == (None, (), None)


def test_a_bandwidth_that_hides_all_reductions_but_the_last(scenario):
    """Of 15 s the last R may take 1, so b = 2; the others lie beside backward.

    compute    F 0-8    B 8-9.5 9.5-11 11-12.5 12.5-14
    network                   R 9.5-10.5 11-12 12.5-13.5 14-15
    """
    found = needed(zero0(scenario), ("step time", "15 s"), "link.bandwidth", "1..3 GB/s")
    assert found.below.value < 2e9 <= found.value <= 1.01 * found.below.value
    assert found.reached == pytest.approx(14 + 2e9 / found.value, rel=1e-12)


def test_what_bandwidth_alone_cannot_reach_is_told_with_its_reason(scenario):
    """Each R has four crossings of 0.25 s, and its bytes take 2/64 s at 64 GB/s: 1.03125 of 15.03125 s are exposed.

    compute    F 0-8    B 8-9.5     9.5-11         11-12.5         12.5-14
    network                   R 9.5-10.53 11-12.03 12.5-13.53 14-15.03
    """
    slow = zero0(scenario, topology=flat(2, "1 GB/s", "0.25 s"))
    found = needed(slow, ("exposed", "5%"), "link.bandwidth")
    assert found.value is None
    assert found.floor.value == 64e9
    assert found.floor.reached == 1.03125 / 15.03125
    assert found.floor.causes == {"latency": 1.0, "bandwidth": 0.03125}
    assert found.floor.busiest == "link"


def test_the_accumulation_that_a_share_needs(scenario):
    """A micro-step computes for 14 s, only the last reduces and waits 3.5 s: 3.5/(14 k + 3.5) <= 5 % from k = 5 on."""
    found = needed(zero0(scenario), ("exposed", "5%"), "gradient_accumulation")
    assert (found.value, found.reached) == (5.0, 3.5 / 73.5)
    assert (found.below.value, found.below.reached) == (4.0, 3.5 / 59.5)
    assert found.lost is None


def test_a_step_that_gets_longer_is_short_enough_until_it_is_lost(scenario):
    """k micro-steps take 14 k + 3.5 s: 31.5 s are enough for two, and not for three."""
    found = needed(zero0(scenario), ("step time", "31.5 s"), "gradient_accumulation", "1..8")
    assert (found.value, found.reached, found.below) == (1.0, 17.5, None)
    assert (found.until, found.lost.value, found.lost.reached) == (2.0, 3.0, 45.5)


def test_any_other_key_within_its_range(scenario):
    """Four R of 2 s and four crossings follow the first B: 9.5 + 4 (2 + 4 l) s are 20 for l = 156.25 ms."""
    found = needed(zero0(scenario), ("step time", "20 s"), "topology.links.link.latency", "1..500 ms")
    assert (found.value, found.below, found.unit) == (1.0, None, "ms")
    assert found.until <= 156.25 < found.lost.value <= 1.01 * found.until


def test_parts_of_a_route_are_turned_together(scenario):
    """Card and PCIe of DGX A100 are equally fast: one alone gains nothing from more, both together do."""
    layer = {"name": "layer", "count": 2, "parameters": 1e9, "forward_time": "1 s", "backward_time": "1 s"}
    two = scenario(
        model={"sequence_length": 1, "layers": [layer]},
        topology={"cluster": "dgx-a100-80gb", "hosts": 2, "accelerators_per_host": 1, "algorithm": "ring"},
    )
    asked = ("exposed", "2.5%")
    assert needed(two, asked, "network.bandwidth").value is None
    assert needed(two, asked, "pcie.bandwidth").value is None
    both = needed(two, asked, "network.bandwidth+pcie.bandwidth")
    assert both.now == 25e9
    assert both.value > 25e9
    assert both.below.value < both.value <= 1.01 * both.below.value


LAYERS_80B = [{"name": "layer", "count": 80, "parameters": 1e9, "forward_time": "75 ms", "backward_time": "150 ms"}]


def test_a6_full_overlap_needs_26_7_gigabytes_per_second(scenario):
    """480 GB next to 18 s of compute.  A gather or reduction of 2 GB takes 75 ms then, and three have nothing beside
    them: the first gather, the first of backward and the last reduction are 225 of 18,225 ms, 1.2346 %."""
    model = {"sequence_length": 1, "layers": LAYERS_80B}
    asked = scenario(model=model, topology=flat(hosts=512, bandwidth="50 GB/s"))
    found = needed(asked, ("exposed", "1.235%"), "link.bandwidth")
    assert found.value == pytest.approx(26.7e9, rel=0.01)
    assert found.below.value < found.value <= 1.01 * found.below.value
    assert found.reached <= 0.01235 < found.below.reached


def test_rows_before_the_last_are_told(scenario):
    """Enough are 3 to 5, and 20 on: of 1, 2, 4, 8, 16, 32, 64 first 4, 32 and 64 are; then 18, 20 and 19 are tried."""
    found = zero0(scenario)
    item = knob(found, found.variants[0], "gradient_accumulation", None)
    assert item.first == (1, 2, 4, 8, 16, 32, 64)

    def attempt(values):
        return [Trial(value=value, reached=value, met=3 <= value <= 5 or value >= 20, problem=None) for value in values]

    trials = {trial.value: trial.met for trial in narrowed(item, attempt)}
    assert [value for value, met in trials.items() if met] == [4, 20, 24, 32, 64]
    assert trials[19] is False
