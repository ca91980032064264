"""Which policy a variant of a scenario asks for, in whatever format it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import Section, convert_options
from simulator.world.mesh import Mesh
from simulator.world.model.module import Model
from simulator.world.policy.accelerate import load_accelerate
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.deepspeed import DeepSpeedConfig, deepspeed_policy, load_deepspeed, textbook_policy
from simulator.world.policy.deepspeed_batch import resolve_batch
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.internevo import InternEvoPolicy, load_internevo
from simulator.world.policy.launch import Launch
from simulator.world.policy.llmfoundry import load_llmfoundry
from simulator.world.policy.textbook import TextbookPolicy
from simulator.world.policy.torchtitan import load_torchtitan
from simulator.world.policy.zero import DeepSpeedPolicy
from simulator.world.topology.cluster import Cluster, Count
from simulator.world.training import Training

__all__ = ["Asked", "Chosen", "Policy", "VariantSection", "chosen_policy"]

Policy = TextbookPolicy | DeepSpeedPolicy | DdpPolicy | Fsdp1Policy | Fsdp2Policy | InternEvoPolicy

SCHEDULES = ("textbook", "ddp", "deepspeed", "fsdp1", "fsdp2", "internevo")
"""Schedules that can be recorded."""

TRAINERS = ("accelerate", "torchtitan", "llmfoundry")
"""Trainers whose own files can be given."""

_OWN_KEYS = ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients", "reduce_communicator")


class VariantSection(Section):
    """One entry of ``variants``: a name and one description of a policy."""

    name: Annotated[str, Meta(min_length=1)]
    schedule: str | None = None
    topology: dict[str, Any] | None = None
    """Keys of the scenario's ``topology`` that are others here."""
    deepspeed: str | dict[str, Any] | None = None
    """A ``ds_config.json``, by path or in place."""
    ddp: dict[str, Any] | None = None
    """Options of ``DistributedDataParallel``."""
    fsdp1: dict[str, Any] | None = None
    """Options of ``FullyShardedDataParallel``."""
    fsdp2: dict[str, Any] | None = None
    """Options of ``fully_shard``."""
    internevo: dict[str, Any] | None = None
    """Keys of InternEvo's ``parallel.zero1`` and ``hybrid_zero_optimizer``."""
    accelerate: str | dict[str, Any] | None = None
    """A configuration file of accelerate (or axolotl)."""
    torchtitan: str | dict[str, Any] | None = None
    """A job file of torchtitan."""
    llmfoundry: str | dict[str, Any] | None = None
    """A training file of llm-foundry."""
    zero_stage: Annotated[int, Meta(ge=0, le=3)] | None = None
    prefetch: Annotated[int, Meta(ge=0)] | None = None
    bucket_size: Annotated[float, Meta(ge=0)] | None = None
    zero_hpz_partition_size: Count | None = None
    zero_quantized_weights: bool | None = None
    zero_quantized_gradients: bool | None = None
    reduce_communicator: Literal["shared", "separate"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the rest of the scenario says."""

    file: Path
    training: Training
    cluster: Cluster
    model: Model

    @property
    def mesh(self) -> Mesh:
        """Ranks on devices."""
        return Mesh(hosts=self.cluster.hosts, devices_per_host=self.cluster.accelerators_per_host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A policy and where it comes from."""

    schedule: str
    policy: Policy
    config: DeepSpeedConfig | None = None
    """What a DeepSpeed policy was read from."""
    notes: tuple[str, ...] = ()
    """What the author of a trainer's file should know."""


def chosen_policy(item: VariantSection, asked: Asked, key: str) -> Chosen:
    """Return the policy that a variant asks for.

    Raises
    ------
    InputError
        No description or several, a wrong one, or one that does not fit the model, batch or ranks.
    """
    given = [name for name in (*SCHEDULES[1:], *TRAINERS) if getattr(item, name) is not None]
    if len(given) > 1:
        raise InputError(
            f"stands beside {given[0]!r}; a variant has one policy", file=asked.file, key=f"{key}.{given[1]}"
        )
    if given and given[0] in TRAINERS:
        _refuse_beside(item, asked, key, given[0])
        return _trainer(given[0], getattr(item, given[0]), asked, f"{key}.{given[0]}")
    schedule = item.schedule or (given[0] if given else "textbook")
    if schedule not in SCHEDULES:
        raise UnknownNameError("schedule", schedule, SCHEDULES, file=asked.file, key=f"{key}.schedule")
    if schedule not in (given or ["textbook"]) and not (schedule == "textbook" and given == ["deepspeed"]):
        remedy = f"describe the policy under {schedule!r}" if schedule != "textbook" else "give zero_stage"
        raise InputError("has no policy", file=asked.file, key=f"{key}.schedule", value=schedule, remedy=remedy)
    if schedule == "textbook":
        policy, config = _textbook(item, asked, key)
        policy.check(asked.mesh, asked.file, key)
        return Chosen(schedule=schedule, policy=policy, config=config)
    _refuse_beside(item, asked, key, schedule)
    if schedule == "deepspeed":
        assert item.deepspeed is not None
        return _deepspeed(load_deepspeed(item.deepspeed, asked.file, f"{key}.deepspeed"), asked, f"{key}.deepspeed")
    policy_key = f"{key}.{schedule}"
    return Chosen(schedule=schedule, policy=_options(schedule, getattr(item, schedule), asked, policy_key))


def _trainer(trainer: str, raw: str | dict[str, Any], asked: Asked, key: str) -> Chosen:
    """Read a trainer's own file; the scenario says what is trained, and must not contradict it."""
    root = asked.model.root
    if trainer == "accelerate":
        launch = load_accelerate(raw, asked.file, key, root=root)
    elif trainer == "torchtitan":
        launch = load_torchtitan(raw, asked.file, key, root=root, ranks=asked.mesh.ranks)
    else:
        launch = load_llmfoundry(raw, asked.file, key, root=root, ranks=asked.mesh.ranks)
    notes = (*launch.notes, *_disagreements(launch, asked))
    if isinstance(launch.policy, DeepSpeedConfig):
        return replace(_deepspeed(launch.policy, asked, key), notes=notes)
    if isinstance(launch.policy, Fsdp2Policy):
        launch.policy.check(asked.mesh, asked.file, key)
        return Chosen(schedule="fsdp2", policy=launch.policy, notes=notes)
    if isinstance(launch.policy, Fsdp1Policy):
        launch.policy.check(asked.mesh, asked.file, key)
        return Chosen(schedule="fsdp1", policy=launch.policy, notes=notes)
    return Chosen(schedule="ddp", policy=launch.policy, notes=notes)


def _disagreements(launch: Launch, asked: Asked) -> Iterator[str]:
    """What the file says about the run that the scenario says otherwise; the scenario decides."""
    training = asked.training
    pairs = {
        "ranks": (launch.ranks, asked.mesh.ranks),
        "hosts": (launch.hosts, asked.mesh.hosts),
        "precision": (launch.precision, training.precision),
        "micro-batch": (launch.micro_batch, training.micro_batch),
        "gradient accumulation": (launch.gradient_accumulation, training.gradient_accumulation),
        "checkpointing": (launch.activation_checkpointing, training.activation_checkpointing),
    }
    for what, (theirs, ours) in pairs.items():
        if theirs is not None and theirs != ours:
            yield f"the file says {what} {theirs}, the scenario {ours}, which is simulated"


def _refuse_beside(item: VariantSection, asked: Asked, key: str, schedule: str) -> None:
    """The textbook's own keys mean nothing beside a framework's configuration."""
    for name in ("zero_stage", "prefetch", "bucket_size", *_OWN_KEYS):
        if getattr(item, name) is not None:
            raise InputError(f"stands beside {schedule!r}, which decides it", file=asked.file, key=f"{key}.{name}")


def _textbook(item: VariantSection, asked: Asked, key: str) -> tuple[TextbookPolicy, DeepSpeedConfig | None]:
    prefetch = 1 if item.prefetch is None else item.prefetch
    if item.deepspeed is None:
        if item.zero_stage is None:
            raise InputError("the key 'zero_stage' is missing", file=asked.file, key=key, remedy="give 0, 1, 2 or 3")
        chosen = {name: getattr(item, name) for name in _OWN_KEYS if getattr(item, name) is not None}
        bucket = int(item.bucket_size or 0)
        return TextbookPolicy(zero_stage=item.zero_stage, prefetch=prefetch, bucket_size=bucket, **chosen), None
    for name in ("zero_stage", "bucket_size", *_OWN_KEYS):
        if getattr(item, name) is not None:
            raise InputError("stands beside 'deepspeed', which decides it", file=asked.file, key=f"{key}.{name}")
    config = load_deepspeed(item.deepspeed, asked.file, f"{key}.deepspeed")
    _check_batch(config, asked, f"{key}.deepspeed")
    return textbook_policy(
        config, prefetch, asked.file, f"{key}.deepspeed", hidden_size=asked.model.hidden_size
    ), config


def _deepspeed(config: DeepSpeedConfig, asked: Asked, key: str) -> Chosen:
    _check_batch(config, asked, key)
    policy = deepspeed_policy(config, asked.training.precision, hidden_size=asked.model.hidden_size)
    _check_group(asked, policy.zero_hpz_partition_size, f"{key}.zero_optimization.zero_hpz_partition_size")
    return Chosen(schedule="deepspeed", policy=policy, config=config)


def _options(
    schedule: str, raw: dict[str, Any], asked: Asked, key: str
) -> DdpPolicy | Fsdp1Policy | Fsdp2Policy | InternEvoPolicy:
    if schedule == "internevo":
        return load_internevo(raw, asked.mesh, asked.file, key)
    if schedule == "ddp":
        return convert_options(raw, DdpPolicy, asked.file, key)
    # without a wish, every block of the model is a unit, as the frameworks' own wrapping policies have it
    raw = raw if "units" in raw else {**raw, "units": _blocks(asked.model)}
    if schedule == "fsdp1":
        first = convert_options(raw, Fsdp1Policy, asked.file, key)
        first.check(asked.mesh, asked.file, key)
        return first
    second = convert_options(raw, Fsdp2Policy, asked.file, key)
    second.check(asked.mesh, asked.file, key)
    return second


def _blocks(model: Model) -> list[str]:
    """Names of the blocks of *model*: what activation checkpointing would repeat."""
    return [name for layer in model.layers if layer.checkpointed for name in layer.modules]


def _check_group(asked: Asked, size: int, key: str) -> None:
    try:
        asked.mesh.group("group", size)
    except InputError as error:
        raise InputError(error.problem, file=asked.file, key=key, value=size, remedy=error.remedy) from None


def _check_batch(config: DeepSpeedConfig, asked: Asked, key: str) -> None:
    """Make sure that a DeepSpeed config agrees with itself and does not contradict the scenario's batch."""
    wanted = (asked.training.micro_batch, asked.training.gradient_accumulation)
    if config.train_batch_size is None and config.train_micro_batch_size_per_gpu is None:
        return
    found = resolve_batch(config, asked.mesh.ranks, micro_batch=wanted[0], gradient_accumulation=wanted[1])
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    for name, here, there in zip(names, found, wanted, strict=True):
        if here != there:
            remedy = f"the scenario says {there}; make them equal or write 'auto'"
            raise InputError("contradicts training", file=asked.file, key=f"{key}.{name}", value=here, remedy=remedy)
