"""What a step would gain at most, from timelines drawn by hand.  Two ranks of `flat`: P parameters take P / 1e9 s."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.explore import run_variant
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.ceilings import ceilings
from simulator.readings.exposure import exposure
from simulator.schedules.tape import Tape


def gather(asked, seconds):
    group = asked.mesh.world()
    return Collective(kind="all_gather", elements=seconds * 1e9, bytes_per_element=2, group=group, role="gather")


def bounds(asked, tape, mfu):
    timeline = simulate(stage(asked, tape.program()))
    return timeline.step_time, ceilings(exposure(timeline.classes[0]), timeline.step_time, mfu)


def test_a5_ceilings_of_a_profiled_step(scenario):
    """marin #8053: a step of 18.02 s, 14.85 s of kernels, 6.73 s of collectives, 5.09 s of recompute, MFU 19.41 %.

    communication  G 3.17       G 3.56
    compute        waits 3.17   F 4.00 | R 5.09 | B 5.76      14.85

    So 3.17 s are exposed and 3.56 of 6.73 s hidden, 52.9 %.  With all of it hidden the step takes 14.85 s, without
    recompute 18.02 - 5.09 = 12.93 s.
    """
    asked, tape = scenario(), Tape()
    tape.wait("compute", tape.launch(gather(asked, 3.17), "gathers", label="first"))
    tape.launch(gather(asked, 3.56), "gathers", label="second")
    for kind, seconds in (("forward", 4.00), ("recompute", 5.09), ("backward", 5.76)):
        tape.launch(Kernel(kind=kind, time=seconds), "compute", label="layer")
    step, found = bounds(asked, tape, mfu=0.1941)
    assert step == pytest.approx(18.02, rel=1e-12)
    assert found.hidden == pytest.approx(0.529, abs=5e-4)
    assert found.perfect_overlap_step_time == pytest.approx(14.85, rel=1e-12)
    assert found.perfect_overlap_mfu == pytest.approx(0.2355, abs=5e-5)
    assert found.no_recompute_step_time == pytest.approx(12.93, rel=1e-12)
    assert found.no_recompute_mfu == pytest.approx(0.2705, abs=5e-5)


def test_no_overlap_makes_the_network_faster(scenario):
    """communication  G 8.0       4 of compute hide half of it, and no schedule ends before 8
    compute        K 4.0
    """
    asked, tape = scenario(), Tape()
    tape.wait("compute", tape.launch(gather(asked, 4.0), "gathers", label="first"))
    tape.launch(gather(asked, 4.0), "gathers", label="second")
    tape.launch(Kernel(kind="forward", time=4.0), "compute", label="layer")
    step, found = bounds(asked, tape, mfu=0.25)
    assert (step, found.hidden, found.perfect_overlap_step_time) == (8.0, 0.5, 8.0)
    assert found.perfect_overlap_mfu == 0.25


def test_without_communication_nothing_is_hidden_and_nothing_is_gained(scenario):
    asked, tape = scenario(), Tape()
    tape.launch(Kernel(kind="forward", time=4.0), "compute", label="layer")
    step, found = bounds(asked, tape, mfu=0.25)
    assert found.hidden is None
    assert found.perfect_overlap_step_time == found.no_recompute_step_time == step == 4.0


times = st.integers(0, 9)


@given(
    layers=st.lists(st.tuples(times, times, times.filter(bool)), min_size=1, max_size=4),
    zero_stage=st.integers(0, 3),
)
def test_a_step_without_checkpointing_stays_under_the_ceiling_of_the_one_with_it(scenario, layers, zero_stage):
    """Recompute is one forward of each layer; without it the step shrinks by that or, where it hid something, less."""
    sections = [
        {"name": f"l{number}", "parameters": 1e9 * size, "forward_time": f"{f} s", "backward_time": f"{b} s"}
        for number, (f, b, size) in enumerate(layers)
    ]

    def result(checkpointing):
        asked = scenario(
            model={"sequence_length": 1, "layers": sections},
            training={"micro_batch": 1, "activation_checkpointing": checkpointing},
            variants=[{"name": "v", "zero_stage": zero_stage}],
        )
        return run_variant(asked, asked.variants[0]).result

    twice, once = result("full"), result("none")
    bound = twice.ceilings["no_recompute_step_time"]
    assert bound == twice.step_time - sum(forward for forward, _, _ in layers)
    assert bound <= once.step_time <= twice.step_time
    assert once.ceilings["no_recompute_step_time"] == once.step_time
