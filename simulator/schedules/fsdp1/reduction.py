"""What happens to a flat parameter's gradient after backward (``_reduce_grad``, ``_reduce_grad_no_shard``).

Autograd puts the gradients of the parameters one behind the other (the backward of ``torch.split`` is ``torch.cat``,
in the compute stream); FSDP itself copies nothing more unless types differ or shards must be padded (F1-1).
"""

from __future__ import annotations

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.schedules.fsdp1.flat_param import FlatParamHandle
from simulator.schedules.gradients import GRADIENTS
from simulator.schedules.job import DTYPE_BYTES, Job, collective
from simulator.schedules.program import Memory
from simulator.schedules.tape import COMPUTE, Tape
from simulator.world.mesh import Group
from simulator.world.model.layer import Work
from simulator.world.policy.fsdp1 import HYBRID, ShardingStrategy

__all__ = ["ALL_REDUCE", "POST_BACKWARD", "Reduction", "elementwise"]

POST_BACKWARD = "post_backward"
ALL_REDUCE = "all_reduce"

REDUCED = "reduced gradients"
"""Item of memory: what a reduce-scatter returns, until it is cast or added to what is kept."""


def elementwise(kind: str, traffic: float, role: str) -> Kernel:
    """Return the kernel that prepares or completes a collective by moving *traffic* bytes."""
    return Kernel(kind=kind, works=(Work("memory", constant_traffic=traffic),), is_copy=True, serves=role)


class Reduction:
    """Reduces gradients as one strategy does."""

    def __init__(self, job: Job, process_group: Group, strategy: ShardingStrategy, *, offloads: bool) -> None:
        self._process_group, self._offloads = process_group, offloads
        self._strategy = strategy
        ranks = job.mesh.ranks if strategy in HYBRID else process_group.size
        self._inter_node_group = job.mesh.group("replicate", ranks // process_group.size, stride=process_group.size)
        self._predivide_factor = gradient_predivide_factor(ranks)
        self._postdivide_factor = ranks / self._predivide_factor
        self._kept = 0.0
        """Bytes of gradients that stay until the update."""

    def gather_parts(self, tape: Tape, handle: FlatParamHandle) -> int:
        """Put the gradients of the parameters together and add them to an earlier micro-batch's; return launches."""
        role, size = self._role, handle.elements * DTYPE_BYTES[handle.unsharded_dtype]
        parts: Memory = (("gradients in flight", handle.gradient_parts),) if handle.gradient_parts else ()
        handle.gradient_parts = 0.0
        takes = handle.whole_gradient if handle.shards or handle.has_whole_gradient else self._keep(handle)
        tape.launch(elementwise("flatten", 2 * size, role), COMPUTE, label=handle.label, takes=takes, gives=parts)
        if not handle.has_whole_gradient:
            return 1
        add = elementwise("accumulate", 3 * size, role)
        tape.launch(add, COMPUTE, label=handle.label, gives=handle.whole_gradient)
        return 2

    def reduce(self, tape: Tape, handle: FlatParamHandle) -> None:
        """Cast, pad, divide, reduce, divide, cast back, add to what earlier micro-batches left (F1-10, F1-11).

        ``_offload_grad`` then copies the sum to the host.
        """
        whole, dtype = handle.padded, handle.reduce_dtype
        size = DTYPE_BYTES[dtype]
        buffers = self._prepare(tape, handle)
        gives = (*buffers, *handle.whole_gradient)
        self._divide(tape, handle, self._predivide_factor, whole * size, POST_BACKWARD)
        stream = POST_BACKWARD
        kind: CollectiveKind = "reduce_scatter" if handle.shards else "all_reduce"
        left = whole // handle.ranks
        casts, first = dtype != handle.original_dtype, not handle.has_sharded_gradient
        reduced: Memory = ((REDUCED, float(left * size)),) if handle.shards and (casts or not first) else ()
        takes = reduced or (self._keep(handle) if handle.shards else ())
        operation = collective(kind, whole, dtype, self._process_group, kind)
        tape.launch(operation, stream, label=handle.label, takes=takes, gives=gives)
        if self._strategy in HYBRID:
            stream = ALL_REDUCE
            tape.wait(stream, tape.record(POST_BACKWARD))
            tape.launch(
                collective("all_reduce", left, dtype, self._inter_node_group, "all_reduce"), stream, label=handle.label
            )
        self._divide(tape, handle, self._postdivide_factor, left * size, stream)
        if casts:
            moved = left * (size + DTYPE_BYTES[handle.original_dtype])
            takes = self._keep(handle) if handle.shards and first else ()
            cast = ((REDUCED, float(left * DTYPE_BYTES[handle.original_dtype])),) if handle.shards and not first else ()
            kernel = elementwise("cast", moved, self._role)
            tape.launch(kernel, stream, label=handle.label, takes=takes + cast, gives=reduced)
            reduced = cast
        if handle.has_sharded_gradient and handle.shards:
            moved = 3 * left * DTYPE_BYTES[handle.original_dtype]
            tape.launch(elementwise("accumulate", moved, self._role), stream, label=handle.label, gives=reduced)
        if self._offloads:
            amount = float(left * DTYPE_BYTES[handle.original_dtype])
            tape.launch(Transfer(route="to_host", amount=amount, role="gradients_to_host"), stream, label=handle.label)
        handle.has_sharded_gradient, handle.has_whole_gradient = True, not handle.shards

    def freed(self) -> Memory:
        """Memory of the gradients that the optimizer has used, to give it back."""
        size, self._kept = self._kept, 0.0
        return ((GRADIENTS, size),) if size else ()

    def _keep(self, handle: FlatParamHandle) -> Memory:
        """Memory of the gradient that stays until the update."""
        self._kept += handle.kept_gradient[0][1]
        return handle.kept_gradient

    @property
    def _role(self) -> str:
        return "all_reduce" if self._strategy == "NO_SHARD" else "reduce_scatter"

    def _prepare(self, tape: Tape, handle: FlatParamHandle) -> Memory:
        """Bring the gradient to the type and length of the reduction; return what that allocates."""
        size, buffers = DTYPE_BYTES[handle.reduce_dtype], []
        if handle.unsharded_dtype != handle.reduce_dtype:
            buffers.append(("reduce buckets", float(handle.elements * size)))
            moved = handle.elements * (DTYPE_BYTES[handle.unsharded_dtype] + size)
            tape.launch(elementwise("cast", moved, self._role), POST_BACKWARD, label=handle.label, takes=(buffers[-1],))
        if handle.padded != handle.elements:
            buffers.append(("reduce buckets", float(handle.padded * size)))
            moved = (handle.elements + handle.padded) * size
            tape.launch(elementwise("pad", moved, self._role), POST_BACKWARD, label=handle.label, takes=(buffers[-1],))
        return tuple(buffers)

    def _divide(self, tape: Tape, handle: FlatParamHandle, factor: float, size: float, stream: str) -> None:
        if factor > 1:
            tape.launch(elementwise("divide", 2 * size, self._role), stream, label=handle.label)


def gradient_predivide_factor(ranks: int) -> float:
    """Return what gradients are divided by before the sum: about the root, so that neither end over- nor underflows.

    >>> [gradient_predivide_factor(ranks) for ranks in (1, 2, 3, 8, 64)]
    [1.0, 2.0, 2.0, 4.0, 8.0]
    """
    factor = 1
    while ranks % factor == 0 and ranks / factor > factor:
        factor *= 2
    return float(factor)
