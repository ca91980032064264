"""DeepSpeed's ``ds_config.json``: read, checked and resolved as DeepSpeed 0.19.8 does it.

The text is Hjson, an unknown key inside ``zero_optimization`` is an error, an unknown key outside is ignored, former
names are mapped, and ``"auto"`` stands for what a Hugging Face trainer fills in where the model's hidden size is known
and for DeepSpeed's default elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import convert, find, read_mapping
from simulator.world.policy.deepspeed_hjson import read_hjson
from simulator.world.policy.deepspeed_keys import (
    DEPRECATED,
    PREFIXED,
    REMOVED,
    REMOVED_AT_TOP,
    UNLIMITED,
    DeepSpeedConfig,
    LeafModuleSection,
    TopSection,
    ZeroSection,
)
from simulator.world.policy.deepspeed_lax import AUTO, relaxed
from simulator.world.policy.deepspeed_refusals import refusals, unsimulated
from simulator.world.policy.textbook import TextbookPolicy
from simulator.world.policy.zero import DeepSpeedPolicy, OptimizerOffload, ParameterOffload

__all__ = [
    "DeepSpeedConfig",
    "auto_sizes",
    "deepspeed_content",
    "deepspeed_policy",
    "load_deepspeed",
    "textbook_policy",
]


def load_deepspeed(raw: str | dict[str, Any], beside: Path, key: str) -> DeepSpeedConfig:
    """Read a config given in place or by path.

    Raises
    ------
    InputError
        Missing file, a template, a key that is unknown or was removed, a wrong type, a combination that DeepSpeed
        refuses.
    """
    if not isinstance(raw, str):
        return _config(raw, beside, key)
    path = find(raw, beside, "scenarios")
    return _config(_written(path), path, "")


def deepspeed_content(raw: str | dict[str, Any], beside: Path) -> dict[str, Any]:
    """Return what is written in a config given in place or by path, to be changed.

    Raises
    ------
    InputError
        The file is missing or cannot be read.
    """
    return deepcopy(raw) if not isinstance(raw, str) else _written(find(raw, beside, "scenarios"))


def _written(path: Path) -> dict[str, Any]:
    return read_mapping(path) if path.suffix in (".yaml", ".yml") else read_hjson(path)


def deepspeed_policy(config: DeepSpeedConfig, dtype: str, *, hidden_size: int | None = None) -> DeepSpeedPolicy:
    """Resolve *config* for a model that computes in *dtype*.

    Parameters
    ----------
    hidden_size
        Of the model, from which a trainer computes the sizes that are ``"auto"``; without it they have DeepSpeed's
        defaults.

    Raises
    ------
    InputError
        The config enables another precision, or asks for something that is not simulated.
    """
    _refuse_unsimulated(config)
    _check_precision(config, dtype)
    zero = config.zero_optimization
    names = {field.name for field in fields(DeepSpeedPolicy)} & set(ZeroSection.__struct_fields__)
    same = {name: getattr(zero, name) for name in names} | auto_sizes(config, hidden_size)
    if zero.stage3_allgather_sequential:
        same["stage3_prefetch_bucket_size"] = 1  # source: DeepSpeed runtime/engine.py, _configure_zero_optimizer
    if zero.stage3_model_persistence_threshold == UNLIMITED:
        same["stage3_model_persistence_threshold"] = None
    same |= {"overlap_comm": config.overlap_comm, "zero_hpz_partition_size": max(zero.zero_hpz_partition_size, 1)}
    same |= _offload(config)
    leaf = zero.leaf_module or LeafModuleSection()
    throughput = config.timers.throughput
    return DeepSpeedPolicy(
        zero_stage=zero.stage,
        dtype=dtype,
        leaf_classes=tuple(dict.fromkeys(name.rpartition(".")[2] for name in leaf.classes)),
        leaf_names=tuple(dict.fromkeys(leaf.names)),
        leaf_name_suffixes=tuple(dict.fromkeys(leaf.name_suffixes)),
        communication_data_type=config.communication_data_type,
        grad_accum_dtype=config.grad_accum_dtype,
        check_grad_overflow=config.bf16.check_grad_overflow,
        gradient_clipping=config.gradient_clipping,
        synchronises_timers=throughput.enabled and throughput.synchronized,
        comms_logger=config.comms_logger.enabled,
        wall_clock_breakdown=config.wall_clock_breakdown or config.flops_profiler.enabled,
        **same,
    )


def textbook_policy(
    config: DeepSpeedConfig, prefetch: int, file: object, key: str, *, hidden_size: int | None = None
) -> TextbookPolicy:
    """Return the idealised policy that *config* describes.

    Raises
    ------
    InputError
        The config asks for something, such as offloading, that the idealisation does not contain.
    """
    _refuse_unsimulated(config, file, key)
    zero = config.zero_optimization
    for name, offload in (("offload_param", zero.offload_param), ("offload_optimizer", zero.offload_optimizer)):
        if offload is not None and offload.device != "none":
            where, remedy = f"{key}.zero_optimization.{name}.device", "use schedule deepspeed, or remove it"
            raise InputError("not in the textbook", file=file, key=where, value=offload.device, remedy=remedy)
    return TextbookPolicy(
        zero_stage=zero.stage,
        prefetch=prefetch,
        bucket_size=auto_sizes(config, hidden_size).get("reduce_bucket_size", zero.reduce_bucket_size),
        zero_hpz_partition_size=max(zero.zero_hpz_partition_size, 1),
        zero_quantized_weights=zero.zero_quantized_weights,
        zero_quantized_gradients=zero.zero_quantized_gradients,
    )


def _offload(config: DeepSpeedConfig) -> dict[str, Any]:
    """What is offloaded; stages 1 and 2 take NVMe for CPU memory, and parameters stay on the device."""
    zero = config.zero_optimization
    states, parameters = zero.offload_optimizer, zero.offload_param
    found: dict[str, Any] = {"offload_optimizer": None, "offload_param": None}
    if states is not None and states.device != "none":
        found["offload_optimizer"] = OptimizerOffload(
            device=states.device if zero.stage == 3 else "cpu",
            pin_memory=states.pin_memory,
            ratio=states.ratio,
            buffer_count=states.buffer_count,
            pipeline_read=states.pipeline_read,
            pipeline_write=states.pipeline_write,
        )
        found["contiguous_gradients"] = zero.contiguous_gradients or zero.stage < 3
    if parameters is not None and parameters.device != "none" and zero.stage == 3:
        found["offload_param"] = ParameterOffload(
            device=parameters.device,
            pin_memory=parameters.pin_memory,
            buffer_count=parameters.buffer_count,
            buffer_size=parameters.buffer_size,
            max_in_cpu=parameters.max_in_cpu,
        )
    return found


def auto_sizes(config: DeepSpeedConfig, hidden_size: int | None) -> dict[str, int]:
    """Sizes that stand as ``"auto"`` in *config*, as a Hugging Face trainer computes them [elements].

    Source: transformers integrations/deepspeed.py, ``trainer_config_finalize``.
    """
    if hidden_size is None:
        return {}
    filled = {"reduce_bucket_size": hidden_size * hidden_size}
    if config.zero_optimization.stage == 3:
        filled["stage3_prefetch_bucket_size"] = int(0.9 * hidden_size * hidden_size)
        filled["stage3_param_persistence_threshold"] = 10 * hidden_size
    return {name: size for name, size in filled.items() if config.origins.get(name) == AUTO}


def _refuse_unsimulated(config: DeepSpeedConfig, file: object = None, key: str | None = None) -> None:
    for name, value, problem in unsimulated(config):
        where = config.at(name) if key is None else f"{key}.{name}"
        raise InputError(problem, file=file or config.file, key=where, value=value, remedy="remove it from the config")


def _check_precision(config: DeepSpeedConfig, dtype: str) -> None:
    for name in ("bf16", "fp16"):
        if getattr(config, name).enabled and name != dtype:
            remedy = f"the model computes in {dtype}; make them equal or write 'auto'"
            key = config.at(f"{name}.enabled")
            raise InputError("contradicts the precision", file=config.file, key=key, value=True, remedy=remedy)
    accumulated = config.grad_accum_dtype
    if config.zero_optimization.stage == 0 and accumulated not in (None, dtype):
        key, remedy = config.at("data_types.grad_accum_dtype"), f"stage 0 accumulates in {dtype}; remove it"
        raise InputError("not possible at stage 0", file=config.file, key=key, value=accumulated, remedy=remedy)


def _config(raw: Mapping[str, Any], file: Path, key: str) -> DeepSpeedConfig:
    prefix = f"{key}." if key else ""
    for name, problem in REMOVED_AT_TOP.items():
        if name in raw:
            raise InputError(f"was removed from DeepSpeed 0.19: {problem}", file=file, key=f"{prefix}{name}")
    content = dict(raw)
    if content.get("bf16") is None and "bfloat16" in content:
        content["bf16"] = content["bfloat16"]
    zero, origins = _zero_names(content, file, f"{prefix}zero_optimization")
    content["zero_optimization"] = zero
    for name, value in content.items():
        if isinstance(value, str) and name.endswith("communication_data_type"):
            content[name] = value.lower()
        if isinstance(value, Mapping) and name != "zero_optimization":
            origins |= {f"{name}.{inner}": _origin(found) for inner, found in value.items()}
        elif name != "zero_optimization":
            origins[name] = _origin(value)
    top = convert(relaxed(content, TopSection, file, key), TopSection, file, key)
    unknown = tuple(name for name in raw if name not in TopSection.__struct_fields__)
    chosen = {name: getattr(top, name) for name in TopSection.__struct_fields__}
    config = DeepSpeedConfig(**chosen, origins=origins, unknown=unknown, file=file, key=key)
    for name, value, problem, remedy in refusals(config):
        raise InputError(problem, file=file, key=f"{prefix}{name}", value=value, remedy=remedy)
    return config


def _origin(value: object) -> str:
    return AUTO if value == AUTO else "file"


def _zero_names(content: Mapping[str, Any], file: Path, key: str) -> tuple[Any, dict[str, str]]:
    """Give every key of ``zero_optimization`` its present name; also say where each came from."""
    raw = content.get("zero_optimization", {})
    if isinstance(raw, bool):  # the form before there were stages
        chosen = {"stage": int(raw)} | ({"allgather_bucket_size": content.get("allgather_size", 5e8)} if raw else {})
        return chosen, dict.fromkeys(chosen, "deprecated name zero_optimization: true")
    if not isinstance(raw, Mapping):
        raise InputError("expected a mapping", file=file, key=key, value=raw, remedy="for instance {stage: 3}")
    zero: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value in raw.items():
        present = PREFIXED.get(name) or DEPRECATED.get(name) or name
        if name in REMOVED:
            raise InputError(REMOVED[name], file=file, key=f"{key}.{name}", value=value)
        if value == AUTO:  # dropped before anything looks at the name
            origins.setdefault(present, AUTO)
            continue
        if present not in ZeroSection.__struct_fields__:
            known = [*ZeroSection.__struct_fields__, *PREFIXED, *DEPRECATED]
            raise UnknownNameError("key", str(name), known, file=file, key=key)
        if present in zero:
            raise InputError(f"stands beside {present!r}, which means the same", file=file, key=f"{key}.{name}")
        former = name in DEPRECATED
        zero[present] = _renamed(name, value, file, f"{key}.{name}") if former else value
        origins[present] = f"deprecated name {name}" if former else "file"
    return zero, origins


def _renamed(name: str, value: Any, file: Path, key: str) -> Any:
    """Return what the value of a former key means under its present name."""
    (used,) = relaxed({"enabled": value}, _Switch, file, key.rpartition(".")[0]).values()
    return ({"device": "cpu"} if used else None) if name.startswith("cpu_offload") else used


class _Switch(msgspec.Struct):
    enabled: bool | None = None
