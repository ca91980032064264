"""Every knob of PyTorch's FSDP2 (``fully_shard``) that its schedule reads, resolved.

Names are those of the arguments of ``fully_shard`` and of the setters of ``FSDPModule``; where a setter is called
around the last micro-batch, as gradient accumulation does, the field says what holds *before* the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from simulator.errors import InputError
from simulator.world.mesh import Mesh
from simulator.world.model.module import Module
from simulator.world.training import Dtype

__all__ = ["Fsdp2Policy", "Prefetch", "Reshard", "post_forward_size", "torchtitan"]

Reshard = bool | int | None
"""As ``reshard_after_forward`` of ``fully_shard``."""

Prefetch = int | Mapping[str, tuple[str, ...]]
"""A depth, or for some units (by the name of their first module) the units that they prefetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp2Policy:
    """How a model was wrapped, and what was set on it."""

    units: tuple[str | tuple[str, ...], ...] = ()
    """Calls of ``fully_shard`` below the root: the name of a module, the name of a class (one call for each of its
    modules), or the modules of one call with a list.  The root is always wrapped, last."""
    reshard_after_forward: Reshard = None
    """Of the units below the root.  True: weights are gathered again for backward; False: kept; a number: kept in
    shards among so many consecutive ranks; None: FSDP2's default, True."""
    root_reshard_after_forward: Reshard = None
    """Of the root; None: FSDP2's default, False."""
    unit_reshard_after_forward: Mapping[str, Reshard] = field(default_factory=dict)
    """Units with a value of their own, by the name of their first module."""
    param_dtype: Dtype | None = None
    """``MixedPrecisionPolicy.param_dtype``: type of gathered weights and gradients.  The shards then are fp32.
    None: the type of the parameters, for the shards too."""
    reduce_dtype: Dtype | None = None
    """``MixedPrecisionPolicy.reduce_dtype``: type of gradients in reduction; None: that of the gradients."""
    replicate: int | None = None
    """First dimension of a two-dimensional mesh (HSDP): how many groups of neighbouring ranks each hold all shards.
    None: a one-dimensional mesh of all ranks."""
    forward_prefetch: Prefetch = 0
    """``set_modules_to_forward_prefetch``; a depth gives each unit the units below the root that run next."""
    backward_prefetch: Prefetch = 0
    """``set_modules_to_backward_prefetch``; 0: FSDP2's default, one unit in reverse order of the forwards' ends."""
    separate_reduce_scatter_group: bool = False
    """``set_separate_reduce_scatter_group``: reduce-scatter has a communicator of its own."""
    reduce_scatter_max_input_buffers: int = 1
    """``set_reduce_scatter_max_input_buffers``."""
    requires_gradient_sync: bool = True
    """``set_requires_gradient_sync`` before the last micro-batch: False keeps whole gradients until then."""
    requires_all_reduce: bool = True
    """``set_requires_all_reduce`` before the last micro-batch: False reduces among replicas only in the last."""
    reshard_after_backward: bool = True
    """``set_reshard_after_backward`` before the last micro-batch: False keeps whole weights for the next one."""
    cpu_offload: bool = False
    """``offload_policy=CPUOffloadPolicy()``: shards, their gradients and the optimizer are in CPU memory."""
    pin_memory: bool = True
    """``CPUOffloadPolicy.pin_memory``."""
    fused_optimizer: bool = False
    """``AdamW(fused=True)``: one pass over the CPU's memory instead of one per operation; matters for that only."""
    evaluates: bool = False
    """A forward without gradients follows every step."""

    def original_dtype(self, dtype: str) -> str:
        """Type of the parameters when they were wrapped, of shards and of sharded gradients; *dtype* is the job's."""
        return "fp32" if self.param_dtype else dtype

    def shard_size(self, ranks: int) -> int:
        """Ranks among which *ranks* shard parameters."""
        return ranks // (self.replicate or 1)

    def check(self, mesh: Mesh, file: object, key: str) -> None:
        """Make sure that the policy fits the ranks.

        Raises
        ------
        InputError
            A number of replicas or of ranks to reshard to that does not divide, or no buffer to reduce from.
        """
        if self.replicate is not None and (self.replicate < 1 or mesh.ranks % self.replicate):
            problem = f"does not divide the {mesh.ranks} ranks"
            raise InputError(problem, file=file, key=f"{key}.replicate", value=self.replicate)
        if self.reduce_scatter_max_input_buffers < 1:
            where, value = f"{key}.reduce_scatter_max_input_buffers", self.reduce_scatter_max_input_buffers
            raise InputError("must be at least 1", file=file, key=where, value=value)
        asked = (self.reshard_after_forward, self.root_reshard_after_forward, *self.unit_reshard_after_forward.values())
        for reshard in asked:
            post_forward_size(reshard, self.shard_size(mesh.ranks), file=file, key=f"{key}.reshard_after_forward")


def post_forward_size(value: Reshard, shard: int, *, file: object = None, key: str | None = None) -> int | None:
    """Ranks among which weights stay sharded after forward, of *shard*; None where they stay whole.

    None as *value* stands for True; the root's own default is not known here (``_get_post_forward_mesh_info``).

    Raises
    ------
    InputError
        The number does not divide *shard*.

    Examples
    --------
    >>> [post_forward_size(value, 8) for value in (None, True, False, 1, 2, 8)]
    [8, 8, None, None, 2, 8]
    """
    if value is None or value is True:
        return shard
    if value is False:
        return None
    if value < 1 or shard % value:
        raise InputError(f"does not divide the {shard} ranks that share a parameter", file=file, key=key, value=value)
    return None if value == 1 else value


def torchtitan(
    root: Module,
    reshard_after_forward: Literal["default", "always", "never"] = "default",
    policy: Fsdp2Policy | None = None,
) -> Fsdp2Policy:
    """Wrap *root* as torchtitan does (``torchtitan/distributed/fsdp.py``, F2-16), without pipeline parallelism.

    Embeddings and blocks are units; final norm and output are one unit, which is gathered again for backward only if
    asked ``always``, because backward starts with it.  With tied weights that unit holds the embedding too.

    Parameters
    ----------
    policy
        Everything else; without it torchtitan's mixed precision, bf16 and fp32.
    """
    blocks = [module.name for module in root.walk() if _is_block(module.name)]
    inside = tuple(f"{block}." for block in blocks)
    modules = [module for module in root.walk() if module.name in blocks or not module.name.startswith(inside)]
    first = next((place for place, module in enumerate(modules) if module.name in blocks), len(modules))
    before = [module for module in modules[:first] if module.parameters]
    after = [module for module in modules[first:] if module.parameters and module.name not in blocks]
    shared = {tensor.name for module in after for tensor in module.parameters}
    tied = [module for module in before if not shared.isdisjoint(tensor.name for tensor in module.parameters)]
    last = tuple(module.name for module in tied + after)
    reshards = reshard_after_forward != "never"
    return replace(
        policy or Fsdp2Policy(param_dtype="bf16", reduce_dtype="fp32"),
        units=(*(module.name for module in before if module not in tied), *blocks, *([last] if last else [])),
        reshard_after_forward=reshards,
        unit_reshard_after_forward={last[0]: reshard_after_forward == "always"} if last else {},
    )


def _is_block(name: str) -> bool:
    """Whether a list numbers the module, and no module above it is numbered."""
    *above, last = name.split(".")
    return last.isdigit() and not any(part.isdigit() for part in above)
