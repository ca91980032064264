"""Kernels that run slower beside communication, drawn by hand.  Two ranks of `flat`: P parameters take P / 1e9 s."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.exposure import exposure
from simulator.schedules.tape import Tape


def side_by_side(asked, kernels, collectives):
    """Kernels one after another in the compute stream, beside them collectives, all of which may start at once."""
    tape = Tape()
    for index, seconds in enumerate(collectives):
        gather = Collective(
            kind="all_gather", elements=seconds * 1e9, bytes_per_element=2, group=asked.mesh.world(), role="gather"
        )
        tape.launch(gather, "communication", label=str(index))
    for index, seconds in enumerate(kernels):
        tape.launch(Kernel(kind="forward", time=seconds), "compute", label=str(index))
    timeline = simulate(stage(asked, tape.program()))
    return timeline, exposure(timeline.classes[0])


def slowed(scenario, factor):
    return scenario(compute={"overlap_slowdown": factor})


@pytest.mark.parametrize(("factor", "step"), [(1.76, 0.060 + (0.100 - 0.060 / 1.76)), (1.0, 0.100)])
def test_a11_overlap_slows_compute(scenario, factor, step):
    """NVIDIA/nccl #1428: 100 ms of compute, 60 ms of communication, slower by 1.76 while both run.

    communication  CCCCCC            60 ms, in which 60 / 1.76 = 34.1 ms of work are done
    compute        KKKKKKkkkkkkk     125.9 ms; the ideal is 100, one after the other 160
    """
    timeline, reading = side_by_side(slowed(scenario, factor), [0.100], [0.060])
    assert timeline.step_time == pytest.approx(step, rel=1e-12)
    assert reading.compute == pytest.approx(step, rel=1e-12)
    assert reading.slowed == pytest.approx(step - 0.100, rel=1e-9)
    assert reading.stalled == 0.0


def test_a_kernel_that_ends_before_the_collective_is_slow_all_the_time(scenario):
    """communication  CCCCCCCCCC         10
    compute        KKKKKKLLLLLL        3 alone take 6; 4 alone: 2 in the 4 that are left, then 2
    """
    timeline, reading = side_by_side(slowed(scenario, 2.0), [3.0, 4.0], [10.0])
    ends = [span.end for span in timeline.classes[0].stream("compute")]
    assert ends == [6.0, 12.0]
    assert (reading.compute, reading.slowed) == (12.0, 5.0)


def test_back_to_back_collectives_are_one_stretch(scenario):
    """Two collectives of 2, one kernel of 3 at half speed: 2 of work in 4, then 1."""
    timeline, _ = side_by_side(slowed(scenario, 2.0), [3.0], [2.0, 2.0])
    assert timeline.step_time == 5.0


def test_what_is_exposed_is_not_what_is_slowed(scenario):
    """One layer of ZeRO-3, gather 10, forward 25, backward 50, reduction 10: nothing runs side by side.

    communication  G          G   R      textbook: the reduction follows the backward
    compute           F          B
    """
    layers = [{"name": "l", "parameters": 10e9, "forward_time": "25 s", "backward_time": "50 s"}]
    asked = scenario(model={"sequence_length": 1, "layers": layers}, compute={"overlap_slowdown": 3.0})
    found = run_variant(asked, asked.variants[0])
    assert found.reading.slowed == 0.0
    assert found.result.step_time == found.reading.compute + found.reading.stalled


def test_hidden_communication_costs_what_it_slows(scenario):
    """Two layers, gather 10, F 25: G1 hides behind F0, of which 10 pass at half speed: F0 takes 30, F1 25.

    communication  G0 G1
    compute           F0 F0 F0 F1 F1 ..
    """
    layers = [{"name": "l", "count": 2, "parameters": 10e9, "forward_time": "25 s", "backward_time": "50 s"}]
    asked = scenario(model={"sequence_length": 1, "layers": layers}, compute={"overlap_slowdown": 2.0})
    found = run_variant(asked, asked.variants[0])
    forward = [span for span in found.timeline.classes[0].stream("compute") if span.launch.phase == "forward"]
    assert [span.end for span in forward] == [40.0, 65.0]
    assert found.result.slowed_time == found.reading.slowed > 0
    assert found.result.exposed["counterfactual"] == pytest.approx(found.reading.stalled + found.reading.slowed)


@given(
    kernels=st.lists(st.floats(0.01, 10), min_size=1, max_size=5),
    collectives=st.lists(st.floats(0.01, 10), min_size=1, max_size=5),
    factor=st.floats(1, 4),
)
def test_the_work_done_is_the_work_there_was(scenario, kernels, collectives, factor):
    """The collectives are one stretch c from the start; kernels of t in all end at c + t - c/s, or at s t within it."""
    timeline, _ = side_by_side(slowed(scenario, factor), kernels, collectives)
    work, stretch = sum(kernels), sum(collectives)
    end = timeline.classes[0].stream("compute")[-1].end
    assert end == pytest.approx(min(factor * work, stretch + work - stretch / factor))


def test_a_factor_below_one_is_refused(scenario):
    with pytest.raises(InputError, match=r"compute\.overlap_slowdown"):
        slowed(scenario, 0.5)
