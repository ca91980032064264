"""A ``ds_config.json`` explained: every key with its value, where that came from and what it does."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import asdict

from simulator.world.document import Section
from simulator.world.policy.deepspeed import DeepSpeedConfig, auto_sizes
from simulator.world.policy.deepspeed_effects import NO_EFFECT, effect
from simulator.world.policy.deepspeed_keys import TOP_LEVEL, UNLIMITED, ZeroSection
from simulator.world.policy.deepspeed_lax import AUTO
from simulator.world.policy.deepspeed_refusals import unsimulated

__all__ = ["Knob", "knobs", "notes"]

OUTSIDE = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "communication_data_type",
    "data_types.grad_accum_dtype",
    "bf16.check_grad_overflow",
    "comms_logger.enabled",
    "wall_clock_breakdown",
    "timers.throughput",
    "prescale_gradients",
    "gradient_predivide_factor",
    "disable_allgather",
)
"""Keys outside ``zero_optimization`` that are listed."""

UNLISTED = ("legacy_stage1", "cpu_offload_use_pin_memory", "zenflow")
"""Keys of ``zero_optimization`` that are refused, dropped or reported as not simulated."""

SWITCHES = OUTSIDE[6:10]
"""Keys that do nothing while they are off."""

FILLED = {
    "reduce_bucket_size": "hidden_size²",
    "stage3_prefetch_bucket_size": "0.9·hidden_size²",
    "stage3_param_persistence_threshold": "10·hidden_size",
}
"""What a Hugging Face trainer computes for ``"auto"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One key of a configuration."""

    name: str
    """As in the file: keys of ``zero_optimization`` without their section, others dotted."""
    value: object
    """Resolved; none: not set."""
    origin: str
    """``file``, ``default``, ``auto`` or ``deprecated name X``."""
    effect: str
    """What it does to communication, in one sentence."""


def knobs(config: DeepSpeedConfig, dtype: str, hidden_size: int | None = None) -> tuple[Knob, ...]:
    """Every key of *config*, resolved for a model of *hidden_size* that computes in *dtype*."""
    stage = config.zero_optimization.stage
    resolved = _resolved(config, dtype) | auto_sizes(config, hidden_size)
    if config.zero_optimization.stage3_allgather_sequential:
        resolved["stage3_prefetch_bucket_size"] = 1
    return tuple(
        Knob(name=name, value=value, origin=config.origins.get(name, "default"), effect=_effect(name, value, stage))
        for name, value in resolved.items()
    )


def notes(config: DeepSpeedConfig) -> tuple[str, ...]:
    """Lines that the author of *config* should read: what is ignored, renamed, left open or not simulated."""
    readings = (_renamed, _without_effect, _left_open, _ignored, _not_simulated)
    return tuple(line for reading in readings for line in reading(config))


def _resolved(config: DeepSpeedConfig, dtype: str) -> dict[str, object]:
    zero = config.zero_optimization
    listed = [name for name in ZeroSection.__struct_fields__ if name not in UNLISTED]
    values: dict[str, object] = {name: getattr(zero, name) for name in listed}
    values["overlap_comm"] = config.overlap_comm
    if zero.stage3_model_persistence_threshold == UNLIMITED:
        values["stage3_model_persistence_threshold"] = None
    leaf = zero.leaf_module
    values["leaf_module"] = None if leaf is None else [*leaf.classes, *leaf.names, *leaf.name_suffixes]
    for name in ("offload_optimizer", "offload_param"):
        values[name] = _offload(getattr(zero, name))
    values |= {name: _outside(config, name) for name in OUTSIDE}
    values["communication_data_type"] = config.communication_data_type or dtype
    values["data_types.grad_accum_dtype"] = config.grad_accum_dtype or dtype
    values["bf16.check_grad_overflow"] = {"bf16": config.bf16.check_grad_overflow, "fp16": True}.get(dtype, False)
    return values


def _offload(section: Section | None) -> dict[str, object] | None:
    """Keys of an offload section; none if it offloads nothing."""
    values = {} if section is None else asdict(section)
    return values if values.get("device", "none") != "none" else None


def _outside(config: DeepSpeedConfig, name: str) -> object:
    if name == "timers.throughput":
        return config.timers.throughput.enabled and config.timers.throughput.synchronized
    if name == "wall_clock_breakdown":
        return config.wall_clock_breakdown or config.flops_profiler.enabled
    section, _, key = name.rpartition(".")
    return getattr(getattr(config, section) if section else config, key)


def _effect(name: str, value: object, stage: int) -> str:
    switch = name in SWITCHES or name.startswith("offload_")
    return f"{NO_EFFECT} while off" if switch and not value else effect(name, stage)


def _renamed(config: DeepSpeedConfig) -> Iterator[str]:
    for name, origin in config.origins.items():
        if origin.startswith("deprecated"):
            yield f"`{origin.removeprefix('deprecated name ')}` is deprecated and was read as `{name}`"
    if config.zero_optimization.cpu_offload_use_pin_memory is not None:
        yield "`cpu_offload_use_pin_memory` is deprecated and dropped; say `pin_memory` in the offload section"


def _without_effect(config: DeepSpeedConfig) -> Iterator[str]:
    stage = config.zero_optimization.stage
    written = [name for name, origin in config.origins.items() if origin == "file"]
    for name in written:
        if name in ZeroSection.__struct_fields__ and name not in UNLISTED:
            sentence = effect(name, stage)
            if sentence.startswith(NO_EFFECT):
                yield f"your `{name}` has {sentence}"


def _left_open(config: DeepSpeedConfig) -> Iterator[str]:
    for name, origin in config.origins.items():
        if origin != AUTO or (config.zero_optimization.stage != 3 and name.startswith("stage3_")):
            continue
        if name in FILLED:
            yield f'`{name}` is "auto": {FILLED[name]} where a Hugging Face trainer fills it in, else the default'
        elif name not in ZeroSection.__struct_fields__ and name.partition(".")[0] not in TOP_LEVEL:
            yield f'`zero_optimization.{name}` is unknown and only passes because it is "auto"'
    states = config.zero_optimization.offload_optimizer
    if states is not None and states.device == "nvme" and config.zero_optimization.stage < 3:
        yield "`offload_optimizer.device` nvme means cpu below stage 3"
    chosen = [config.origins.get(f"{name}.enabled") for name in ("bf16", "fp16")]
    if not (config.bf16.enabled or config.fp16.enabled or AUTO in chosen):
        yield "neither `bf16` nor `fp16` is enabled: DeepSpeed alone computes in fp32"


def _ignored(config: DeepSpeedConfig) -> Iterator[str]:
    for name in config.unknown:
        near = difflib.get_close_matches(name, TOP_LEVEL, n=1, cutoff=0.8)
        if name in ZeroSection.__struct_fields__:
            yield f"`{name}` is ignored outside `zero_optimization`"
        elif near and name not in TOP_LEVEL:
            yield f"`{name}` is ignored; did you mean `{near[0]}`?"
    if config.torch_autocast.enabled:
        yield "`torch_autocast` is not simulated; precisions follow `bf16` and `fp16`"


def _not_simulated(config: DeepSpeedConfig) -> Iterator[str]:
    for name, value, problem in unsimulated(config):
        yield f"`{name}` is {value!r}: {problem}"
