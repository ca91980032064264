"""`ds_config.json` is accepted, refused and resolved as DeepSpeed 0.19.8 does it."""

import csv
import json

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.world.policy.deepspeed import deepspeed_policy, load_deepspeed, textbook_policy
from simulator.world.policy.deepspeed_batch import resolve_batch
from simulator.world.policy.deepspeed_hjson import parse_hjson, read_hjson
from simulator.world.policy.deepspeed_knobs import knobs, notes
from simulator.world.policy.zero import DeepSpeedPolicy, OptimizerOffload, ParameterOffload

FULL = {
    "prefetch_bucket_size": "stage3_prefetch_bucket_size",
    "param_persistence_threshold": "stage3_param_persistence_threshold",
    "max_live_parameters": "stage3_max_live_parameters",
    "hpz": "zero_hpz_partition_size",
    "qw": "zero_quantized_weights",
    "qg": "zero_quantized_gradients",
}
"""Column of the table of expected results: key, where they differ."""


def load(tmp_path, zero=None, **outside):
    content = outside if zero is None else {"zero_optimization": zero, **outside}
    return load_deepspeed(content, tmp_path / "scenario.yaml", "deepspeed")


def refused(tmp_path, zero=None, **outside):
    with pytest.raises(InputError) as caught:
        load(tmp_path, zero, **outside)
    line = str(caught.value)
    assert "\n" not in line
    return line


# Files of other people, against what the release itself said about them.


@pytest.fixture(scope="module")
def expected(shared):
    with (shared / "data/ds_config/expected_deepspeed_0.19.8.csv").open() as file:
        return list(csv.DictReader(file))


def parsed(shared, row):
    path = shared / "data/ds_config" / row["file"]
    return read_hjson(path), path


def test_every_file_is_listed(shared, expected):
    files = {path.name for path in (shared / "data/ds_config").iterdir() if path.suffix != ".csv"}
    assert files == {row["file"] for row in expected}


def test_text_is_read_or_refused_as_hjson_does(shared, expected):
    for row in expected:
        path = shared / "data/ds_config" / row["file"]
        if row["hjson"] == "ok":
            assert read_hjson(path), row["file"]
        else:
            with pytest.raises(InputError, match="jinja template"):
                read_hjson(path)


def test_zero_block_is_refused_where_the_release_refuses_it(shared, expected):
    rows = [row for row in expected if row["zero_block"].startswith("refused")]
    for row in rows:
        content, path = parsed(shared, row)
        named = row["zero_block"].split("DeepSpeedZeroConfig ")[1].split()[0]
        with pytest.raises(InputError, match=named):
            load_deepspeed({"zero_optimization": content["zero_optimization"]}, path, "")
    assert rows


def test_zero_block_is_resolved_as_in_the_release(shared, expected):
    rows = [row for row in expected if row["zero_block"] == "accepted"]
    for row in rows:
        content, path = parsed(shared, row)
        config = load_deepspeed({"zero_optimization": content.get("zero_optimization", {})}, path, "")
        zero = config.zero_optimization
        columns = ("stage", "reduce_bucket_size", "allgather_bucket_size", "sub_group_size", *FULL)
        found = {name: str(getattr(zero, FULL.get(name, name))) for name in columns}
        found["overlap_comm"] = str(config.overlap_comm)
        for name in ("offload_param", "offload_optimizer"):
            section = getattr(zero, name)
            found[name] = "" if section is None else section.device
        assert found == {name: row[name] for name in found}, row["file"]
    assert rows


def test_whole_config_on_one_rank_is_refused_or_gives_the_batch_of_the_release(shared, expected):
    for row in expected:
        verdict = row["full_config_world1"]
        path = shared / "data/ds_config" / row["file"]
        if verdict.startswith("accepted"):
            micro, steps = resolve_batch(load_deepspeed(str(path), path, ""), 1)
            assert verdict == f"accepted: train_batch={micro * steps} micro={micro} gas={steps}", row["file"]
        else:
            with pytest.raises(InputError):
                resolve_batch(load_deepspeed(str(path), path, ""), 1)


def test_refused_recordings_are_refused_with_the_same_key(shared, tmp_path):
    recorded = json.loads((shared / "reference/recorded/refused_configs.json").read_text())["refused"]
    parsing = [each for each in recorded if each["error"].startswith(("ValidationError", "DeepSpeedConfigError"))]
    assert len(parsing) == 3
    for each in parsing:
        (key,) = each["config"]["zero_optimization"].keys() - {"stage"}
        assert key in refused(tmp_path, **each["config"])


# The same rules by small configs of our own.


def test_comments_loose_commas_and_strings_without_quotes():
    text = """{
      // line
      "a": 1, # hash
      /* block
         of two lines */
      b: two words, still
      'c': [1, 2.5, 1e3, -7,],
      "d": {"e": "http://x", "f": null}
      g: false }"""
    assert parse_hjson(text) == {
        "a": 1,
        "b": "two words, still",
        "c": [1, 2.5, 1000.0, -7],
        "d": {"e": "http://x", "f": None},
        "g": False,
    }


@pytest.mark.parametrize(("text", "part"), [
    ('{"a": 1, "a": 2}', "'a' stands twice"),
    ("{{ name }}", "jinja template"),
    ('{\n{% if fp16 %}\n"fp16": {}\n}', "jinja template"),
    ("[1]", "expected a mapping"),
    ('{"a" 1}', "expected ':'"),
    ('{"a": 1', "found 'the end'"),
    ('{"a":\n,}', "line 2: expected a value"),
    ('{"a": "b}', "line 1"),
    ("{} {}", "after the closing brace"),
    ("", "expected a mapping"),
])  # fmt: skip
def test_text_that_is_no_configuration(text, part):
    with pytest.raises(InputError, match=part):
        parse_hjson(text, "ds_config.json")


@pytest.mark.parametrize("size", [5e8, 500_000_000, "500000000", " 500_000_000 ", "500000000.0", "+500000000"])
def test_whole_numbers_in_every_spelling_of_the_release(tmp_path, size):
    assert load(tmp_path, {"reduce_bucket_size": size}).zero_optimization.reduce_bucket_size == 500_000_000


@pytest.mark.parametrize(("size", "part"), [
    ("5e8", "write 5e8 without the quotes"),
    ("5.5", "whole number"),
    (5.5, "whole number"),
    ("", "whole number"),
    ("0x10", "whole number"),
    (None, "expected a whole number, found null"),
    (0, ">= 1"),
    (-4, ">= 1"),
])  # fmt: skip
def test_what_is_no_whole_number_there(tmp_path, size, part):
    line = refused(tmp_path, {"reduce_bucket_size": size})
    assert "deepspeed.zero_optimization.reduce_bucket_size" in line
    assert part in line


@pytest.mark.parametrize(("given", "meant"), [
    (True, True), (1, True), (0.0, False), ("yes", True), ("Off", False), ("T", True), (None, None), ("auto", None),
])  # fmt: skip
def test_booleans_in_every_spelling_of_the_release(tmp_path, given, meant):
    assert load(tmp_path, {"overlap_comm": given}).zero_optimization.overlap_comm is meant


@pytest.mark.parametrize("given", [2, 0.5, "null", " true", "maybe"])
def test_what_is_no_boolean_there(tmp_path, given):
    assert "expected true or false" in refused(tmp_path, {"overlap_comm": given})


@pytest.mark.parametrize(("stage", "overlap"), [(0, False), (1, False), (2, False), (3, True)])
def test_overlap_is_on_by_default_at_stage_3_only(tmp_path, stage, overlap):
    assert load(tmp_path, {"stage": stage}).overlap_comm is overlap
    assert load(tmp_path, {"stage": stage, "overlap_comm": not overlap}).overlap_comm is not overlap


@pytest.mark.parametrize("stage", [True, 1, 1.0, "1"])
def test_true_is_stage_1(tmp_path, stage):
    assert load(tmp_path, {"stage": stage}).zero_optimization.stage == 1


def test_a_boolean_block_is_the_old_form(tmp_path):
    config = load(tmp_path, True, allgather_size=200)
    assert (config.zero_optimization.stage, config.zero_optimization.allgather_bucket_size) == (1, 200)
    assert any("deprecated" in line for line in notes(config))
    assert load(tmp_path, False).zero_optimization.stage == 0


def test_names_without_their_prefix_mean_the_same(tmp_path):
    zero = load(tmp_path, {"stage": 3, "max_live_parameters": 7, "prefetch_bucket_size": 5}).zero_optimization
    assert (zero.stage3_max_live_parameters, zero.stage3_prefetch_bucket_size) == (7, 5)
    both = {"max_live_parameters": 7, "stage3_max_live_parameters": 7}
    assert "means the same" in refused(tmp_path, both)


def test_former_names_are_mapped_with_a_note(tmp_path):
    config = load(tmp_path, {
        "stage": 3, "cpu_offload": True, "cpu_offload_param": False, "cpu_offload_use_pin_memory": True,
        "stage3_gather_fp16_weights_on_model_save": True,
    })  # fmt: skip
    zero = config.zero_optimization
    assert zero.offload_optimizer.device == "cpu"
    assert zero.offload_param is None
    assert zero.stage3_gather_16bit_weights_on_model_save
    lines = "\n".join(notes(config))
    for name in ("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory"):
        assert f"`{name}` is deprecated" in lines
    assert "means the same" in refused(tmp_path, {"cpu_offload": True, "offload_optimizer": {"device": "cpu"}})


@pytest.mark.parametrize(("zero", "parts"), [
    ({"legacy_stage1": True}, ["legacy_stage1", "0.5.9"]),
    ({"mics_shard_size": 4}, ["mics_shard_size", "MiCS was removed"]),
    ({"mics_hierarchical_params_gather": False}, ["MiCS was removed"]),
    ({"zeropp_loco_param": {"err_beta": 0.8}}, ["LoCo-ZeRO++ was removed"]),
    ({"grad_hooks": True}, ["grad_hooks", "no key of DeepSpeed any more"]),
    ({"stage": 4}, ["stage", "4", "<= 3"]),
    ({"stag": 3}, ["'stag'", "did you mean 'stage'?"]),
    ({"reduce_bucket_sizes": 3}, ["did you mean 'reduce_bucket_size'?"]),
    ({"offload_param": False}, ["offload_param", "expected a mapping", "leave the key out"]),
    ({"offload_param": {"devise": "cpu"}}, ["did you mean 'device'?"]),
    ({"offload_param": {"device": "gpu"}}, ["zero_optimization.offload_param.device", "'gpu'"]),
    ({"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.3}}, ["ratio", "needs stage 3"]),
    ({"stage": 0, "offload_optimizer": {"device": "cpu"}}, ["offload_optimizer.device", "needs stage 1, 2 or 3"]),
    ({"stage": 3, "offload_optimizer": {"device": "nvme"}}, ["offload_optimizer.nvme_path", "needs a path"]),
    ({"stage": 3, "offload_param": {"device": "nvme"}}, ["offload_param.nvme_path", "/local_nvme"]),
    ({"stage": 1, "allgather_bucket_size": 7}, ["allgather_bucket_size", "even", "write 8"]),
    ({"stage": 3, "compute_grad_norm": False}, ["compute_grad_norm", "not possible at stage 3"]),
    ({"stage": 2, "compute_grad_norm": False}, ["compute_grad_norm", "gradient_clipping 0"]),
    ("3", ["zero_optimization", "expected a mapping"]),
])  # fmt: skip
def test_a_zero_block_that_the_release_refuses(tmp_path, zero, parts):
    line = refused(tmp_path, zero)
    for part in parts:
        assert part in line


@pytest.mark.parametrize(("outside", "parts"), [
    ({"amp": {}}, ["deepspeed.amp", "removed", "'bf16'"]),
    ({"elasticity": {}}, ["elasticity", "removed"]),
    ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, ["fp16.enabled", "beside bf16"]),
    ({"bf16": {"check_overflow": True}}, ["'check_overflow'", "check_grad_overflow"]),
    ({"bf16": {"bf16_optimizer_states": True}}, ["bf16_optimizer_states", "stage 1, 2 or 3"]),
    ({"communication_data_type": "fp8"}, ["communication_data_type", "fp8"]),
    ({"data_types": {"grad_accum_dtype": "int8"}}, ["grad_accum_dtype", "int8", "'bf16'"]),
    ({"gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}, ["gradient_allreduce_op", "stage 3"]),
    ({"gradient_clipping": "much"}, ["gradient_clipping", "number"]),
    ({"managed_gradient_accumulation": False, "zero_optimization": {"stage": 1, "overlap_comm": True}},
     ["managed_gradient_accumulation", "overlap_comm"]),
    ({"train_micro_batch_size_per_gpu": "8"}, ["train_micro_batch_size_per_gpu", "'8'"]),
    ({"train_batch_size": 0}, ["train_batch_size", "0"]),
])  # fmt: skip
def test_other_keys_that_the_release_refuses(tmp_path, outside, parts):
    line = refused(tmp_path, **outside)
    for part in parts:
        assert part in line


def test_unknown_keys_outside_are_ignored_with_a_note_where_they_look_like_a_slip(tmp_path):
    config = load(tmp_path, {"stage": 2}, zero_optimisation={"stage": 3}, _comment="x", reduce_bucket_size=1,
                  optimizer={"type": "AdamW"}, log={"steps_per_print": 50}, bf16={"enabled": True})  # fmt: skip
    assert config.zero_optimization.stage == 2
    assert notes(config) == (
        "`zero_optimisation` is ignored; did you mean `zero_optimization`?",
        "`reduce_bucket_size` is ignored outside `zero_optimization`",
    )


def test_bfloat16_is_the_former_name_of_bf16(tmp_path):
    assert load(tmp_path, bfloat16={"enabled": True}).bf16.enabled
    assert not load(tmp_path, bfloat16={"enabled": True}, bf16={"enabled": False}).bf16.enabled


def test_defaults_are_those_of_the_policy(tmp_path):
    assert deepspeed_policy(load(tmp_path, {"stage": 2}), "bf16") == DeepSpeedPolicy(zero_stage=2)
    assert deepspeed_policy(load(tmp_path, {"stage": 3}), "fp16") == DeepSpeedPolicy(
        zero_stage=3, dtype="fp16", overlap_comm=True
    )


def test_every_knob_reaches_the_policy(tmp_path):
    zero = {
        "stage": 3, "reduce_bucket_size": 1, "stage3_max_live_parameters": 2, "stage3_max_reuse_distance": 3,
        "stage3_model_persistence_threshold": 4, "stage3_module_granularity_threshold": 5, "sub_group_size": 6,
        "zero_hpz_partition_size": 8, "leaf_module": {"classes": "a.b.Block", "names": ["x"], "name_suffixes": "mlp"},
        "contiguous_gradients": False, "reduce_scatter": False, "stage3_allgather_sequential": True,
    }  # fmt: skip
    config = load(
        tmp_path, zero, communication_data_type="FP32", data_types={"grad_accum_dtype": "float32"},
        bf16={"enabled": True, "check_grad_overflow": False}, gradient_clipping=0.5, comms_logger={"enabled": True},
        flops_profiler={"enabled": True}, timers={"throughput": {"synchronized": False}},
    )  # fmt: skip
    assert deepspeed_policy(config, "bf16") == DeepSpeedPolicy(
        zero_stage=3, overlap_comm=True, reduce_bucket_size=1, stage3_max_live_parameters=2,
        stage3_max_reuse_distance=3, stage3_model_persistence_threshold=4, stage3_module_granularity_threshold=5,
        sub_group_size=6, zero_hpz_partition_size=8, leaf_classes=("Block",), leaf_names=("x",),
        leaf_name_suffixes=("mlp",), contiguous_gradients=False, reduce_scatter=False,
        stage3_allgather_sequential=True, stage3_prefetch_bucket_size=1, communication_data_type="fp32",
        grad_accum_dtype="fp32", check_grad_overflow=False, gradient_clipping=0.5, comms_logger=True,
        wall_clock_breakdown=True, synchronises_timers=False,
    )  # fmt: skip


AUTO = {
    "stage": 3,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
}


def test_auto_is_what_a_trainer_fills_in_and_the_default_without_one(tmp_path):
    config = load(tmp_path, AUTO)
    assert deepspeed_policy(config, "bf16") == DeepSpeedPolicy(zero_stage=3, overlap_comm=True)
    filled = deepspeed_policy(config, "bf16", hidden_size=4096)
    assert filled.reduce_bucket_size == 4096 * 4096
    assert filled.stage3_prefetch_bucket_size == 15_099_494
    assert filled.stage3_param_persistence_threshold == 40_960
    given = load(tmp_path, {"stage": 3, "reduce_bucket_size": 7})
    assert deepspeed_policy(given, "bf16", hidden_size=4096).reduce_bucket_size == 7
    assert textbook_policy(config, 1, "f", "k", hidden_size=4096).bucket_size == 4096 * 4096
    assert sum("hidden_size" in line for line in notes(config)) == 3


@pytest.mark.parametrize(("outside", "part"), [
    ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": True}}}, "SuperOff"),
    ({"compile": {"deepcompile": True}}, "compile.deepcompile"),
    ({"tensor_parallel": {"autotp_size": 2}}, "tensor parallelism"),
    ({"zero_optimization": {"stage": 2, "zenflow": {}}}, "ZenFlow"),
    ({"sequence_parallel_size": 2}, "sequence parallelism"),
])  # fmt: skip
def test_what_is_not_simulated_is_read_noted_and_refused_when_simulated(tmp_path, outside, part):
    config = load(tmp_path, bf16={"enabled": True}, **outside)
    assert any("not simulated" in line for line in notes(config))
    with pytest.raises(InputError, match=part):
        deepspeed_policy(config, "bf16")
    with pytest.raises(InputError, match=r"scenario\.yaml: variants"):
        textbook_policy(config, 1, "scenario.yaml", "variants[0].deepspeed")


def test_offloading_to_nowhere_is_no_offloading(tmp_path):
    zero = {"stage": 3, "offload_param": {"device": "none"}, "offload_optimizer": {"device": "none"}}
    assert deepspeed_policy(load(tmp_path, zero), "bf16") == deepspeed_policy(load(tmp_path, {"stage": 3}), "bf16")


def test_what_is_offloaded_and_how(tmp_path):
    states = {"device": "nvme", "nvme_path": "/x", "pipeline_read": True, "buffer_count": 8, "pin_memory": False}
    policy = deepspeed_policy(load(tmp_path, {"stage": 3, "offload_optimizer": states}), "bf16")
    assert policy.offload_optimizer == OptimizerOffload(
        device="nvme", pipeline_read=True, buffer_count=8, pin_memory=False
    )
    assert policy.offload_param is None
    both = {"stage": 3, "cpu_offload": True, "offload_param": {"device": "cpu", "max_in_cpu": 5}}
    policy = deepspeed_policy(load(tmp_path, both), "bf16")
    assert (policy.offload_optimizer, policy.offload_param) == (OptimizerOffload(), ParameterOffload(max_in_cpu=5))


def test_below_stage_3_drives_mean_memory_and_parameters_stay(tmp_path):
    zero = {"stage": 2, "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"},
            "contiguous_gradients": False}  # fmt: skip
    config = load(tmp_path, zero, bf16={"enabled": True})
    policy = deepspeed_policy(config, "bf16")
    assert (policy.offload_optimizer, policy.offload_param) == (OptimizerOffload(), None)
    assert policy.contiguous_gradients
    lines = "\n".join(notes(config))
    assert "nvme means cpu" in lines
    assert "`offload_param` has no effect on communication at stage 2" in lines


def test_offloading_is_not_in_the_textbook(tmp_path):
    config = load(tmp_path, {"stage": 3, "offload_param": {"device": "cpu"}})
    with pytest.raises(InputError, match=r"variants\[0\]\.zero_optimization\.offload_param\.device: 'cpu': not in"):
        textbook_policy(config, 1, "scenario.yaml", "variants[0]")


def test_another_precision_than_the_models_is_a_contradiction(tmp_path):
    with pytest.raises(InputError, match=r"fp16\.enabled.*bf16"):
        deepspeed_policy(load(tmp_path, fp16={"enabled": True}), "bf16")
    assert deepspeed_policy(load(tmp_path, fp16={"enabled": "auto"}), "bf16").dtype == "bf16"
    mixed = load(tmp_path, {"stage": 0}, data_types={"grad_accum_dtype": "fp32"})
    with pytest.raises(InputError, match="stage 0"):
        deepspeed_policy(mixed, "bf16")


@pytest.mark.parametrize(("given", "ranks", "expected"), [
    ((16, 2, 1), 8, (2, 1)),
    ((32, 2, None), 8, (2, 2)),
    ((32, None, 2), 8, (2, 2)),
    ((None, 2, 3), 8, (2, 3)),
    ((16, None, None), 8, (2, 1)),
    ((None, 2, None), 8, (2, 1)),
])  # fmt: skip
def test_batch_sizes_are_inferred(tmp_path, given, ranks, expected):
    assert resolve_batch(batches(tmp_path, *given), ranks) == expected


def batches(tmp_path, batch, micro, steps):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return load(tmp_path, **dict(zip(names, (batch, micro, steps), strict=True)))


@pytest.mark.parametrize(("given", "parts"), [
    ((16, 2, 2), ["train_batch_size", "16", "2 × 2 × 8 = 32"]),
    ((8, 2, None), ["8", "2 × 0 × 8"]),
    ((20, None, None), ["20", "2 × 1 × 8 = 16"]),
    ((4, None, None), ["4", "0 × 1 × 8"]),
    ((None, None, 4), ["neither train_batch_size nor train_micro_batch_size_per_gpu"]),
    ((None, None, None), ["neither"]),
    ((None, "auto", 1), ["train_micro_batch_size_per_gpu", "'auto'", "trainer"]),
])  # fmt: skip
def test_batch_sizes_that_contradict_each_other(tmp_path, given, parts):
    with pytest.raises(InputError) as caught:
        resolve_batch(batches(tmp_path, *given), 8)
    for part in parts:
        assert part in str(caught.value)


def test_a_trainer_fills_in_batch_sizes(tmp_path):
    config = batches(tmp_path, "auto", "auto", "auto")
    assert resolve_batch(config, 8, micro_batch=4, gradient_accumulation=2) == (4, 2)
    assert resolve_batch(batches(tmp_path, 64, "auto", None), 8, micro_batch=4) == (4, 2)


def test_knobs_say_where_a_value_came_from_and_what_it_does(tmp_path):
    zero = {**AUTO, "overlap_comm": True, "stage3_gather_fp16_weights_on_model_save": True}
    found = {knob.name: knob for knob in knobs(load(tmp_path, zero), "bf16", 1024)}
    assert (found["reduce_bucket_size"].value, found["reduce_bucket_size"].origin) == (1024 * 1024, "auto")
    assert found["overlap_comm"].origin == "file"
    assert found["sub_group_size"].origin == "default"
    former = found["stage3_gather_16bit_weights_on_model_save"]
    assert former.origin == "deprecated name stage3_gather_fp16_weights_on_model_save"
    assert found["communication_data_type"].value == "bf16"
    assert all(knob.effect for knob in found.values())


def test_the_policy_holds_what_the_knobs_say(tmp_path):
    config = load(tmp_path, {**AUTO, "stage3_allgather_sequential": True}, gradient_clipping=0.5)
    policy = deepspeed_policy(config, "bf16", hidden_size=512)
    for knob in knobs(config, "bf16", 512):
        if hasattr(policy, knob.name) and knob.name != "communication_data_type":
            assert getattr(policy, knob.name) == knob.value, knob.name


@pytest.mark.parametrize(("name", "without"), [
    ("allgather_bucket_size", (0, 1, 2, 3)),
    ("allgather_partitions", (0, 1, 2, 3)),
    ("overlap_comm", (0,)),
    ("reduce_bucket_size", (0,)),
    ("stage3_prefetch_bucket_size", (0, 1, 2)),
    ("zero_hpz_partition_size", (0, 1, 2)),
    ("use_multi_rank_bucket_allreduce", (0, 3)),
])  # fmt: skip
def test_keys_without_effect_are_called_so(tmp_path, name, without):
    value = True if name in ("allgather_partitions", "overlap_comm", "use_multi_rank_bucket_allreduce") else 8
    for stage in range(4):
        config = load(tmp_path, {"stage": stage, name: value}, bf16={"enabled": True})
        lines = [line for line in notes(config) if line.startswith(f"your `{name}` has no effect")]
        assert len(lines) == (stage in without), stage
        (knob,) = [knob for knob in knobs(config, "bf16") if knob.name == name]
        assert knob.effect.startswith("no effect on communication") == (stage in without)


@pytest.mark.parametrize(("stage", "bytes_per_rank"), [(1, None), (2, 2 + 18 / 8), (3, 18 / 8)])
def test_deepspeeds_own_estimate_stands_beside_the_peak(scenario, stage, bytes_per_rank):
    """By hand, A16: 2 Psi + 18 Psi / N, or 4 B for each element of the largest module itself and 18 Psi / N."""
    zero = {"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}
    asked = scenario(
        model={"config": "llama-2-7b", "sequence_length": 64},
        topology={"cluster": "dgx-h100", "hosts": 1},
        variants=[{"name": "v", "deepspeed": zero}],
    )
    estimate = run_variant(asked, asked.variants[0]).result.memory["deepspeed_estimate"]
    if bytes_per_rank is None:
        assert estimate is None
    else:
        largest = 32000 * 4096 if stage == 3 else 0  # the embedding; a matrix of the feed-forward is smaller
        assert estimate == pytest.approx(bytes_per_rank * 6738415616 + 4 * largest)
