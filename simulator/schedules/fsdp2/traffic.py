"""What one unit sends, and what is copied for it.

Parameters are cut along their first dimension, each padded to a multiple of the ranks in rows (F2-1).  Weights are
gathered in ``param_dtype`` and gradients reduced in ``reduce_dtype`` (F2-11).  Copies, with PyTorch's names:

================  ==============================================  ================================
copy in           shards into the buffer of the all-gather        ``all_gather_copy_in``
copy out          that buffer into parameters                     ``split_with_sizes_copy``
reshard           the part of the parameters that is kept         ``to_sharded_post_forward``
accumulate        gradients of micro-batches that do not reduce   ``to_accumulated_grad_if_needed``
reduce copy in    gradients into the buffer of the reduction      ``chunk_cat``
divide            that buffer, in fp16, against overflow          ``_div_if_needed``
view out          reduced gradients into those of the shards      the end of ``foreach_reduce``
================  ==============================================  ================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.schedules.fsdp2.units import Unit
from simulator.schedules.job import DTYPE_BYTES, Job, collective
from simulator.world.mesh import Group
from simulator.world.model.layer import Tensor, Work
from simulator.world.policy.fsdp2 import Fsdp2Policy

__all__ = ["Gather", "Reduction", "Sharding", "gather", "reduction", "reshard", "sharding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Over which groups all units communicate, and in which types."""

    shard: Group
    reduce: Group
    """The shard group, or the same ranks with a communicator of their own (F2-3)."""
    replicate: Group | None
    """Of a two-dimensional mesh (F2-12)."""
    original_dtype: str
    """Of the shards: what the optimizer works on."""
    param_dtype: str
    """Of gathered weights and of gradients."""
    reduce_dtype: str
    offloads: bool = False
    """Shards and their gradients are in CPU memory."""
    pinned: bool = True

    @property
    def ranks(self) -> int:
        """How many share a parameter."""
        return self.shard.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """Weights of a unit from the parts that some ranks hold."""

    group: Group
    copy_in: Kernel
    all_gather: Collective
    copy_out: Kernel
    parameters: float
    """Bytes of the parameters, and of the buffer that they arrive in [B]."""
    part: float
    """Bytes of what a rank holds, in the type of the parameters [B]."""
    from_host: Transfer | None
    """Brings that to the device first, if it is in CPU memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """Gradients of a unit into gradients of its shards."""

    copy_in: tuple[Kernel, Kernel]
    """From the gradients as computed, and from those accumulated over micro-batches."""
    divide: Kernel | None
    reduce_scatter: Collective
    local: Kernel
    """In place of the reduce-scatter where one rank holds the whole parameter."""
    all_reduce: Collective | None
    to_host: Transfer | None
    """Takes the gradients of the shards to CPU memory."""
    host_add: float
    """What adding them to those of earlier micro-batches there reads and writes [B]."""
    view_out: tuple[Kernel | None, Kernel | None]
    """Of the first reduction since the optimizer's step, and of those that add to it."""
    accumulate: tuple[Kernel | None, Kernel]
    """Of the first micro-batch that does not reduce, and of those that follow."""
    add_partial: Kernel
    """Adds what earlier micro-batches reduced in the shard group only."""
    gradients: float
    """Bytes of the gradients as computed [B]."""
    accumulated: float
    """Bytes of the gradients as accumulated over micro-batches [B]."""
    input: float
    """Bytes of the buffer that is reduced [B]."""
    output: float
    """Bytes of what a rank gets [B]."""
    kept: float
    """Bytes of the gradients of the shards [B]."""
    casts: bool
    """Whether the gradients of the shards are another array than what a rank gets."""


def sharding(job: Job, policy: Fsdp2Policy) -> Sharding:
    """Return the groups and types of *policy*."""
    size, replicate = policy.shard_size(job.mesh.ranks), None
    if policy.replicate is not None:
        replicate = _dimension(job, "replicate", policy.replicate, size)
    shard = _dimension(job, "shard", size, 1)
    param_dtype = policy.param_dtype or job.dtype
    return Sharding(
        shard=shard,
        reduce=replace(shard, name="reduce-scatter") if policy.separate_reduce_scatter_group else shard,
        replicate=replicate,
        original_dtype=policy.original_dtype(job.dtype),
        param_dtype=param_dtype,
        reduce_dtype=policy.reduce_dtype or param_dtype,
        offloads=policy.cpu_offload,
        pinned=policy.pin_memory,
    )


def _dimension(job: Job, name: str, size: int, stride: int) -> Group:
    """One dimension of the mesh; one that spans all ranks uses the default group (``_init_one_process_group``)."""
    return job.world if size == job.world.size else job.mesh.group(name, size, stride)


def padded(tensor: Tensor, ranks: int) -> int:
    """Elements of *tensor* with its rows filled up to a multiple of *ranks* (``_get_dim0_padded_size``).

    >>> padded(Tensor("weight", (150, 20)), 4)
    3040
    """
    rows = -(-tensor.shape[0] // ranks) * ranks
    return rows * prod(tensor.shape[1:])


def gather(unit: Unit, over: Sharding, role: str, group: Group) -> Gather:
    """Return how *group* gathers the weights of *unit*: the shards, or what stayed of them after forward."""
    elements = sum(padded(tensor, over.ranks) for tensor in unit.tensors)
    original, param = DTYPE_BYTES[over.original_dtype], DTYPE_BYTES[over.param_dtype]
    part = elements / group.size
    # what stayed after forward has the type of the parameters already; a cast writes a copy of its own
    casts = group == over.shard and over.original_dtype != over.param_dtype
    cast = part * (original + param) if casts else 0
    kept = group == over.shard
    copy = Transfer(route="to_device", amount=part * original, role="parameters_to_device", pinned=over.pinned)
    return Gather(
        group=group,
        copy_in=_copy("copy in", cast + 2 * param * part, role),
        # shards are copied into their place in the output first, the copy above
        all_gather=replace(collective("all_gather", elements, over.param_dtype, group, role), in_place=True),
        copy_out=_copy("copy out", 2 * param * elements, role),
        parameters=float(param * elements),
        part=param * part,
        from_host=copy if over.offloads and kept else None,
    )


def reshard(unit: Unit, over: Sharding, kept_by: int) -> Kernel:
    """Return the copy of what a rank keeps of the weights of *unit* after forward, of *kept_by* equal parts."""
    elements = sum(padded(tensor, over.ranks) for tensor in unit.tensors)
    return _copy("reshard", 2 * DTYPE_BYTES[over.param_dtype] * elements / kept_by, "backward_all_gather")


def reduction(unit: Unit, over: Sharding) -> Reduction:
    """Return how the gradients of *unit* are reduced."""
    elements = sum(tensor.elements for tensor in unit.trainable)
    sent = sum(padded(tensor, over.ranks) for tensor in unit.trainable)
    part = sent // over.ranks
    param, reduce = DTYPE_BYTES[over.param_dtype], DTYPE_BYTES[over.reduce_dtype]
    divides_before, _ = _divisors(over)
    all_reduce = None
    held = float(part * DTYPE_BYTES[over.original_dtype])
    copy = Transfer(route="to_host", amount=held, role="gradients_to_host", pinned=over.pinned)
    if over.replicate is not None:
        all_reduce = collective("all_reduce", part, over.reduce_dtype, over.replicate, "all_reduce")
    return Reduction(
        copy_in=(
            _copy("reduce copy in", param * elements + reduce * sent, "reduce_scatter"),
            _copy("reduce copy in", reduce * elements + reduce * sent, "reduce_scatter"),
        ),
        divide=_copy("divide", 2 * reduce * sent, "reduce_scatter") if divides_before else None,
        reduce_scatter=collective("reduce_scatter", sent, over.reduce_dtype, over.reduce, "reduce_scatter"),
        local=_copy("reduce locally", 2 * reduce * sent, "reduce_scatter"),
        all_reduce=all_reduce,
        to_host=copy if over.offloads else None,
        host_add=3 * held,
        view_out=(_view_out(over, part, adds=False), _view_out(over, part, adds=not over.offloads)),
        accumulate=(
            _copy("accumulate", (param + reduce) * elements, "reduce_scatter") if reduce != param else None,
            _copy("accumulate", (param + 2 * reduce) * elements, "reduce_scatter"),
        ),
        add_partial=_copy("accumulate", 3 * reduce * part, "all_reduce"),
        gradients=float(param * elements),
        accumulated=float(reduce * elements),
        input=float(reduce * sent),
        output=float(reduce * part),
        kept=float(DTYPE_BYTES[over.original_dtype] * part),
        casts=over.reduce_dtype != over.original_dtype,
    )


def _view_out(over: Sharding, part: int, *, adds: bool) -> Kernel | None:
    """Divide, cast and add what was reduced; nothing to do if it can be the gradient as it is."""
    original, reduce = DTYPE_BYTES[over.original_dtype], DTYPE_BYTES[over.reduce_dtype]
    divide = 2 * reduce if _divisors(over)[1] else 0
    cast = reduce + original if over.reduce_dtype != over.original_dtype else 0
    traffic = part * (divide + cast + (3 * original if adds else 0))
    return _copy("view out", traffic, "all_reduce" if over.replicate else "reduce_scatter") if traffic else None


def _divisors(over: Sharding) -> tuple[bool, bool]:
    """Whether kernels divide before and after the reduction: fp16 might overflow, NCCL averages the other types.

    About the square root of the number of ranks before, the rest after (``_get_gradient_divide_factors``).
    """
    ranks = over.ranks * (over.replicate.size if over.replicate else 1)
    if over.reduce_dtype != "fp16":
        return False, False
    before = 1
    while ranks % before == 0 and ranks / before > before:
        before *= 2
    return before > 1, ranks != before


def _copy(kind: str, traffic: float, serves: str) -> Kernel:
    return Kernel(kind=kind, works=(Work("memory", constant_traffic=float(traffic)),), is_copy=True, serves=serves)
