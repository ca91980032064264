"""Configurations of accelerate, axolotl, torchtitan and llm-foundry become the policies that those trainers run."""

import json
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.world.model.gpt2 import GPT2Config, gpt2
from simulator.world.model.huggingface import model_from_mapping
from simulator.world.model.llama import LlamaConfig, llama
from simulator.world.policy.accelerate import load_accelerate
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.launch import block_kinds
from simulator.world.policy.llmfoundry import load_llmfoundry
from simulator.world.policy.torchtitan import load_torchtitan

LLAMA = llama(
    LlamaConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=32), 4, 2
)[0]
GPT2 = gpt2(GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=32, n_positions=4), 4, 2)[0]
WRAP = "TRANSFORMER_BASED_WRAP"


def accelerate(tmp_path, fsdp=None, *, root=None, **top):
    content = {"distributed_type": "FSDP", "mixed_precision": "bf16", **top}
    if fsdp is not None:
        content["fsdp_config"] = fsdp
    return load_accelerate(content, tmp_path / "a.yaml", root=root)


def titan(tmp_path, root=None, ranks=None, **sections):
    return load_torchtitan(sections, tmp_path / "t.toml", root=root, ranks=ranks)


def foundry(tmp_path, fsdp, root=None, ranks=None, **top):
    return load_llmfoundry({"fsdp_config": fsdp, **top}, tmp_path / "l.yaml", root=root, ranks=ranks)


def message(load, *arguments, **options):
    with pytest.raises(InputError) as caught:
        load(*arguments, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line


# Files of other people.


def reader(name):
    return load_torchtitan if name.endswith(".toml") else load_llmfoundry if "foundry" in name else load_accelerate


READ = {
    "accelerate_latest_fsdp.yaml": (
        Fsdp1Policy(units=("BertLayer",), use_orig_params=True, no_sync=True), None, 1, 1,
    ),
    "alignment_handbook_fsdp.yaml": (
        Fsdp1Policy(forward_prefetch=True, use_orig_params=True, param_dtype="bf16", reduce_dtype="bf16",
                    buffer_dtype="bf16", no_sync=True), "bf16", 8, 1,
    ),
    "llamafactory_fsdp_multinode.yaml": (
        Fsdp1Policy(use_orig_params=True, param_dtype="bf16", reduce_dtype="bf16", buffer_dtype="bf16", no_sync=True),
        "bf16", 16, 2,
    ),
    "trl_fsdp2.yaml": (
        Fsdp2Policy(reshard_after_forward=True, param_dtype="bf16", reduce_dtype="bf16", requires_gradient_sync=False),
        "bf16", 8, 1,
    ),
    "llmfoundry_mpt30b_instruct.yaml": (
        Fsdp1Policy(backward_prefetch="BACKWARD_POST", use_orig_params=True, param_dtype="bf16", reduce_dtype="bf16",
                    buffer_dtype="bf16"), "bf16", None, None,
    ),
    "phantora_torchtitan_llama3_8b.toml": (
        Fsdp2Policy(reshard_after_forward=True, param_dtype="bf16", reduce_dtype="fp32", fused_optimizer=True),
        "bf16", None, None,
    ),
}  # fmt: skip
"""File: policy, precision, ranks, hosts."""

REFUSED = {
    "accelerate_deepspeed_template.yaml": ["deepspeed_config_file", "zero_stage1_config.json", "no such file"],
    "accelerate_invalid_keys.yaml": ["'invalid_key'", "unknown key", "distributed_type"],
    "accelerate_tp_hsdp.yaml": ["parallelism_config_tp_size", "2", "tensor parallelism is not simulated"],
    "axolotl_llama31_8b_hsdp_tp.yaml": ["tensor_parallel_size", "2", "tensor parallelism is not simulated"],
}
"""File: parts of the line that refuses it."""


def test_every_file_is_read_or_refused(shared):
    files = {path.name for path in (shared / "data/fsdp_accelerate").iterdir()}
    assert files == {*READ, *REFUSED, "trl_deepspeed_zero3.yaml"}


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read(shared, name):
    path = shared / "data/fsdp_accelerate" / name
    launch = reader(name)(str(path), path)
    assert (launch.policy, launch.precision, launch.ranks, launch.hosts) == READ[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_with_a_line_that_helps(shared, name):
    path = shared / "data/fsdp_accelerate" / name
    line = message(reader(name), str(path), path)
    for part in [name, *REFUSED[name]]:
        assert part in line


def test_a_file_that_stands_for_a_deepspeed_config(shared):
    path = shared / "data/fsdp_accelerate/trl_deepspeed_zero3.yaml"
    launch = load_accelerate(str(path), path)
    assert launch.policy.zero_optimization.stage == 3
    assert launch.policy.bf16.enabled
    assert (launch.precision, launch.ranks, launch.notes) == ("bf16", 8, ())


def test_batches_of_other_peoples_files(shared):
    folder = shared / "data/fsdp_accelerate"
    mpt = load_llmfoundry(str(folder / "llmfoundry_mpt30b_instruct.yaml"), folder / "x", ranks=8)
    assert (mpt.micro_batch, mpt.gradient_accumulation, mpt.activation_checkpointing) == (1, 9, "full")
    llama3 = load_torchtitan(str(folder / "phantora_torchtitan_llama3_8b.toml"), folder / "x", ranks=8)
    assert (llama3.micro_batch, llama3.gradient_accumulation, llama3.activation_checkpointing) == (2, 1, "selective")


# accelerate, FSDP1.


def test_defaults_are_those_of_the_launcher(tmp_path):
    launch = accelerate(tmp_path, {}, num_processes=8, num_machines=2)
    assert launch.policy == Fsdp1Policy(
        backward_prefetch=None, use_orig_params=True, param_dtype="bf16", reduce_dtype="bf16", buffer_dtype="bf16",
        no_sync=True,
    )  # fmt: skip
    assert (launch.ranks, launch.hosts) == (8, 2)
    lines = "\n".join(launch.notes)
    assert "NO_PREFETCH" in lines
    assert "NO_WRAP" in lines


@pytest.mark.parametrize(("given", "meant"), [
    ("FULL_SHARD", "FULL_SHARD"), ("shard_grad_op", "SHARD_GRAD_OP"), (1, "FULL_SHARD"), ("2", "SHARD_GRAD_OP"),
    (3, "NO_SHARD"), (4, "HYBRID_SHARD"), (5, "_HYBRID_SHARD_ZERO2"), ("HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2"),
])  # fmt: skip
def test_sharding_strategies_by_name_and_number(tmp_path, given, meant):
    assert accelerate(tmp_path, {"fsdp_sharding_strategy": given}).policy.sharding_strategy == meant
    other = accelerate(tmp_path, {"fsdp_reshard_after_forward": given})
    assert other.policy.sharding_strategy == meant
    assert any("read as the sharding strategy" in line for line in other.notes)


@pytest.mark.parametrize(("given", "meant"), [
    ("BACKWARD_PRE", "BACKWARD_PRE"), ("backward_post", "BACKWARD_POST"), (1, "BACKWARD_PRE"), ("NO_PREFETCH", None),
])  # fmt: skip
def test_backward_prefetch(tmp_path, given, meant):
    assert accelerate(tmp_path, {"fsdp_backward_prefetch": given}).policy.backward_prefetch == meant


def test_switches_and_keys_without_a_prefix(tmp_path):
    section = {
        "forward_prefetch": "true", "fsdp_use_orig_params": False, "auto_wrap_policy": WRAP,
        "transformer_layer_cls_to_wrap": "LlamaAttention, LlamaMLP", "activation_checkpointing": True,
    }  # fmt: skip
    launch = accelerate(tmp_path, section, root=LLAMA)
    assert launch.policy.forward_prefetch
    assert not launch.policy.use_orig_params
    assert launch.policy.units == ("LlamaAttention", "LlamaMLP")
    assert launch.activation_checkpointing == "full"


def test_units_are_the_models_blocks_where_no_class_is_named(tmp_path):
    assert accelerate(tmp_path, {"fsdp_auto_wrap_policy": WRAP}, root=GPT2).policy.units == ("GPT2Block",)
    without = accelerate(tmp_path, {"fsdp_auto_wrap_policy": WRAP})
    assert without.policy.units == ()
    assert any("does not name" in line for line in without.notes)
    assert block_kinds(LLAMA) == ("LlamaDecoderLayer",)


@pytest.mark.parametrize(("mixed", "dtype"), [("no", None), (False, None), ("fp16", "fp16"), ("fp8", "bf16")])
def test_mixed_precision(tmp_path, mixed, dtype):
    launch = accelerate(tmp_path, {}, mixed_precision=mixed)
    assert (launch.policy.param_dtype, launch.policy.reduce_dtype, launch.precision) == (dtype, dtype, dtype)


@pytest.mark.parametrize(("section", "parts"), [
    ({"fsdp_backward_prefech": "BACKWARD_PRE"}, ["fsdp_config", "did you mean 'fsdp_backward_prefetch'?"]),
    ({"fsdp_sharding_strategy": "FULL_SHART"}, ["fsdp_config.fsdp_sharding_strategy", "did you mean 'FULL_SHARD'?"]),
    ({"fsdp_sharding_strategy": 6}, ["'6'", "FULL_SHARD"]),
    ({"fsdp_backward_prefetch": "PRE"}, ["fsdp_backward_prefetch", "'PRE'", "NO_PREFETCH"]),
    ({"fsdp_reshard_after_forward": True}, ["fsdp_reshard_after_forward", "FSDP2", "fsdp_version: 2"]),
    ({"fsdp_version": 3}, ["fsdp_version", "3", "1 or 2"]),
    ({"fsdp_activation_checkpointing_offload": "true"}, ["checkpointing_offload", "not simulated yet", "false"]),
    ({"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}, ["fsdp_auto_wrap_policy", WRAP]),
    ({"fsdp_auto_wrap_policy": "TRANSFORMER_WRAP"}, [f"did you mean '{WRAP}'?"]),
    ({"fsdp_forward_prefetch": "sometimes"}, ["fsdp_forward_prefetch", "true or false"]),
    ({"fsdp_forward_prefetch": "auto"}, ["fsdp_forward_prefetch", "true or false"]),
    ({"fsdp_ignored_modules": "lm_head"}, ["fsdp_ignored_modules", "not simulated"]),
    ({"fsdp_cpu_ram_efficient_loading": True, "fsdp_sync_module_states": False}, ["fsdp_sync_module_states"]),
    ({"fsdp_auto_wrap_policy": WRAP, "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoder"},
     ["'LlamaDecoder'", "did you mean 'LlamaDecoderLayer'?"]),
])  # fmt: skip
def test_a_section_that_is_refused(tmp_path, section, parts):
    line = message(accelerate, tmp_path, section, root=LLAMA)
    for part in parts:
        assert part in line


@pytest.mark.parametrize(("top", "parts"), [
    ({"num_proceses": 8}, ["did you mean 'num_processes'?"]),
    ({"num_processes": 0}, ["num_processes", "0"]),
    ({"mixed_precision": "bf8"}, ["mixed_precision", "'bf8'", "'bf16'"]),
    ({"distributed_type": "NO"}, ["distributed_type", "'NO'", "FSDP", "MULTI_GPU"]),
    ({"distributed_type": False}, ["distributed_type", "'NO'"]),
    ({"distributed_type": "MEGATRON_LM"}, ["MEGATRON_LM"]),
    ({"parallelism_config": {"parallelism_config_dp_shard_size": 8}}, ["parallelism_config", "needs FSDP2"]),
])  # fmt: skip
def test_a_top_level_that_is_refused(tmp_path, top, parts):
    line = message(accelerate, tmp_path, {}, **top)
    for part in parts:
        assert part in line


def test_a_missing_type(tmp_path):
    assert "distributed_type" in message(load_accelerate, {"num_processes": 8}, tmp_path / "a.yaml")


def test_several_gpus_without_sharding_are_ddp(tmp_path):
    assert accelerate(tmp_path, distributed_type="MULTI_GPU").policy == DdpPolicy(no_sync=True)


# accelerate, FSDP2.


def fsdp2(tmp_path, section=None, **options):
    return accelerate(tmp_path, {"fsdp_version": 2, "fsdp_auto_wrap_policy": WRAP, **(section or {})}, **options)


@pytest.mark.parametrize(("given", "meant"), [(True, True), (False, False), ("true", True), ("False", False)])
def test_reshard_after_forward(tmp_path, given, meant):
    assert fsdp2(tmp_path, {"fsdp_reshard_after_forward": given}).policy.reshard_after_forward is meant


def test_embedding_and_head_are_units_of_their_own(tmp_path):
    policy = fsdp2(tmp_path, root=LLAMA).policy
    assert policy.units == ("LlamaDecoderLayer", "model.embed_tokens", ("model.norm", "lm_head"))
    assert policy.unit_reshard_after_forward == {"model.norm": False}
    assert policy.reshard_after_forward is True
    assert policy.root_reshard_after_forward is None


def test_tied_weights_keep_embedding_and_head_together(tmp_path):
    policy = fsdp2(tmp_path, root=GPT2).policy
    assert policy.units == ("GPT2Block", ("transformer.ln_f", "transformer.wte", "lm_head"))


def test_an_embedding_is_known_by_what_it_takes(tmp_path):
    """Gemma's table has a class of its own."""
    config = json.loads((Path(__file__).parents[2] / "scenarios/models/gemma-2-9b.json").read_text(encoding="utf-8"))
    root, _ = model_from_mapping(config, Path("config.json"), 4, 2)
    assert fsdp2(tmp_path, root=root).policy.units[-1] == ("model.norm", "model.embed_tokens", "lm_head")


def test_hybrid_sharding(tmp_path):
    mesh = {"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4}
    assert fsdp2(tmp_path, parallelism_config=mesh, num_processes=8).policy.replicate == 2
    whole = {"parallelism_config_dp_shard_size": 8}
    assert fsdp2(tmp_path, parallelism_config=whole, num_processes=8).policy.replicate is None


def test_keys_of_fsdp1_are_noted(tmp_path):
    launch = fsdp2(tmp_path, {"fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_use_orig_params": True})
    assert [line for line in launch.notes if "FSDP2 does not have it" in line] == [
        "your `fsdp_backward_prefetch` has no effect: FSDP2 does not have it",
        "your `fsdp_use_orig_params` has no effect: FSDP2 does not have it",
    ]


@pytest.mark.parametrize(("section", "top", "parts"), [
    ({"fsdp_reshard_after_forward": "SHARD_GRAD_OP"}, {}, ["fsdp_reshard_after_forward", "false for SHARD_GRAD_OP"]),
    ({}, {"parallelism_config": {"parallelism_config_cp_size": 2}}, ["parallelism_config_cp_size", "context"]),
    ({}, {"parallelism_config": {"parallelism_config_dp_replicate_size": 2}}, ["dp_shard_size", "nothing is sharded"]),
    ({}, {"parallelism_config": {"dp_shard_size": 2}}, ["'dp_shard_size'", "parallelism_config_dp_shard_size"]),
    ({}, {"num_processes": 16, "parallelism_config": {
        "parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4}},
     ["2 replicas of 4 shards are 8 ranks, not 16"]),
])  # fmt: skip
def test_fsdp2_that_is_refused(tmp_path, section, top, parts):
    line = message(fsdp2, tmp_path, section, **top)
    for part in parts:
        assert part in line


# accelerate, DeepSpeed.


def test_deepspeed_by_a_few_keys(tmp_path):
    section = {"zero_stage": 3, "gradient_accumulation_steps": 4, "gradient_clipping": 0.5, "zero3_init_flag": True,
               "deepspeed_moe_layer_cls_names": "MyMoe"}  # fmt: skip
    launch = accelerate(tmp_path, distributed_type="DEEPSPEED", deepspeed_config=section)
    config = launch.policy
    assert config.zero_optimization.stage == 3
    assert config.zero_optimization.leaf_module.classes[-1] == "MyMoe"
    assert (config.gradient_accumulation_steps, config.gradient_clipping) == (4, 0.5)
    assert accelerate(tmp_path, distributed_type="DEEPSPEED").policy.zero_optimization.stage == 2


def test_deepspeed_by_a_file(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}}')
    section = {"deepspeed_config_file": "ds.json"}
    launch = accelerate(tmp_path, distributed_type="DEEPSPEED", deepspeed_config=section)
    assert launch.policy.zero_optimization.stage == 1
    assert launch.precision == "bf16"
    both = {**section, "zero_stage": 2}
    line = message(accelerate, tmp_path, distributed_type="DEEPSPEED", deepspeed_config=both)
    assert "deepspeed_config.zero_stage" in line
    wrong = {"zero_stages": 2}
    line = message(accelerate, tmp_path, distributed_type="DEEPSPEED", deepspeed_config=wrong)
    assert "did you mean 'zero_stage'?" in line
    line = message(accelerate, tmp_path, distributed_type="DEEPSPEED", deepspeed_config={"zero_stage": 4})
    assert "deepspeed_config.zero_optimization.stage" in line


# axolotl.


def test_axolotl(tmp_path):
    content = {
        "base_model": "x", "dp_shard_size": 4, "dp_replicate_size": 2, "fsdp_version": 2, "bf16": True,
        "fsdp_config": {"auto_wrap_policy": WRAP, "reshard_after_forward": False}, "sequence_len": 2048,
        "micro_batch_size": 2, "gradient_accumulation_steps": 8, "gradient_checkpointing": True,
    }  # fmt: skip
    launch = load_accelerate(content, tmp_path / "x.yaml")
    assert launch.policy == Fsdp2Policy(
        reshard_after_forward=False, param_dtype="bf16", reduce_dtype="bf16", replicate=2, requires_gradient_sync=False
    )
    assert (launch.ranks, launch.micro_batch, launch.gradient_accumulation) == (8, 2, 8)
    assert launch.activation_checkpointing == "full"
    line = message(load_accelerate, {"base_model": "x"}, tmp_path / "x.yaml")
    assert "fsdp_config" in line
    deep = {"base_model": "x", "deepspeed": {"zero_optimization": {"stage": 3}}}
    assert load_accelerate(deep, tmp_path / "x.yaml").policy.zero_optimization.stage == 3


# torchtitan.


def test_torchtitan_defaults_on_a_model(tmp_path):
    launch = titan(tmp_path, root=LLAMA, ranks=8)
    assert launch.policy.units == (
        "model.embed_tokens", "model.layers.0", "model.layers.1", ("model.norm", "lm_head"),
    )  # fmt: skip
    assert launch.policy.unit_reshard_after_forward == {"model.norm": False}
    assert (launch.policy.param_dtype, launch.policy.reduce_dtype) == ("bf16", "fp32")
    assert (launch.ranks, launch.micro_batch, launch.gradient_accumulation) == (8, 8, 1)


@pytest.mark.parametrize(("choice", "blocks", "last"), [
    ("default", True, False), ("always", True, True), ("never", False, False),
])  # fmt: skip
def test_torchtitan_reshard(tmp_path, choice, blocks, last):
    policy = titan(tmp_path, root=LLAMA, parallelism={"fsdp_reshard_after_forward": choice}).policy
    assert policy.reshard_after_forward is blocks
    assert policy.unit_reshard_after_forward == {"model.norm": last}


def test_torchtitan_meshes(tmp_path):
    mesh = {"data_parallel_replicate_degree": 2}
    assert titan(tmp_path, parallelism=mesh, ranks=8).policy.replicate == 2
    ddp = titan(tmp_path, parallelism={**mesh, "data_parallel_shard_degree": 1})
    assert ddp.policy == DdpPolicy(bucket_cap_mb=100)
    assert (ddp.precision, ddp.ranks) == ("fp32", 2)
    assert titan(tmp_path, parallelism=mesh, ranks=2).policy == ddp.policy  # what is left of two ranks is one


def test_torchtitan_precision_and_accumulation(tmp_path):
    training = {"dtype": "bfloat16", "local_batch_size": 2, "global_batch_size": 64}
    launch = titan(tmp_path, training=training, ranks=8)
    assert (launch.policy.param_dtype, launch.precision, launch.gradient_accumulation) == (None, "bf16", 4)
    full = titan(tmp_path, training={"mixed_precision_param": "float32"})
    assert (full.policy.param_dtype, full.precision) == (None, "fp32")


@pytest.mark.parametrize(("sections", "parts"), [
    ({"parallelism": {"tensor_parallel_degree": 2}}, ["parallelism.tensor_parallel_degree", "2", "tensor"]),
    ({"parallelism": {"pipeline_parallel_degree": 2}}, ["pipeline parallelism is not simulated"]),
    ({"parallelism": {"context_parallel_degree": 2}}, ["context parallelism"]),
    ({"parallelism": {"expert_parallel_degree": 2}}, ["expert parallelism"]),
    ({"parallelism": {"data_parallel_shard_degre": 2}}, ["did you mean 'data_parallel_shard_degree'?"]),
    ({"parallelism": {"data_parallel_shard_degree": 0}}, ["data_parallel_shard_degree", "0", "-1"]),
    ({"parallelism": {"data_parallel_shard_degree": 1}}, ["1 replicas of 1 shards are 1 ranks, not 8"]),
    ({"parallelism": {"data_parallel_shard_degree": 4}}, ["1 replicas of 4 shards are 4 ranks, not 8"]),
    ({"parallelism": {"data_parallel_replicate_degree": 3}}, ["does not divide 8 ranks"]),
    ({"parallelism": {"fsdp_reshard_after_forward": True}}, ["fsdp_reshard_after_forward"]),
    ({"parallelisme": {}}, ["did you mean 'parallelism'?"]),
    ({"training": {"mixed_precision_reduce": "bfloat16"}}, ["training.mixed_precision_reduce", "bfloat16"]),
    ({"training": {"local_batch_size": 3, "global_batch_size": 64}}, ["global_batch_size", "64", "3 × 8"]),
    ({"float8": {"enable_fsdp_float8_all_gather": True}}, ["float8.enable_fsdp_float8_all_gather"]),
])  # fmt: skip
def test_torchtitan_that_is_refused(tmp_path, sections, parts):
    line = message(titan, tmp_path, ranks=8, **sections)
    for part in parts:
        assert part in line


def test_torchtitan_without_data_parallelism(tmp_path):
    assert "not data parallel" in message(titan, tmp_path, parallelism={"data_parallel_shard_degree": 1})


def test_text_that_is_no_toml(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text("[training\n")
    assert "not valid TOML" in message(load_torchtitan, str(path), path)


# llm-foundry.


@pytest.mark.parametrize(("mixed", "param", "reduce"), [
    ("PURE", "bf16", "bf16"), ("default", "bf16", "fp32"), ("FULL", None, None),
    ({"param_dtype": "bf16", "reduce_dtype": "float32"}, "bf16", "fp32"),
])  # fmt: skip
def test_llmfoundry_mixed_precision(tmp_path, mixed, param, reduce):
    policy = foundry(tmp_path, {"mixed_precision": mixed}).policy
    assert (policy.param_dtype, policy.reduce_dtype) == (param, reduce)


def test_llmfoundry_defaults_on_a_model(tmp_path):
    launch = foundry(tmp_path, {}, root=GPT2)
    assert launch.policy == Fsdp1Policy(
        units=("GPT2Block",), backward_prefetch="BACKWARD_POST", use_orig_params=True, param_dtype="bf16",
        reduce_dtype="fp32", buffer_dtype="bf16",
    )  # fmt: skip
    assert launch.activation_checkpointing == "none"
    assert launch.notes == ()


def test_llmfoundry_options(tmp_path):
    section = {"sharding_strategy": "SHARD_GRAD_OP", "backward_prefetch": "NONE", "forward_prefetch": True,
               "limit_all_gathers": False, "use_orig_params": "false", "activation_checkpointing": True}  # fmt: skip
    launch = foundry(tmp_path, section, precision="amp_fp16")
    assert launch.policy == Fsdp1Policy(
        sharding_strategy="SHARD_GRAD_OP", backward_prefetch=None, forward_prefetch=True, limit_all_gathers=False,
        use_orig_params=False, param_dtype="fp16", reduce_dtype="fp32", buffer_dtype="fp16",
    )  # fmt: skip
    assert launch.activation_checkpointing == "full"


def test_llmfoundry_meshes(tmp_path):
    hybrid = foundry(tmp_path, {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 4}).policy
    assert (hybrid.sharding_strategy, hybrid.shard_group_size) == ("HYBRID_SHARD", 4)
    flat = foundry(tmp_path, {"sharding_strategy": "HYBRID_SHARD", "data_parallel_shard_degree": 8}).policy
    assert (flat.sharding_strategy, flat.shard_group_size) == ("FULL_SHARD", None)
    hosts = foundry(tmp_path, {"sharding_strategy": "HYBRID_SHARD"}).policy
    assert (hosts.sharding_strategy, hosts.shard_group_size) == ("HYBRID_SHARD", None)


def test_llmfoundry_variables(tmp_path):
    content = {"device_train_microbatch_size": "${variables.micro}", "variables": {"micro": 2}}
    launch = foundry(tmp_path, {}, ranks=4, global_train_batch_size=16, **content)
    assert (launch.micro_batch, launch.gradient_accumulation) == (2, 2)


@pytest.mark.parametrize(("section", "top", "parts"), [
    ({"sharding_strategi": "FULL_SHARD"}, {}, ["fsdp_config", "did you mean 'sharding_strategy'?"]),
    ({"sharding_strategy": "FULL"}, {}, ["fsdp_config.sharding_strategy", "'FULL'", "FULL_SHARD"]),
    ({"mixed_precision": "PUR"}, {}, ["mixed_precision", "did you mean 'PURE'?"]),
    ({"mixed_precision": {"parm_dtype": "bf16"}}, {}, ["did you mean 'param_dtype'?"]),
    ({"backward_prefetch": "PRE"}, {}, ["backward_prefetch", "BACKWARD_PRE"]),
    ({"cpu_offload": True}, {}, ["cpu_offload", "does not support"]),
    ({"activation_cpu_offload": True}, {}, ["activation_cpu_offload", "not simulated yet"]),
    ({"forward_prefetch_limit": 2}, {}, ["forward_prefetch_limit", "2"]),
    ({}, {"precision": "amp_bf17"}, ["precision", "did you mean 'amp_bf16'?"]),
    ({}, {"tp_config": {"degree": 2}}, ["tp_config", "tensor parallelism"]),
    (None, {}, ["fsdp_config"]),
])  # fmt: skip
def test_llmfoundry_that_is_refused(tmp_path, section, top, parts):
    line = message(foundry, tmp_path, section, **top)
    for part in parts:
        assert part in line
