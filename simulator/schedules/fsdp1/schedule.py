"""One optimizer step after another: forwards and backwards that run FSDP1's hooks, the optimizer, perhaps an eval."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.laws.kernels import Kernel
from simulator.schedules.fsdp1.reduction import ALL_REDUCE, POST_BACKWARD
from simulator.schedules.fsdp1.runtime import PRE_UNSHARD, UNSHARD, Fsdp1
from simulator.schedules.job import Job
from simulator.schedules.program import Program
from simulator.schedules.tape import COMPUTE
from simulator.world.model.execution import Mark, with_kernels
from simulator.world.policy.fsdp1 import HYBRID, Fsdp1Policy

__all__ = ["fsdp1"]

BEGIN = Kernel(kind="begin", time=0.0)
"""Holds what an evaluation left gathered."""
END = Kernel(kind="end", time=0.0)
"""Waits for everything, so that what is still under way at the end of a step is seen as a wait."""


def fsdp1(job: Job, policy: Fsdp1Policy) -> Iterator[Program]:
    """Yield one program per optimizer step.

    Step 0 differs from the others only in what the rate limiter has not yet seen, and in forward prefetch, which has
    yet to learn the order of the units.
    """
    state = Fsdp1(job, policy)
    while True:
        yield _step(state)


def _step(state: Fsdp1) -> Program:
    job, policy = state.job, state.policy
    state.begin_step()
    kept = [item for handle in state.all_handles if handle.is_unsharded for item in handle.unsharded]
    if kept:
        state.tape.launch(BEGIN, COMPUTE, label="begin of step", takes=tuple(kept))
    for micro_batch in range(job.micro_batches):
        state.tape.micro_batch = micro_batch
        state.sync_gradients = not policy.no_sync or micro_batch == job.micro_batches - 1
        state.autograd.begin()
        _forward(state, "forward")
        _backward(state)
    state.tape.phase = "step"
    if policy.cpu_offload:
        state.tape.work(job.cpu_update(fused=policy.fused_optimizer))
    else:
        job.update(state.tape, state.reduction.freed())
    if policy.evaluates:
        _forward(state, "eval")
    return _end(state)


def _forward(state: Fsdp1, phase: str) -> None:
    state.tape.phase = phase
    for mark in state.job.execution.forward:
        state.grad_enabled = phase == "forward" and mark.name not in state.autograd.without_graph
        if mark.kind == "enter":
            if mark.name in state.handles:
                state.pre_forward(mark.name)
            state.run(mark.name, "forward")
        elif mark.kind == "leave" and mark.name in state.handles:
            state.post_forward(mark.name)
    state.grad_enabled = True


def _backward(state: Fsdp1) -> None:
    for position, (mark, computes) in enumerate(with_kernels(state.job.execution.backward)):
        state.tape.phase = "recompute" if mark.recompute else "backward"
        _hooks(state, mark)
        if computes is not None:
            state.tape.phase = "backward"
            state.run(computes, "backward")
        for handle in state.autograd.complete(position):
            state.post_backward(handle)
    state.tape.phase = "backward"
    state.post_backward_final_callback()


def _hooks(state: Fsdp1, mark: Mark) -> None:
    """Run the hooks of one mark of backward, and a recompute."""
    is_unit, handle = mark.name in state.handles, state.handles.get(mark.name)
    if mark.kind == "enter":
        if is_unit:
            state.pre_forward(mark.name)
        state.run(mark.name, "recompute")
    elif mark.kind == "leave" and is_unit:
        state.post_forward(mark.name)
    elif mark.kind == "backward" and is_unit:
        state.pre_backward(mark.name)
    elif mark.kind == "end_backward" and handle and not handle.requires_grad:
        state.post_backward_reshard_only(handle)


def _end(state: Fsdp1) -> Program:
    tape = state.tape
    for stream in (PRE_UNSHARD, UNSHARD, POST_BACKWARD, *([ALL_REDUCE] if state.strategy in HYBRID else [])):
        tape.wait(COMPUTE, tape.record(stream))
    kept = [item for handle in state.all_handles if handle.is_unsharded for item in handle.unsharded]
    # an update on the host has left the gradients on the device until here
    tape.launch(END, COMPUTE, label="end of step", gives=tuple(kept) + state.reduction.freed())
    return tape.program()
