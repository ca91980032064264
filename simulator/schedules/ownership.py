"""How many parameters fall to a rank, and in which types it keeps their states."""

from __future__ import annotations

from simulator.laws.memory import MIXED, StateBytes, unmixed
from simulator.schedules.bf16_optimizer import uses_bf16_optimizer
from simulator.schedules.internevo import shares
from simulator.schedules.job import DTYPE_BYTES
from simulator.world.mesh import Mesh
from simulator.world.model.module import Model
from simulator.world.policy.choice import Policy
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.internevo import InternEvoPolicy
from simulator.world.policy.textbook import TextbookPolicy
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["owners", "state_bytes", "updated"]


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
