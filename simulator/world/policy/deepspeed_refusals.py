"""What DeepSpeed refuses in a well-formed ``ds_config.json``, and what it accepts but no schedule here contains."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.world.policy.deepspeed_keys import DTYPES, DeepSpeedConfig

__all__ = ["refusals", "unsimulated"]

Refusal = tuple[str, object, str, str]
"""Dotted key, its value, the problem, the remedy."""


def refusals(config: DeepSpeedConfig) -> Iterator[Refusal]:
    """Yield every combination that DeepSpeed refuses.

    Source: DeepSpeed runtime/zero/config.py (validators), runtime/config.py (``_do_error_check``), runtime/engine.py
    (``_configure_zero_optimizer``), runtime/zero/stage_1_and_2.py (``__init__``).
    """
    yield from _of_precision(config)
    yield from _of_gradients(config)
    zero, stage = config.zero_optimization, config.zero_optimization.stage
    size = zero.allgather_bucket_size
    yield from _of_offload(config)
    if zero.legacy_stage1:
        yield "zero_optimization.legacy_stage1", True, "was removed from DeepSpeed 0.5.9", "remove it"
    if stage in (1, 2) and size % 2:
        yield "zero_optimization.allgather_bucket_size", size, "must be even at stages 1 and 2", f"write {size + 1}"
    if not config.managed_gradient_accumulation and stage < 2 and config.overlap_comm:
        yield "managed_gradient_accumulation", False, "excludes overlap_comm at stages 0 and 1", "use stage 2"


def _of_offload(config: DeepSpeedConfig) -> Iterator[Refusal]:
    zero, name = config.zero_optimization, "zero_optimization.offload_optimizer"
    states = zero.offload_optimizer
    if states is not None and states.ratio < 1 and zero.stage != 3:
        yield f"{name}.ratio", states.ratio, "needs stage 3", "remove it"
    if states is not None and states.device != "none":
        if zero.stage == 0:
            yield f"{name}.device", states.device, "needs stage 1, 2 or 3: CPUAdam updates no GPU tensor", "remove it"
        if not zero.compute_grad_norm:
            yield "zero_optimization.compute_grad_norm", False, "excludes offload_optimizer", "remove one of them"
    for name, section in (("offload_optimizer", states), ("offload_param", zero.offload_param)):
        if zero.stage == 3 and section is not None and section.device == "nvme" and section.nvme_path is None:
            remedy = 'give one, for instance "/local_nvme"'
            yield f"zero_optimization.{name}.nvme_path", None, "device nvme needs a path", remedy


def _of_precision(config: DeepSpeedConfig) -> Iterator[Refusal]:
    accumulated = config.data_types.grad_accum_dtype
    if config.bf16.enabled and config.fp16.enabled:
        yield "fp16.enabled", True, "stands beside bf16.enabled", "enable one of them"
    if accumulated is not None and accumulated not in DTYPES:
        yield "data_types.grad_accum_dtype", accumulated, "not a data type", "write 'bf16', 'fp16' or 'fp32'"
    masters = config.bf16.bf16_master_weights_and_grads
    for name, used in (
        ("bf16.bf16_master_weights_and_grads", masters),
        ("bf16.bf16_optimizer_states", config.bf16.bf16_optimizer_states),
        ("fp16.fp16_master_weights_and_grads", config.fp16.fp16_master_weights_and_grads),
    ):
        if used and config.zero_optimization.stage == 0:
            yield name, True, "needs stage 1, 2 or 3", "remove it"
    if config.bf16.bf16_optimizer_states and not masters:
        yield "bf16.bf16_optimizer_states", True, "needs bf16_master_weights_and_grads", "set both or none"


def _of_gradients(config: DeepSpeedConfig) -> Iterator[Refusal]:
    stage, name = config.zero_optimization.stage, "zero_optimization.compute_grad_norm"
    if not config.zero_optimization.compute_grad_norm:
        if stage not in (1, 2):
            yield name, False, f"is not possible at stage {stage}", "use stage 1 or 2 or remove it"
        if config.gradient_clipping > 0:
            yield name, False, "needs gradient_clipping 0, whose default is 1.0", 'write "gradient_clipping": 0'
    if stage == 3 and config.gradient_allreduce_op == "sum":
        yield "gradient_allreduce_op", "sum", "is not possible at stage 3", "write 'mean'"


def unsimulated(config: DeepSpeedConfig) -> Iterator[tuple[str, object, str]]:
    """Yield what DeepSpeed accepts and no schedule contains: dotted key, its value, what it is."""
    zero = config.zero_optimization
    if zero.offload_optimizer is not None and zero.offload_optimizer.super_offload:
        yield "zero_optimization.offload_optimizer.super_offload", True, "SuperOffload is not simulated"
    if zero.zenflow is not None:
        yield "zero_optimization.zenflow", zero.zenflow, "ZenFlow is not simulated"
    if config.compile.deepcompile:
        yield "compile.deepcompile", True, "it replaces the whole schedule and is not simulated"
    if config.tensor_parallel.autotp_size > 1:
        size = config.tensor_parallel.autotp_size
        yield "tensor_parallel.autotp_size", size, "tensor parallelism is not simulated, only data parallelism"
    if config.sequence_parallel_size > 1:
        size = config.sequence_parallel_size
        yield "sequence_parallel_size", size, "sequence parallelism is not simulated, only data parallelism"
    if config.expert_parallel.enabled:
        yield "expert_parallel.enabled", True, "expert parallelism is not simulated, only data parallelism"
    if config.hybrid_engine.enabled:
        yield "hybrid_engine.enabled", True, "the hybrid engine is not simulated"
