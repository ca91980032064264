"""What one passes to PyTorch's ``FullyShardedDataParallel`` (FSDP1), and how its training loop uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from simulator.errors import InputError
from simulator.world.mesh import Mesh
from simulator.world.model.module import Module
from simulator.world.training import Dtype

__all__ = ["Fsdp1Policy", "ShardingStrategy"]

ShardingStrategy = Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"]

HYBRID: Final = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
RESHARD_AFTER_FORWARD: Final = ("FULL_SHARD", "HYBRID_SHARD")
"""_runtime_utils.py, RESHARD_AFTER_FORWARD_HANDLE_STRATEGIES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp1Policy:
    """Options of ``FullyShardedDataParallel`` with their defaults.

    Examples
    --------
    >>> policy = Fsdp1Policy(param_dtype="bf16")
    >>> policy.original_dtype("bf16"), policy.unsharded_dtype("bf16"), policy.reduction_dtype("bf16")
    ('fp32', 'bf16', 'bf16')
    >>> Fsdp1Policy(reduce_dtype="fp32").reduction_dtype("bf16")
    'fp32'
    """

    units: tuple[str, ...] = ()
    """Modules that ``auto_wrap_policy`` wraps: classes, as ``ModuleWrapPolicy`` and
    ``transformer_auto_wrap_policy`` take them, or names of modules.  The root is always wrapped."""
    sharding_strategy: ShardingStrategy = "FULL_SHARD"
    """FULL_SHARD: weights, gradients, optimizer states; SHARD_GRAD_OP: the same, but weights stay whole from forward
    to backward; NO_SHARD: nothing; HYBRID_SHARD and _HYBRID_SHARD_ZERO2: the first two among the ranks of a shard
    group, with replicas of it."""
    backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST"] | None = "BACKWARD_PRE"
    """When the weights of the unit before are gathered in backward: before or after the current unit's gradients are
    computed, or only when they are needed."""
    forward_prefetch: bool = False
    """Gather the next unit's weights before the current unit's forward, in the order of the first iteration."""
    limit_all_gathers: bool = True
    """Block the host so that at most two units whose weights are to be freed wait for that."""
    use_orig_params: bool = False
    """Keep the original parameters visible; they then stand at multiples of 16 bytes in the flat parameter."""
    param_dtype: Dtype | None = None
    """``MixedPrecision.param_dtype``: type of gathered weights and gradients.  The shards then are fp32.  None: the
    type of the parameters, for the shards too."""
    reduce_dtype: Dtype | None = None
    """``MixedPrecision.reduce_dtype``: type of gradients in reduction.  None: ``param_dtype``, else the type of the
    parameters."""
    buffer_dtype: Dtype | None = None
    """``MixedPrecision.buffer_dtype``: buffers are cast once, before the first forward; nothing is sent."""
    shard_group_size: int | None = None
    """Ranks that share a copy of the model under a hybrid strategy, neighbours; None: those of a host."""
    cpu_offload: bool = False
    """``CPUOffload(offload_params=True)``: shards, their gradients and the optimizer are in pinned CPU memory."""
    fused_optimizer: bool = False
    """``AdamW(fused=True)``: one pass over the CPU's memory instead of one per operation; matters for that only."""
    no_sync: bool = False
    """The training loop runs all micro-batches of a step but the last inside ``no_sync()``."""
    evaluates: bool = False
    """A forward without gradients follows every step."""

    def original_dtype(self, dtype: str) -> str:
        """Type of the parameters when they were wrapped, of shards and of sharded gradients; *dtype* is the job's."""
        return "fp32" if self.param_dtype else dtype

    def unsharded_dtype(self, dtype: str) -> str:
        """Type of gathered weights and of gradients as backward computes them; *dtype* is the job's."""
        return self.param_dtype or dtype

    def reduction_dtype(self, dtype: str) -> str:
        """Type of gradients in reduction (F1-11); *dtype* is the job's."""
        return self.reduce_dtype or self.unsharded_dtype(dtype)

    def shard_size(self, mesh: Mesh) -> int:
        """Ranks among which parameters are sharded: those of ``process_group``."""
        if self.sharding_strategy in HYBRID:
            return self.shard_group_size or mesh.devices_per_host
        return mesh.ranks

    def strategy(self, mesh: Mesh) -> ShardingStrategy:
        """The strategy that is really used: alone in its group, a rank shards nothing (``_init_core_state``)."""
        return "NO_SHARD" if self.shard_size(mesh) == 1 else self.sharding_strategy

    def wraps(self, module: Module) -> bool:
        """Whether *module*, which is not the root, becomes a unit."""
        return module.name in self.units or module.kind in self.units

    def check(self, mesh: Mesh, file: object, key: str) -> None:
        """Make sure that the policy fits the ranks.

        Raises
        ------
        InputError
            The shard group does not divide the ranks, or is a single one: FSDP1 then takes NO_SHARD within that one
            rank, and replicas silently drift apart.  Or whole parameters are offloaded, which is not simulated.
        """
        if self.cpu_offload and self.strategy(mesh) == "NO_SHARD":
            where, remedy = f"{key}.cpu_offload", "shard among several ranks, or use fsdp2 or DeepSpeed"
            problem = "nothing is sharded, and offloading whole parameters of FSDP1 is not simulated"
            raise InputError(problem, file=file, key=where, value=True, remedy=remedy)
        if self.shard_size(mesh) == 1 < mesh.ranks:
            where, remedy = f"{key}.sharding_strategy", "use NO_SHARD"
            problem = "shards among one rank, and FSDP1 then reduces no gradients"
            raise InputError(problem, file=file, key=where, value=self.sharding_strategy, remedy=remedy)
        try:
            mesh.group("shard_group_size", self.shard_size(mesh))
        except InputError as error:
            where = f"{key}.shard_group_size"
            raise InputError(error.problem, file=file, key=where, value=error.value, remedy=error.remedy) from None
