"""Step after step of FSDP2: forward, backward and optimizer, with the hooks where PyTorch has them.

Weights (F2-4 to F2-7): a unit's gather is issued when the unit runs, yet it overlaps with earlier units, because the
host runs ahead; what holds it back is that gathers wait for the copy out of the unit before the last one.  In
backward the next unit is gathered once this one's weights are there.  Gradients (F2-8): reduced when the unit's
backward is done, at most ``reduce_scatter_max_input_buffers`` at a time.  Gathers and reductions share a communicator
(F2-3, F2-9) and so do not overlap with each other, unless they are told to have one each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from simulator.laws.kernels import Kernel
from simulator.schedules.fsdp2.param_group import ParamGroup
from simulator.schedules.fsdp2.state import State, StateContext, states
from simulator.schedules.job import DTYPE_BYTES, Job
from simulator.schedules.program import Program
from simulator.schedules.tape import COMPUTE, Tape
from simulator.world.model.execution import Mark, with_kernels
from simulator.world.policy.fsdp2 import Fsdp2Policy

__all__ = ["fsdp2"]

KEPT = Kernel(kind="kept", time=0.0)
"""Holds the memory of weights that are still there from the step before."""

END = Kernel(kind="end", time=0.0)
"""Waits for everything, so that what is still under way at the end of a step is seen as a wait."""


def fsdp2(job: Job, policy: Fsdp2Policy) -> Iterator[Program]:
    """Record steps of one rank, the first one first; they are alike."""
    schedule = _Schedule(job, policy)
    while True:
        yield schedule.step()


class _Schedule:
    """Walks through the marks of micro-batches and calls the hooks."""

    def __init__(self, job: Job, policy: Fsdp2Policy) -> None:
        self._job, self._policy = job, policy
        self._context: StateContext = states(job, policy)
        all_states = self._context.all_states
        self._wrapped: Mapping[str, State] = {name: state for state in all_states for name in state.unit.modules}
        self._owner: Mapping[str, State] = {name: state for state in all_states for name in state.unit.covers}
        self._uses: Counter[str] = Counter()
        """How often each module ran in this micro-batch and has not run backward."""
        self._bytes = DTYPE_BYTES[policy.param_dtype or job.dtype]

    def step(self) -> Program:
        """Record one step."""
        job, policy, comm = self._job, self._policy, self._context.comm
        tape = comm.tape = job.tape()
        groups = [state.group for state in self._context.all_states if state.group is not None]
        for group in groups:
            group.begin_step()
        _keep(tape, groups, takes=True)
        for micro_batch in range(job.micro_batches):
            tape.micro_batch = micro_batch
            last = micro_batch == job.micro_batches - 1
            comm.reduce_grads = last or policy.requires_gradient_sync
            comm.all_reduce_grads = last or policy.requires_all_reduce
            comm.reshard_after_backward = last or policy.reshard_after_backward
            self._uses.clear()
            self._forward("forward")
            self._backward()
            self._context.root_post_backward_final_callback()
        tape.phase = "step"
        if policy.cpu_offload:
            tape.work(job.cpu_update(fused=policy.fused_optimizer))
        else:
            job.update(tape, tuple(item for group in groups for item in group.gradients.freed()))
        if policy.evaluates:
            self._forward("eval")
        for stream in self._context.streams:
            tape.wait(COMPUTE, tape.record(stream))
        tape.launch(END, COMPUTE, label="end of step")
        _keep(tape, groups, takes=False)
        return tape.program()

    def _forward(self, phase: str) -> None:
        self._context.comm.tape.phase = phase
        for mark in self._job.execution.forward:
            self._forward_mark(mark)

    def _backward(self) -> None:
        tape = self._context.comm.tape
        for mark, computes in with_kernels(self._job.execution.backward):
            tape.phase = "recompute" if mark.recompute else "backward"
            if mark.recompute:
                self._forward_mark(mark)
            elif mark.kind == "backward":
                for state in self._context.pre_backward_hooks.get(mark.name, ()):
                    state.pre_backward()
            elif mark.kind == "end_backward":
                self._end_backward(mark.name)
            if computes is not None:
                tape.phase = "backward"
                self._run_backward(computes)
        tape.phase = "backward"

    def _forward_mark(self, mark: Mark) -> None:
        if mark.kind == "enter":
            self._enter(mark)
        elif mark.kind == "leave" and mark.name in self._wrapped:
            self._wrapped[mark.name].post_forward(mark.name)

    def _enter(self, mark: Mark) -> None:
        if mark.name in self._wrapped:
            self._wrapped[mark.name].pre_forward(mark.name)
        if not mark.recompute:
            self._uses[mark.name] += 1
        self._job.run(self._context.comm.tape, mark.name, "recompute" if mark.recompute else "forward")

    def _run_backward(self, module: str) -> None:
        group = self._owner[module].group
        self._uses[module] -= 1
        # autograd adds up all uses of a parameter before it is a gradient
        if group is not None and group.unit.trainable and not self._uses[module]:
            tensors = self._job.modules[module].parameters
            group.gradients.compute(float(self._bytes * sum(item.elements for item in tensors if item.trainable)))
        self._job.run(self._context.comm.tape, module, "backward")

    def _end_backward(self, module: str) -> None:
        group = self._context.post_backward_hooks.get(module)
        if group is not None:
            self._context.comm.hook()
            group.post_backward()


def _keep(tape: Tape, groups: Iterable[ParamGroup], *, takes: bool) -> None:
    """Carry weights that an evaluation left whole over to the next step: what a step takes, it gives back."""
    held = tuple(item for group in groups for item in group.held)
    if held and takes:
        tape.launch(KEPT, COMPUTE, label="evaluation", takes=held)
    elif held:
        tape.give(COMPUTE, held)
