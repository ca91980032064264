"""Throughput of published training runs.

Sources: llm-foundry, ``scripts/train/benchmarking/README.md`` (2023-10 A100, 2024-01 H100; MFU with attention in full);
InternEvo, ``doc/en/train_performance.md`` (commit c628a8c874); fms-fsdp, ``README.md`` (commit 5a296afe42); torchtitan,
``benchmarks/llama3_h100_202412_torchtitan.md`` (commit b5bcd76c66); DeepSpeed,
``docs/_posts/2022-07-26-deepspeed-azure.md`` (commit edaa722126), figure 5a, read off the bars to 1 TFLOP/s, recompute
counted.
"""

import csv
import io
from statistics import fmean

import pytest

from simulator.validate import validate
from simulator.world.measurements.training import COLUMNS

SIZES = {  # layers, width, heads, feed-forward, vocabulary, parameters
    "MPT-760m": (24, 1536, 12, 6144, 50368, 760470528),
    "MPT-1b": (24, 2048, 16, 8192, 50368, 1315950592),
    "MPT-3b": (32, 2560, 20, 10240, 50368, 2651837440),
    "MPT-7b": (32, 4096, 32, 16384, 50368, 6658859008),
    "MPT-13b": (40, 5120, 40, 20480, 50368, 12853954560),
    "MPT-30b": (48, 7168, 56, 28672, 50368, 29975214080),
    "MPT-70b": (80, 8192, 64, 32768, 50368, 64862437376),
    "InternLM-7B": (32, 4096, 32, 11008, 103168, 7321423872),
    "Llama2-7b": (32, 4096, 32, 11008, 32000, 6738415616),
    "Llama2-13b": (40, 5120, 40, 13824, 32000, 13015864320),
    "Llama-3.1-8B": (32, 4096, 32, 14336, 128256, 8030261248),
    "GPT-175B": (96, 12288, 96, "", "", 175e9),
    "Llama2-70b": (80, 8192, 64, 28672, 32000, 68976648192),
}

FOUNDRY = {"source": "mosaicml/llm-foundry", "seq_len": 2048, "strategy": "FSDP FULL_SHARD", "metric_name": "mfu_pct"}
H100 = FOUNDRY | {"gpu": "H100", "gpu_mem_gb": 80, "strategy": "FSDP FULL_SHARD (Composer mixed_precision=DEFAULT)"}
A100 = FOUNDRY | {"gpu": "A100", "gpu_mem_gb": 40, "inter_bw_gbps_per_node": 1600}
THROUGHPUT = {"metric_name": "tokens_per_s_per_gpu", "gpu_mem_gb": 80, "micro_batch_per_gpu": 2}
INTERN = THROUGHPUT | {"source": "InternLM/InternEvo", "gpu": "A100", "seq_len": 2048, "inter_bw_gbps_per_node": 400,
                       "strategy": "ZeRO-1", "grad_accum": 4}  # fmt: skip
HYBRID = "HSDP (HYBRID_SHARD, shard intra-node), no compile"
COMPILED = "HSDP (HYBRID_SHARD, shard intra-node), torch.compile"
FULL_COMPILED = "FSDP (FULL_SHARD), torch.compile"
IBM = THROUGHPUT | {"source": "foundation-model-stack/fms-fsdp", "seq_len": 4096, "strategy": "FSDP (FULL_SHARD)"}
ON_A100 = IBM | {"gpu": "A100", "inter_bw_gbps_per_node": 400}
ON_H100 = IBM | {"gpu": "H100", "inter_bw_gbps_per_node": 800}
TITAN = THROUGHPUT | {"source": "pytorch/torchtitan", "gpu": "H100 (HBM2e 96GB SXM, 500 W cap)", "gpu_mem_gb": 96,
                      "seq_len": 8192, "inter_bw_gbps_per_node": 3200, "strategy": "FSDP2 FULL_SHARD"}  # fmt: skip
AZURE = {"source": "deepspeedai/DeepSpeed, docs/_posts/2022-07-26-deepspeed-azure.md", "gpu": "A100-SXM",
         "gpu_mem_gb": 80,
         "seq_len": 512, "inter_bw_gbps_per_node": 1600, "precision": "fp16", "strategy": "ZeRO-3 pure data parallel",
         "metric_name": "hw_tflops_per_gpu"}  # fmt: skip

RUNS = {  # model, GPUs, sequences per GPU, checkpointing, measured, another strategy
    "llm-foundry on H100": (0.05, H100, [
        ("MPT-70b", 512, 8, "full", 41.25), ("MPT-30b", 128, 8, "full", 41.85), ("MPT-13b", 256, 16, "full", 41.42),
        ("MPT-7b", 128, 6, "none", 45.71), ("MPT-1b", 16, 20, "none", 42.36), ("MPT-760m", 32, 24, "none", 37.57),
    ]),
    "llm-foundry on A100": (0.05, A100, [
        ("MPT-70b", 128, 4, "full", 48.91), ("MPT-30b", 32, 4, "full", 51.74), ("MPT-13b", 64, 16, "full", 52.04),
        ("MPT-7b", 128, 18, "full", 50.14), ("MPT-3b", 64, 6, "none", 55.94), ("MPT-1b", 16, 8, "none", 55.69),
        ("MPT-760m", 64, 12, "none", 51.44),
    ]),
    "InternEvo": (0.08, INTERN, [
        ("InternLM-7B", 8, 2, "none", 4062), ("InternLM-7B", 16, 2, "none", 3842), ("InternLM-7B", 32, 2, "none", 3752),
        ("InternLM-7B", 64, 2, "none", 3690),
    ]),
    "fms-fsdp on A100": (0.08, ON_A100, [
        ("Llama2-7b", 128, 2, "none", 4550, COMPILED), ("Llama2-7b", 128, 2, "none", 3700, HYBRID),
        ("Llama2-13b", 128, 2, "selective", 2150, FULL_COMPILED),
    ]),
    "fms-fsdp on H100": (0.08, ON_H100, [
        ("Llama2-7b", 96, 2, "none", 7500, HYBRID), ("Llama2-13b", 96, 2, "selective", 4850, FULL_COMPILED),
        ("Llama2-70b", 96, 2, "full", 800),
    ]),
    "torchtitan": (0.08, TITAN, [
        ("Llama-3.1-8B", 8, 2, "selective (per-op)", 5762), ("Llama-3.1-8B", 128, 2, "selective (per-op)", 5605),
        ("Llama-3.1-8B", 8, 2, "selective (per-op)", 6667, "FSDP2 FULL_SHARD + torch.compile"),
        ("Llama-3.1-8B", 128, 2, "selective (per-op)", 6514, "FSDP2 FULL_SHARD + torch.compile"),
        ("Llama-3.1-8B", 8, 2, "selective (per-op)", 8532, "FSDP2 FULL_SHARD + torch.compile + Float8"),
    ]),
    "ZeRO-3 on Azure": (0.08, AZURE, [
        ("GPT-175B", 128, 1, "full", 54.48), ("GPT-175B", 128, 4, "full", 129.6), ("GPT-175B", 128, 8, "full", 170.5),
        ("GPT-175B", 256, 1, "full", 44.57), ("GPT-175B", 256, 32, "full", 204.5),
    ]),
}  # fmt: skip
"""Bound of the mean absolute error, what all runs have in common, runs.

Of fms-fsdp all that state their network, with and without ``torch.compile``; of InternEvo all with a global group.
"""


def cells(common, model, gpus, micro_batch, checkpointing, value, strategy=None):
    names = "n_layers", "d_model", "n_heads", "ffn", "vocab", "n_params"
    return {
        "precision": "bf16", "gpus_per_node": 8, **common, **dict(zip(names, SIZES[model], strict=True)),
        "model_name": model, "n_gpus": gpus, "micro_batch_per_gpu": micro_batch, "act_ckpt": checkpointing,
        "metric_value": value, "strategy": strategy or common["strategy"],
    }  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_throughput_is_close_to_what_was_measured(tmp_path, name):
    bound, common, runs = RUNS[name]
    text = io.StringIO()
    table = csv.DictWriter(text, sorted(COLUMNS))
    table.writeheader()
    table.writerows(cells(common, *run) for run in runs)
    (tmp_path / "runs.csv").write_text(text.getvalue(), encoding="utf-8")
    comparison = validate([tmp_path / "runs.csv"])
    assert not comparison.unmapped
    assert fmean(abs(row.error) for row in comparison.verdicts) <= bound
