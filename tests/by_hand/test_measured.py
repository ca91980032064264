"""Measured layers in place of modelled ones, drawn by hand.  Two ranks of `flat`: P parameters take P / 1e9 s."""

import math

import pytest

from simulator.clock.stage import stage
from simulator.explore import run_variant
from simulator.laws.kernels import Kernel
from simulator.schedules.record import record

TWO_LAYERS = [{"name": "l", "count": 2, "parameters": 1e9, "forward_time": "2 s", "backward_time": "4 s"}]
"""Gathered in 1 s each."""

FSDP2 = [{"name": "v", "fsdp2": {}}]

INSTANT = {"kernel_time": "0 s", "collective_time": "0 s", "hook_time": "0 s"}

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 256,
}  # fmt: skip


@pytest.fixture
def measured(scenario, tmp_path):
    """A scenario with a table of the given lines."""

    def make(*lines, **sections):
        table = tmp_path / "layers.csv"
        table.write_text("\n".join(lines) + "\n")
        compute = sections.pop("compute", {})
        return scenario(compute={**compute, "measured": str(table)}, **sections)

    return make


def played(asked):
    return run_variant(asked, asked.variants[0])


def times(asked):
    """What each launched kernel takes: kind, module or layer, time."""
    program = record(asked, asked.variants[0])
    cast = stage(asked, program).classes[0]
    return [
        (program.operations[launch.operation].kind, launch.label, cast.times[launch.operation])
        for launch in program.launches
        if isinstance(program.operations[launch.operation], Kernel)
    ]


def test_a_row_takes_the_place_of_the_times_of_one_layer(measured):
    """The second layer takes 3 and 7 s instead of 2 and 4: a step of 19 s instead of 15.

    forward   G0 G1              F0 waits 1; F0 1-3, F1 3-6
    backward  G1 G0              G1 6-7, B1 7-14, B0 14-18
                      R1   R0    R0 18-19
    """
    model = {"sequence_length": 1, "layers": TWO_LAYERS}
    found = played(measured("layer,forward,backward", "l.1,3 s,7 s", model=model))
    assert found.result.step_time == 19.0
    assert found.reading.compute == 3 + 7 + 2 + 4
    assert found.result.measured == ("l.1",)


@pytest.mark.parametrize(("row", "again"), [("l.1,3,7,5000", 5), ("l.1,3,7,", 3)])
def test_a_recompute_takes_its_own_time_or_that_of_forward(measured, row, again):
    model = {"sequence_length": 1, "layers": TWO_LAYERS}
    training = {"micro_batch": 1, "activation_checkpointing": "full"}
    found = played(measured("layer,forward_s,backward_s,recompute_ms", row, model=model, training=training))
    assert found.result.step_time == 19 + 2 + again
    assert found.reading.recomputed == 2 + again


@pytest.mark.parametrize("variant", [{"fsdp1": {}}, {"fsdp2": {}}], ids=["fsdp1", "fsdp2"])
def test_frameworks_take_the_times_too(measured, variant):
    """First gather 1, forward 2 + 3, backward 7 + 4, last reduction 1; gathers of backward hide behind forward."""
    model = {"sequence_length": 1, "layers": TWO_LAYERS}
    rates = {"achieved": "1 TFLOP/s"}  # copies are free
    variants = [{"name": "v", **variant}]
    found = played(
        measured("layer,forward,backward", "l.1,3 s,7 s", model=model, variants=variants, host=INSTANT, compute=rates)
    )
    assert found.result.step_time == 18.0


@pytest.mark.parametrize("variant", [{"zero_stage": 3}, {"fsdp2": {}}], ids=["textbook", "fsdp2"])
def test_the_optimizer_keeps_the_roofline(scenario, measured, variant):
    """Layers with given times leave the optimizer no time of its own; a table says nothing of it."""
    layers = [{"name": "l", "count": 2, "parameters": 1e9}]
    sections = {"model": {"sequence_length": 1, "layers": layers}, "variants": [{"name": "v", **variant}]}
    modelled, found = scenario(**sections), measured("layer,forward,backward", "l.*,3 s,7 s", **sections)
    update = [time for kind, _, time in times(modelled) if kind == "optimizer"]
    assert update[0] > 0
    assert [time for kind, _, time in times(found) if kind == "optimizer"] == update


FRAMEWORKS = [
    {"ddp": {}}, {"fsdp1": {}}, {"fsdp2": {}},
    *({"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}} for stage in (0, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("variant", FRAMEWORKS, ids=str)
def test_kernels_of_a_block_share_its_time_and_keep_their_proportions(scenario, measured, variant):
    """8 s forward and 16 s backward for each block; embedding, norm and head keep the model."""
    sections = {"model": {"config": LLAMA, "sequence_length": 128}, "variants": [{"name": "v", **variant}]}
    asked = scenario(**sections)
    found = times(measured("layer,forward_ms,backward", "model.layers.*,8000,16 s", **sections))
    for modelled, given in zip(times(asked), found, strict=True):
        assert modelled[:2] == given[:2]
    for kind, total in (("forward", 8), ("backward", 16)):
        for block in range(3):
            pairs = [
                (before, after)
                for (what, label, before), (*_, after) in zip(times(asked), found, strict=True)
                if what == kind and label.startswith(f"model.layers.{block}.")
            ]
            assert math.fsum(after for _, after in pairs) == pytest.approx(total, rel=1e-12)
            assert len({round(after / before, 3) for before, after in pairs}) == 1
    outside = [item for item in times(asked) if "layers" not in item[1]]
    assert [item for item in found if "layers" not in item[1]] == outside


def test_a_module_inside_a_layer_leaves_the_rest_to_the_model(scenario, measured):
    """Textbook: the feed-forward of a block takes 5 s, attention and norms what their modules take by the model."""
    sections = {"model": {"config": LLAMA, "sequence_length": 128}}
    per_module = times(scenario(**sections, variants=[{"name": "v", "ddp": {}}]))
    rest = [
        time for kind, label, time in per_module
        if kind == "forward" and label.startswith("model.layers.1.") and ".mlp" not in label
    ]  # fmt: skip
    found = times(measured("layer,forward,backward", "model.layers.1.mlp,5 s,1 s", **sections))
    assert [time for kind, label, time in found if (kind, label) == ("forward", "layers.1")] == [
        pytest.approx(math.fsum(rest) + 5, rel=1e-12)
    ]
    modelled = times(scenario(**sections))
    assert [item for item in found if item[1] == "layers.0"] == [item for item in modelled if item[1] == "layers.0"]


def test_what_is_not_run_has_no_share(measured):
    """Nothing in front of the scores of the first block is trained, so its backward ends there, after 16 s."""
    projections = [f"model.layers.0.self_attn.{name}_proj" for name in "qkv"]
    frozen = ["model.embed_tokens", "model.layers.0.input_layernorm", *projections]
    model = {"config": LLAMA, "sequence_length": 128, "frozen": frozen}
    found = times(measured("layer,forward,backward", "model.layers.0,8 s,16 s", model=model, variants=FSDP2))
    backward = {label: time for kind, label, time in found if kind == "backward" and "layers.0." in label}
    assert not backward.keys() & set(frozen)
    assert math.fsum(backward.values()) == pytest.approx(16, rel=1e-12)


def test_times_in_proportion_to_tokens_only_if_asked(measured):
    """Measured with 4 tokens, asked for 8: 2 s become 4 s, and 32 B of activations 64."""
    layers = [{"name": "l", "parameters": 1e9, "activations": "1 B"}]
    found = measured(
        "layer,forward,backward,tokens,activations", "l,2 s,3 s,4,32 B",
        model={"sequence_length": 8, "layers": layers}, compute={"scale_measured": True},
    )  # fmt: skip
    assert [time for kind, _, time in times(found) if kind in ("forward", "backward")] == [4.0, 6.0]
    assert played(found).result.memory["items"]["activations"] == 64.0
