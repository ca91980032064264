"""The engine's forward, backward and step at stage 3: which hook of DeepSpeed does what.

Every module has four hooks (Z3-5): before and after its forward, when the gradient of its output arrives, and when
that of its input is ready.  Fetch and release of parameters hang on them; gradients are reduced from hooks of their
own, those of a leaf module together (Z3-41).

Source: DeepSpeed ``runtime/engine.py``, ``runtime/zero/parameter_offload.py``, ``runtime/zero/stage3.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulator.schedules.job import Job
from simulator.schedules.program import Memory, Program
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero3.coordinator import PartitionedParameterCoordinator
from simulator.schedules.zero3.gather import GATHERED, Gatherer
from simulator.schedules.zero3.offload import OptimizerOnHost, parameter_swapper, sub_groups
from simulator.schedules.zero3.parameters import HookedModule, Parameters, ShardedParameter
from simulator.schedules.zero3.rank import Rank
from simulator.schedules.zero3.reducer import GRADIENTS, GradientReducer
from simulator.world.model.execution import Mark, with_kernels
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["Stage3", "deepspeed_stage3"]

TIMER_START_STEP: Final = 2  # source: utils/timer.py, ThroughputTimer(start_step=2)


def deepspeed_stage3(job: Job, policy: DeepSpeedPolicy) -> Iterator[Program]:
    """Record one program per step, for as long as asked; the first steps differ (Z3-8)."""
    engine = Stage3(job, policy)
    while True:
        yield engine.train_step()


class Stage3:
    """``DeepSpeedEngine`` with ``DeepSpeedZeroOptimizer_Stage3``."""

    def __init__(self, job: Job, policy: DeepSpeedPolicy) -> None:
        self.job, self.policy = job, policy
        self.parameters = Parameters(job, policy)
        self.rank = Rank(job, policy)
        self._gatherer = Gatherer(self.rank, parameter_swapper(self.rank, self.parameters))
        offloads = policy.offload_optimizer is not None or policy.offload_param is not None
        self._on_host = OptimizerOnHost(self.rank, self.parameters) if offloads else None
        self.coordinator = PartitionedParameterCoordinator(self.rank, self._gatherer)
        self._reducer = GradientReducer(self.rank, self._on_host if policy.offload_optimizer is not None else None)
        self._has_end = {mark.name for mark in job.execution.backward if mark.kind == "end_backward"}
        self._owned = {
            module.name: [self.parameters.by_name[tensor.name] for tensor in module.parameters if tensor.trainable]
            for module in job.root.walk()
        }
        self._global_steps = job.first_step

    def train_step(self) -> Program:
        """Run the micro-batches of one step and update."""
        rank = self.rank
        rank.begin(self._reducer.buffer + self._gathered())
        self._reducer.begin()
        self.coordinator.forget_events()
        for micro_batch in range(self.job.micro_batches):
            rank.tape.micro_batch = micro_batch
            self._forward("forward")
            self._backward()
            last = micro_batch == self.job.micro_batches - 1
            if self.policy.coalesce_grad_reduction:
                if last:
                    self._flush_coalesced()
                    self._engine_step(boundary=True)
            else:
                self._engine_step(boundary=last)
        if self.policy.evaluates:
            self._forward("eval")
        if self.job.rehearses:
            self.coordinator.reset_step()  # what a second micro-batch would do first: check the trace and use it
        return rank.end(self._reducer.buffer + self._gathered())

    # Forward

    def _forward(self, phase: str) -> None:
        self.rank.tape.phase = phase
        if self._global_steps >= TIMER_START_STEP and self.policy.synchronises_timers:
            self.rank.device_synchronize()  # tput_timer.start()
        self.coordinator.reset_step()
        for mark in self.job.execution.forward:
            self._forward_mark(mark, in_backward=False)

    def _forward_mark(self, mark: Mark, *, in_backward: bool) -> None:
        """Act on a mark of a forward; one that was aborted never comes to its post-forward hook."""
        module = self.parameters.modules.get(mark.name)  # None below a leaf
        if mark.kind == "enter":
            if module is not None:
                self.rank.hook()
                self.coordinator.trace_prologue(module)
                self.coordinator.fetch_sub_module(module, forward=True, in_backward=in_backward)
            self.rank.run(mark.name, "recompute" if mark.recompute else "forward")
        elif mark.kind == "leave" and module is not None:
            self.rank.hook()
            self.coordinator.release_sub_module(module, forward=True)

    # Backward

    def _backward(self) -> None:
        tape = self.rank.tape
        for mark, computes in with_kernels(self.job.execution.backward):
            tape.phase = "recompute" if mark.recompute else "backward"
            if mark.recompute:
                self._forward_mark(mark, in_backward=True)
            else:
                self._backward_mark(mark)
            if computes is not None:
                tape.phase = "backward"
                self._run_backward(computes)
        tape.phase = "backward"
        if not self.policy.coalesce_grad_reduction:
            self._reducer.epilogue()
        self.coordinator.release_backward_leftovers()

    def _backward_mark(self, mark: Mark) -> None:
        if mark.kind == "gradient":
            self.rank.hook()
            parameter = self.parameters.by_name[mark.name]
            if parameter not in self.parameters.leaf_of:
                self._reduce([parameter])
            return
        module = self.parameters.modules.get(mark.name)
        if module is None:
            return
        if module.is_leaf and (mark.kind == "end_backward") is (mark.name in self._has_end):
            self._reduce_leaf(module)  # torch runs a full backward hook at once if no input needs a gradient
        self.rank.hook()
        if mark.kind == "backward":
            self.coordinator.trace_prologue(module)
            self.coordinator.fetch_sub_module(module, forward=False, in_backward=True)
        elif mark.kind == "end_backward":
            self.coordinator.release_sub_module(module, forward=False)

    def _run_backward(self, name: str) -> None:
        """Launch the backward of a module; its gradients take memory."""
        size = self.rank.element_bytes
        born = [item for item in self._owned[name] if not item.gradient]
        held = float(sum(item.elements * size for item in born))
        if self.rank.run(name, "backward", ((GRADIENTS, held),) if held else ()):
            for item in born:
                item.gradient = float(item.elements * size)

    def _reduce_leaf(self, module: HookedModule) -> None:
        """Z3-41: all gradients of a leaf at once; those of unused parts are filled with zeros."""
        self._reduce([item for item in module.below if item.trainable])

    def _reduce(self, parameters: Sequence[ShardedParameter]) -> None:
        if not self.policy.coalesce_grad_reduction:
            for parameter in parameters:
                self._reducer.reduce(parameter)

    def _flush_coalesced(self) -> None:
        """Z12-5: the end of ``coalesce_grad_reduction()`` reduces everything once, in order of registration."""
        self.rank.tape.phase = "coalesce_exit"
        for parameter in self.parameters.trainable:
            self._reducer.reduce(parameter)
        self._reducer.epilogue()

    # Step

    def _engine_step(self, *, boundary: bool) -> None:
        """``engine.step()``, which every micro-batch calls."""
        self.rank.tape.phase = "step"
        if boundary:
            self._optimizer_step()
        if self._global_steps >= TIMER_START_STEP and self.policy.synchronises_timers:
            self.rank.device_synchronize()  # tput_timer.stop()
        if self.policy.wall_clock_breakdown:
            self.rank.tape.synchronize(self.rank.tape.record(COMPUTE), "host")  # timers.log()
        self._global_steps += boundary

    def _optimizer_step(self) -> None:
        """Z3-42: free everything, look for overflow (fp16), norms, update, gather persistent parameters."""
        rank = self.rank
        self.coordinator.release_and_reset_all(self.parameters.all)
        if self.job.dtype == "fp16":
            rank.tape.wait(COMPUTE, rank.tape.record(rank.reduce_stream))
            rank.blocking(rank.collective("all_reduce", 1, "u8", rank.clone, "overflow"), COMPUTE, "overflow")
            rank.read()
        norm = rank.collective("all_reduce", 1, "fp64", rank.world, "norm")
        for _ in sub_groups(self.parameters.trainable, self.policy.sub_group_size):
            rank.blocking(norm, COMPUTE, "gradient norm")
            if self.policy.offload_optimizer is not None:
                rank.read()  # complete_grad_norm_calculation_for_cpu_offload() ends with .cpu()
        rank.read()  # is_invalid_grad_norm()
        if self._on_host is None:
            self.job.update(rank.tape)
        else:
            self._on_host.update()
        self._gatherer.regather(self.parameters.persistent)
        for parameter in self.parameters.trainable:
            parameter.has_secondary = False  # ZP-3, Z3-43: what was copied is out of date

    def _gathered(self) -> Memory:
        """Memory of whole parameters that are there now: persistent ones, and what an evaluation has left."""
        held = sum(parameter.held for parameter in self.parameters.all)
        return ((GATHERED, held),) if held else ()
