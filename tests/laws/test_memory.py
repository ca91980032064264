"""What holds for memory, whatever the model and the number of ranks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from simulator.explore import run_variant
from simulator.laws.memory import MIXED, model_states
from simulator.readings.footprint import over_time, peak
from simulator.readings.report import states_of
from simulator.schedules.ownership import states
from simulator.world.mesh import Mesh
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Model, Module
from simulator.world.policy.zero import DeepSpeedPolicy
from tests.laws.strategies import scenarios


@given(st.floats(1.0, 1e12), st.integers(1, 4096), st.sampled_from(sorted(MIXED)))
def test_a_higher_stage_keeps_no_more(elements, ranks, precision):
    kept = [sum(model_states(elements, MIXED[precision], stage, ranks).values()) for stage in range(4)]
    assert all(lower >= higher * (1 - 1e-12) for lower, higher in pairwise(kept))


shapes = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=8)


@given(shapes, st.integers(1, 64), st.integers(1, 3))
def test_padding_adds_less_than_a_row_of_ranks(tensors, ranks, stage):
    """At stage 3 less than one element for each tensor, at stages 1 and 2 less than two for all of them."""
    parameters = tuple(Tensor(f"m.{number}", shape) for number, shape in enumerate(tensors))
    root = Module(name="m", kind="Linear", parameters=parameters)
    model = Model(name="m", sequence_length=1, layers=(), root=root)
    kept = states(DeepSpeedPolicy(zero_stage=stage, dtype="bf16"), model, Mesh(hosts=1, devices_per_host=ranks), "bf16")
    exact = sum(tensor.elements for tensor in parameters) / ranks
    more = len(tensors) if stage == 3 else 2
    assert exact <= kept["optimizer states"] / 12 * (1 + 1e-12)
    assert kept["optimizer states"] / 12 < exact + more


@given(scenarios())
def test_peak_reserved_and_curve_agree(scenario, sections):
    asked = scenario(**sections)
    outcome = run_variant(asked, asked.variants[0])
    memory, changes = outcome.result.memory, outcome.timeline.classes[0].memory
    kept = states_of(asked, outcome.variant)
    moments = over_time(kept, changes, outcome.timeline.step_time)
    close = 1e-9 * memory["peak"] + 1.0
    assert abs(max(moment.total for moment in moments) - memory["peak"]) <= close
    assert abs(sum(memory["items"].values()) - memory["peak"]) <= close
    assert memory["reserved"] >= memory["peak"] - close
    assert peak(kept, changes).peak == memory["peak"]
    # what is left at the end is what the next step begins with
    assert abs(moments[-1].total - sum(kept.values())) <= close
    assert all(abs(moments[-1].items[name] - size) <= close for name, size in kept.items())
