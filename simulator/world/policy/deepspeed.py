"""DeepSpeed's ``ds_config.json``: the parts that decide what is sharded and how it travels.

``zero_optimization`` is checked as DeepSpeed checks it: an unknown key there is an error.  Keys outside are left
alone.  ``"auto"`` stands for DeepSpeed's default, as it does when no trainer fills it in.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from simulator.errors import InputError
from simulator.world.document import Section, convert, find, read_mapping
from simulator.world.policy.textbook import TextbookPolicy
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["DeepSpeedConfig", "deepspeed_policy", "load_deepspeed", "textbook_policy"]

Size = Annotated[float, Meta(ge=0)]


class ZeroSection(Section):
    """``zero_optimization`` with DeepSpeed's defaults; keys without effect on the schedule are only accepted."""

    stage: Annotated[int, Meta(ge=0, le=3)] = 0
    overlap_comm: bool | None = None
    reduce_bucket_size: Size = 500_000_000
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
    stage3_model_persistence_threshold: Size | None = None
    stage3_module_granularity_threshold: Size = 0
    stage3_allgather_sequential: bool = False
    stage3_use_all_reduce_for_fetch_params: bool = False
    stage3_gather_16bit_weights_on_model_save: bool = False
    leaf_module: dict[str, Any] | None = None
    sub_group_size: Size = 1_000_000_000
    zero_hpz_partition_size: Annotated[int, Meta(ge=1)] = 1
    zero_quantized_weights: bool = False
    zero_quantized_nontrainable_weights: bool = False
    zero_quantized_gradients: bool = False
    offload_param: dict[str, Any] | None = None
    offload_optimizer: dict[str, Any] | None = None
    ignore_unused_parameters: bool = True
    load_from_fp32_weights: bool = True
    elastic_checkpoint: bool = False
    memory_efficient_linear: bool = True
    override_module_apply: bool = True
    log_trace_cache_warnings: bool = False
    enable_sanity_checks: bool = False
    compute_grad_norm: bool = True
    parameter_alignment: bool = False


class DeepSpeedConfig(Section, forbid_unknown_fields=False):
    """The keys of a ``ds_config.json`` that are read."""

    zero_optimization: ZeroSection = field(default_factory=ZeroSection)
    communication_data_type: str | None = None
    data_types: dict[str, Any] | None = None
    gradient_accumulation_steps: Annotated[int, Meta(ge=1)] | Literal["auto"] | None = None
    train_micro_batch_size_per_gpu: Annotated[int, Meta(ge=1)] | Literal["auto"] | None = None


def load_deepspeed(raw: str | dict[str, Any], beside: Path, key: str) -> DeepSpeedConfig:
    """Read a config given in place or by path.

    Raises
    ------
    InputError
        Missing file, unknown key inside ``zero_optimization``, wrong type.
    """
    if isinstance(raw, str):
        path = find(raw, beside, "scenarios")
        return convert(_without_auto(read_mapping(path)), DeepSpeedConfig, path)
    return convert(_without_auto(raw), DeepSpeedConfig, beside, key)


def deepspeed_policy(config: DeepSpeedConfig, dtype: str) -> DeepSpeedPolicy:
    """Resolve *config* for a model that computes in *dtype*."""
    zero = config.zero_optimization
    same = {
        field.name: getattr(zero, field.name)
        for field in fields(DeepSpeedPolicy)
        if hasattr(zero, field.name) and field.name != "overlap_comm"
    }
    sizes: dict[str, Any] = {name: int(value) if isinstance(value, float) else value for name, value in same.items()}
    overlap = zero.stage == 3 if zero.overlap_comm is None else zero.overlap_comm  # Z12-1
    return DeepSpeedPolicy(
        zero_stage=zero.stage,
        dtype=dtype,
        overlap_comm=overlap,
        communication_data_type=config.communication_data_type,
        grad_accum_dtype=(config.data_types or {}).get("grad_accum_dtype"),
        **sizes,
    )


def textbook_policy(config: DeepSpeedConfig, prefetch: int, file: object, key: str) -> TextbookPolicy:
    """Return the idealised policy that *config* describes.

    Raises
    ------
    InputError
        The config asks for offloading, which the idealisation does not contain.
    """
    zero = config.zero_optimization
    for option in ("offload_param", "offload_optimizer"):
        chosen = getattr(zero, option)
        if chosen and chosen.get("device", "none") != "none":
            remedy = "remove it from the config"
            raise InputError(
                "offloading is not part of the textbook schedule", file=file, key=f"{key}.{option}", remedy=remedy
            )
    return TextbookPolicy(
        zero_stage=zero.stage,
        prefetch=prefetch,
        bucket_size=int(zero.reduce_bucket_size),
        zero_hpz_partition_size=zero.zero_hpz_partition_size,
        zero_quantized_weights=zero.zero_quantized_weights,
        zero_quantized_gradients=zero.zero_quantized_gradients,
    )


def _without_auto(raw: dict[str, Any]) -> dict[str, Any]:
    zero = raw.get("zero_optimization")
    if not isinstance(zero, dict):
        return raw
    return {**raw, "zero_optimization": {name: value for name, value in zero.items() if value != "auto"}}
