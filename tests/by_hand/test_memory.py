"""Memory of tiny programs, worked out by hand."""

from dataclasses import replace

import pytest

from simulator.clock.timeline import MemoryChange
from simulator.explore import run_variant
from simulator.laws.memory import MIXED, kept_states
from simulator.readings.footprint import Beside, Footprint, over_time, peak
from simulator.readings.report import states_of
from simulator.schedules.ownership import states
from simulator.world.mesh import Mesh
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Model, Module
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.zero import DeepSpeedPolicy
from tests.conftest import flat

GB = 1e9
INSTANT = {"kernel_time": "0 s", "collective_time": "0 s", "hook_time": "0 s"}
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 256,
}  # fmt: skip

# compute  states 16 |  A 0-2: 8  |        |
# gather                          | G 2-4: 6
CHANGES = [
    MemoryChange(0.0, "activations", 8.0),
    MemoryChange(2.0, "activations", -8.0),
    MemoryChange(2.0, "gathered weights", 6.0),
    MemoryChange(4.0, "gathered weights", -6.0),
]


def test_what_one_stream_frees_another_cannot_have():
    """16 + 8 are allocated at most; the allocator holds 16 + 8 for compute and 6 for gathers."""
    most = peak({"weights": 16.0}, CHANGES, {"gathered weights": "all_gather"})
    found = Footprint(most=most, capacity=32.0, beside=Beside(2.0, 0.25))
    assert (most.peak, most.at, dict(most.items)) == (24.0, 0.0, {"weights": 16.0, "activations": 8.0})
    assert (found.reserved, found.device) == (30.0, 32.0)
    assert found.needed == 24.0 * 1.25 + 2.0 == 32.0
    assert found.fits


def test_on_one_stream_it_can():
    found = Footprint(most=peak({"weights": 16.0}, CHANGES), capacity=24.0)
    assert found.reserved == found.device == found.needed == 24.0
    assert found.fits
    assert not replace(found, capacity=23.0).fits


def test_memory_over_time_shows_every_instant_fullest_and_last():
    moments = over_time({"weights": 16.0}, CHANGES, 5.0)
    assert [(moment.at, moment.total) for moment in moments] == [
        (0.0, 16.0), (0.0, 24.0), (2.0, 22.0), (4.0, 16.0), (5.0, 16.0),
    ]  # fmt: skip
    assert moments[2].items == {"weights": 16.0, "activations": 0.0, "gathered weights": 6.0}


@pytest.mark.parametrize("variant", [{"zero_stage": 2}, {"ddp": {}}, {"fsdp2": {}}], ids=str)
@pytest.mark.parametrize(("precision", "peak"), [("bf16", 4 + 8), ("fp32", 4 + 8)])
def test_backward_of_the_loss_holds_twelve_bytes_per_word(scenario, variant, precision, peak):
    """Log-probabilities, their gradients and those of the logits, in fp32: 8 tokens, 256 words.

    fp32  forward 4 + 4, backward 4 + 8;  bf16  forward 4 + 6, backward 4 + 8
    """
    found = scenario(
        model={"config": LLAMA, "sequence_length": 8},
        training={"micro_batch": 1, "precision": precision},
        topology={"cluster": "dgx-h100", "hosts": 1},
        variants=[{"name": "v", **variant}],
    )
    changes = run_variant(found, found.variants[0]).timeline.classes[0].memory
    loss = [change.amount / (8 * 256) for change in changes if change.item == "logits and loss"]
    forward = 6 if precision == "bf16" else 4
    assert loss == [4 + forward, -forward, peak - 4, -peak]


@pytest.mark.parametrize("variant", [{"zero_stage": 2}, {"fsdp2": {}}], ids=str)
def test_a_fused_loss_holds_the_logits_and_their_gradient(scenario, variant):
    """Of 8 tokens and 256 words in bf16: 2 B from forward to backward, 2 more in backward."""
    found = scenario(
        model={"config": LLAMA, "sequence_length": 8},
        training={"micro_batch": 1, "fused_loss": True},
        topology={"cluster": "dgx-h100", "hosts": 1},
        variants=[{"name": "v", **variant}],
    )
    changes = run_variant(found, found.variants[0]).timeline.classes[0].memory
    loss = [change.amount / (8 * 256) for change in changes if change.item == "logits and loss"]
    assert [size for size in loss if size] == [2, 2, -4]


@pytest.mark.parametrize(("precision", "arrays"), [("bf16", 8), ("fp32", 6)])
def test_a_block_keeps_what_backward_reads(scenario, precision, arrays):
    """Of 64 wide and 128 inside: *arrays* by RMS norms, queries, keys, values and output, four of the wide ones."""
    found = scenario(model={"config": LLAMA, "sequence_length": 8}, training={"micro_batch": 1, "precision": precision})
    each = 2 if precision == "bf16" else 4
    assert found.model.layers[1].python_bytes == each * (arrays - 4) * 64  # two kernels keep their inputs and outputs
    assert found.model.layers[1].activation_bytes == each * (arrays * 64 + 4 * 64 + 4 * 128)


STAGE = {"bf16": {"enabled": True}}
TEMPORARIES = [  # bytes per parameter of 1e9 on 4 ranks are gigabytes
    ({"zero_stage": 3}, 0),
    ({"deepspeed": STAGE | {"zero_optimization": {"stage": 0}}}, 4),
    ({"deepspeed": STAGE | {"zero_optimization": {"stage": 1}}}, 4 / 4),
    ({"deepspeed": STAGE | {"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}}, 0),
    ({"deepspeed": STAGE | {"zero_optimization": {"stage": 2}}}, 4 / 4),
    ({"deepspeed": STAGE | {"zero_optimization": {"stage": 3}}}, 4 / 4),
    ({"deepspeed": STAGE | {"zero_optimization": {"stage": 3, "sub_group_size": 100_000_000}}}, 0.4),
    ({"ddp": {}}, 2),
    ({"fsdp1": {"param_dtype": "bf16"}}, 4 / 4),
    ({"fsdp2": {}}, 2 / 4),
]


def one_layer(scenario, variant, **training):
    """1e9 parameters on 4 ranks in bf16; forward 1 s, backward 1 s."""
    layers = [{"name": "l", "parameters": 1e9, "forward_time": "1 s", "backward_time": "1 s"}]
    return scenario(
        model={"sequence_length": 1, "layers": layers},
        topology=flat(hosts=4, bandwidth="1 TB/s"),
        training={"micro_batch": 1, **training},
        host=INSTANT,
        variants=[{"name": "v", **variant}],
    )


@pytest.mark.parametrize(("variant", "size"), TEMPORARIES, ids=str)
def test_an_update_has_temporaries(scenario, variant, size):
    found = one_layer(scenario, variant)
    changes = run_variant(found, found.variants[0]).timeline.classes[0].memory
    temporaries = [change.amount / GB for change in changes if change.item == "optimizer temporaries"]
    assert temporaries == ([size, -size] if size else [])


@pytest.mark.parametrize(("stage", "accumulate", "sizes"), [
    (0, None, [2, -2]), (1, None, [2, -2]), (1, "fp32", [2, -2]), (2, None, [2 / 4, -2 / 4]),
    (2, "fp32", [4 / 4, -4 / 4]), (3, None, []),
])  # fmt: skip
def test_gradients_come_with_the_first_backward_and_go_with_the_update(scenario, stage, accumulate, sizes):
    """F 0-1 B 1-2 F 2-3 B 3-4 ... U: once for two micro-batches, and never where a buffer is kept."""
    config = {**STAGE, "zero_optimization": {"stage": stage}}
    config |= {"data_types": {"grad_accum_dtype": accumulate}} if accumulate else {}
    found = one_layer(scenario, {"deepspeed": config}, gradient_accumulation=2)
    played = run_variant(found, found.variants[0]).timeline.classes[0]
    gradients = [change for change in played.memory if change.item == "gradients"]
    assert [change.amount / GB for change in gradients] == sizes
    if sizes:
        update = next(span for span in played.spans if span.launch.label == "optimizer")
        assert gradients[0].at < 3.0
        assert gradients[1].at == update.end


def test_every_framework_pads_in_its_own_way():
    """Rows of 3 x 4 and 5 elements on 2 ranks: by row 2 x 4 + 3, by parameter 6 + 3, all together 17 to 20."""
    module = Module(name="m", kind="Linear", parameters=(Tensor("m.weight", (3, 4)), Tensor("m.bias", (5,))))
    model = Model(name="m", sequence_length=1, layers=(), root=module)
    mesh = Mesh(hosts=1, devices_per_host=2)

    def optimizer(policy):
        return states(policy, model, mesh, "bf16")["optimizer states"]

    assert optimizer(Fsdp2Policy(param_dtype="bf16")) == 8 * (2 * 4 + 3)
    assert optimizer(DeepSpeedPolicy(zero_stage=3, dtype="bf16")) == 12 * (6 + 3)
    assert optimizer(DeepSpeedPolicy(zero_stage=1, dtype="bf16")) == 12 * 20 / 2
    assert optimizer(DdpPolicy()) == 4 * 17


def test_the_place_of_half_precision_logits_is_a_hole_in_backward_of_the_loss(scenario):
    """2 B for each of a million words and 64 tokens, which nothing that backward of the loss makes fits into."""
    found = scenario(
        model={"config": LLAMA | {"vocab_size": 1_000_000}, "sequence_length": 64},
        topology={"cluster": "dgx-h100", "hosts": 1},
        variants=[{"name": "v", "ddp": {}}],
    )
    outcome = run_variant(found, found.variants[0])
    memory, changes = outcome.result.memory, outcome.timeline.classes[0].memory
    plain = peak(states_of(found, outcome.variant), changes)
    assert (memory["peak_phase"], memory["peak_module"]) == ("backward", "lm_head")
    assert memory["reserved"] - plain.reserved == 2 * 64 * 1_000_000


def test_gradients_that_are_not_kept_are_not_among_the_states():
    assert kept_states(8.0, 0.0, 4.0, MIXED["bf16"]) == {"weights": 16.0, "gradients": 0.0, "optimizer states": 48.0}
