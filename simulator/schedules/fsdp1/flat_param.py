"""Flat parameters: what each unit shards, and what FSDP remembers about it (``_flat_param.py``).

All parameters of a wrapped module that no wrapped module inside it has claimed stand one behind the other in one flat
parameter, in order of registration.  It is sharded in equal parts, so it is padded to a multiple of the ranks (F1-1).
With ``use_orig_params`` each parameter begins at a multiple of 16 bytes, and the padding is part of the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from simulator.schedules.gradients import GRADIENTS
from simulator.schedules.job import DTYPE_BYTES, Job
from simulator.schedules.program import Memory
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.fsdp1 import Fsdp1Policy

__all__ = ["FlatParamHandle", "TrainingState", "flat_params"]

ALIGNMENT: Final = 16  # source: _flat_param.py, _get_aligned_numel [B]

TrainingState = Literal["IDLE", "FORWARD", "BACKWARD_PRE", "BACKWARD_POST"]


@dataclass(slots=True, kw_only=True, eq=False)
class FlatParamHandle:
    """The flat parameter of one unit."""

    unit: str
    """Name of the wrapped module."""
    elements: int
    """With the padding of ``use_orig_params``."""
    ranks: int
    """Among which it is sharded; 1 for NO_SHARD."""
    modules: frozenset[str]
    """Names of the modules that its parameters stand in."""
    requires_grad: bool
    original_dtype: str
    unsharded_dtype: str
    reduce_dtype: str

    training_state: TrainingState = "IDLE"
    is_unsharded: bool = False
    """The memory of the whole parameter is allocated."""
    uses_shard: bool = True
    """What the handle points to is the shard, not the whole parameter."""
    skipped_sharded_views: bool = False
    prefetched: bool = False
    needs_pre_forward_unshard: bool = False
    needs_pre_backward_unshard: bool = False
    ran_pre_backward_hook: bool = False
    pre_forward_order_index: int | None = None
    post_forward_index: int | None = None
    has_sharded_gradient: bool = False
    """``_saved_grad_shard``: an earlier micro-batch of the step was reduced."""
    has_whole_gradient: bool = False
    """An earlier micro-batch of the step was not."""
    gradient_parts: float = 0.0
    """Gradients of parameters that are not yet put together [B]."""
    kernels_before: int = 0
    """Kernels in the compute stream when it began to wait for the whole parameter."""

    @property
    def label(self) -> str:
        """How reports call the unit."""
        return self.unit or "root"

    @property
    def shards(self) -> bool:
        """``uses_sharded_strategy``."""
        return self.ranks > 1

    @property
    def padded(self) -> int:
        """Elements with the padding to equal shards."""
        return self.elements + -self.elements % self.ranks

    @property
    def shard_bytes(self) -> int:
        """Of the shard as it is kept [B]."""
        return self.padded // self.ranks * DTYPE_BYTES[self.original_dtype]

    @property
    def needs_unshard(self) -> bool:
        """Whether the whole parameter is not there; it always is with NO_SHARD."""
        return self.shards and not self.is_unsharded

    @property
    def uses_param_mixed_precision(self) -> bool:
        """Whether gathering casts."""
        return self.unsharded_dtype != self.original_dtype

    @property
    def low_precision_shard(self) -> Memory:
        """``_mp_shard``: what casting before the all-gather allocates; the whole parameter with NO_SHARD."""
        item = "all-gather buffers" if self.shards else "gathered weights"
        return ((item, self.padded // self.ranks * DTYPE_BYTES[self.unsharded_dtype]),)

    @property
    def unsharded(self) -> Memory:
        """``_full_param_padded``: what the all-gather writes to."""
        return (("gathered weights", self.padded * DTYPE_BYTES[self.unsharded_dtype]),)

    @property
    def whole_gradient(self) -> Memory:
        """``flat_param.grad``: a gradient that will be sharded; with NO_SHARD it is what is kept."""
        return (("gradients in flight", self.elements * DTYPE_BYTES[self.unsharded_dtype]),) if self.shards else ()

    @property
    def kept_gradient(self) -> Memory:
        """``_saved_grad_shard``, what the optimizer works on; the whole gradient with NO_SHARD."""
        return ((GRADIENTS, float(self.padded // self.ranks * DTYPE_BYTES[self.original_dtype])),)


def flat_params(job: Job, policy: Fsdp1Policy) -> dict[str, FlatParamHandle | None]:
    """Return the units, the root first, then in order of registration; None for one without own parameters."""
    units = [module for module in job.root.walk() if module is job.root or policy.wraps(module)]
    return {unit.name: _handle(unit, job, policy) for unit in units}


def _handle(unit: Module, job: Job, policy: Fsdp1Policy) -> FlatParamHandle | None:
    modules = list(_own_modules(unit, policy))
    tensors = {tensor.name: tensor for module in modules for tensor in module.parameters}.values()
    if not tensors:
        return None
    ranks, dtype = policy.shard_size(job.mesh), policy.unsharded_dtype(job.dtype)
    return FlatParamHandle(
        unit=unit.name,
        elements=_aligned(tensors, ALIGNMENT // DTYPE_BYTES[dtype], ranks)
        if policy.use_orig_params
        else sum(tensor.elements for tensor in tensors),
        ranks=1 if policy.strategy(job.mesh) == "NO_SHARD" else ranks,
        modules=frozenset(module.name for module in modules if module.parameters),
        requires_grad=any(tensor.trainable for tensor in tensors),
        original_dtype=policy.original_dtype(job.dtype),
        unsharded_dtype=dtype,
        reduce_dtype=policy.reduction_dtype(job.dtype),
    )


def _own_modules(unit: Module, policy: Fsdp1Policy) -> Iterator[Module]:
    """The unit and all below it that is not in a unit inside."""
    yield unit
    for child in unit.children:
        if not policy.wraps(child):
            yield from _own_modules(child, policy)


def _aligned(tensors: Iterable[Tensor], alignment: int, ranks: int) -> int:
    """Elements when each tensor begins at a multiple of *alignment* and all fill equal shards."""
    total = 0
    for tensor in tensors:
        total += -total % alignment + tensor.elements
    return total + -total % ranks
