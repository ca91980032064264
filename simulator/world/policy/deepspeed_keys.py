"""The keys of a ``ds_config.json`` in DeepSpeed 0.19.8, their defaults and their former names.

``zero_optimization``, ``bf16``, ``fp16``, ``comms_logger`` and the offload sections forbid unknown keys, as DeepSpeed
does; everywhere else it looks up what it knows and ignores the rest.

Source: DeepSpeed runtime/zero/config.py, runtime/zero/offload_config.py, runtime/precision_config.py,
runtime/config.py, utils/config.py, comm/config.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from simulator.world.document import Section

__all__ = [
    "DEPRECATED",
    "DTYPES",
    "PREFIXED",
    "REMOVED",
    "REMOVED_AT_TOP",
    "TOP_LEVEL",
    "UNLIMITED",
    "DeepSpeedConfig",
    "LeafModuleSection",
    "TopSection",
    "ZeroSection",
]

Size = Annotated[int, Meta(ge=0)]
Batch = Annotated[int, Meta(ge=1)] | Literal["auto"] | None
Fraction = Annotated[float, Meta(ge=0, le=1)]
Dtype = Literal["bf16", "fp16", "fp32"]

UNLIMITED: Final = sys.maxsize
"""DeepSpeed's word for no limit."""

LEAF_CLASSES: Final = (
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
)


class OffloadParamSection(Section):
    """``offload_param``."""

    device: Literal["none", "cpu", "nvme"] = "none"
    nvme_path: str | None = None
    buffer_count: Size = 5
    buffer_size: Size = 100_000_000
    max_in_cpu: Size = 1_000_000_000
    pin_memory: bool = True


class OffloadOptimizerSection(Section):
    """``offload_optimizer``."""

    device: Literal["none", "cpu", "nvme"] = "none"
    nvme_path: str | None = None
    buffer_count: Size = 4
    pin_memory: bool = True
    pipeline_read: bool = False
    pipeline_write: bool = False
    fast_init: bool = False
    ratio: Fraction = 1.0
    super_offload: bool = False
    cpuadam_cores_perc: Fraction = 0.8


class LeafModuleSection(Section):
    """``leaf_module``: modules whose weights are fetched as one."""

    classes: tuple[str, ...] = LEAF_CLASSES
    names: tuple[str, ...] = ()
    name_suffixes: tuple[str, ...] = ()


class ZeroSection(Section):
    """``zero_optimization``."""

    stage: Annotated[int, Meta(ge=0, le=3)] = 0
    overlap_comm: bool | None = None
    reduce_bucket_size: Annotated[int, Meta(gt=0)] = 500_000_000
    reduce_scatter: bool = True
    use_multi_rank_bucket_allreduce: bool = True
    contiguous_gradients: bool = True
    allgather_partitions: bool = True
    allgather_bucket_size: Size = 500_000_000
    round_robin_gradients: bool = False
    stage3_prefetch_bucket_size: Size = 50_000_000
    stage3_max_live_parameters: Size = 1_000_000_000
    stage3_max_reuse_distance: Size = 1_000_000_000
    stage3_param_persistence_threshold: Size = 100_000
    stage3_model_persistence_threshold: Size = UNLIMITED
    stage3_module_granularity_threshold: int = 0
    stage3_allgather_sequential: bool = False
    stage3_use_all_reduce_for_fetch_params: bool = False
    stage3_gather_16bit_weights_on_model_save: bool = False
    leaf_module: LeafModuleSection | None = None
    sub_group_size: Size = 1_000_000_000
    zero_hpz_partition_size: Size = 1
    zero_quantized_weights: bool = False
    zero_quantized_nontrainable_weights: bool = False
    zero_quantized_gradients: bool = False
    offload_param: OffloadParamSection | None = None
    offload_optimizer: OffloadOptimizerSection | None = None
    zenflow: dict[str, Any] | None = None
    ignore_unused_parameters: bool = True
    load_from_fp32_weights: bool = True
    elastic_checkpoint: bool = False
    pipeline_loading_checkpoint: bool = False
    memory_efficient_linear: bool = True
    override_module_apply: bool = True
    log_trace_cache_warnings: bool = False
    enable_sanity_checks: bool = False
    compute_grad_norm: bool = True
    parameter_alignment: bool = False
    save_muon_momentum_buffer_in_memory: bool = False
    legacy_stage1: bool = False
    cpu_offload_use_pin_memory: bool | None = None


class BF16Section(Section):
    """``bf16``, or ``bfloat16`` as it was called."""

    enabled: bool = False
    immediate_grad_update: bool = False
    check_grad_overflow: bool = True
    bf16_master_weights_and_grads: bool = False
    bf16_optimizer_states: bool = False


class FP16Section(Section):
    """``fp16``."""

    enabled: bool = False
    auto_cast: bool = False
    loss_scale: Annotated[float, Meta(ge=0)] = 0.0
    initial_scale_power: int = 16
    loss_scale_window: int = 1000
    hysteresis: int = 2
    consecutive_hysteresis: bool = False
    min_loss_scale: int = 1
    fp16_master_weights_and_grads: bool = False


class CommsLoggerSection(Section):
    """``comms_logger``."""

    enabled: bool = False
    prof_all: bool = True
    prof_ops: list[str] = field(default_factory=list)
    verbose: bool = False
    debug: bool = False


class SwitchSection(Section, forbid_unknown_fields=False):
    """A section of which only ``enabled`` matters here."""

    enabled: bool = False


class ThroughputSection(Section):
    """``timers.throughput``."""

    enabled: bool = True
    synchronized: bool = True


class TimersSection(Section, forbid_unknown_fields=False):
    """``timers``."""

    throughput: ThroughputSection = field(default_factory=ThroughputSection)


class DataTypesSection(Section, forbid_unknown_fields=False):
    """``data_types``."""

    grad_accum_dtype: str | None = None
    param_dtype: str | None = None


class CompileSection(Section, forbid_unknown_fields=False):
    """``compile``."""

    deepcompile: bool = False


class TensorParallelSection(Section, forbid_unknown_fields=False):
    """``tensor_parallel``."""

    autotp_size: Size = 0


class TopSection(Section, forbid_unknown_fields=False):
    """The keys of the file that are read; others are ignored."""

    zero_optimization: ZeroSection = field(default_factory=ZeroSection)
    train_batch_size: Batch = None
    train_micro_batch_size_per_gpu: Batch = None
    gradient_accumulation_steps: Batch = None
    managed_gradient_accumulation: bool = True
    gradient_clipping: Annotated[float, Meta(ge=0)] = 1.0
    communication_data_type: Dtype | None = None
    seq_parallel_communication_data_type: Dtype | None = "fp32"
    gradient_allreduce_op: Literal["mean", "sum"] = "mean"
    prescale_gradients: bool = False
    gradient_predivide_factor: float = 1.0
    disable_allgather: bool = False
    wall_clock_breakdown: bool = False
    bf16: BF16Section = field(default_factory=BF16Section)
    fp16: FP16Section = field(default_factory=FP16Section)
    data_types: DataTypesSection = field(default_factory=DataTypesSection)
    comms_logger: CommsLoggerSection = field(default_factory=CommsLoggerSection)
    flops_profiler: SwitchSection = field(default_factory=SwitchSection)
    timers: TimersSection = field(default_factory=TimersSection)
    compile: CompileSection = field(default_factory=CompileSection)
    tensor_parallel: TensorParallelSection = field(default_factory=TensorParallelSection)
    expert_parallel: SwitchSection = field(default_factory=SwitchSection)
    hybrid_engine: SwitchSection = field(default_factory=SwitchSection)
    torch_autocast: SwitchSection = field(default_factory=SwitchSection)
    sequence_parallel_size: Annotated[int, Meta(ge=1)] = 1


class DeepSpeedConfig(TopSection, kw_only=True, forbid_unknown_fields=False):
    """A ``ds_config.json`` with defaults filled in, and where each value came from."""

    origins: Mapping[str, str]
    """``file``, ``auto`` or ``deprecated name X`` by key: keys of ``zero_optimization`` as they are, others dotted."""
    unknown: tuple[str, ...]
    """Top-level keys that are not read here."""
    file: Path
    """The file in which the configuration stands."""
    key: str
    """Dotted key of the configuration inside *file*; empty for a file of its own."""

    @property
    def overlap_comm(self) -> bool:
        """``overlap_comm`` as DeepSpeed resolves it: on by default at stage 3 only."""
        zero = self.zero_optimization
        return zero.stage == 3 if zero.overlap_comm is None else zero.overlap_comm

    @property
    def grad_accum_dtype(self) -> str | None:
        """``data_types.grad_accum_dtype`` as bf16, fp16 or fp32; nothing: the precision of the model."""
        chosen = self.data_types.grad_accum_dtype
        return None if chosen is None else DTYPES[chosen]

    def at(self, key: str) -> str:
        """Return *key* as it is called inside :attr:`file`."""
        return f"{self.key}.{key}" if self.key else key


DTYPES: Final = {
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16",
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "torch.float16": "fp16",
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "torch.float32": "fp32",
}  # fmt: skip
"""Spellings of a data type; source: DeepSpeed runtime/config.py, ``DtypeEnum``."""

DEPRECATED: Final = {
    "cpu_offload": "offload_optimizer",
    "cpu_offload_param": "offload_param",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}
"""Former names inside ``zero_optimization`` and what they became."""

PREFIXED: Final = {
    name.removeprefix("stage3_"): name for name in ZeroSection.__struct_fields__ if name.startswith("stage3_")
}
"""Names that DeepSpeed also takes without the prefix."""

REMOVED: Final = {
    "mics_shard_size": "MiCS was removed from DeepSpeed 0.19; use zero_hpz_partition_size or shard over all ranks",
    "mics_hierarchical_params_gather": "MiCS was removed from DeepSpeed 0.19; remove the key",
    "zeropp_loco_param": "LoCo-ZeRO++ was removed from DeepSpeed 0.19; remove the key to use plain quantized gradients",
    "grad_hooks": "no key of DeepSpeed any more; remove it, gradients are always reduced by hooks",
}
"""Keys of ``zero_optimization`` that older releases knew, and why they are refused."""

REMOVED_AT_TOP: Final = {
    "nebula": "checkpoints would silently fall back to local files",
    "compression_training": "the model would train unquantized",
    "amp": "use 'bf16', 'fp16' or 'torch_autocast'",
    "quantize_training": "mixture of quantization is gone",
    "sparse_gradients": "gradients of dense embeddings would be reduced dense",
    "eigenvalue": "mixture of quantization is gone",
    "sparse_attention": "sparse attention is gone",
    "elasticity": "set the batch sizes directly",
    "graph_harvesting": "graph harvesting is gone",
    "curriculum_learning": "use 'data_efficiency.data_sampling.curriculum_learning'",
    "progressive_layer_drop": "progressive layer dropping is gone",
}
"""Top-level keys that DeepSpeed 0.19 refuses, and what it says about them."""

TOP_LEVEL: Final = frozenset(TopSection.__struct_fields__) | {
    "activation_checkpointing", "aio", "autotuning", "bfloat16", "checkpoint", "csv_monitor", "data_efficiency",
    "dataloader_drop_last", "datastates_ckpt", "disable_python_gc", "dump_state", "log_level", "memory_breakdown",
    "optimizer", "pipeline", "scheduler", "steps_per_print", "tensorboard", "use_data_before_expert_parallelism",
    "vocabulary_size", "wandb", "weight_quantization", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
}  # fmt: skip
"""Every top-level key that DeepSpeed looks up."""
