"""llm-foundry's training YAML: FSDP1 through MosaicML Composer.

Composer never enters ``no_sync``: gradients are reduced in every micro-batch.  Its defaults differ from FSDP's own:
BACKWARD_POST, ``use_orig_params`` on, gradients reduced in fp32.

Source: composer 0.32 utils/parallelism.py (``FSDPConfig``), distributed/mosaic_parallelism.py
(``get_mixed_precision``), distributed/dist_strategy.py; llm-foundry 0.22 models/hf/hf_fsdp.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import Section, convert, find, read_mapping
from simulator.world.model.module import Module
from simulator.world.policy.deepspeed_lax import relaxed
from simulator.world.policy.fsdp1 import Fsdp1Policy, ShardingStrategy
from simulator.world.policy.launch import Launch, block_kinds
from simulator.world.training import Dtype

__all__ = ["load_llmfoundry"]

STRATEGIES: Final[dict[str, ShardingStrategy]] = {
    "FULL_SHARD": "FULL_SHARD",
    "SHARD_GRAD_OP": "SHARD_GRAD_OP",
    "NO_SHARD": "NO_SHARD",
    "HYBRID_SHARD": "HYBRID_SHARD",
    "_HYBRID_SHARD_ZERO2": "_HYBRID_SHARD_ZERO2",
}
PREFETCHES: Final[dict[str, Any]] = {
    "NONE": None,
    "BACKWARD_PRE": "BACKWARD_PRE",
    "BACKWARD_POST": "BACKWARD_POST",
}
DTYPES: Final[Mapping[str, Dtype]] = {
    "amp_bf16": "bf16", "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16", "amp_fp8": "bf16",
    "amp_fp16": "fp16", "fp16": "fp16", "half": "fp16", "float16": "fp16", "torch.float16": "fp16",
    "fp32": "fp32", "float32": "fp32", "torch.float32": "fp32",
}  # fmt: skip
"""Spellings of a data type; fp8 travels as bf16."""

ONE_DIMENSION: Final[dict[str, ShardingStrategy]] = {
    "HYBRID_SHARD": "FULL_SHARD",
    "_HYBRID_SHARD_ZERO2": "SHARD_GRAD_OP",
}
"""What Composer takes instead where all ranks are one shard group; with replicas it is the other way round."""


class FsdpSection(Section):
    """``fsdp_config``."""

    sharding_strategy: str = "FULL_SHARD"
    mixed_precision: str | dict[str, str | None] = "DEFAULT"
    backward_prefetch: str = "BACKWARD_POST"
    backward_prefetch_limit: int = 1
    forward_prefetch: bool = False
    forward_prefetch_limit: int = 1
    limit_all_gathers: bool = True
    use_orig_params: bool = True
    activation_checkpointing: bool = False
    activation_checkpointing_reentrant: bool = True
    activation_cpu_offload: bool = False
    cpu_offload: bool = False
    data_parallel_shard_degree: Annotated[int, Meta(ge=-1)] = -1
    data_parallel_replicate_degree: Annotated[int, Meta(ge=1)] | None = None
    auto_wrap: bool = True
    ignored_modules: Any = None
    process_group: Any = None
    keep_low_precision_grads: bool = False
    load_monolith_rank0_only: bool = False
    load_planner: Any = None
    save_planner: Any = None
    sharded_ckpt_prefix_dir: str | None = None
    state_dict_type: str = "full"
    sync_module_states: bool = False
    te_checkpoint_wrapper: bool = False
    te_shard_fp8_weight: bool = False
    verbose: bool = False


class TrainSection(Section, forbid_unknown_fields=False):
    """What the YAML says about sharding and batches; the rest is about data, models and logging."""

    fsdp_config: dict[str, Any] | None = None
    tp_config: dict[str, Any] | None = None
    precision: str = "amp_bf16"
    device_train_microbatch_size: int | float | str | None = None
    global_train_batch_size: int | None = None


def load_llmfoundry(
    raw: str | Mapping[str, Any],
    beside: Path,
    key: str = "",
    *,
    root: Module | None = None,
    ranks: int | None = None,
) -> Launch:
    """Read a llm-foundry training configuration given in place or by path.

    Parameters
    ----------
    root
        The model, whose blocks become units; without it the policy has no units yet.
    ranks
        Of the job; needed for the accumulation.

    Raises
    ------
    InputError
        Missing file, unknown key in ``fsdp_config``, a value that Composer does not take, or something that is not
        simulated.
    """
    if isinstance(raw, str):
        path = find(raw, beside, "scenarios")
        return load_llmfoundry(read_mapping(path), path, root=root, ranks=ranks)
    prefix = f"{key}." if key else ""
    section = convert(_interpolated(raw), TrainSection, beside, key)
    if section.tp_config:
        problem = "tensor parallelism is not simulated, only data parallelism"
        raise InputError(problem, file=beside, key=f"{prefix}tp_config", remedy="remove it")
    if section.fsdp_config is None:
        remedy = "without it nothing is sharded"
        raise InputError("the key 'fsdp_config' is missing", file=beside, key=key, remedy=remedy)
    inside = f"{prefix}fsdp_config"
    fsdp = convert(relaxed(section.fsdp_config, FsdpSection, beside, inside, auto=False), FsdpSection, beside, inside)
    _refuse_unsimulated(fsdp, beside, inside)
    precision = _of(DTYPES, section.precision, beside, f"{prefix}precision")
    policy = _policy(fsdp, precision, beside, inside)
    micro, total = section.device_train_microbatch_size, section.global_train_batch_size
    whole = micro if isinstance(micro, int) else None
    notes = [] if root else ["units are the model's blocks, whose class the file does not name"]
    if section.precision == "amp_fp8":
        notes.append("`precision` is amp_fp8: weights and gradients travel in bf16")
    return Launch(
        policy=policy if root is None else replace(policy, units=block_kinds(root)),
        precision=precision,
        ranks=ranks,
        micro_batch=whole,
        gradient_accumulation=-(-total // (whole * ranks)) if whole and total and ranks else None,
        activation_checkpointing="full" if fsdp.activation_checkpointing else "none",
        notes=tuple(notes),
    )


def _policy(fsdp: FsdpSection, precision: str, file: Path, key: str) -> Fsdp1Policy:
    strategy = _of(STRATEGIES, fsdp.sharding_strategy.upper(), file, f"{key}.sharding_strategy")
    replicated = fsdp.data_parallel_replicate_degree is not None
    degree = fsdp.data_parallel_shard_degree
    if replicated:
        swapped = {full: hybrid for hybrid, full in ONE_DIMENSION.items()}
        strategy = swapped.get(strategy, strategy)
    elif degree != -1:
        strategy = ONE_DIMENSION.get(strategy, strategy)
    param, reduce, buffer = _dtypes(fsdp.mixed_precision, precision, file, f"{key}.mixed_precision")
    return Fsdp1Policy(
        sharding_strategy=strategy,
        backward_prefetch=_of(PREFETCHES, fsdp.backward_prefetch.upper(), file, f"{key}.backward_prefetch"),
        forward_prefetch=fsdp.forward_prefetch,
        limit_all_gathers=fsdp.limit_all_gathers,
        use_orig_params=fsdp.use_orig_params,
        param_dtype=param,
        reduce_dtype=reduce,
        buffer_dtype=buffer,
        shard_group_size=degree if replicated and degree > 0 else None,
    )


def _dtypes(mixed: str | dict[str, str | None], precision: str, file: Path, key: str) -> tuple[Dtype | None, ...]:
    """Types of weights, of gradients in reduction and of buffers."""
    if isinstance(mixed, dict):
        names = ("param_dtype", "reduce_dtype", "buffer_dtype")
        for name in mixed:
            if name not in names:
                raise UnknownNameError("key", name, names, file=file, key=key)
        found = [mixed.get(name) for name in names]
        return tuple(None if value is None else _of(DTYPES, value, file, key) for value in found)
    choices = {
        "FULL": (None, None, None),
        "DEFAULT": (precision, "fp32", precision),
        "PURE": (precision, precision, precision),
    }
    chosen: tuple[Dtype | None, ...] = _of(choices, mixed.upper(), file, key)
    return chosen


def _of(choices: Mapping[str, Any], name: str, file: Path, key: str) -> Any:
    if name not in choices:
        raise UnknownNameError("choice", name, choices, file=file, key=key)
    return choices[name]


def _refuse_unsimulated(fsdp: FsdpSection, file: Path, key: str) -> None:
    refused = {
        "cpu_offload": (fsdp.cpu_offload, "Composer does not support it"),
        "activation_cpu_offload": (fsdp.activation_cpu_offload, "offloading is not simulated yet"),
        "te_shard_fp8_weight": (fsdp.te_shard_fp8_weight, "gathers in fp8 are not simulated"),
        "ignored_modules": (fsdp.ignored_modules is not None, "ignored modules are not simulated"),
        "process_group": (fsdp.process_group is not None, "groups of one's own are not simulated"),
        "auto_wrap": (not fsdp.auto_wrap, "a model without units is not simulated"),
        "backward_prefetch_limit": (fsdp.backward_prefetch_limit != 1, "only 1 is simulated"),
        "forward_prefetch_limit": (fsdp.forward_prefetch_limit != 1, "only 1 is simulated"),
    }
    for name, (used, problem) in refused.items():
        if used:
            value = getattr(fsdp, name)
            raise InputError(problem, file=file, key=f"{key}.{name}", value=value, remedy="remove the key")


def _interpolated(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values that are ``${variables.name}`` as a whole."""
    variables = raw.get("variables")
    found = variables if isinstance(variables, Mapping) else {}

    def resolved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: resolved(inner) for name, inner in value.items()}
        match = re.fullmatch(r"\$\{variables\.(\w+)\}", value) if isinstance(value, str) else None
        return found.get(match[1], value) if match else value

    return {name: resolved(value) for name, value in raw.items()}
