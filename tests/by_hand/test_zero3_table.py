"""How often a model is gathered depends on its size: the table of statement Z3-30 of the specification.

The numbers were derived by executing DeepSpeed's coordinator on stubs of the same module trees: gathers of a
micro-batch once the trace is complete, elements gathered by submissions in forward and in backward as a multiple of
the model's size, and the most elements that were gathered or under way at once.
"""

from itertools import islice
from typing import NamedTuple

import pytest

from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.schedules.job import Job
from simulator.schedules.program import Synchronize
from simulator.schedules.zero3.stage3 import Stage3, deepspeed_stage3
from simulator.world.mesh import Mesh
from simulator.world.model.execution import execution
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.zero import DeepSpeedPolicy


class Llama(NamedTuple):
    """Shape of a model without biases and with an untied head."""

    hidden: int
    layers: int
    intermediate: int
    key_value: int
    vocabulary: int = 32_000


SHAPES = {
    "0.4B": Llama(1024, 24, 2816, 1024),
    "1.3B": Llama(2048, 24, 5504, 2048),
    "7B": Llama(4096, 32, 11008, 4096),
    "13B": Llama(5120, 40, 13824, 5120),
    "70B": Llama(8192, 80, 28672, 1024),
}


def linear(name, rows, columns):
    return Module(name=name, kind="Linear", parameters=(Tensor(f"{name}.weight", (rows, columns)),))


def norm(name, size):
    return Module(name=name, kind="RMSNorm", parameters=(Tensor(f"{name}.weight", (size,)),), normalises=True)


def parent(name, kind, children, calls=None):
    called = tuple(children) if calls is None else tuple(calls)
    return Module(name=name, kind=kind, children=tuple(children), calls=called)


def block(name, shape):
    """Thirteen modules, all with hooks."""
    projections = {"q": shape.hidden, "k": shape.key_value, "v": shape.key_value, "o": shape.hidden}
    attention = parent(
        f"{name}.self_attn",
        "Attention",
        [linear(f"{name}.self_attn.{item}_proj", rows, shape.hidden) for item, rows in projections.items()],
    )
    gate = linear(f"{name}.mlp.gate_proj", shape.intermediate, shape.hidden)
    up = linear(f"{name}.mlp.up_proj", shape.intermediate, shape.hidden)
    down = linear(f"{name}.mlp.down_proj", shape.hidden, shape.intermediate)
    act = Module(name=f"{name}.mlp.act_fn", kind="SiLU")
    mlp = parent(f"{name}.mlp", "MLP", [gate, up, down, act], [gate, act, up, down])
    before, after = (
        norm(f"{name}.input_layernorm", shape.hidden),
        norm(f"{name}.post_attention_layernorm", shape.hidden),
    )
    return parent(name, "Layer", [attention, mlp, before, after], [before, attention, after, mlp])


def llama(shape):
    embed = Module(
        name="model.embed_tokens",
        kind="Embedding",
        parameters=(Tensor("model.embed_tokens.weight", (shape.vocabulary, shape.hidden)),),
        takes_numbers=True,
    )
    blocks = [block(f"model.layers.{number}", shape) for number in range(shape.layers)]
    rotary = Module(name="model.rotary_emb", kind="Rotary", has_gradient=False)
    last = norm("model.norm", shape.hidden)
    layers = parent("model.layers", "ModuleList", blocks, [])
    model = parent("model", "Model", [embed, layers, last, rotary], [embed, rotary, *blocks, last])
    return parent("", "Llama", [model, linear("lm_head", shape.vocabulary, shape.hidden)])


def job(shape, checkpointing="none", micro_batches=1):
    root = llama(shape)
    return Job(
        root=root,
        execution=execution(root, checkpointing, lambda module: module.kind == "Layer"),
        micro_batches=micro_batches,
        dtype="bf16",
        mesh=Mesh(hosts=1, devices_per_host=8),
        kernels={},
        optimizer=Kernel(kind="optimizer", time=0.0),
    )


class Found(NamedTuple):
    gathers: int
    forward: float
    backward: float
    peak: float


def measured(asked, policy, monkeypatch, step=2):
    """Gathers of one step with one micro-batch, without those of persistent parameters after it."""
    engine = Stage3(asked, policy)
    lives = []
    gather = type(engine.coordinator)._all_gather_params

    def watched(coordinator, parameters):
        gather(coordinator, parameters)
        lives.append(coordinator.live)

    monkeypatch.setattr(type(engine.coordinator), "_all_gather_params", watched)
    for _ in range(step):
        engine.train_step()
    lives.clear()
    program = engine.train_step()
    gathers = [
        (launch.phase, program.operations[launch.operation].elements)
        for launch in program.launches
        if isinstance(program.operations[launch.operation], Collective)
        and program.operations[launch.operation].kind == "all_gather"
        and launch.phase != "step"
    ]
    size = sum(tensor.elements for tensor in asked.root.tensors())
    forward = sum(elements for phase, elements in gathers if phase == "forward")
    backward = sum(elements for phase, elements in gathers if phase != "forward")
    return Found(len(gathers), forward / size, backward / size, max(lives))


DEFAULT = DeepSpeedPolicy(zero_stage=3, overlap_comm=True)


def settings(**changed):
    return DeepSpeedPolicy(zero_stage=3, overlap_comm=True, **changed)


TABLE = [
    ("0.4B", DEFAULT, Found(7, 1.00, 0.00, 3.7e8)),
    ("1.3B", DEFAULT, Found(70, 1.01, 0.25, 1.06e9)),
    ("7B", DEFAULT, Found(395, 1.01, 0.85, 1.13e9)),
    ("7B", settings(stage3_prefetch_bucket_size=0), Found(439, 1.00, 0.925, 0.50e9)),
    ("7B", settings(stage3_prefetch_bucket_size=0, stage3_max_reuse_distance=0), Found(452, 1.00, 1.00, 0.13e9)),
    ("7B", settings(stage3_max_live_parameters=200_000_000), Found(435, 1.00, 0.925, 0.50e9)),
    (
        "7B",
        settings(
            reduce_bucket_size=4096**2,
            stage3_prefetch_bucket_size=int(0.9 * 4096**2),
            stage3_param_persistence_threshold=40_960,
        ),
        Found(422, 1.01, 0.85, 1.13e9),
    ),
    ("13B", DEFAULT, Found(463, 1.00, 0.92, 1.14e9)),
    ("70B", DEFAULT, Found(800, 1.00, 0.985, 1.20e9)),
    ("7B", settings(leaf_classes=("Layer",)), Found(123, 1.00, 0.81, 1.27e9)),
]


@pytest.mark.parametrize(("size", "policy", "expected"), TABLE)
def test_gathers_by_size_of_the_model(size, policy, expected, monkeypatch):
    found = measured(job(SHAPES[size]), policy, monkeypatch)
    assert found.gathers == expected.gathers
    assert found.forward == pytest.approx(expected.forward, abs=0.006)
    assert found.backward == pytest.approx(expected.backward, abs=0.006)
    assert found.peak == pytest.approx(expected.peak, rel=0.02)


NEITHER = {"stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}


@pytest.mark.parametrize(
    ("policy", "step", "expected"),
    [
        (DEFAULT, 0, 3.0),
        (DEFAULT, 2, 1.86),
        (settings(**NEITHER), 2, 2.96),
        (settings(stage3_max_reuse_distance=0, stage3_max_live_parameters=0), 2, 2.96),
    ],
)
def test_checkpointing_costs_a_second_gather_but_seldom_a_third(policy, step, expected, monkeypatch):
    """Z3-31, reentrant; 2.96 and not 3 because embedding and head are not run again."""
    found = measured(job(SHAPES["7B"], "reentrant"), policy, monkeypatch, step)
    assert found.forward + found.backward == pytest.approx(expected, abs=0.045 if step == 0 else 0.01)


@pytest.mark.parametrize(("size", "buckets", "last"), [("7B", 14, 446e6), ("70B", 161, None)])
def test_reductions_and_what_is_left_for_the_exposed_last_one(size, buckets, last):
    """Z3-38."""
    program = next(islice(deepspeed_stage3(job(SHAPES[size]), DEFAULT), 1, None))
    reduced = [
        program.operations[launch.operation].elements
        for launch in program.launches
        if isinstance(program.operations[launch.operation], Collective)
        and program.operations[launch.operation].kind == "reduce_scatter"
    ]
    assert len(reduced) == buckets
    assert last is None or reduced[-1] == pytest.approx(last, rel=0.001)


def test_secondary_copies_of_a_7b_model_block_the_host_226_times():
    """ZP-5, and in step() for each of the 65 norms that stay whole until then; the last wait is for their gathers."""
    program = next(islice(deepspeed_stage3(job(SHAPES["7B"], micro_batches=2), settings(**HPZ)), 1, None))
    copies = [launch for launch in program.launches if program.operations[launch.operation].kind == "secondary copy"]
    blocks = [
        item.event
        for item in program.instructions
        if isinstance(item, Synchronize) and item.reason == "host" and item.event.stream == 0
    ]
    in_step = [launch for launch in copies if launch.phase == "step"]
    assert (len(copies), len(in_step), len(blocks)) == (226 + 65, 65, 226 + 65 + 1)
    assert {launch.micro_batch for launch in copies if launch.phase != "step"} == {0}


HPZ = {"zero_hpz_partition_size": 4}
