"""`zerosim tune` as a user meets it: table, file, difference, mistakes."""

import json
import tomllib

import pytest

from simulator.explore import run_variant
from simulator.readings.tuned_table import remarks
from simulator.tune import load_target
from simulator.tune.deepspeed import named_as_written
from simulator.tune.file import text_of
from simulator.tune.knobs import space_of
from simulator.world.edits import REMOVED, edited, edited_text
from simulator.world.policy.deepspeed_hjson import read_hjson
from simulator.world.scenario import load_scenario, resolve_scenario
from tests.command import zerosim

SCENARIO = """
name: small
model:
  sequence_length: 1024
  config: {{model_type: llama, hidden_size: 512, intermediate_size: 1024, num_hidden_layers: 3, num_attention_heads: 4,
            vocab_size: 1000, tie_word_embeddings: false}}
training: {{micro_batch: 2, gradient_accumulation: {steps}}}
topology: {{cluster: cloud-100gbe, hosts: 2}}
variants:
{variants}
"""

DEEPSPEED = """{
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}},
    "my_own_key": ["is", "kept"],
    "zero_optimization": {"stage": 3, "sub_group_size": 1e9, "prefetch_bucket_size": 5e7},
    "bf16": {"enabled": true}
}"""

ACCELERATE = """\
# ours
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: 'bf16'
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true  # as the guide says
num_processes: 16
"""

TORCHTITAN = """\
# ours
[training]
local_batch_size = 2
global_batch_size = 64  # sequences
seq_len = 1024

[parallelism]
data_parallel_shard_degree = -1

[activation_checkpoint]
mode = "none"
"""


@pytest.fixture
def job(tmp_path):
    """Write a scenario, and the files that its variants name."""

    def write(*variants, steps=2, **files):
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        path = tmp_path / "job.yaml"
        path.write_text(SCENARIO.format(steps=steps, variants="\n".join(f"  - {item}" for item in variants)))
        return path

    return write


def only(path, *knobs, variant=None):
    """Options that keep all knobs but some."""
    names = [knob.name for knob in space_of(load_target(path, name=variant)).knobs]
    return [text for name in names if name not in knobs for text in ("--keep", name)]


def tuned(path, *options, knobs, variant=None):
    chosen = ["--variant", variant] if variant else []
    done = zerosim("tune", path, "--workers", 1, *chosen, *options, *only(path, *knobs, variant=variant))
    assert done.returncode == 0, done.stderr
    return done


def test_the_file_is_accepted_and_its_step_is_the_one_that_was_told(job, tmp_path):
    path, out = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED), tmp_path / "tuned.json"
    content = json.loads(tuned(path, "-o", out, "--json", knobs=("stage", "ZeRO++")).stdout)
    again = load_scenario(job("{name: mine, deepspeed: tuned.json}"))
    assert run_variant(again, again.variants[0]).result.step_time == content["after"]["step_time"]
    assert content["gain"] > 0.1
    assert content["before"]["step_time"] * (1 - content["gain"]) == pytest.approx(content["after"]["step_time"])
    assert read_hjson(out) == content["config"]


def test_what_it_does_not_understand_is_kept_with_the_names_that_keys_have(job, tmp_path):
    path, out = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED), tmp_path / "tuned.json"
    done = tuned(path, "-o", out, knobs=("stage", "stage3_prefetch_bucket_size"))
    before, after = json.loads(DEEPSPEED), json.loads(out.read_text())
    assert {key: value for key, value in after.items() if key != "zero_optimization"} == {
        key: value for key, value in before.items() if key != "zero_optimization"
    }
    assert '"sub_group_size": 1e9' in out.read_text()
    assert not {"stage3_prefetch_bucket_size"} & set(after["zero_optimization"])
    assert "+++" in done.stdout
    assert f"written to {out}" in done.stdout


def test_every_line_of_the_difference_is_a_change_that_was_told(job, tmp_path):
    path, out = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED), tmp_path / "tuned.json"
    content = json.loads(tuned(path, "-o", out, "--json", knobs=("stage", "ZeRO++", "overlap_comm")).stdout)
    told = {key: value for line in content["lines"] for key, value in line["keys"].items()}
    assert told == content["changes"]
    assert content["lines"]
    for line in content["lines"]:
        assert line["gain"] is None or line["gain"] > 0
        assert line["why"].startswith("without it")


def test_a_gain_is_what_taking_the_change_back_costs(job):
    path = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED)
    content = json.loads(tuned(path, "--json", knobs=("stage", "reduce_bucket_size", "overlap_comm")).stdout)
    assert content["lines"]
    target = load_target(path)
    for line in content["lines"]:
        others = {key: value for key, value in content["changes"].items() if key not in line["keys"]}
        raw = target.study.at(target.point(edited(target.config, others), content["training"]), "mine")
        asked = resolve_scenario(raw, path)
        step = run_variant(asked, asked.variants[0]).result.step_time
        assert line["gain"] == pytest.approx(step / content["after"]["step_time"] - 1)


@pytest.mark.parametrize(
    ("kind", "name", "text"), [("accelerate", "fsdp.yaml", ACCELERATE), ("torchtitan", "job.toml", TORCHTITAN)]
)
def test_comments_and_order_are_kept(job, tmp_path, kind, name, text):
    path, out = job(f"{{name: mine, {kind}: {name}}}", **{name.replace(".", "_"): text}), tmp_path / f"out-{name}"
    tuned(path, "-o", out, knobs=("replicate", "fsdp_reshard_after_forward"))
    written = out.read_text()
    lines = iter(written.splitlines())
    kept = [line for line in text.splitlines() if not line.strip().startswith(("fsdp_reshard", "data_parallel"))]
    assert all(line in lines for line in kept)  # in this order
    assert written != text
    asked = load_scenario(job(f"{{name: mine, {kind}: out-{name}}}"))
    assert not run_variant(asked, asked.variants[0]).result.failure


def test_torchtitan_gets_the_batch_it_had(job, tmp_path):
    path, out = job("{name: mine, torchtitan: job.toml}", job_toml=TORCHTITAN), tmp_path / "out.toml"
    tuned(path, "-o", out, knobs=("micro_batch x accumulation",))
    training = tomllib.loads(out.read_text())["training"]
    assert training["global_batch_size"] == 64  # 2 x 2 x 16 ranks
    assert 64 % (training["local_batch_size"] * 16) == 0


def test_a_file_of_another_kind_is_refused_before_any_work(job, tmp_path):
    path = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED)
    done = zerosim("tune", path, "-o", tmp_path / "tuned.toml")
    assert done.returncode == 2
    assert "a configuration of deepspeed is another kind of file; end its name in .json" in done.stderr
    done = zerosim("tune", path, "-o", tmp_path / "nowhere" / "tuned.json")
    assert (done.returncode, "no such folder" in done.stderr, len(done.stderr.splitlines())) == (2, True, 1)


def test_the_scenario_itself_is_not_overwritten(job):
    path = job("{name: mine, fsdp2: {}}")
    before = path.read_text()
    done = zerosim("tune", path, "-o", path.parent / "." / path.name)
    assert (done.returncode, "is the scenario, which would be lost" in done.stderr) == (2, True)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "stages"], "--keep: 'stages': no such knob; known: stage, "),
        (["--headroom", "lots"], "expected a part of a whole, like 10%"),
        (["--variant", "other"], "variant"),
        (["--set", "training.micro_batch=0"], "training.micro_batch"),
    ],
)
def test_mistakes_get_one_line(job, arguments, message):
    done = zerosim("tune", job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED), *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr


def test_a_variant_without_configuration_is_refused(job):
    path = job("{name: mine, ddp: {}}")
    done = zerosim("tune", path)
    assert (done.returncode, "nothing can be tuned" in done.stderr) == (2, True)
    done = zerosim("tune", path, "--variant", "mine")
    assert (done.returncode, "is ddp, which has no configuration to write" in done.stderr) == (2, True)


def test_a_bare_stage_starts_from_deepspeeds_defaults(job):
    target = load_target(job("{name: mine, zero_stage: 2}"))
    assert target.config == {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
    assert target.variant.schedule == "deepspeed"


def test_a_bare_stage_keeps_its_parts_of_zeropp(job):
    target = load_target(job("{name: mine, zero_stage: 3, zero_hpz_partition_size: 8, zero_quantized_weights: true}"))
    zero = {"stage": 3, "zero_hpz_partition_size": 8, "zero_quantized_weights": True}
    assert target.config["zero_optimization"] == zero


def test_what_accelerate_passes_on_is_deepspeeds(job, tmp_path):
    accelerate = (
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config: {deepspeed_config_file: ds.json}\n"
    )
    target = load_target(job("{name: mine, accelerate: a.yaml}", ds_json=DEEPSPEED, a_yaml=accelerate))
    assert (target.format, target.source) == ("deepspeed", tmp_path / "ds.json")


def test_a_job_that_fits_nowhere_may_leave_the_gpu(job):
    """With 99.9 % kept free nothing fits; the answer lacks least, and says so."""
    path = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED)
    done = tuned(path, "--headroom", "99.9%", knobs=("stage",))
    assert "nothing that was tried fits" in done.stdout
    content = json.loads(tuned(path, "--headroom", "99.9%", "--json", knobs=("overlap_comm",)).stdout)
    (line,) = (line for line in content["lines"] if line["knob"] == "offload")
    assert (line["after"], line["gain"]) == ("optimizer", None)
    assert content["config"]["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


def test_nothing_to_gain_is_told(job):
    path = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED)
    done = tuned(path, knobs=("stage3_max_reuse_distance",))
    assert "nothing that was tried is better" in done.stdout


@pytest.mark.parametrize("written", [True, {"stage": 2, "cpu_offload": True}])
def test_former_names_are_understood(job, written):
    config = json.dumps({"zero_optimization": written, "bf16": {"enabled": True}})
    target = load_target(job("{name: mine, deepspeed: ds.json}", ds_json=config))
    space = space_of(target)
    for place, knob in enumerate(space.knobs):
        for number in range(1, len(knob.options)):
            setting = space.canonical((*space.start[:place], number, *space.start[place + 1 :]))
            changes = target.keys(space.config(setting))
            raw = target.study.at(target.point(edited(target.config, changes), space.training(setting)), "mine")
            resolve_scenario(raw, target.study.file)


def test_a_former_name_goes_with_what_it_says():
    changes = named_as_written(
        {"zero_optimization": {"cpu_offload": True}}, {"zero_optimization.offload_optimizer": REMOVED}
    )
    assert edited({"zero_optimization": {"cpu_offload": True}}, changes) == {"zero_optimization": {}}


def test_a_section_takes_the_place_of_a_former_switch(job):
    config = json.dumps({"zero_optimization": {"stage": 2, "cpu_offload": False}, "bf16": {"enabled": True}})
    target = load_target(job("{name: mine, deepspeed: ds.json}", ds_json=config))
    (knob,) = (knob for knob in space_of(target, offload=True).knobs if knob.name == "offload")
    device = {"device": "cpu", "pin_memory": True}
    after = edited(target.config, target.keys(knob.options[1].config))
    assert after["zero_optimization"] == {"stage": 2, "offload_optimizer": device}


@pytest.mark.parametrize(("tokens", "free"), [("", False), ("2048", True)])
def test_a_time_without_tokens_says_nothing_of_another_micro_batch(job, tokens, free):
    table = f"layer,forward_ms,backward_ms,tokens\nmodel.layers.*,3,6,{tokens}\n"
    path = job("{name: mine, fsdp2: {}}", times_csv=table)
    path.write_text(path.read_text() + "compute: {measured: times.csv, scale_measured: true}\n")
    (knob,) = (knob for knob in space_of(load_target(path)).knobs if knob.name == "micro_batch x accumulation")
    assert (len(knob.options) > 1) is free


def test_parameters_alone_may_come_back_to_the_gpu(job):
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    target = load_target(job("{name: mine, deepspeed: ds.json}", ds_json=json.dumps({"zero_optimization": zero})))
    (knob,) = (knob for knob in space_of(target).knobs if knob.name == "offload")
    assert [option.value for option in knob.options] == ["as written", "optimizer", "none"]
    left = edited(target.config, target.keys(knob.options[1].config))["zero_optimization"]
    assert left == {key: value for key, value in zero.items() if key != "offload_param"}


def test_what_the_written_file_says_otherwise_than_the_scenario_is_told(job):
    text = TORCHTITAN.replace("local_batch_size = 2", "local_batch_size = 4").replace("none", "full")
    done = tuned(job("{name: mine, torchtitan: job.toml}", job_toml=text), knobs=())
    assert "mine: the file says micro-batch 4, the scenario 2, which is simulated" in done.stdout
    assert "mine: the file says checkpointing full, the scenario none, which is simulated" in done.stdout


def test_options_of_a_scenario_are_written_as_a_variant_has_them(job):
    target = load_target(job("{name: mine, fsdp2: {param_dtype: bf16}}"))
    assert text_of(target, {"replicate": 2}) == "fsdp2:\n  param_dtype: bf16\n  replicate: 2\n"


def test_ddp_is_refused_by_whatever_it_is_asked_for(job):
    alone = "[parallelism]\ndata_parallel_replicate_degree = 16\ndata_parallel_shard_degree = 1\n"
    done = zerosim("tune", job("{name: mine, torchtitan: job.toml}", job_toml=alone))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "this is DDP" in done.stderr


@pytest.mark.parametrize("variant", ["fsdp2: {}", "torchtitan: job.toml"])
def test_replicas_of_one_rank_are_not_tried(job, variant):
    path = job(f"{{name: mine, {variant}}}", job_toml=TORCHTITAN)
    path.write_text(path.read_text().replace("cloud-100gbe, hosts: 2", "flat, hosts: 4"))
    (knob,) = (knob for knob in space_of(load_target(path)).knobs if knob.name == "replicate")
    assert [option.value for option in knob.options] == [1, 2]


def test_an_empty_section_is_filled(job, tmp_path):
    text = "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\nnum_processes: 16\n"
    path, out = job("{name: mine, accelerate: a.yaml}", a_yaml=text), tmp_path / "out.yaml"
    tuned(path, "-o", out, knobs=("sharding_strategy",))
    assert edited({"a": None}, {"a.b": 1}) == {"a": {"b": 1}}
    assert "fsdp_config:\n  fsdp_sharding_strategy: " in out.read_text()


def test_no_prefetch_of_fsdp1_is_written_as_null(job):
    target = load_target(job("{name: mine, fsdp1: {param_dtype: bf16}}"))
    assert text_of(target, {"backward_prefetch": None}) == "fsdp1:\n  param_dtype: bf16\n  backward_prefetch: null\n"


def test_yaml_stays_as_it_was_written_where_nothing_changes():
    text = "a:\n    b: 1  # why\n    c: null\nd: ~\ne:\n    - f\n    -\n      g: [1,2]\nh: '1'"
    assert edited_text(text, {}, ".yaml") == f"{text}\n"
    assert edited_text(text, {"a.i": 2, "h": 3}, ".yaml") == text.replace("d:", "    i: 2\nd:").replace("'1'", "3\n")


def test_yaml_that_is_too_different_means_the_same():
    text = "{a: {b: !own 1, c: null},\n d: 2}"
    assert edited_text(text, {"a.b": 2}, ".yaml") == "{a: {b: 2, c: null}, d: 2}\n"


def test_sections_that_take_over_another_are_read_and_written(job, tmp_path):
    text = "ours: &ours\n  reshard_after_forward: true\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    text += "base_model: llama\nbf16: true\nfsdp_version: 2\n"
    text += "fsdp_config:\n  <<: *ours\n  reshard_after_forward: false\n"
    target = load_target(job("{name: mine, accelerate: axolotl.yaml}", axolotl_yaml=text))
    assert target.variant.policy.reshard_after_forward is False
    written = text_of(target, target.keys({"fsdp_config.fsdp_reshard_after_forward": True}))
    assert written == text.replace("reshard_after_forward: false", "reshard_after_forward: true")


@pytest.mark.parametrize("variant", ["fsdp1: {units: []}", "accelerate: one.yaml", "accelerate: two.yaml"])
def test_a_model_that_is_one_unit_may_get_its_blocks_as_units(job, variant):
    text = "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config: {{fsdp_version: {}}}\n"
    path = job(f"{{name: mine, {variant}}}", one_yaml=text.format(1), two_yaml=text.format(2))
    (knob,) = (knob for knob in space_of(load_target(path)).knobs if knob.name == "units")
    assert [option.value for option in knob.options[:2]] == ["the model", "LlamaDecoderLayer"]


def test_what_a_trainer_fills_in_is_to_be_said_to_it_too(job):
    batch = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto"}
    config = json.dumps(batch | {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
    path = job("{name: mine, deepspeed: ds.json}", ds_json=config)
    (line,) = json.loads(tuned(path, "--json", knobs=("micro_batch x accumulation",)).stdout)["lines"]
    assert line["keys"] == {"train_micro_batch_size_per_gpu": 4}
    assert "gradient accumulation" in line["where"]


@pytest.mark.parametrize("key", ["flops_profiler.enabled", "wall_clock_breakdown", "comms_logger.enabled"])
def test_whatever_synchronises_is_switched_off(job, key):
    config = edited({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}, {key: True})
    target = load_target(job("{name: mine, deepspeed: ds.json}", ds_json=json.dumps(config)))
    (knob,) = (knob for knob in space_of(target).knobs if knob.name in ("comms_logger", "wall_clock_breakdown"))
    assert knob.options[1].config == {key: False}


def test_a_file_for_another_number_of_ranks_gets_those_of_the_scenario_beside_replicas(job, tmp_path):
    text = ACCELERATE.replace("num_processes: 16", "num_machines: 1\nnum_processes: 8")
    path, out = job("{name: mine, accelerate: a.yaml}", a_yaml=text), tmp_path / "out.yaml"
    content = json.loads(tuned(path, "-o", out, "--json", knobs=("replicate",)).stdout)
    assert {"num_machines": 2, "num_processes": 16}.items() <= content["changes"].items()
    again = load_scenario(job("{name: mine, accelerate: out.yaml}"))
    assert run_variant(again, again.variants[0]).result.step_time == content["after"]["step_time"]


def test_axolotl_recomputes_in_one_way(job):
    text = "base_model: llama\nfsdp_version: 2\nfsdp_config: {activation_checkpointing: true}\n"
    target = load_target(job("{name: mine, accelerate: axolotl.yaml}", axolotl_yaml=text))
    (knob,) = (knob for knob in space_of(target).knobs if knob.name == "activation_checkpointing")
    off = {"fsdp_config.activation_checkpointing": False}
    assert target.keys(knob.options[1].config) == {"gradient_checkpointing": True, **off}


@pytest.mark.parametrize(("name", "text"), [
    ("llmfoundry: a.yaml", "run_name: 2026-01-01\nfsdp_config: {}\n"),
    ("torchtitan: a.toml", "[job]\nday = 2026-01-01\nlist = [2026-01-01T10:00:00Z, 10:00:00]\n"),
])  # fmt: skip
def test_dates_are_text_in_json(job, name, text):
    path = job(f"{{name: mine, {name}}}", **{name.partition(": ")[2].replace(".", "_"): text})
    content = json.loads(tuned(path, "--json", knobs=()).stdout)
    assert "2026-01-01" in str(content["config"])


def test_that_comments_are_lost_is_told(job, tmp_path):
    path, out = job("{name: mine, deepspeed: ds.json}", ds_json="// ours\n" + DEEPSPEED), tmp_path / "tuned.json"
    assert "comments of the present file are not kept" in tuned(path, "-o", out, knobs=("stage",)).stdout
    path = job("{name: mine, deepspeed: ds.json}", ds_json=DEEPSPEED)
    assert "are not kept" not in tuned(path, "-o", out, knobs=("stage",)).stdout


def option(space, name, value):
    """The setting that differs from the present one in one knob."""
    place = next(place for place, knob in enumerate(space.knobs) if knob.name == name)
    number = next(number for number, item in enumerate(space.knobs[place].options) if item.value == value)
    return space.canonical((*space.start[:place], number, *space.start[place + 1 :]))


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_lower_stage_loses_what_only_stage_3_has(job, stage):
    zero = {"stage": 3, "zero_hpz_partition_size": 8, "zero_quantized_weights": True, "zero_quantized_gradients": True}
    zero |= {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}
    config = json.dumps({"zero_optimization": zero, "bf16": {"enabled": True}})
    target = load_target(job("{name: mine, deepspeed: ds.json}", ds_json=config))
    space = space_of(target)
    left = edited(target.config, space.config(option(space, "stage", stage)))["zero_optimization"]
    assert left == {"stage": stage} | ({"offload_optimizer": {"device": "cpu"}} if stage else {})


def test_what_is_so_by_default_is_no_change(job):
    """DeepSpeed overlaps at stage 3 alone."""
    for stage, same in ((3, True), (2, False)):
        config = json.dumps({"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}})
        space = space_of(load_target(job("{name: mine, deepspeed: ds.json}", ds_json=config)))
        assert option(space, "overlap_comm", same) == space.start != option(space, "overlap_comm", not same)


def test_what_the_configuration_cannot_say_is_said():
    lines = [
        {"knob": "activation_checkpointing", "after": "none", "where": "your model", "keys": {}},
        {"knob": "ZeRO++", "after": "qgZ", "where": None, "keys": {"zero_optimization.zero_quantized_gradients": True}},
        {"knob": "sharding_strategy", "after": "NO_SHARD", "where": None, "keys": {"sharding_strategy": "NO_SHARD"}},
        {"knob": "stage", "after": 1, "where": None, "keys": {"zero_optimization.zero_quantized_weights": None}},
    ]
    said = list(remarks({"lines": lines}))
    assert said[0] == "activation_checkpointing: say none in your model"
    assert said[1].startswith("ZeRO++ rounds gradients on their way")
    assert said[2].startswith("NO_SHARD is deprecated")
    assert len(said) == 3
