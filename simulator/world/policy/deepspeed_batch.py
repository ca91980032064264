"""Batch sizes of a ``ds_config.json``: two of three numbers decide the third, all three must agree.

train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × ranks.

Source: DeepSpeed runtime/config.py, ``_set_batch_related_parameters`` and ``_batch_assertion``.
"""

from __future__ import annotations

from simulator.errors import InputError
from simulator.world.policy.deepspeed_keys import DeepSpeedConfig
from simulator.world.policy.deepspeed_lax import AUTO

__all__ = ["resolve_batch"]


def resolve_batch(
    config: DeepSpeedConfig,
    world_size: int,
    *,
    micro_batch: int | None = None,
    gradient_accumulation: int | None = None,
) -> tuple[int, int]:
    """Sequences per rank and micro-batch, and micro-batches per step, as DeepSpeed infers them.

    Parameters
    ----------
    world_size
        Data-parallel ranks.
    micro_batch, gradient_accumulation
        What a trainer fills in where the file says ``"auto"``.

    Raises
    ------
    InputError
        The numbers contradict each other, are too few, or are left to a trainer.
    """
    micro = _filled(config, "train_micro_batch_size_per_gpu", micro_batch)
    steps = _filled(config, "gradient_accumulation_steps", gradient_accumulation)
    product = micro_batch * gradient_accumulation * world_size if micro_batch and gradient_accumulation else None
    batch = _filled(config, "train_batch_size", product)
    if batch is None and micro is None:
        remedy = "give one of them"
        problem = "neither train_batch_size nor train_micro_batch_size_per_gpu is there"
        raise InputError(problem, file=config.file, key=config.key, remedy=remedy)
    if micro is None:
        micro = (batch or 0) // world_size // (steps or 1)
        steps = steps or 1
    elif steps is None:
        steps = 1 if batch is None else batch // micro // world_size
    if batch is not None and batch != micro * steps * world_size:
        raise InputError(
            f"is not {micro} × {steps} × {world_size} = {micro * steps * world_size}"
            " (train_micro_batch_size_per_gpu × gradient_accumulation_steps × ranks)",
            file=config.file,
            key=config.at("train_batch_size"),
            value=batch,
            remedy="change one of them or remove train_batch_size",
        )
    return micro, steps


def _filled(config: DeepSpeedConfig, name: str, by_trainer: int | None) -> int | None:
    found = getattr(config, name)
    if found != AUTO:
        return None if found is None else int(found)
    if by_trainer is None:
        problem, remedy = "is left for a trainer to fill in", "give a number"
        raise InputError(problem, file=config.file, key=config.at(name), value=AUTO, remedy=remedy)
    return by_trainer
