"""``DeepSpeedEngine``: forward, backward and step of micro-batches, and the gradient reduction of stage 0.

What is reduced when is the optimizer's decision; the engine walks the marks, tells it about gradients, and blocks the
host where DeepSpeed does.  All collectives are blocking calls in torch's sense: they run on the stream that is current
(O-6), on a communicator that is a clone of the world (O-7).

Source: DeepSpeed ``runtime/engine.py`` and ``utils/timer.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from simulator.laws.collectives.base import CollectiveKind
from simulator.laws.kernels import Kernel
from simulator.schedules.job import DTYPE_BYTES, Job, collective
from simulator.schedules.program import Memory, Operation, Program
from simulator.schedules.tape import COMPUTE
from simulator.world.model.execution import with_kernels
from simulator.world.model.layer import Work
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["MEMORY_OPT_ALLREDUCE_SIZE", "TEMPORARIES", "Engine", "Optimizer", "bucket_label", "small_buckets"]

MEMORY_OPT_ALLREDUCE_SIZE: Final = 500_000_000  # source: engine.py, elements; no key changes it

TEMPORARIES: Final = "reduce temporaries"
"""Item of memory: what flattens or casts gradients for a collective."""

END = Kernel(kind="end", time=0.0)
"""Waits for everything, so that what is still under way at the end of a step is seen as a wait."""


class Optimizer(Protocol):
    """The wrapper around the user's optimizer, which knows what is sharded."""

    def gradient_hook(self, name: str) -> None:
        """Act on the gradient of a parameter that has just been accumulated."""

    def backward_epilogue(self) -> None:
        """Act on the end of a micro-batch's backward."""

    def step(self) -> None:
        """Update the weights."""

    def born(self, names: Sequence[str]) -> Memory:
        """Memory of the gradients of *names* that are made now."""


class ThroughputTimer:
    """Synchronises the device around every micro-batch from the third step on."""

    START_STEP: Final = 2  # source: timer.py, ThroughputTimer(start_step=2)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._global_step_count = engine.job.first_step
        self._started = self._times = False

    def start(self) -> None:
        """Start, at every forward of the engine."""
        self._started = True
        if self._global_step_count >= self.START_STEP:
            self._times = True
            self._synchronize()

    def stop(self, *, global_step: bool) -> None:
        """Stop, at every step of the engine, be it one of the optimizer or not."""
        if not self._started:
            return
        self._started = False
        self._global_step_count += global_step
        if self._times:
            self._synchronize()

    def _synchronize(self) -> None:
        if self._engine.policy.synchronises_timers:
            self._engine.device_synchronize()


class Engine:
    """Runs one step after another; launches for itself and for the optimizer."""

    def __init__(self, job: Job, policy: DeepSpeedPolicy, streams: tuple[str, ...] = (COMPUTE,)) -> None:
        self.job, self.policy = job, policy
        self.streams = streams
        """All that exist: what a synchronisation of the device waits for."""
        self.group = replace(job.world, name="world clone")  # _clone_world_group
        self.wire_dtype = policy.communication_data_type or policy.dtype  # Z0-5, Z12-19
        self.tape = job.tape()
        self.micro_batch = 0
        self._tput_timer = ThroughputTimer(self)
        self._made: dict[tuple[object, ...], Operation] = {}

    @property
    def boundary(self) -> bool:
        """``is_gradient_accumulation_boundary``: whether this micro-batch ends the step."""
        return self.micro_batch == self.job.micro_batches - 1

    def steps(self, optimizer: Optimizer) -> Iterator[Program]:
        """Record one program per step."""
        while True:
            self.tape = self.job.tape()
            for micro_batch in range(self.job.micro_batches):
                self.micro_batch = self.tape.micro_batch = micro_batch
                self._forward("forward")
                self._backward(optimizer)
                # inside coalesce_grad_reduction() there is one step for all backwards
                if self.boundary or not self.policy.coalesce_grad_reduction:
                    self._step(optimizer)
            if self.policy.evaluates:
                self._forward("eval")
            self._end()
            yield self.tape.program()

    def _forward(self, phase: str) -> None:
        self.tape.phase = phase
        self._tput_timer.start()
        for mark in self.job.execution.forward:
            if mark.kind == "enter":
                self._run(mark.name, "forward")

    def _backward(self, optimizer: Optimizer) -> None:
        for mark, computes in with_kernels(self.job.execution.backward):
            self.tape.phase = "recompute" if mark.recompute else "backward"
            if mark.kind == "enter":
                self._run(mark.name, "recompute")
            elif mark.kind == "gradient":
                optimizer.gradient_hook(mark.name)
            if computes is not None:
                self.tape.phase = "backward"
                self._run(computes, "backward", optimizer)
        self.tape.phase = "backward"
        optimizer.backward_epilogue()

    def _step(self, optimizer: Optimizer) -> None:
        self.tape.phase = "step"
        if self.boundary:
            optimizer.step()
        self._tput_timer.stop(global_step=self.boundary)
        self.log_timers()

    def _end(self) -> None:
        for stream in self.streams:
            self.tape.wait(COMPUTE, self.tape.record(stream))
        self.launch(END, COMPUTE, "end of step")

    def _run(self, module: str, direction: str, optimizer: Optimizer | None = None) -> None:
        """Launch the kernel of *module*; one of backward takes the memory of the gradients that it computes."""
        if (module, direction) in self.job.kernels:
            self.tape.take(optimizer.born(self.job.gradients.get(module, ())) if optimizer else ())
            self.job.run(self.tape, module, direction)

    def hook(self) -> None:
        """Spend the host's time for a hook."""
        if self.job.costs.hook:
            self.tape.work(self.job.costs.hook)

    def launch(self, operation: Operation, stream: str, label: str, takes: Memory = (), gives: Memory = ()) -> None:
        """Put *operation* into *stream*."""
        self.tape.launch(operation, stream, label=label, takes=takes, gives=gives)

    def copy(self, kind: str, traffic: float, stream: str, label: str, takes: Memory = (), gives: Memory = ()) -> None:
        """Launch a kernel that moves *traffic* bytes, reads and writes, for the reduction of gradients."""
        key = (kind, traffic)
        if key not in self._made:
            works = (Work("memory", constant_traffic=traffic),)
            self._made[key] = Kernel(kind=kind, works=works, is_copy=True, serves="all_reduce")
        self.launch(self._made[key], stream, label, takes, gives)

    def communicate(
        self, kind: CollectiveKind, elements: int, dtype: str, role: str, stream: str, label: str, gives: Memory = ()
    ) -> None:
        """Launch a collective on the clone of the world."""
        key = (kind, elements, dtype, role)
        if key not in self._made:
            self._made[key] = collective(kind, elements, dtype, self.group, role)
        self.launch(self._made[key], stream, label, gives=gives)
        if self.policy.comms_logger:  # timed_op makes every operation blocking
            self.device_synchronize()

    def device_synchronize(self) -> None:
        """Block the host until the device has nothing left to do."""
        for stream in self.streams:
            self.tape.synchronize(self.tape.record(stream), "host")

    def read(self) -> None:
        """Block the host until it can read a number that the compute stream writes."""
        self.tape.synchronize(self.tape.record(COMPUTE), "data")

    def log_timers(self) -> None:
        """Read the timers of ``wall_clock_breakdown``, which are events on the compute stream."""
        if self.policy.wall_clock_breakdown:
            self.tape.synchronize(self.tape.record(COMPUTE), "host")

    def buffered_allreduce_fallback(self, gradients: Mapping[str, int], dtype: str) -> None:
        """Reduce *gradients*, elements by name, after backward and in this order (Z0-1, Z0-3)."""
        for names in small_buckets(list(gradients), gradients, MEMORY_OPT_ALLREDUCE_SIZE):
            self._allreduce_and_copy(bucket_label(names), len(names), sum(gradients[name] for name in names), dtype)

    def _allreduce_and_copy(self, label: str, tensors: int, elements: int, dtype: str) -> None:
        """Flatten, cast, all-reduce, scale, and copy back (Z0-4)."""
        kept, sent = DTYPE_BYTES[dtype] * elements, DTYPE_BYTES[self.wire_dtype] * elements
        takes = ((TEMPORARIES, float(kept)),) if tensors > 1 else ()
        cast = ((TEMPORARIES, float(sent)),) if self.wire_dtype != dtype else ()
        if takes:
            self.copy("flatten", 2 * kept, COMPUTE, label, takes=takes)
        if cast:
            self.copy("cast", kept + sent, COMPUTE, label, takes=cast)
        self.communicate("all_reduce", elements, self.wire_dtype, "all_reduce", COMPUTE, label)
        self.copy("scale", 2 * sent, COMPUTE, label)
        if cast:
            self.copy("cast", kept + sent, COMPUTE, label, gives=cast)
        self.copy("copy out", 2 * kept, COMPUTE, label, gives=takes)


def small_buckets(names: Sequence[str], elements: Mapping[str, int], numel_per_bucket: int) -> Iterator[list[str]]:
    """Cut *names* into runs, each closed by the tensor that makes it exceed *numel_per_bucket* elements.

    >>> list(small_buckets("abcd", {"a": 3, "b": 200, "c": 400, "d": 600}, 500))
    [['a', 'b', 'c'], ['d']]
    """
    run: list[str] = []
    numel = 0
    for name in names:
        run.append(name)
        numel += elements[name]
        if numel > numel_per_bucket:
            yield run
            run, numel = [], 0
    if run:
        yield run


def bucket_label(names: Sequence[str]) -> str:
    """What a report calls the bucket that holds *names*."""
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
