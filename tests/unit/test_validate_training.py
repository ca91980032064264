"""From a row of a published training run to a scenario, and from its result to the row's metric."""

import csv
import io

import pytest

from simulator.errors import InputError
from simulator.readings.plots import parity_figure
from simulator.validate import validate
from simulator.validate.strategies import variant_of
from simulator.validate.unstated import completed
from simulator.world.measurements.training import COLUMNS, read_run

ROW = {
    "source": "mosaicml/llm-foundry@0", "model_name": "MPT-1b", "n_params": "1315950592", "n_layers": "24",
    "d_model": "2048", "n_heads": "16", "ffn": "8192", "vocab": "50368", "seq_len": "2048", "gpu": "A100",
    "gpu_mem_gb": "40", "n_gpus": "16", "gpus_per_node": "8", "inter_bw_gbps_per_node": "1600",
    "micro_batch_per_gpu": "8", "grad_accum": "1", "precision": "bf16",
    "strategy": "FSDP FULL_SHARD (Composer mixed_precision=PURE)", "act_ckpt": "none",
    "metric_name": "mfu_pct", "metric_value": "55.69", "notes": "",
}  # fmt: skip
"""A row as the table of llm-foundry has it (read 2023-10, ``scripts/train/benchmarking``)."""


def written(tmp_path, *rows):
    """A table of *rows*, each what differs from :data:`ROW`."""
    file = tmp_path / "runs.csv"
    text = io.StringIO()
    table = csv.DictWriter(text, sorted(COLUMNS))
    table.writeheader()
    table.writerows(ROW | row for row in rows)
    file.write_text(text.getvalue(), encoding="utf-8")
    return file


def test_a_row_becomes_a_scenario_and_its_metric(tmp_path):
    (verdict,) = validate([written(tmp_path, {})]).verdicts
    assert (verdict.source, verdict.metric, verdict.measured) == ("mosaicml/llm-foundry, A100", "mfu_pct", 55.69)
    assert verdict.details["cluster"] == "dgx-a100-40gb"
    assert abs(verdict.error) < 0.15


def test_metrics_of_one_run_follow_from_one_step(tmp_path):
    """By hand: N = 1315950592, 6 N + 12 L d s FLOP per token, 8 sequences of 2048 tokens in each of two micro-steps."""
    names = ["step_time_s", "micro_step_time_s_derived", "tokens_per_s_per_gpu", "tokens_per_s", "mfu_pct", "mfu",
             "model_tflops_per_gpu", "hfu_pct"]  # fmt: skip
    run = {"grad_accum": "2", "act_ckpt": "full per-block", "metric_value": "1"}
    comparison = validate([written(tmp_path, *(run | {"metric_name": name} for name in names))])
    step, micro, tokens, total, percent, fraction, tflops, hardware = (row.predicted for row in comparison.verdicts)
    assert micro == step / 2
    assert tokens == pytest.approx(2 * 8 * 2048 / step)
    assert total == pytest.approx(16 * tokens)
    flop = 6 * 1315950592 + 12 * 24 * 2048 * 2048
    assert tflops == pytest.approx(tokens * flop / 1e12)
    assert fraction == pytest.approx(tokens * flop / 312e12)
    assert (percent, hardware) == pytest.approx((100 * fraction, 100 * fraction * 4 / 3))


@pytest.mark.parametrize(("row", "reason"), [
    ({"metric_name": "speedup_x"}, "a metric that is not predicted: speedup_x"),
    ({"metric_value": "0"}, "zero, of which nothing is a fraction"),
    ({"notes": "iteration 20; WARM-UP iteration, do not use"}, "a warm-up iteration, says the source"),
    ({"metric_value": ""}, "no value"),
    ({"micro_batch_per_gpu": ""}, "micro-batch or sequence length not stated"),
    ({"n_layers": ""}, "sizes of the model not stated"),
    ({"n_params": "2e9"}, "no model of these sizes has 2e+09 parameters"),
    ({"precision": "mxfp4"}, "matrix products of fewer than 8 bits"),
    ({"strategy": "ZeRO-Offload"}, "a stage that is not stated"),
    ({"strategy": "ZeRO-Infinity"}, "drives that are not stated"),
    ({"strategy": "ZeRO-3 DeepCompile (prefetch)"}, "DeepCompile, whose passes take the place of the schedule"),
    ({"strategy": "FSDP2 + TP2"}, "more than data parallelism"),
    ({"strategy": ""}, "strategy not stated"),
    ({"gpu": "TPUv4"}, "TPUv4-40GB is not in the catalogue"),
])  # fmt: skip
def test_what_cannot_be_predicted_says_why(tmp_path, row, reason):
    comparison = validate([written(tmp_path, row)])
    assert comparison.verdicts == ()
    assert [item.reason for item in comparison.unmapped] == [reason]


def test_a_vocabulary_is_assumed_and_named(tmp_path):
    """GPT-3: 96 layers of 12288 and 51200 words make 174.6e9 parameters."""
    gpt = {"n_params": "175e9", "n_layers": "96", "d_model": "12288", "n_heads": "96", "ffn": "", "vocab": "",
           "gpu_mem_gb": "80", "n_gpus": "128"}  # fmt: skip
    (verdict,) = validate([written(tmp_path, gpt)]).verdicts
    assert verdict.details["assumed"] == ["vocabulary"]


@pytest.mark.parametrize(("gpus", "named"), [(16, ["network"]), (8, [])])
def test_a_network_is_assumed_and_named_where_there_is_one(tmp_path, gpus, named):
    (verdict,) = validate([written(tmp_path, {"n_gpus": gpus, "inter_bw_gbps_per_node": ""})]).verdicts
    assert verdict.details["assumed"] == named


def test_key_heads_follow_from_the_number_of_parameters(tmp_path):
    """Llama-3-8B: 8 key heads of 32; no other number of them gives 8.03e9 parameters."""
    llama = {"n_params": "8030261248", "n_layers": "32", "d_model": "4096", "n_heads": "32", "ffn": "14336",
             "vocab": "128256", "metric_name": "model_tflops_per_gpu", "metric_value": "100"}  # fmt: skip
    tokens = llama | {"metric_name": "tokens_per_s_per_gpu"}
    tflops, per_gpu = (row.predicted for row in validate([written(tmp_path, llama, tokens)]).verdicts)
    assert tflops * 1e12 / per_gpu == pytest.approx(6 * 8030261248 + 12 * 32 * 4096 * 2048)


@pytest.mark.parametrize(("strategy", "variant"), [
    ("FSDP2 FULL_SHARD", {"fsdp2": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}),
    ("HSDP (HYBRID_SHARD, shard intra-node)", "HYBRID_SHARD"),
    ("FSDP SHARD_GRAD_OP", "SHARD_GRAD_OP"),
    ("DDP", {"ddp": {}}),
    ("ZeRO-2", 2),
    ("ZeRO++", 3),
])  # fmt: skip
def test_strategies(strategy, variant):
    found = variant_of(read_run(ROW | {"strategy": strategy}))
    if isinstance(variant, str):
        assert found["fsdp1"]["sharding_strategy"] == variant
    elif isinstance(variant, int):
        assert found["deepspeed"]["zero_optimization"]["stage"] == variant
    else:
        assert {key: value for key, value in found.items() if key != "name"} == variant


def test_zeropp_quantizes_and_keeps_a_copy_in_each_host():
    zero = variant_of(read_run(ROW | {"strategy": "ZeRO++"}))["deepspeed"]["zero_optimization"]
    assert zero["zero_hpz_partition_size"] == 8
    assert zero["zero_quantized_weights"]
    assert zero["zero_quantized_gradients"]


@pytest.mark.parametrize(("said", "size"), [
    ("ZeRO-1", -1),
    ("ZeRO-1, optimizer-state shard group=8 GPUs = one node", 8),
    ("ZeRO-1, optimizer-state shard group=64 (all DP ranks)", 64),
])  # fmt: skip
def test_zero1_of_internevo_divides_among_the_group_that_its_row_names(said, size):
    run = read_run(ROW | {"source": "InternLM/InternEvo@0", "strategy": said})
    assert variant_of(run)["internevo"]["zero1"] == {"size": size}


def test_an_unknown_strategy_is_named():
    with pytest.raises(InputError, match="a strategy that is not modelled: magic"):
        variant_of(read_run(ROW | {"strategy": "magic"}))


FIGURE = {
    "model_name": "GPT 18B", "n_params": "18000000000", "n_layers": "", "d_model": "", "n_heads": "", "ffn": "",
    "vocab": "", "seq_len": "", "gpu": "V100", "gpu_mem_gb": "", "n_gpus": "384", "gpus_per_node": "",
    "inter_bw_gbps_per_node": "400", "micro_batch_per_gpu": "", "precision": "", "strategy": "ZeRO-3 (baseline)",
    "act_ckpt": "", "notes": "tokens per GPU per micro-step=2K",
}  # fmt: skip
"""A row of ZeRO++'s figure as the source leaves it."""


def test_what_the_figure_of_zeropp_leaves_out_is_its_tutorial_s_and_named():
    row = {**ROW, **FIGURE}
    run, told = completed(read_run(row), "tflops_per_gpu")
    assert (run.layers, run.width, run.heads, run.sequence_length, run.micro_batch) == (40, 6144, 32, 1024, 2)
    assert (run.per_node, run.cards, run.checkpointing, run.bucket) == (16, 4, "full", 10_000_000)
    assert told == ("sizes", "sequence length", "cluster", "checkpointing", "network", "reduce_bucket_size")
    assert completed(read_run(ROW), "mfu_pct") == (read_run(ROW), ())


def test_a_row_that_compares_two_strategies_is_two_simulations(tmp_path):
    small = FIGURE | {"n_gpus": "32"}
    times = [small | {"strategy": name, "metric_name": "step_time_ms"} for name in ("ZeRO-3", "ZeRO++")]
    ratio = small | {"strategy": "ZeRO++ vs ZeRO-3", "metric_name": "speedup_x"}
    base, other, found = (row.predicted for row in validate([written(tmp_path, *times, ratio)]).verdicts)
    assert found == pytest.approx(base / other)


def test_times_of_phases_and_volumes_that_leave_a_host(tmp_path):
    """Sums: a step is its phases, a volume its parts; ZeRO-3 sends 3 (A7)."""
    names = ["forward_ms", "backward_ms", "optimizer_ms", "step_time_ms", "samples_per_s"]
    *parts, step, samples = (
        row.predicted for row in validate([written(tmp_path, *({"metric_name": name} for name in names))]).verdicts
    )
    assert sum(parts) == pytest.approx(step)
    assert samples == pytest.approx(16 * 8 / (step / 1000))
    names = ["forward_allgather", "backward_allgather", "backward_reducescatter", "total"]
    any_model = FIGURE | {"gpu": "", "n_params": "", "n_gpus": "", "inter_bw_gbps_per_node": "", "notes": "analytical"}
    rows = [any_model | {"metric_name": f"xnode_comm_{name}_over_M"} for name in names]
    *parts, total = (row.predicted for row in validate([written(tmp_path, *rows)]).verdicts)
    assert sum(parts) == pytest.approx(total, rel=1e-4)
    assert total == pytest.approx(3.0, rel=0.01)


def test_a_run_is_drawn_once_however_many_metrics_it_has(tmp_path):
    """Two sources; throughput is in both, so MFU would say the same again."""
    other = {"source": "somebody", "metric_name": "tokens_per_s_per_gpu", "metric_value": "9000"}
    rows = [{}, {"metric_name": "tokens_per_s_per_gpu", "metric_value": "20000"}, other]
    content = validate([written(tmp_path, *rows)]).as_json()
    assert len(content["rows"]) == 3
    (axes,) = parity_figure(content["rows"], "title").axes
    assert axes.get_xlabel() == "measured throughput [tokens/s per GPU]"
