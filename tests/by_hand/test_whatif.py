"""What a better resource gains, on steps that can be drawn by hand.

Two ranks of `flat`; an all-reduce of a layer of 1e9 parameters takes 2 s at 1 GB/s, F and B are forward and backward of
one of four layers, R its all-reduce.
"""

import pytest

from simulator.whatif import whatif
from tests.conftest import flat


def asked(scenario, forward, backward, **sections):
    layer = {"name": "layer", "count": 4, "parameters": 1e9, "forward_time": forward, "backward_time": backward}
    model = {"sequence_length": 1, "layers": [layer]}
    return scenario(**{"model": model, "variants": [{"name": "zero0", "zero_stage": 0}], **sections})


def answers(found):
    """By resource and direction."""
    answer = whatif(found, found.variants[0])
    return {(item.resource, item.change): item for item in answer.sensitivities}, answer


def gains(item):
    return [gain.gain for gain in item.gains]


def test_a_path_that_stays_gains_what_it_carries(scenario):
    """Of 26 s kernels carry 24 and the link 2; twice as fast they save half of that.

    compute    F 0-8    B 8-12 12-16 16-20 20-24
    network                  R 12-14 16-18 20-22 24-26
    """
    found, answer = answers(asked(scenario, "2 s", "4 s"))
    assert answer.step_time == 26.0
    link, kernels = found["link bandwidth", "better"], found["every kernel", "better"]
    assert (link.on_path, kernels.on_path) == pytest.approx((2.0, 24.0), rel=1e-12)
    assert (link.slope, kernels.slope) == pytest.approx((2.0, 24.0), rel=1e-12)
    assert gains(link)[1] == 1.0
    assert gains(kernels)[1] == 12.0
    assert gains(link)[0] == pytest.approx(2.0 * (1 - 1 / 1.1), rel=1e-12)
    assert all(gain.holds and gain.foreseen == pytest.approx(gain.gain) for gain in (*link.gains, *kernels.gains))
    assert next(iter(found)) == ("every kernel", "better")


def test_a_path_that_switches_gains_less_than_it_carries(scenario):
    """The link carries 8 of 17.5 s; at twice its bandwidth compute ends at 14 and one all-reduce of 1 s follows.

    compute    F 0-8    B 8-9.5 9.5-11 11-12.5 12.5-14
    network                   R 9.5-11.5 11.5-13.5 13.5-15.5 15.5-17.5
    """
    found, answer = answers(asked(scenario, "2 s", "1.5 s"))
    link = found["link bandwidth", "better"]
    assert answer.step_time == 17.5
    assert link.on_path == pytest.approx(8.0, rel=1e-12)
    assert link.slope == pytest.approx(8.0, rel=1e-12)
    assert [gain.holds for gain in link.gains] == [True, False]
    assert gains(link)[1] == 2.5
    assert link.gains[1].foreseen == 4.0


def test_latency_and_the_host(scenario):
    """The host takes 0.5 s a launch, each R four crossings of 0.5 s; kernels, and bytes but for 2 us, take no time.

    host       F 0.5 1 1.5 2  B 2.5  R 3
    network                          R 3-5 5-7 7-9 9-11
    """
    slow = flat(2, "1000000 GB/s", "0.5 s")
    found, answer = answers(asked(scenario, "0 s", "0 s", topology=slow, host={"launch_time": "0.5 s"}))
    host, latency = found["host speed", "better"], found["every latency", "better"]
    assert answer.step_time == pytest.approx(11.0, abs=1e-5)
    assert (host.on_path, latency.on_path) == pytest.approx((3.0, 8.0), rel=1e-9)
    assert (gains(host)[1], gains(latency)[1]) == pytest.approx((1.5, 4.0), abs=1e-5)
    assert gains(found["link latency", "better"]) == pytest.approx(gains(latency), rel=1e-9)


def test_a_path_that_switches_at_once_is_told(scenario):
    """With crossings of 0.25 s each R ends when the next is launched; the last launch is at 7 s whatever R takes.

    host       ... R 3  B 3.5  R 4  B 4.5  R 5  B 5.5  R 6  optimizer 6.5  end 7
    network        R 3-4       4-5         5-6         6-7
    """
    tied = flat(2, "1000000 GB/s", "0.25 s")
    found, answer = answers(asked(scenario, "0 s", "0 s", topology=tied, host={"launch_time": "0.5 s"}))
    latency = found["every latency", "better"]
    assert answer.step_time == pytest.approx(7.0, abs=1e-5)
    assert latency.on_path == pytest.approx(4.0, rel=1e-9)
    assert latency.slope == pytest.approx(0.0, abs=1e-3)
    assert [gain.holds for gain in latency.gains] == [False, False]


def test_communication_that_slows_kernels_is_a_resource(scenario):
    """Beside R, which takes 2 s, B of 4 s takes 5; three of them do, so that a step of 26 s takes 29."""
    found, answer = answers(asked(scenario, "2 s", "4 s", compute={"overlap_slowdown": 2.0}))
    share = found["GPU share of communication", "better"]
    assert answer.step_time == 29.0
    assert share.on_path == pytest.approx(3.0, rel=1e-12)
    assert gains(found["link bandwidth", "better"])[1] == 2.5
    assert found["link bandwidth", "better"].on_path == pytest.approx(5.0, rel=1e-12)


def test_sizes_change_in_both_directions_and_have_no_slope(scenario):
    """Of stage 3 with a prefetch of one layer; without it every gather is exposed."""
    found, answer = answers(asked(scenario, "2 s", "4 s", variants=[{"name": "zero3", "zero_stage": 3}]))
    fewer = found["prefetch", "smaller"]
    assert (fewer.now, fewer.on_path, fewer.slope, fewer.gains[1].holds) == ("1", None, None, None)
    # forward: three gathers of 1 s no longer hide behind the layer before; backward: those of layers 2, 1, 0, each of
    # which may already stand behind a reduction
    assert gains(fewer)[1] <= -6.0
    assert ("prefetch", "larger") not in found
    assert "prefetch" not in answer.without_effect


def test_what_the_step_does_not_use_is_named(scenario):
    _, answer = answers(asked(scenario, "2 s", "4 s"))
    assert "accelerator matrix rate" in answer.without_effect
    assert not any(name.startswith("server") for name in answer.without_effect)
