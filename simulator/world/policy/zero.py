"""Every knob of DeepSpeed that its schedule reads, resolved.

Names are those of ``ds_config.json``; sizes count elements.  What is not here has no effect on communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DeepSpeedPolicy", "OptimizerOffload", "ParameterOffload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOffload:
    """``offload_optimizer``: optimizer states and gradients live in CPU memory or on NVMe."""

    device: Literal["cpu", "nvme"] = "cpu"
    pin_memory: bool = True
    ratio: float = 1.0
    """Of the sub-groups that the CPU updates; the others stay on the device (stage 3)."""
    buffer_count: int = 4
    pipeline_read: bool = False
    pipeline_write: bool = False

    @property
    def pipeline(self) -> bool:
        """Whether ``PipelinedOptimizerSwapper`` is used."""
        return self.pipeline_read or self.pipeline_write


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterOffload:
    """``offload_param``: shares of parameters live in CPU memory or on NVMe."""

    device: Literal["cpu", "nvme"] = "cpu"
    pin_memory: bool = True
    buffer_count: int = 5
    buffer_size: int = 100_000_000
    """[elements]"""
    max_in_cpu: int = 1_000_000_000
    """[elements]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedPolicy:
    """A DeepSpeed configuration after defaults, deprecated names and ``auto``."""

    zero_stage: int
    dtype: str = "bf16"
    """bf16, fp16 or fp32: which precision is enabled."""
    overlap_comm: bool = False
    """DeepSpeed's default is true at stage 3 only."""
    reduce_bucket_size: int = 500_000_000
    reduce_scatter: bool = True
    use_multi_rank_bucket_allreduce: bool = True
    contiguous_gradients: bool = True
    round_robin_gradients: bool = False
    stage3_prefetch_bucket_size: int = 50_000_000
    stage3_max_live_parameters: int = 1_000_000_000
    stage3_max_reuse_distance: int = 1_000_000_000
    stage3_param_persistence_threshold: int = 100_000
    stage3_model_persistence_threshold: int | None = None
    stage3_module_granularity_threshold: int = 0
    leaf_classes: tuple[str, ...] = ("MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock")
    leaf_names: tuple[str, ...] = ()
    leaf_name_suffixes: tuple[str, ...] = ()
    stage3_allgather_sequential: bool = False
    stage3_use_all_reduce_for_fetch_params: bool = False
    sub_group_size: int = 1_000_000_000
    zero_hpz_partition_size: int = 1
    zero_quantized_weights: bool = False
    zero_quantized_nontrainable_weights: bool = False
    zero_quantized_gradients: bool = False
    compute_grad_norm: bool = True
    parameter_alignment: bool = False
    communication_data_type: str | None = None
    """None: the precision that is enabled."""
    grad_accum_dtype: str | None = None
    """None: the precision of the model."""
    check_grad_overflow: bool = True
    """``bf16.check_grad_overflow``."""
    gradient_clipping: float = 1.0
    synchronises_timers: bool = True
    """DeepSpeed's throughput timer, on by default, synchronises the device around every micro-batch from step 3 on."""
    comms_logger: bool = False
    wall_clock_breakdown: bool = False
    coalesce_grad_reduction: bool = False
    """All backwards run inside ``engine.coalesce_grad_reduction()``."""
    offload_optimizer: OptimizerOffload | None = None
    offload_param: ParameterOffload | None = None
    """Stage 3 only."""
    evaluates: bool = False
    """A forward without gradients follows every step."""
