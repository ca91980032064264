"""torchtitan's TOML: FSDP2, HSDP or DDP on a decoder.

Keys of ``[parallelism]`` and ``[training]`` are those of releases 0.1 and 0.2 together; other sections have nothing to
do with sharding, but for ``[float8]`` and ``[activation_checkpoint]``.

Source: torchtitan config/job_config.py, config/manager.py, distributed/fsdp.py, distributed/parallel_dims.py,
models/llama3/infra/parallelize.py, train.py.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from simulator.errors import InputError
from simulator.world.document import Section, convert, find
from simulator.world.model.module import Module
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.fsdp2 import Fsdp2Policy, torchtitan
from simulator.world.policy.launch import Launch, only_data_parallel
from simulator.world.training import Dtype

__all__ = ["load_torchtitan", "read_toml"]

Degree = Annotated[int, Meta(ge=1)]
Float = Literal["bfloat16", "float32"]
DTYPES: Final[Mapping[str, Dtype]] = {"bfloat16": "bf16", "float32": "fp32"}
DDP_BUCKET_CAP_MB: Final = 100
"""source: torchtitan models/llama3/infra/parallelize.py, apply_ddp."""


class ParallelismSection(Section):
    """``[parallelism]``."""

    data_parallel_replicate_degree: Degree = 1
    data_parallel_shard_degree: Annotated[int, Meta(ge=-1)] = -1
    fsdp_reshard_after_forward: Literal["default", "always", "never"] = "default"
    tensor_parallel_degree: Degree = 1
    pipeline_parallel_degree: Degree = 1
    context_parallel_degree: Degree = 1
    expert_parallel_degree: Degree = 1
    expert_tensor_parallel_degree: Degree = 1
    enable_compiled_autograd: bool = False
    enable_async_tensor_parallel: bool = False
    disable_loss_parallel: bool = False
    module_fqns_per_model_part: Any = None
    pipeline_parallel_split_points: Any = None
    pipeline_parallel_first_stage_less_layers: Any = None
    pipeline_parallel_last_stage_less_layers: Any = None
    pipeline_parallel_layers_per_stage: Any = None
    pipeline_parallel_schedule: Any = None
    pipeline_parallel_schedule_csv: Any = None
    pipeline_parallel_microbatch_size: Any = None
    context_parallel_rotate_method: Any = None


class TrainingSection(Section):
    """``[training]``."""

    local_batch_size: Degree = 8
    global_batch_size: int = -1
    seq_len: Degree = 2048
    dtype: Float = "float32"
    mixed_precision_param: Float = "bfloat16"
    mixed_precision_reduce: Literal["float32"] = "float32"
    enable_cpu_offload: bool = False
    compile: Any = None
    dataset: Any = None
    dataset_path: Any = None
    max_norm: Any = None
    steps: Any = None
    gc_freq: Any = None
    gc_debug: Any = None
    seed: Any = None
    deterministic: Any = None
    debug_moe_force_load_balance: Any = None


class Float8Section(Section, forbid_unknown_fields=False):
    """``[float8]``."""

    enable_fsdp_float8_all_gather: bool = False


class CheckpointingSection(Section, forbid_unknown_fields=False):
    """``[activation_checkpoint]``."""

    mode: Literal["selective", "full", "memory_budget", "none"] = "selective"


class TorchtitanSection(Section):
    """The whole file."""

    parallelism: ParallelismSection = field(default_factory=ParallelismSection)
    training: TrainingSection = field(default_factory=TrainingSection)
    float8: Float8Section = field(default_factory=Float8Section)
    activation_checkpoint: CheckpointingSection = field(default_factory=CheckpointingSection)
    job: Any = None
    profiling: Any = None
    metrics: Any = None
    model: Any = None
    optimizer: Any = None
    lr_scheduler: Any = None
    checkpoint: Any = None
    compile: Any = None
    quantize: Any = None
    mx: Any = None
    comm: Any = None
    memory_estimation: Any = None
    fault_tolerance: Any = None
    experimental: Any = None
    validation: Any = None


MODEL_PARALLEL: Final = {
    "tensor_parallel_degree": "tensor",
    "pipeline_parallel_degree": "pipeline",
    "context_parallel_degree": "context",
    "expert_parallel_degree": "expert",
    "expert_tensor_parallel_degree": "expert tensor",
}
"""Degrees that must be 1, and what they spread."""


def load_torchtitan(
    raw: str | Mapping[str, Any],
    beside: Path,
    key: str = "",
    *,
    root: Module | None = None,
    ranks: int | None = None,
) -> Launch:
    """Read a torchtitan configuration given in place or by path.

    Parameters
    ----------
    root
        The model; without it the policy has no units yet (:func:`simulator.world.policy.fsdp2.torchtitan` adds them).
    ranks
        Of the job; needed where the file leaves a degree or the accumulation to it.

    Raises
    ------
    InputError
        Missing file, unknown key, a value that torchtitan does not take, or something that is not simulated.
    """
    if isinstance(raw, str):
        path = find(raw, beside, "scenarios")
        return load_torchtitan(read_toml(path), path, root=root, ranks=ranks)
    section = convert(raw, TorchtitanSection, beside, key)
    prefix = f"{key}." if key else ""
    parallel, training = section.parallelism, section.training
    degrees = {f"{prefix}parallelism.{name}": (kind, getattr(parallel, name)) for name, kind in MODEL_PARALLEL.items()}
    only_data_parallel(degrees, beside)
    if section.float8.enable_fsdp_float8_all_gather:
        name = f"{prefix}float8.enable_fsdp_float8_all_gather"
        raise InputError("is not simulated yet", file=beside, key=name, value=True, remedy="set it to false")
    total = _ranks(parallel, ranks, beside, f"{prefix}parallelism")
    policy, precision, notes = _policy(parallel, training, total, root, beside, f"{prefix}parallelism")
    mode = section.activation_checkpoint.mode
    return Launch(
        policy=policy,
        precision=precision,
        ranks=total,
        micro_batch=training.local_batch_size,
        gradient_accumulation=_accumulation(training, total, beside, f"{prefix}training"),
        activation_checkpointing="selective" if mode == "memory_budget" else mode,
        notes=notes,
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, dates as text.

    Raises
    ------
    InputError
        It cannot be read, or is something else.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}", file=path) from None
    return {key: _undated(value) for key, value in content.items()}


def _undated(value: Any) -> Any:
    """*value* as JSON can hold it."""
    if isinstance(value, dict):
        return {key: _undated(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_undated(inner) for inner in value]
    return value.isoformat() if isinstance(value, date | time) else value


def _ranks(parallel: ParallelismSection, ranks: int | None, file: Path, key: str) -> int | None:
    """Ranks of the job, as the file and the caller say."""
    replicate, shard = parallel.data_parallel_replicate_degree, parallel.data_parallel_shard_degree
    if shard == 0:
        name = f"{key}.data_parallel_shard_degree"
        raise InputError("must be -1 or at least 1", file=file, key=name, value=0, remedy="write -1 for all ranks")
    if shard == -1:
        if ranks is not None and ranks % replicate:
            name = f"{key}.data_parallel_replicate_degree"
            remedy = "take a divisor of the ranks"
            raise InputError(f"does not divide {ranks} ranks", file=file, key=name, value=replicate, remedy=remedy)
        return ranks
    if ranks is not None and replicate * shard != ranks:
        name = f"{key}.data_parallel_shard_degree"
        problem = f"{replicate} replicas of {shard} shards are {replicate * shard} ranks, not {ranks}"
        raise InputError(problem, file=file, key=name, value=shard, remedy="write -1 for all that are left")
    return replicate * shard


def _policy(
    parallel: ParallelismSection,
    training: TrainingSection,
    ranks: int | None,
    root: Module | None,
    file: Path,
    key: str,
) -> tuple[Fsdp2Policy | DdpPolicy, str, tuple[str, ...]]:
    computes = DTYPES[training.mixed_precision_param]
    replicate, shard = parallel.data_parallel_replicate_degree, parallel.data_parallel_shard_degree
    if shard == 1 or 1 < replicate == ranks:
        if replicate == 1:
            problem, remedy = "the job is not data parallel", "write -1 for all ranks"
            raise InputError(problem, file=file, key=f"{key}.data_parallel_shard_degree", value=shard, remedy=remedy)
        note = f"this is DDP: weights and gradients are {DTYPES[training.dtype]}, autocast computes in {computes}"
        return DdpPolicy(bucket_cap_mb=DDP_BUCKET_CAP_MB), DTYPES[training.dtype], (note,)
    policy = Fsdp2Policy(
        reshard_after_forward=parallel.fsdp_reshard_after_forward != "never",
        param_dtype=None if training.dtype == training.mixed_precision_param else computes,
        reduce_dtype=DTYPES[training.mixed_precision_reduce],
        replicate=replicate if replicate > 1 else None,
        cpu_offload=training.enable_cpu_offload,
        fused_optimizer=True,  # source: torchtitan components/optimizer.py, implementation
    )
    if root is None:
        return policy, computes, ("units are embedding, blocks and head of the model, which the file does not name",)
    return torchtitan(root, parallel.fsdp_reshard_after_forward, policy), computes, ()


def _accumulation(training: TrainingSection, ranks: int | None, file: Path, key: str) -> int | None:
    """Micro-batches per step; without ``global_batch_size`` one."""
    batch = training.global_batch_size
    if batch < 0:
        return 1
    if ranks is None:
        return None
    per_pass = training.local_batch_size * ranks
    if batch == 0 or batch % per_pass:
        problem = f"is no multiple of {training.local_batch_size} × {ranks} (local_batch_size × ranks)"
        raise InputError(
            problem, file=file, key=f"{key}.global_batch_size", value=batch, remedy=f"use {per_pass} or a multiple"
        )
    return batch // per_pass
