"""Published arithmetic of volume, time and memory."""

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant, volume_of
from simulator.laws.memory import MIXED, model_states
from tests.conftest import flat, kept_by

GB = 1e9
LAYERS_13B = [{"name": "layer", "count": 40, "parameters": 325e6}]
STAGES = [{"name": f"zero{stage}", "zero_stage": stage} for stage in range(4)]


def job_13b(hosts, k):
    """13e9 parameters, micro-batch 4 x 4096 tokens, 400 TFLOP/s achieved, 40 GB/s per rank on one switch."""
    return {
        "model": {"sequence_length": 4096, "layers": LAYERS_13B},
        "training": {"micro_batch": 4, "gradient_accumulation": k},
        "topology": flat(hosts=hosts, bandwidth="40 GB/s"),
        "compute": {"achieved": "400 TFLOP/s"},
        "variants": STAGES,
    }


@pytest.mark.parametrize(("elements", "ranks", "expected"), [
    (7.5e9, 8, [120, 41.25, 28.125, 15]),
    (13e9, 16, [208, 61.75, 37.375, 13]),
])  # fmt: skip
def test_model_states_of_the_stages(elements, ranks, expected):
    states = [sum(model_states(elements, MIXED["bf16"], stage, ranks).values()) / GB for stage in range(4)]
    assert states == expected


@pytest.mark.parametrize(("stage", "psi"), [(0, 2), (1, 2), (2, 9), (3, 24)])
def test_a3_traffic_with_eight_micro_batches(scenario, stage, psi):
    asked = scenario(**job_13b(hosts=16, k=8))
    found = volume_of(asked, asked.variants[stage])
    assert found.in_psi == psi
    sent = found.intra_host + found.inter_host
    assert sent == pytest.approx(psi * 26 * GB * 15 / 16, rel=1e-12)


@pytest.mark.parametrize(("stage", "seconds"), [(0, 1.3), (1, 1.3), (2, 5.85), (3, 15.6)])
def test_communication_time_in_the_limit_of_many_ranks(scenario, stage, seconds):
    asked = scenario(**job_13b(hosts=16_384, k=8))
    found = run_variant(asked, asked.variants[stage])
    assert found.reading.communication == pytest.approx(seconds * 16_383 / 16_384, rel=1e-9)
    assert found.result.compute_time == pytest.approx(25.56, abs=0.005)


def test_sixteen_micro_batches_cost_stage_2_eight_and_a_half_times_the_bytes_of_stage_1(scenario):
    asked = scenario(**job_13b(hosts=16, k=16))
    first, second = (volume_of(asked, asked.variants[stage]) for stage in (1, 2))
    assert second.inter_host / first.inter_host == 8.5


ZEROPP = {
    "none": ({}, 3.0),
    "qwZ": ({"zero_quantized_weights": True}, 2.0),
    "hpZ": ({"zero_hpz_partition_size": 8}, 2.0),
    "qgZ": ({"zero_quantized_gradients": True}, 2.25),
    "all": (
        {"zero_quantized_weights": True, "zero_hpz_partition_size": 8, "zero_quantized_gradients": True},
        0.75,
    ),
}


def zeropp(scenario, name, hosts):
    asked = scenario(
        model={"sequence_length": 1, "layers": LAYERS_13B},
        topology={"cluster": "dgx-a100-80gb", "hosts": hosts},
        variants=[{"name": name, "zero_stage": 3, **ZEROPP[name][0]}],
    )
    return volume_of(asked, asked.variants[0])


@pytest.mark.parametrize("name", ZEROPP)
def test_a7_cross_host_volume_of_zeropp_in_the_limit(scenario, name):
    """Wang et al. 2023, table 1; scales add 4 bytes per 8000 elements."""
    assert zeropp(scenario, name, hosts=10_000).inter_host_in_psi == pytest.approx(ZEROPP[name][1], rel=2.1e-3)


def test_a7_cross_host_volume_of_zeropp_is_exact_at_four_hosts(scenario):
    """N = 32 ranks on M = 4 hosts: world collectives carry 31/32, the second hop of qgZ 3/4."""
    int8, int4 = (1 + 4 / 8000) / 2, (1 / 2 + 4 / 8000) / 2
    world, rail = 31 / 32, 3 / 4
    expected = {
        "none": 3 * world,
        "qwZ": (2 * int8 + 1) * world,
        "hpZ": 2 * world,
        "qgZ": 2 * world + int4 * rail,
        "all": int8 * world + int4 * rail,
    }
    found = {name: zeropp(scenario, name, hosts=4).inter_host_in_psi for name in ZEROPP}
    assert found == pytest.approx(expected, rel=1e-12)


def test_a7_a_secondary_partition_costs_its_share_of_the_weights():
    without = model_states(13e9, MIXED["bf16"], 3, 32)
    with_hpz = model_states(13e9, MIXED["bf16"], 3, 32, secondary=8)
    assert sum(with_hpz.values()) - sum(without.values()) == 2 * 13e9 / 8


LAYERS_80B = [{"name": "layer", "count": 80, "parameters": 1e9, "forward_time": "75 ms", "backward_time": "150 ms"}]


def at_bandwidth(scenario, bandwidth):
    asked = scenario(model={"sequence_length": 1, "layers": LAYERS_80B}, topology=flat(hosts=512, bandwidth=bandwidth))
    return run_variant(asked, asked.variants[0])


@pytest.mark.parametrize(("bandwidth", "seconds"), [("42.5 GB/s", 11.3), ("8.5 GB/s", 56.5), ("212 GB/s", 2.26)])
def test_a6_the_practitioners_bandwidth_check(scenario, bandwidth, seconds):
    """80 billion parameters on 512 GPUs move 3 x 2 x 80 GB per step, next to 18 s of compute."""
    found = at_bandwidth(scenario, bandwidth)
    assert found.reading.communication == pytest.approx(seconds, rel=5e-3)
    assert found.result.compute_time == pytest.approx(18.0)


def test_a6_full_overlap_needs_26_7_gigabytes_per_second(scenario):
    """Below 480/18 GB/s the network alone takes longer than compute; above it only the ends are exposed."""
    below, above = at_bandwidth(scenario, "26 GB/s"), at_bandwidth(scenario, "28 GB/s")
    assert below.reading.communication > 18 > above.reading.communication


def test_a6_faster_networks_never_make_the_step_longer(scenario):
    steps = [at_bandwidth(scenario, f"{rate} Gbit/s").result.step_time for rate in (100, 200, 400, 800)]
    assert steps == sorted(steps, reverse=True)


STATES = [
    ({"zero_stage": 0}, 2, 2, 12),
    ({"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 0}}}, 2, 2, 12),
    # BF16_Optimizer adds gradients up in fp32, beside those that backward leaves in bf16
    (
        {
            "deepspeed": {
                "bf16": {"enabled": True},
                "zero_optimization": {"stage": 1},
                "data_types": {"grad_accum_dtype": "fp32"},
            }
        },
        2,
        6,
        12 / 4,
    ),
    (
        {
            "deepspeed": {
                "bf16": {"enabled": True},
                "zero_optimization": {"stage": 3},
                "data_types": {"grad_accum_dtype": "fp32"},
            }
        },
        2 / 4,
        4 / 4,
        12 / 4,
    ),
    # PyTorch's optimizers keep momentum and variance in the type of the parameters
    ({"ddp": {}}, 2, 2, 4),
    ({"fsdp1": {}}, 2 / 4, 2 / 4, 4 / 4),
    ({"fsdp1": {"param_dtype": "bf16"}}, 4 / 4, 4 / 4, 8 / 4),
    ({"fsdp2": {"reduce_dtype": "fp32"}}, 2 / 4, 2 / 4, 4 / 4),
    ({"fsdp2": {"param_dtype": "bf16"}}, 4 / 4, 4 / 4, 8 / 4),
]


@pytest.mark.parametrize(("variant", "weights", "gradients", "optimizer"), STATES)
def test_states_have_the_types_that_the_framework_keeps_them_in(scenario, variant, weights, gradients, optimizer):
    """1e9 parameters on 4 ranks in bf16: bytes per parameter are gigabytes."""
    layers = [{"name": "l", "parameters": 1e9, "forward_time": "1 s", "backward_time": "1 s"}]
    found = scenario(
        model={"sequence_length": 1, "layers": layers},
        topology=flat(hosts=4, bandwidth="1 GB/s"),
        variants=[{"name": "v", **variant}],
    )
    kept = {name: size / GB for name, size in kept_by(found).items()}
    assert kept == pytest.approx({"weights": weights, "gradients": gradients, "optimizer states": optimizer}, rel=1e-6)


FRAMEWORKS = [{"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}} for stage in range(4)]
FRAMEWORKS += [{"ddp": {}}, {"fsdp1": {}}, {"fsdp2": {}}]


@pytest.mark.parametrize("variant", FRAMEWORKS, ids=str)
def test_every_framework_keeps_activations_until_their_backward(scenario, variant):
    """Four layers that keep 1 GB for each of 2 tokens; a gradient takes memory, so the peak is in backward."""
    layer = {"name": "l", "count": 4, "parameters": 8, "activations": "1 GB", "input_activations": "1 B"}
    found = scenario(
        model={"sequence_length": 2, "layers": [{**layer, "forward_time": "1 s", "backward_time": "1 s"}]},
        topology=flat(hosts=2, bandwidth="1 GB/s"),
        variants=[{"name": "v", **variant}],
    )
    items = run_variant(found, found.variants[0]).result.memory["items"]
    assert items["activations"] == 4 * 2 * GB


@pytest.mark.parametrize("framework", ["fsdp1", "fsdp2"])
@pytest.mark.parametrize("key", ["param_dtype", "reduce_dtype"])
def test_an_unknown_type_is_refused_with_the_known_ones(scenario, framework, key):
    with pytest.raises(InputError, match=rf"{framework}\.{key}: 'bfloat16': unknown choice.*bf16, fp16, fp32"):
        scenario(variants=[{"name": "v", framework: {key: "bfloat16"}}])
