"""InternEvo's ``HybridZeroOptimizer``: ZeRO-1 by whole tensors, with broadcasts in place of a gather.

What decides how much of the communication is exposed:

* A parameter belongs to one rank of the ZERO1 group, whole: the largest first, each to the rank that has least
  (``_partition_param_list``).  From as many ranks on as there are tensors, the others own nothing.
* Gradients are *all-reduced* in the DATA group, whatever the ZERO1 group: hooks pass no ``reduce_rank``, so that
  ``reduce_tensor`` never takes its branch of ``dist.reduce``.  Only the last micro-batch reduces
  (``skip_grad_reduce``); a bucket goes when the next gradient would not fit, and compute then waits for the bucket
  before it, to copy that one's gradients back (``_reduce_grads_by_rank``).
* After the update there is one broadcast per rank that owns something, one behind the other on the communicator of the
  ZERO1 group (``broadcast_params``).  The step waits for all of them; with ``overlap_sync_param`` the next forward
  waits, block by block, and parameters belong to ranks in order of blocks (``ParamAsyncBcastHandler``).

The program is that of the rank that owns most, for which the others wait in the first broadcast at the latest.

Source: InternEvo 0.5.2, ``solver/optimizer/hybrid_zero_optim.py``, ``core/scheduler/no_pipeline_scheduler.py``;
functions have the names they have there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapreplace
from typing import Final

from simulator.errors import InputError
from simulator.laws.kernels import Kernel
from simulator.schedules.ddp.reducer import bucket_label
from simulator.schedules.gradients import FreshGradients
from simulator.schedules.job import DTYPE_BYTES, Job
from simulator.schedules.program import Event, Program
from simulator.schedules.rank import Rank
from simulator.schedules.tape import COMPUTE
from simulator.world.model.execution import with_kernels
from simulator.world.model.layer import Tensor, Work
from simulator.world.model.module import Module
from simulator.world.policy.internevo import InternEvoPolicy

__all__ = ["internevo", "params_by_block", "partition_param_list", "shares"]

FP32: Final = DTYPE_BYTES["fp32"]

UNFUSED: Final = 15 * FP32
"""Traffic of AdamW with one kernel per operation beyond that of the fused one, per element [B].

torch 1.13, ``optim/adamw.py``, ``_single_tensor_adamw``: nine kernels read 13 arrays and write 9, the fused one reads 4
and writes 3.
"""

END = Kernel(kind="end", time=0.0)
"""Closes the step, when everything else in it has ended."""


def internevo(job: Job, policy: InternEvoPolicy) -> Iterator[Program]:
    """Record one rank's optimizer steps, the first of training first.

    Raises
    ------
    InputError
        InternEvo fails with this model: a parameter that is to be updated gets no gradient.
    """
    reached = {mark.name for mark in job.execution.backward if mark.kind == "gradient"}
    unused = [name for name in job.trainable if name not in reached]
    if unused or not job.trainable:
        problem = "a parameter gets no gradient, so its flat gradient has another shape than its weights"
        raise InputError(problem, value=unused[0] if unused else None, remedy="freeze it or use it")
    optimizer = _HybridZeroOptimizer(job, policy)
    while True:
        yield optimizer.train_step()


def shares(policy: InternEvoPolicy, root: Module, ranks: int) -> list[int]:
    """Elements that each rank of a ZERO1 group updates, in the order of ranks; those behind the last own nothing."""
    elements = {tensor.name: tensor.elements for tensor in root.tensors() if tensor.trainable}
    size = policy.zero1_size(ranks)
    if not policy.overlap_sync_param:
        return [sum(elements[name] for name in names) for names in partition_param_list(elements, size)]
    owned: dict[int, int] = defaultdict(int)
    by_param, _ = params_by_block(root, size)
    for name, rank in by_param.items():
        owned[rank] += elements.get(name, 0)
    return [owned[rank] for rank in range(max(owned) + 1)]


def partition_param_list(elements: Mapping[str, int], ranks: int) -> list[list[str]]:
    """Divide parameters among *ranks*, the largest first, each to the rank that has least.

    >>> partition_param_list({"a": 2, "b": 5, "c": 1, "d": 2}, 2)
    [['b'], ['a', 'd', 'c']]
    """
    least = [(0, rank) for rank in range(min(ranks, len(elements)))]
    owned: list[list[str]] = [[] for _ in least]
    for name in sorted(elements, key=elements.__getitem__, reverse=True):
        numel, rank = least[0]
        owned[rank].append(name)
        heapreplace(least, (numel + elements[name], rank))
    return owned


def params_by_block(root: Module, ranks: int) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Rank of each parameter and ranks of each block, in the order of blocks (``ParamAsyncBcastHandler``).

    The parameter that goes to the next rank because it would be too much is not counted there.
    """
    average = sum(tensor.elements for tensor in root.tensors()) // ranks
    by_param: dict[str, int] = {}
    by_block: dict[str, list[int]] = {}
    allocated = rank = 0
    for block in _blocks(root):
        by_block[block.name] = [rank]
        for tensor in block.tensors():
            allocated += tensor.elements
            if allocated > 1.01 * average and rank < ranks - 1:
                rank, allocated = rank + 1, 0
                by_block[block.name].append(rank)
            by_param[tensor.name] = rank
    return by_param, by_block


def _blocks(root: Module) -> Iterator[Module]:
    """Children of the model, those of a list one by one."""
    for child in root.children:
        yield from child.children if child.kind == "ModuleList" else (child,)


class _HybridZeroOptimizer:
    """The optimizer, and the scheduler that runs micro-batches around it."""

    def __init__(self, job: Job, policy: InternEvoPolicy) -> None:
        self._job, self._policy, self._rank = job, policy, Rank(job)
        self._data = replace(job.world, name="data")
        ranks = job.mesh.ranks
        self._zero1 = job.mesh.group("zero1", policy.zero1_size(ranks))
        self._shares = shares(policy, job.root, ranks)
        self._by_block = params_by_block(job.root, self._zero1.size)[1] if policy.overlap_sync_param else {}
        self._width = DTYPE_BYTES[job.dtype]
        elements = {name: tensor.elements for name, tensor in job.trainable.items()}
        self._gradients = FreshGradients(elements, self._width)
        self._kernels = {name: _kernel(name, traffic, max(self._shares)) for name, traffic in self._passes().items()}
        self._skip_grad_reduce = False
        self._bucket: list[Tensor] = []
        self._in_progress: tuple[Sequence[Tensor], Event] | None = None
        self._to_broadcast = False
        self._handles: dict[int, Event] = {}

    def train_step(self) -> Program:
        """All micro-batches and the update (``forward_backward_step``, ``step``)."""
        tape = self._rank.tape = self._job.tape()
        if self._to_broadcast:  # the step before has launched them last
            self._handles = self._broadcast_params()
        for micro_batch in range(self._job.micro_batches):
            tape.micro_batch = micro_batch
            self._skip_grad_reduce = micro_batch < self._job.micro_batches - 1
            self._forward()
            self._backward()
        self._step()
        for stream in (self._data, self._zero1):
            tape.wait(COMPUTE, tape.record(f"nccl {stream.name}"))
        tape.launch(END, COMPUTE, label="end of step")
        return tape.program()

    def _forward(self) -> None:
        self._rank.tape.phase = "forward"
        for mark in self._job.execution.forward:
            if mark.kind == "enter":
                self._pre_forward_hook(mark.name)
                self._job.run(self._rank.tape, mark.name, "forward")

    def _pre_forward_hook(self, module: str) -> None:
        """Wait for the broadcasts that bring parameters of a block."""
        for owner in self._by_block.get(module, ()):
            if owner in self._handles:
                self._rank.tape.wait(COMPUTE, self._handles.pop(owner))

    def _backward(self) -> None:
        tape = self._rank.tape
        for mark, computes in with_kernels(self._job.execution.backward):
            tape.phase = "recompute" if mark.recompute else "backward"
            if mark.kind == "enter":
                self._job.run(tape, mark.name, "recompute")
            elif mark.kind == "gradient" and self._policy.overlap_sync_grad:
                self._reduce_grad_hook(mark.name)
            if computes is not None:
                tape.phase = "backward"
                if (computes, "backward") in self._job.kernels:
                    tape.take(self._gradients.born(self._job.gradients.get(computes, ())))
                self._job.run(tape, computes, "backward")

    def _reduce_grad_hook(self, name: str) -> None:
        self._rank.hook()
        if not self._skip_grad_reduce:
            self._store_and_try_reduce_grads_by_bucket(self._job.trainable[name])

    def _store_and_try_reduce_grads_by_bucket(self, param: Tensor) -> None:
        if sum(tensor.elements for tensor in self._bucket) + param.elements > self._policy.reduce_bucket_size:
            self._reduce_grads_stored_in_bucket()
        self._bucket.append(param)

    def _reduce_grads_stored_in_bucket(self) -> None:
        """Send the bucket, then wait for the one before it."""
        bucket, self._bucket = self._bucket, []
        following = (bucket, self._reduce_and_copy(bucket)) if bucket else None
        self._unflatten_and_copy()
        self._in_progress = following

    def _reduce_and_copy(self, bucket: Sequence[Tensor]) -> Event:
        """Flatten the gradients, which a single one is already, and all-reduce them."""
        label, elements = bucket_label([tensor.name for tensor in bucket]), sum(tensor.elements for tensor in bucket)
        if len(bucket) > 1:
            self._rank.tape.take((("reduce buckets", float(elements * self._width)),))
            self._rank.move("flatten", 2.0 * elements * self._width, "all_reduce", label)
        return self._rank.issue("all_reduce", elements, self._job.dtype, "all_reduce", label, self._data)

    def _unflatten_and_copy(self) -> None:
        """Let compute wait for the bucket that is on its way, and copy its gradients back."""
        if self._in_progress is None:
            return
        bucket, handle = self._in_progress
        tape, size = self._rank.tape, float(sum(tensor.elements for tensor in bucket) * self._width)
        tape.wait(COMPUTE, handle)
        self._rank.move("copy out", 2 * size, "all_reduce", bucket_label([tensor.name for tensor in bucket]))
        if len(bucket) > 1:
            tape.give(COMPUTE, (("reduce buckets", size),))
        self._in_progress = None

    def _step(self) -> None:
        tape = self._rank.tape
        tape.phase = "step"
        if not self._policy.overlap_sync_grad:
            for param in self._job.trainable.values():
                self._store_and_try_reduce_grads_by_bucket(param)
        self._reduce_grads_stored_in_bucket()
        self._unflatten_and_copy()
        if self._policy.clip_grad_norm > 0:
            self._compute_norm()
        self._update()
        self._to_broadcast = self._policy.overlap_sync_param
        if not self._to_broadcast:
            for handle in self._broadcast_params().values():
                tape.wait(COMPUTE, handle)
            tape.synchronize(tape.record(COMPUTE), "host")  # timer("step").stop()

    def _compute_norm(self) -> None:
        self._launch("norm")
        work = self._rank.issue("all_reduce", 1, "fp32", "norm", "gradient norm", self._zero1)
        self._rank.tape.wait(COMPUTE, work)
        self._rank.read()  # total_norm.item()

    def _update(self) -> None:
        """Update the own parameters in fp32 and copy them back (``_step``)."""
        tape, own = self._rank.tape, (("optimizer temporaries", float(FP32 * max(self._shares))),)
        tape.take(own)
        self._launch("flat gradients")
        tape.synchronize(tape.record(COMPUTE), "host")  # timer("step").start()
        if not self._policy.fused:
            self._launch("unfused")
        self._job.update(tape, own + self._gradients.freed())
        self._launch("weights")
        for stream in (COMPUTE, f"nccl {self._data.name}"):
            tape.synchronize(tape.record(stream), "host")  # internlm_accelerator.synchronize()

    def _broadcast_params(self) -> dict[int, Event]:
        """One broadcast per rank that owns something; return the events by rank."""
        self._rank.tape.phase = "step"
        role, dtype = "parameter_broadcast", self._job.dtype
        return {
            owner: self._rank.issue("broadcast", elements, dtype, role, f"weights of rank {owner}", self._zero1)
            for owner, elements in enumerate(self._shares)
            if elements
        }

    def _launch(self, kernel: str) -> None:
        self._rank.tape.launch(self._kernels[kernel], COMPUTE, label=kernel)

    def _passes(self) -> dict[str, int]:
        """What the step reads and writes beside the update, per element of the own parameters [B]."""
        width = self._width
        cast = width + FP32 if width < FP32 else 0
        unscale = 2 * FP32 if width < FP32 and self._policy.clip_grad_norm > 0 else 0
        return {
            "norm": cast + FP32,
            "flat gradients": 2 * width + cast + unscale,
            "unfused": UNFUSED,
            "weights": FP32 + width,
        }


def _kernel(kind: str, traffic: int, elements: int) -> Kernel:
    return Kernel(kind=kind, works=(Work("memory", constant_traffic=float(traffic * elements)),))
