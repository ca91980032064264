"""PyTorch's ``DistributedDataParallel``: whole weights, gradients all-reduced in buckets during backward.

What decides how much of the communication backward hides:

* In the first iteration all gradients share one bucket, which is complete at the very end.  The next forward rebuilds
  the buckets in the order in which gradients were ready; a static graph needs one iteration more, and a search for
  unused parameters keeps the first assignment forever (D-3).
* A bucket is sent when its last gradient is there, but buckets are sent in order: one that is complete early waits for
  those before it (D-5).
* Nothing bounds the buckets on their way; compute waits for them only at the end of backward (D-6).
* Each gradient is divided while it is copied into its bucket, and copied back at the end, all on the compute stream
  (D-7).

Source: torch 2.13, ``nn/parallel/distributed.py`` and ``csrc/distributed/c10d/reducer.cpp``; functions have the names
they have there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from simulator.errors import InputError
from simulator.laws.kernels import Kernel
from simulator.schedules.ddp.reducer import Reducer, bucket_label, compute_bucket_assignment_by_size
from simulator.schedules.job import DTYPE_BYTES, Job
from simulator.schedules.program import Event, Program
from simulator.schedules.rank import Rank
from simulator.schedules.tape import COMPUTE
from simulator.world.model.execution import with_kernels
from simulator.world.policy.ddp import DdpPolicy

__all__ = ["ddp"]

BROADCAST_BUCKET_BYTES: Final = 250 * 2**20  # source: distributed.py, broadcast_bucket_size
BROADCASTS_IN_FLIGHT: Final = 2  # source: csrc/distributed/c10d/comm.cpp, broadcast_coalesced
BUFFER_DTYPE: Final = "fp32"
"""Of module buffers: implementations keep rotary frequencies and running statistics in fp32 beside bf16 weights."""

END = Kernel(kind="end", time=0.0)
"""Closes the step, when everything else in it has ended."""


def ddp(job: Job, policy: DdpPolicy) -> Iterator[Program]:
    """Record one rank's optimizer steps, the first of training first.

    Raises
    ------
    InputError
        PyTorch refuses this model with these options, at the latest in the second iteration.
    """
    _check(job, policy)
    model = _DistributedDataParallel(job, policy)
    while True:
        yield model.train_step()


class _DistributedDataParallel:
    """The wrapper around the module, and the training loop around the wrapper."""

    def __init__(self, job: Job, policy: DdpPolicy) -> None:
        self._job, self._policy = job, policy
        self._rank = Rank(job)
        self._reducer = Reducer(self._rank, policy)
        self._buffers = {module.name: module.buffers for module in job.root.walk() if module.buffers}
        self._require_backward_grad_sync = self._require_forward_param_sync = True

    def train_step(self) -> Program:
        """All micro-batches and the update."""
        tape = self._rank.tape = self._job.tape()
        held = self._reducer.held
        tape.take(held)
        for micro_batch in range(self._job.micro_batches):
            tape.micro_batch = micro_batch
            last = micro_batch == self._job.micro_batches - 1
            self._require_backward_grad_sync = last or not self._policy.no_sync  # D-8
            self._forward("forward")
            self._backward()
        tape.phase = "step"
        self._job.update(tape, self._reducer.freed())
        if self._policy.evaluates:
            self._forward("eval")
        tape.launch(END, COMPUTE, label="end of step", gives=held)  # backward has waited for all other streams
        return tape.program()

    def _forward(self, phase: Literal["forward", "eval"]) -> None:
        self._rank.tape.phase = phase
        is_grad_enabled = phase == "forward"
        self._pre_forward(is_grad_enabled=is_grad_enabled)
        for mark in self._job.execution.forward:
            if mark.kind == "enter":
                self._job.run(self._rank.tape, mark.name, "forward")
        self._post_forward(is_grad_enabled=is_grad_enabled)

    def _pre_forward(self, *, is_grad_enabled: bool) -> None:
        self._rank.hook()
        if is_grad_enabled and self._require_backward_grad_sync:
            self._reducer.prepare_for_forward()
        if is_grad_enabled:
            self._reducer.rebuild_buckets()
        if self._require_forward_param_sync and self._policy.syncs_buffers:
            self._broadcast_coalesced()

    def _post_forward(self, *, is_grad_enabled: bool) -> None:
        self._rank.hook()
        # so a forward sends buffers only if the forward before it had a gradient and was not in no_sync()
        self._require_forward_param_sync = is_grad_enabled and self._require_backward_grad_sync
        if self._require_forward_param_sync:
            self._reducer.prepare_for_backward()

    def _backward(self) -> None:
        tape = self._rank.tape
        for mark, computes in with_kernels(self._job.execution.backward):
            tape.phase = "recompute" if mark.recompute else "backward"
            if mark.kind == "enter":
                self._job.run(tape, mark.name, "recompute")
            elif mark.kind == "gradient":
                self._reducer.autograd_hook(mark.name)
            if computes is not None:
                tape.phase = "backward"
                if (computes, "backward") in self._job.kernels:
                    tape.take(self._reducer.born(self._job.gradients.get(computes, ())))
                self._job.run(tape, computes, "backward")
        tape.phase = "backward"
        self._reducer.end_of_backward()

    def _broadcast_coalesced(self) -> None:
        """Rank 0 sends its buffers, some of them flattened into one at a time."""
        sizes = {name: float(elements * DTYPE_BYTES[BUFFER_DTYPE]) for name, elements in self._buffers.items()}
        in_flight: deque[tuple[list[str], Event]] = deque()
        for bucket in compute_bucket_assignment_by_size(sizes, [BROADCAST_BUCKET_BYTES]):
            if len(in_flight) == BROADCASTS_IN_FLIGHT:
                self._finish_broadcast(*in_flight.popleft())
            if len(bucket) > 1:
                self._rank.move("flatten", 2 * sum(sizes[name] for name in bucket), "broadcast", bucket_label(bucket))
            elements = sum(self._buffers[name] for name in bucket)
            work = self._rank.issue("broadcast", elements, BUFFER_DTYPE, "broadcast", bucket_label(bucket))
            in_flight.append((bucket, work))
        for bucket, work in in_flight:
            self._finish_broadcast(bucket, work)

    def _finish_broadcast(self, bucket: Sequence[str], work: Event) -> None:
        self._rank.tape.wait(COMPUTE, work)
        if len(bucket) > 1:  # a single buffer was sent in place
            for name in bucket:
                traffic = 2.0 * self._buffers[name] * DTYPE_BYTES[BUFFER_DTYPE]
                self._rank.move("copy out", traffic, "broadcast", name)


def _check(job: Job, policy: DdpPolicy) -> None:
    """Refuse what PyTorch refuses."""
    hooks = Counter(mark.name for mark in job.execution.backward if mark.kind == "gradient")
    unused = [name for name in job.trainable if name not in hooks]
    twice = [name for name, times in hooks.items() if times > 1]
    if not job.trainable:
        raise InputError("DistributedDataParallel needs a parameter that has a gradient", remedy="train some of them")
    if policy.no_sync and policy.static_graph and job.micro_batches > 1:
        remedy = "drop one of the two"
        raise InputError("fails in PyTorch under no_sync() in the first step", key="static_graph", remedy=remedy)
    if unused and not policy.find_unused_parameters and not policy.static_graph:
        remedy = "set find_unused_parameters: true or static_graph: true"
        raise InputError("the parameter gets no gradient, so its bucket is never sent", value=unused[0], remedy=remedy)
    if twice and not policy.static_graph:
        raise InputError("the gradient comes twice in a backward", value=twice[0], remedy="set static_graph: true")
