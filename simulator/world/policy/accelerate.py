"""Hugging Face accelerate's YAML: FSDP1, FSDP2, DeepSpeed or DDP behind one launcher; also axolotl's training YAML.

Source: accelerate 1.15 commands/config/config_args.py, commands/launch.py, utils/dataclasses.py
(``DeepSpeedPlugin``), parallelism_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.document import Section, convert, find, read_mapping
from simulator.world.model.module import Module
from simulator.world.policy.accelerate_fsdp import Place, fsdp_section, policy_of
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.deepspeed import load_deepspeed
from simulator.world.policy.deepspeed_keys import LEAF_CLASSES
from simulator.world.policy.deepspeed_knobs import notes
from simulator.world.policy.deepspeed_lax import relaxed
from simulator.world.policy.launch import Launch, only_data_parallel
from simulator.world.training import Dtype

__all__ = ["load_accelerate"]

Degree = Annotated[int, Meta(ge=1)]
DTYPES: Final[Mapping[str, Dtype | None]] = {"no": None, "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""Of gathered weights and reduced gradients, by ``mixed_precision``."""


class ParallelismSection(Section):
    """``parallelism_config``."""

    parallelism_config_dp_replicate_size: Degree = 1
    parallelism_config_dp_shard_size: Degree = 1
    parallelism_config_tp_size: Degree = 1
    parallelism_config_cp_size: Degree = 1
    parallelism_config_cp_backend: str | None = None
    parallelism_config_cp_comm_strategy: str | None = None
    parallelism_config_sp_size: Degree = 1
    parallelism_config_sp_backend: str | None = None
    parallelism_config_sp_seq_length: int | None = None
    parallelism_config_sp_seq_length_is_variable: bool = True
    parallelism_config_sp_attn_implementation: str | None = None


class DeepSpeedSection(Section):
    """``deepspeed_config``: a file, or the few keys that accelerate turns into one."""

    deepspeed_config_file: str | None = None
    zero_stage: int = 2
    gradient_accumulation_steps: int | Literal["auto"] = "auto"
    gradient_clipping: float | Literal["auto"] = "auto"
    offload_optimizer_device: str = "none"
    offload_param_device: str = "none"
    offload_optimizer_nvme_path: str | None = None
    offload_param_nvme_path: str | None = None
    zero3_init_flag: bool | None = None
    zero3_save_16bit_model: bool = False
    deepspeed_moe_layer_cls_names: str | None = None
    deepspeed_hostfile: str | None = None
    deepspeed_exclusion_filter: str | None = None
    deepspeed_inclusion_filter: str | None = None
    deepspeed_multinode_launcher: str | None = None


BESIDE_A_FILE: Final = (
    "zero_stage",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_optimizer_nvme_path",
    "offload_param_nvme_path",
    "zero3_save_16bit_model",
)
"""Keys that accelerate refuses beside ``deepspeed_config_file``."""


class AccelerateSection(Section):
    """The top level; what is not about sharding is only checked for its name."""

    distributed_type: str
    mixed_precision: str | bool | None = None
    num_processes: Degree | None = None
    num_machines: Degree = 1
    fsdp_config: dict[str, Any] | None = None
    deepspeed_config: dict[str, Any] | None = None
    parallelism_config: dict[str, Any] | None = None
    compute_environment: Any = None
    use_cpu: Any = None
    debug: Any = None
    machine_rank: Any = None
    gpu_ids: Any = None
    main_process_ip: Any = None
    main_process_port: Any = None
    rdzv_backend: Any = None
    same_network: Any = None
    main_training_function: Any = None
    enable_cpu_affinity: Any = None
    fp8_config: Any = None
    megatron_lm_config: Any = None
    mpirun_config: Any = None
    downcast_bf16: Any = None
    tpu_name: Any = None
    tpu_zone: Any = None
    tpu_use_cluster: Any = None
    tpu_use_sudo: Any = None
    command_file: Any = None
    commands: Any = None
    tpu_vm: Any = None
    tpu_env: Any = None
    dynamo_config: Any = None
    dynamo_backend: Any = None
    fp16: Any = None


class AxolotlSection(Section, forbid_unknown_fields=False):
    """What axolotl's training YAML says about sharding; the rest is about data and models."""

    fsdp_config: dict[str, Any] | None = None
    fsdp_version: int | None = None
    deepspeed: str | dict[str, Any] | None = None
    bf16: bool | str = False
    fp16: bool | str = False
    micro_batch_size: Degree | None = None
    gradient_accumulation_steps: Degree | None = None
    gradient_checkpointing: bool | str = False
    dp_shard_size: Degree | None = None
    dp_replicate_size: Degree | None = None
    tensor_parallel_size: Degree | None = None
    context_parallel_size: Degree | None = None


def load_accelerate(raw: str | Mapping[str, Any], beside: Path, key: str = "", *, root: Module | None = None) -> Launch:
    """Read an accelerate (or axolotl) configuration given in place or by path.

    Parameters
    ----------
    beside
        The file from which paths are relative, named in errors.
    key
        Dotted key of the configuration inside *beside*, if it stands there.
    root
        The model, whose modules become units; without it units are what the file names.

    Raises
    ------
    InputError
        Missing file, unknown key, a value that accelerate does not take, or something that is not simulated.
    """
    if isinstance(raw, str):
        path = find(raw, beside, "scenarios")
        return load_accelerate(read_mapping(path), path, root=root)
    if "base_model" in raw and "distributed_type" not in raw:
        return _axolotl(raw, beside, key, root)
    if "distributed_type" in raw and raw["distributed_type"] is False:  # what YAML makes of NO
        raw = {**raw, "distributed_type": "NO"}
    section = convert(raw, AccelerateSection, beside, key)
    kind = section.distributed_type.upper()
    place = Place(beside, key)
    mixed = _mixed_precision(section, place)
    if kind == "FSDP":
        return _fsdp(section, mixed, root, place)
    if kind == "DEEPSPEED":
        return _deepspeed(section, mixed, place)
    if kind == "MULTI_GPU":
        return _launch(section, DdpPolicy(no_sync=True), DTYPES[mixed])
    problem = "this is neither FSDP nor DEEPSPEED nor MULTI_GPU"
    raise InputError(problem, file=beside, key=_inside(key, "distributed_type"), value=kind, remedy="use one of them")


def _inside(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _mixed_precision(section: AccelerateSection, place: Place) -> str:
    found = section.mixed_precision
    if found is None:
        return "fp16" if section.fp16 else "no"
    mixed = "no" if found is False else str(found).lower()
    if mixed not in DTYPES:
        key, remedy = _inside(place.key, "mixed_precision"), f"write one of {', '.join(map(repr, DTYPES))}"
        raise InputError("not a precision", file=place.file, key=key, value=found, remedy=remedy)
    return mixed


def _launch(section: AccelerateSection, policy: Any, dtype: str | None, **more: Any) -> Launch:
    return Launch(policy=policy, precision=dtype, ranks=section.num_processes, hosts=section.num_machines, **more)


def _fsdp(section: AccelerateSection, mixed: str, root: Module | None, place: Place) -> Launch:
    inner = Place(place.file, _inside(place.key, "fsdp_config"))
    fsdp = fsdp_section(section.fsdp_config or {}, inner)
    replicate = _replicate(section, fsdp.fsdp_version, place)
    policy, lines = policy_of(fsdp, DTYPES[mixed], replicate, root, inner)
    if mixed == "no":
        lines.append("`mixed_precision` is 'no': weights and gradients travel in the precision of the model")
    if mixed == "fp8":
        lines.append("`mixed_precision` is 'fp8': weights and gradients travel in bf16")
    checkpointing = "full" if fsdp.fsdp_activation_checkpointing else None
    return _launch(section, policy, DTYPES[mixed], activation_checkpointing=checkpointing, notes=tuple(lines))


def _replicate(section: AccelerateSection, version: int, place: Place) -> int | None:
    """Number of replicas, from ``parallelism_config``."""
    if not section.parallelism_config:
        return None
    key = _inside(place.key, "parallelism_config")
    if version == 1:
        raise InputError("needs FSDP2", file=place.file, key=key, remedy="set fsdp_config.fsdp_version: 2")
    raw = relaxed(section.parallelism_config, ParallelismSection, place.file, key)
    sizes = convert(raw, ParallelismSection, place.file, key)
    kinds = {"tp": "tensor", "cp": "context", "sp": "sequence"}
    names = {short: f"parallelism_config_{short}_size" for short in kinds}
    only_data_parallel(
        {f"{key}.{names[short]}": (kind, getattr(sizes, names[short])) for short, kind in kinds.items()}, place.file
    )
    return _replicas(
        (f"{key}.parallelism_config_dp_replicate_size", sizes.parallelism_config_dp_replicate_size),
        (f"{key}.parallelism_config_dp_shard_size", sizes.parallelism_config_dp_shard_size),
        section.num_processes,
        place.file,
    )


def _replicas(replicate: tuple[str, int], shard: tuple[str, int], ranks: int | None, file: object) -> int | None:
    """Check keys and sizes of a mesh and return its first dimension, if there are two."""
    total = replicate[1] * shard[1]
    if ranks is not None and total != ranks:
        problem = f"{replicate[1]} replicas of {shard[1]} shards are {total} ranks, not {ranks}"
        raise InputError(problem, file=file, key=shard[0], value=shard[1], remedy="make them equal")
    if shard[1] == 1:
        problem, remedy = "nothing is sharded", "use distributed_type: MULTI_GPU for plain data parallelism"
        raise InputError(problem, file=file, key=shard[0], value=1, remedy=remedy)
    return replicate[1] if replicate[1] > 1 else None


def _deepspeed(section: AccelerateSection, mixed: str, place: Place) -> Launch:
    key, file = _inside(place.key, "deepspeed_config"), Path(str(place.file))
    raw = section.deepspeed_config or {}
    inner = convert(relaxed(raw, DeepSpeedSection, file, key), DeepSpeedSection, file, key)
    if inner.deepspeed_config_file is None:
        config = load_deepspeed(_ds_config(inner, mixed), file, key)
        return _launch(section, config, DTYPES[mixed], notes=notes(config))
    for name in BESIDE_A_FILE:
        if name in raw:
            problem, remedy = "stands beside deepspeed_config_file, which decides it", "remove one of them"
            raise InputError(problem, file=file, key=f"{key}.{name}", value=raw[name], remedy=remedy)
    try:
        path = find(inner.deepspeed_config_file, file, "scenarios")
    except InputError as error:
        where, value = f"{key}.deepspeed_config_file", inner.deepspeed_config_file
        raise InputError(error.problem, file=file, key=where, value=value, remedy=error.remedy) from None
    config = load_deepspeed(str(path), file, key)
    precision = next((name for name in ("bf16", "fp16") if getattr(config, name).enabled), DTYPES[mixed])
    return _launch(section, config, precision, notes=notes(config))


def _ds_config(section: DeepSpeedSection, mixed: str) -> dict[str, Any]:
    """Return the configuration that accelerate makes of its own keys; source: ``DeepSpeedPlugin.__post_init__``."""
    zero: dict[str, Any] = {
        "stage": section.zero_stage,
        "offload_optimizer": {"device": section.offload_optimizer_device},
        "offload_param": {"device": section.offload_param_device},
    }
    if section.deepspeed_moe_layer_cls_names:
        zero["leaf_module"] = {"classes": [*LEAF_CLASSES, *section.deepspeed_moe_layer_cls_names.split(",")]}
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": section.gradient_accumulation_steps,
        "gradient_clipping": section.gradient_clipping,
        "zero_optimization": zero,
        "bf16": {"enabled": DTYPES[mixed] == "bf16"},
        "fp16": {"enabled": DTYPES[mixed] == "fp16"},
    }


def _axolotl(raw: Mapping[str, Any], file: Path, key: str, root: Module | None) -> Launch:
    section = convert(raw, AxolotlSection, file, key)
    degrees = {"tensor_parallel_size": "tensor", "context_parallel_size": "context"}
    only_data_parallel(
        {_inside(key, name): (kind, getattr(section, name) or 1) for name, kind in degrees.items()}, file
    )
    dtype: Dtype | None = "bf16" if section.bf16 else "fp16" if section.fp16 else None
    batch: dict[str, Any] = {
        "precision": dtype,
        "micro_batch": section.micro_batch_size,
        "gradient_accumulation": section.gradient_accumulation_steps,
        "activation_checkpointing": "full" if section.gradient_checkpointing else None,
    }
    if section.deepspeed is not None:
        config = load_deepspeed(section.deepspeed, file, _inside(key, "deepspeed"))
        return Launch(policy=config, notes=notes(config), **batch)
    if section.fsdp_config is None:
        problem, remedy = "neither 'fsdp_config' nor 'deepspeed' is there", "say how the model is sharded"
        raise InputError(problem, file=file, key=key, remedy=remedy)
    place = Place(file, _inside(key, "fsdp_config"))
    versioned = {"fsdp_version": section.fsdp_version} if section.fsdp_version is not None else {}
    fsdp = fsdp_section({**versioned, **section.fsdp_config}, place)
    replicate = section.dp_replicate_size if (section.dp_replicate_size or 1) > 1 else None
    policy, lines = policy_of(fsdp, dtype, replicate, root, place)
    ranks = section.dp_shard_size * (replicate or 1) if section.dp_shard_size else None
    return Launch(policy=policy, ranks=ranks, notes=tuple(lines), **batch)
