"""How many parameters fall to a rank, in which types it keeps their states, and what an update needs beside them.

Temporaries of the update (DeepSpeed 0.19.8, torch 2.13):

==================  =======================================================  ==========================================
optimizer           temporary                                                function
==================  =======================================================  ==========================================
stage 0, 16 bits    fp32 gradients of everything                             ``FP16_UnfusedOptimizer.step``
stages 1, 2         flat fp32 gradients of the own partition                 ``DeepSpeedZeroOptimizer.step``
stage 3             the same of one sub-group at a time                      ``_prepare_fp32_grad_for_sub_group``
``BF16_Optimizer``  none: its buffer is fp32 already
PyTorch's Adam      root of the variance of all parameters                   ``_multi_tensor_adam``, the default on GPUs
==================  =======================================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.laws.memory import MIXED, StateBytes, kept_states, model_states, unmixed
from simulator.schedules.bf16_optimizer import uses_bf16_optimizer
from simulator.schedules.fsdp2.traffic import padded
from simulator.schedules.internevo import shares
from simulator.schedules.job import DTYPE_BYTES
from simulator.schedules.program import Memory
from simulator.schedules.zero12.partition import NCCL_START_ALIGNMENT_FACTOR
from simulator.world.mesh import Mesh
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Model
from simulator.world.policy.choice import Policy
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.internevo import InternEvoPolicy
from simulator.world.policy.textbook import TextbookPolicy
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["owners", "state_bytes", "states", "step_temporaries", "updated"]

WEIGHTS_STAGE: Final = 3
"""From which ZeRO divides the weights themselves."""


def owners(policy: Policy, mesh: Mesh) -> int:
    """Ranks among which the optimizer's work and states are divided."""
    if isinstance(policy, TextbookPolicy | DeepSpeedPolicy):
        return mesh.ranks if policy.zero_stage else 1
    if isinstance(policy, Fsdp1Policy):
        return 1 if policy.sharding_strategy == "NO_SHARD" else policy.shard_size(mesh)
    return policy.shard_size(mesh.ranks) if isinstance(policy, Fsdp2Policy) else 1


def updated(policy: Policy, mesh: Mesh, model: Model) -> float:
    """Parameters that the rank that has most of them updates."""
    if isinstance(policy, InternEvoPolicy):
        return max(shares(policy, model.root, mesh.ranks), default=0)
    return model.trainable / owners(policy, mesh)


def states(policy: Policy, model: Model, mesh: Mesh, precision: str) -> dict[str, float]:
    """Bytes that a rank keeps from step to step, by item; *precision* is that of training.

    Gradients that autograd makes anew in every step are not among them.
    """
    each = state_bytes(policy, precision)._replace(gradient=_standing_gradient(policy, precision))
    if isinstance(policy, TextbookPolicy):
        secondary = policy.zero_hpz_partition_size
        return model_states(model.elements, each, policy.zero_stage, mesh.ranks, secondary, trainable=model.trainable)
    weights, owned = _owned(policy, model, mesh)
    whole = isinstance(policy, DeepSpeedPolicy) and policy.zero_stage < WEIGHTS_STAGE
    kept = kept_states(weights, owned * (owners(policy, mesh) if whole else 1), owned, each)
    if isinstance(policy, DeepSpeedPolicy) and policy.zero_hpz_partition_size > 1:
        kept["secondary weights"] = each.weight * weights * mesh.ranks / policy.zero_hpz_partition_size
    return kept


def _owned(policy: Policy, model: Model, mesh: Mesh) -> tuple[float, float]:
    """Elements of weights that a rank keeps, and of those that it updates, with the padding of each framework."""
    over = owners(policy, mesh)
    if isinstance(policy, DeepSpeedPolicy) and policy.zero_stage in (1, 2):  # Z12-22
        whole = NCCL_START_ALIGNMENT_FACTOR * over
        return model.elements, -(-model.trainable // whole) * whole / over
    if isinstance(policy, DeepSpeedPolicy) and policy.zero_stage == WEIGHTS_STAGE:  # Z3-1
        return _shares(model, lambda tensor: -(-tensor.elements // over))
    if isinstance(policy, InternEvoPolicy):
        return model.elements, updated(policy, mesh, model)
    if isinstance(policy, Fsdp2Policy):  # F2-1
        return _shares(model, lambda tensor: padded(tensor, over) // over)
    return model.elements / over, model.trainable / over


def _shares(model: Model, share: Callable[[Tensor], int]) -> tuple[float, float]:
    """Sums of the *share* of each parameter, and of each that has gradients."""
    return sum(map(share, model.tensors)), sum(share(tensor) for tensor in model.tensors if tensor.trainable)


def _standing_gradient(policy: Policy, precision: str) -> int:
    """Bytes per owned parameter of gradients that stay from step to step; autograd makes the others anew.

    Stage 3 adds up in a flat buffer, ``BF16_Optimizer`` in one of its own; the textbook never frees any.
    """
    if isinstance(policy, TextbookPolicy):
        return MIXED[precision].gradient
    if not isinstance(policy, DeepSpeedPolicy):
        return 0
    stays = policy.zero_stage == WEIGHTS_STAGE or uses_bf16_optimizer(policy)
    return DTYPE_BYTES[policy.grad_accum_dtype or precision] if stays else 0


def step_temporaries(policy: Policy, precision: str, elements: float) -> Memory:
    """Memory that the update of *elements* takes and gives back."""
    size = elements * _temporary_bytes(policy, precision)
    if isinstance(policy, DeepSpeedPolicy) and policy.zero_stage == WEIGHTS_STAGE:
        size = min(size, float(policy.sub_group_size * DTYPE_BYTES["fp32"]))
    return (("optimizer temporaries", size),) if size else ()


def _temporary_bytes(policy: Policy, precision: str) -> int:
    if isinstance(policy, TextbookPolicy | InternEvoPolicy):  # InternEvo's are there before the update
        return 0
    if not isinstance(policy, DeepSpeedPolicy):
        return state_bytes(policy, precision).weight
    none = uses_bf16_optimizer(policy) or (policy.zero_stage == 0 and precision == "fp32")
    return 0 if none else DTYPE_BYTES["fp32"]


def state_bytes(policy: Policy, precision: str) -> StateBytes:
    """Bytes that a parameter costs between two steps.

    DeepSpeed and InternEvo keep an fp32 copy beside weights in half precision.  PyTorch's optimizers keep what they
    keep in the type of the parameters that they are given: the sharded ones of FSDP, the model's own under DDP.
    """
    if isinstance(policy, TextbookPolicy | InternEvoPolicy):
        return MIXED[precision]
    if isinstance(policy, DeepSpeedPolicy):
        return MIXED[precision]._replace(gradient=_deepspeed_gradient(policy, precision))
    if isinstance(policy, Fsdp1Policy | Fsdp2Policy):
        return unmixed(DTYPE_BYTES[policy.original_dtype(precision)])
    return unmixed(DTYPE_BYTES[precision])


def _deepspeed_gradient(policy: DeepSpeedPolicy, precision: str) -> int:
    computed = DTYPE_BYTES[precision]
    accumulated = DTYPE_BYTES[policy.grad_accum_dtype or precision]
    if uses_bf16_optimizer(policy):  # adds them up in a buffer of its own
        return computed + accumulated
    return accumulated if policy.zero_stage >= 2 else computed
