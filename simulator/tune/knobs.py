"""All settings of a configuration, by its format."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import InputError
from simulator.tune.deepspeed import BATCH, deepspeed_knobs
from simulator.tune.fsdp import fsdp_knobs
from simulator.tune.space import Knob, Space
from simulator.tune.target import Target
from simulator.tune.training import Keys, training_knobs

__all__ = ["space_of"]


def space_of(target: Target, *, kept: Sequence[str] = (), lossy: bool = True, offload: bool = False) -> Space:
    """Return the settings of *target*.

    Raises
    ------
    InputError
        One of *kept* is no knob.
    """
    if target.format == "deepspeed":
        first = deepspeed_knobs(target.scenario, target.variant, offload=offload, lossy=lossy)
    else:
        first = fsdp_knobs(target.format, target.config, target.scenario, target.variant)
    knobs = [*first, *training_knobs(target.scenario, *_common_keys(target))]
    known = [knob.name for knob in knobs]
    for name in kept:
        if name not in known:
            raise InputError("no such knob", key="--keep", value=name, remedy=f"known: {', '.join(known)}")
    # one that is kept stays as the only option, because others may depend on its value
    fixed = (Knob(name=knob.name, options=knob.options[: 1 if knob.name in kept else None], coarse=knob.coarse)
             for knob in knobs)  # fmt: skip
    return Space(knobs=tuple(fixed))


def _common_keys(target: Target) -> tuple[Keys, Keys]:
    """What a configuration says of checkpointing and of the batch, by format."""
    config = target.config
    if target.format == "deepspeed":
        # what is "auto" is filled in by a trainer, whose arguments then decide
        named = [key for key in BATCH if config.get(key) != "auto"]
        return lambda mode: {}, lambda cut: {key: dict(zip(BATCH, cut, strict=True))[key] for key in named}
    if target.format == "accelerate" and "base_model" in config:
        # FSDP's own recomputation, which axolotl refuses beside the other
        names = {"activation_checkpointing", "fsdp_activation_checkpointing"} & set(config.get("fsdp_config") or {})
        own = {f"fsdp_config.{name}": False for name in names}
        return (
            lambda mode: {"gradient_checkpointing": mode == "full", **own},
            lambda cut: {"micro_batch_size": cut[0], "gradient_accumulation_steps": cut[1]},
        )
    if target.format == "accelerate":
        return lambda mode: {"fsdp_config.fsdp_activation_checkpointing": mode == "full"}, lambda cut: {}
    if target.format == "torchtitan":
        total = target.scenario.training.micro_batch * target.scenario.training.gradient_accumulation
        batch = {"training.global_batch_size": total * target.scenario.mesh.ranks}
        return (
            lambda mode: {"activation_checkpoint.mode": mode},
            lambda cut: {"training.local_batch_size": cut[0], **batch},
        )
    if target.format == "llmfoundry":
        return (
            lambda mode: {"fsdp_config.activation_checkpointing": mode == "full"},
            lambda cut: {"device_train_microbatch_size": cut[0]},
        )
    return lambda mode: {}, lambda cut: {}
