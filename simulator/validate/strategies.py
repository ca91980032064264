"""What a source calls its strategy, as a variant of a scenario.

The mixed precision of each framework follows what its source says; where it says nothing, weights travel in 16 bits and
gradients as the framework reduces them by default.
"""

from __future__ import annotations

import re
from typing import Any

from simulator.errors import InputError
from simulator.world.measurements.training import Run

__all__ = ["is_megatron", "is_narrow", "variant_of"]

NOT_MODELLED = (
    (r"infinity|nvme", "drives that are not stated"),
    (r"zero-offload", "a stage that is not stated"),
    (r"\b(tp|pp|cp|sp|ep)\s*=?\s*[2-9]|tensor|pipeline|megatron|3d|\bpp\b|\btp\b|\bcp\b", "more than data parallelism"),
    (r"mxfp|nvfp4|fp4", "matrix products of fewer than 8 bits"),
    (r"deepcompile", "DeepCompile, whose passes take the place of the schedule"),
    (r"gemini|maxtext|colossal|mics|jax", "a framework that is not modelled"),
)
"""Words that name what no schedule does."""

SERIAL = {"overlap_comm": False, "stage3_prefetch_bucket_size": 0}
"""Steps of DeepSpeed with Megatron took what compute and communication take one after the other."""

LARGE_FP32 = 128
"""From so many H100 on llm-foundry's rows are of Composer 0.16.4 and later, which reduces gradients in fp32."""


OFFLOAD = r"(?<!no )offload"
"""Something is offloaded."""


def variant_of(run: Run) -> dict[str, Any]:
    """Return the entry of ``variants`` for *run*.

    Raises
    ------
    InputError
        Its strategy is not modelled, or not stated.
    """
    said = f"{run.strategy} {run.precision}".lower()
    for words, reason in NOT_MODELLED:
        if re.search(words, said):
            raise InputError(reason)
    if "fsdp2" in said:
        return {"name": "run", "fsdp2": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}
    if "fsdp" in said or "full_shard" in said or "hsdp" in said:
        return {"name": "run", "fsdp1": _fsdp1(run, said)}
    if "internevo" in run.source.lower():
        return {"name": "run", "internevo": _internevo(said)}
    stage = re.search(r"zero[\s-]?(\+\+|[0-3])", said)
    if stage:
        return {"name": "run", "deepspeed": _deepspeed(run, stage[1], said)}
    if re.search(r"\bddp\b|data parallel", said):
        return {"name": "run", "ddp": {}}
    raise InputError("strategy not stated" if not run.strategy else f"a strategy that is not modelled: {run.strategy}")


def _internevo(said: str) -> dict[str, Any]:
    """Of its optimizer: whole parameters, divided among the group that the row names, else among all ranks.

    The table does not say its torch; InternLM was released for 1.13, and a fused AdamW is from 2.1 on.
    """
    group = re.search(r"group=(\d+)", said)
    return {
        "zero1": {"size": int(group[1]) if group else -1},
        "overlap_sync_grad": True,
        "overlap_sync_param": False,
        "fused": False,
    }


def is_megatron(run: Run) -> bool:
    """Whether DeepSpeed was driven by Megatron: its authors' GPTs, and those that Megatron's own compared with it."""
    return "deepspeed" in f"{run.source} {run.strategy}".lower() and "gpt" in run.model.lower()


def is_narrow(run: Run) -> bool:
    """Whether its matrix products run in 8 bits."""
    return bool(re.search(r"fp8|float8", f"{run.precision} {run.strategy}".lower()))


def _fsdp1(run: Run, said: str) -> dict[str, Any]:
    sharding = "FULL_SHARD"
    if "hybrid" in said or "hsdp" in said:
        sharding = "HYBRID_SHARD"
    elif "shard_grad_op" in said:
        sharding = "SHARD_GRAD_OP"
    if re.search(OFFLOAD, said):  # LambdaLabs' chapter has a model in bf16 throughout and AdamW(fused=True) (recalled)
        return {"sharding_strategy": sharding, "cpu_offload": True, "fused_optimizer": True}
    fp32 = "default" in said and "H100" in run.gpu and (run.ranks or 0) >= LARGE_FP32
    return {
        "sharding_strategy": sharding,
        "limit_all_gathers": True,
        "param_dtype": "bf16",
        "reduce_dtype": "fp32" if fp32 else "bf16",
    }


def _deepspeed(run: Run, stage: str, said: str) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": 3 if stage == "++" else int(stage), "overlap_comm": True}
    if is_megatron(run):
        zero |= SERIAL
    if run.bucket is not None:
        zero["reduce_bucket_size"] = run.bucket
    if "++" in said:
        zero |= {
            "zero_quantized_weights": True,
            "zero_quantized_gradients": True,
            "zero_hpz_partition_size": run.per_node or 8,
        }
    if re.search(OFFLOAD, said):
        zero["offload_optimizer"] = {"device": "cpu"}
        if "full cpu offload" in said:
            zero["offload_param"] = {"device": "cpu"}
    precision = "fp16" if "fp16" in run.precision.lower() or "V100" in run.gpu else "bf16"
    return {"zero_optimization": zero, precision: {"enabled": True}}
