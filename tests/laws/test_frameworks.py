"""What holds for every simulated step of the frameworks' own schedules, whatever they are set to."""

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.schedules.record import record
from tests.laws import checks
from tests.laws.strategies import topologies

MANY = settings(max_examples=100)

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "architectures": ["LlamaForCausalLM"],
}

SMALL_KNOBS = (0, 100, 20_000, 10**7, 10**9)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A decoder of three blocks."""
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(LLAMA))
    return str(path)


@st.composite
def layers(draw):
    """Explicit layers, timed or counted in FLOP."""
    found = []
    for index in range(draw(st.integers(1, 4))):
        layer = {
            "name": f"layer{index}",
            "count": draw(st.integers(1, 3)),
            "parameters": draw(st.sampled_from([1, 7, 1e5, 1e7, 3e8])),
            "input_activations": "1 kB",
            "activations": "10 kB",
        }
        if draw(st.booleans()):
            layer["forward_time"] = draw(st.sampled_from(["0 s", "1 ms", "7 ms"]))
            layer["backward_time"] = draw(st.sampled_from(["0 s", "3 ms", "11 ms"]))
        found.append(layer)
    return found


@st.composite
def deepspeed(draw, hosts, devices):
    """A ``ds_config.json``."""
    zero = {
        "stage": draw(st.integers(0, 3)),
        "overlap_comm": draw(st.booleans()),
        "reduce_bucket_size": draw(st.sampled_from([1, 100, 20_000, 10**7, 10**9])),
        "contiguous_gradients": draw(st.booleans()),
        "reduce_scatter": draw(st.booleans()),
    }
    if zero["stage"] == 3:
        zero |= {
            "stage3_prefetch_bucket_size": draw(st.sampled_from(SMALL_KNOBS)),
            "stage3_max_live_parameters": draw(st.sampled_from(SMALL_KNOBS)),
            "stage3_max_reuse_distance": draw(st.sampled_from(SMALL_KNOBS)),
            "stage3_param_persistence_threshold": draw(st.sampled_from([0, 64, 10**5, 10**8])),
            "zero_quantized_weights": draw(st.booleans()),
            "zero_hpz_partition_size": draw(st.sampled_from([1, devices])),
        }
        if hosts > 1 and zero["reduce_scatter"]:
            zero["zero_quantized_gradients"] = draw(st.booleans())
    if zero["stage"]:
        zero |= draw(offload(zero["stage"]))
    return {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}}


@st.composite
def offload(draw, stage):
    """Sections of a ``ds_config.json`` that offload, or none."""
    places = ["none", "cpu", "nvme"] if stage == 3 else ["none", "none", "cpu"]
    drives = {"nvme_path": "/drives", "pin_memory": draw(st.booleans())}
    states = {"device": draw(st.sampled_from(places)), "buffer_count": 12, **drives}
    if stage < 3:
        return {"offload_optimizer": states}
    states |= {
        "pipeline_read": draw(st.booleans()),
        "pipeline_write": draw(st.booleans()),
        "ratio": draw(st.sampled_from([0.0, 0.5, 1.0])),
    }
    shares = {"device": draw(st.sampled_from(places)), "buffer_count": 1000, "buffer_size": 10**9, **drives}
    shares["max_in_cpu"] = draw(st.sampled_from([0, 10**7, 10**9]))
    size = draw(st.sampled_from([10**5, 10**8, 10**9]))
    return {"sub_group_size": size, "offload_optimizer": states, "offload_param": shares}


@st.composite
def ddp(draw, hosts, devices):
    """Options of ``DistributedDataParallel``."""
    return {
        "ddp": {
            "bucket_cap_mb": draw(st.sampled_from([None, 0.01, 1, 100])),
            "gradient_as_bucket_view": draw(st.booleans()),
            "no_sync": draw(st.booleans()),
            "comm_hook": draw(st.sampled_from(["no", "fp16"])),
            "evaluates": draw(st.booleans()),
        }
    }


@st.composite
def fsdp1(draw, hosts, devices):
    """Options of ``FullyShardedDataParallel``."""
    hybrid = ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"] if hosts > 1 and devices > 1 else []
    return {
        "fsdp1": {
            "sharding_strategy": draw(st.sampled_from(["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", *hybrid])),
            "backward_prefetch": draw(st.sampled_from(["BACKWARD_PRE", "BACKWARD_POST", None])),
            "forward_prefetch": draw(st.booleans()),
            "limit_all_gathers": draw(st.booleans()),
            "use_orig_params": draw(st.booleans()),
            "param_dtype": draw(st.sampled_from([None, "bf16"])),
            "reduce_dtype": draw(st.sampled_from([None, "fp32"])),
            "no_sync": draw(st.booleans()),
            "evaluates": draw(st.booleans()),
            "cpu_offload": draw(st.booleans()),
        }
    }


@st.composite
def fsdp2(draw, hosts, devices):
    """Options of ``fully_shard``, on one mesh of all ranks or on two dimensions."""
    return {
        "fsdp2": {
            "reshard_after_forward": draw(st.sampled_from([None, True, False])),
            "param_dtype": draw(st.sampled_from([None, "bf16"])),
            "reduce_dtype": draw(st.sampled_from([None, "fp32"])),
            "replicate": draw(st.sampled_from([None, hosts, 1])),
            "forward_prefetch": draw(st.integers(0, 2)),
            "backward_prefetch": draw(st.integers(0, 2)),
            "separate_reduce_scatter_group": draw(st.booleans()),
            "reduce_scatter_max_input_buffers": draw(st.integers(1, 3)),
            "requires_gradient_sync": draw(st.booleans()),
            "requires_all_reduce": draw(st.booleans()),
            "reshard_after_backward": draw(st.booleans()),
            "evaluates": draw(st.booleans()),
            "cpu_offload": draw(st.booleans()),
            "pin_memory": draw(st.booleans()),
        }
    }


@st.composite
def internevo(draw, hosts, devices):
    """Keys of ``zero1`` and ``hybrid_zero_optimizer``."""
    return {
        "internevo": {
            "zero1": draw(st.sampled_from([-1, 1, devices])),
            "overlap_sync_grad": draw(st.booleans()),
            "overlap_sync_param": draw(st.booleans()),
            "reduce_bucket_size": draw(st.sampled_from([1, 20_000, 10**7, 2**29])),
            "clip_grad_norm": draw(st.sampled_from([0.0, 1.0])),
            "fused": draw(st.booleans()),
        }
    }


FRAMEWORKS = (deepspeed, ddp, fsdp1, fsdp2, internevo)


@st.composite
def scenarios(draw, topology=None):
    """Sections of a scenario file; a model without layers is the llama that the test fills in."""
    cluster = draw(topologies() if topology is None else topology)
    hosts, devices = cluster["hosts"], cluster.get("accelerators_per_host", 1)
    variant = draw(draw(st.sampled_from(FRAMEWORKS))(hosts, devices))
    times = st.sampled_from(["0 s", "5 us", "1 ms"])
    return {
        "model": {"sequence_length": draw(st.sampled_from([1, 128])), "layers": draw(st.none() | layers())},
        "training": {
            "micro_batch": draw(st.integers(1, 2)),
            "gradient_accumulation": draw(st.integers(1, 3)),
            "activation_checkpointing": draw(st.sampled_from(["none", "full"])),
        },
        "topology": cluster,
        "variants": [{"name": "v", **variant}],
        "host": {"kernel_time": draw(times), "collective_time": draw(times), "hook_time": draw(times)},
        "run": {"step": draw(st.sampled_from(["first", "steady"]))},
    }


def asked(scenario, llama, sections, **others):
    """Load *sections*; what the framework itself would refuse is no example."""
    model = sections["model"]
    if model["layers"] is None:
        model = {"sequence_length": model["sequence_length"], "config": llama}
    try:
        found = scenario(**{**sections, "model": model, **others})
        record(found, found.variants[0])
    except InputError:
        assume(False)
    return found


def played(scenario, llama, sections, **others):
    found = asked(scenario, llama, sections, **others)
    ready = stage(found, record(found, found.variants[0]))
    return ready, simulate(ready)


@MANY
@given(scenarios(), st.sampled_from([1.0, 1.2, 3.0]))
def test_the_parts_of_a_step_and_of_its_stalls_add_up(scenario, llama, sections, slowdown):
    found = asked(scenario, llama, sections)
    found = replace(found, compute=replace(found.compute, overlap_slowdown=slowdown))
    result = run_variant(found, found.variants[0]).result
    checks.parts_add_up(result)
    checks.ceilings_bound_the_step(result)
    assert 0 <= result.slowed_time <= (1 - 1 / slowdown) * result.compute_time * (1 + 1e-9)
    if found.mesh.ranks == 1:
        assert result.volume["sent_per_rank"] == 0


@MANY
@given(scenarios())
def test_no_link_carries_more_than_its_bandwidth_allows(scenario, llama, sections):
    checks.keeps_the_work_bound(*played(scenario, llama, sections))


@MANY
@given(scenarios())
def test_streams_and_communicators_are_first_in_first_out(scenario, llama, sections):
    checks.is_first_in_first_out(*played(scenario, llama, sections))


@MANY
@given(scenarios())
def test_memory_taken_is_given_back(scenario, llama, sections):
    returns_memory(scenario, llama, sections)


PLAIN = {
    "model": {
        "sequence_length": 1,
        "layers": [{"name": "l", "count": 2, "parameters": 7, "input_activations": "1 kB", "activations": "10 kB"}],
    },
    "training": {"micro_batch": 1},
    "topology": {"cluster": "dgx-a100-80gb", "hosts": 2},
}


@pytest.mark.parametrize("name", ["ddp", "fsdp1", "fsdp2"])
def test_memory_of_an_evaluation_is_given_back(scenario, llama, name):
    returns_memory(scenario, llama, {**PLAIN, "variants": [{"name": "v", name: {"evaluates": True}}]})


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_memory_of_a_recompute_is_given_back(scenario, llama, name):
    training = {"micro_batch": 1, "activation_checkpointing": "full"}
    returns_memory(scenario, llama, {**PLAIN, "training": training, "variants": [{"name": "v", name: {}}]})


def returns_memory(scenario, llama, sections):
    checks.memory_is_given_back(played(scenario, llama, sections)[1])


ON_RANKS = {2: (1, 2), 8: (1, 8), 16: (2, 8)}
EXAMPLES = {2: 60, 8: 60, 16: 25}
"""A step of 16 classes takes 16 times as long."""


def on_ranks(ranks):
    """Scenarios on clusters of so many ranks."""
    hosts, devices = ON_RANKS[ranks]
    shapes = topologies(devices=st.just(devices), hosts=st.just(hosts))
    return scenarios(shapes.filter(lambda item: item["cluster"] != "flat"))


def replicates(sections):
    """Whether several groups of ranks reduce across hosts beside one group inside each host."""
    variant = sections["variants"][0]
    hybrid = "HYBRID" in variant.get("fsdp1", {}).get("sharding_strategy", "")
    return hybrid or (variant.get("fsdp2", {}).get("replicate") or 1) > 1


@pytest.mark.parametrize("ranks", ON_RANKS)
def test_one_class_gives_the_same_answer_as_all_ranks(scenario, llama, ranks):
    @settings(max_examples=EXAMPLES[ranks])
    @given(on_ranks(ranks).filter(lambda sections: not replicates(sections)))
    def holds(sections):
        is_same_by_rank(scenario, llama, ranks, sections)

    holds()


@pytest.mark.xfail(strict=True, reason="one class shares a link per kind of group, ranks: all per group")
def test_one_class_gives_the_same_answer_as_all_ranks_with_replicas(scenario, llama):
    """Eight groups reduce over the card of a host beside one that reduces inside it."""
    slow = {"bandwidth": "1 GB/s", "latency": "0 us"}
    topology = {"cluster": "cloud-100gbe", "hosts": 2, "links": dict.fromkeys(("pcie", "host_bridge", "network"), slow)}
    host = dict.fromkeys(("kernel_time", "collective_time", "hook_time"), "0 s")
    sections = {"model": {"sequence_length": 1, "layers": None}, "training": {"micro_batch": 1}, "topology": topology}
    variant = {"name": "v", "fsdp2": {"replicate": 2}}
    is_same_by_rank(scenario, llama, 16, {**sections, "variants": [variant], "host": host})


def is_same_by_rank(scenario, llama, ranks, sections):
    run = sections.get("run", {})
    _, by_class = played(scenario, llama, sections)
    _, by_rank = played(scenario, llama, sections, run={**run, "ranks": "all"})
    checks.is_same_by_rank(by_class, by_rank, ranks)


@MANY
@given(scenarios())
def test_on_one_communicator_the_recurrence_is_the_engine(scenario, llama, sections):
    """It serves one collective at a time, so only a second one can make transfers share a link."""
    ready, timeline = played(scenario, llama, sections)
    if len(ready.members) <= 1:
        checks.recurrence_is_the_engine_without_sharing(ready, timeline)
    checks.recurrence_is_the_engine_on_an_infinitely_fast_network(ready)


@MANY
@given(scenarios(), st.sampled_from([2, 8, 1000]))
def test_everything_k_times_faster_takes_a_kth_of_the_time(scenario, llama, sections, factor):
    checks.is_faster_by(*played(scenario, llama, sections), factor)
