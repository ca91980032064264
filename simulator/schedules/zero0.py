"""DeepSpeed without sharding: gradients are averaged after the last backward, in one go.

Nothing overlaps, ``overlap_comm`` and ``reduce_bucket_size`` have no effect (Z0-1, Z0-3, Z0-7), and all but the last
micro-batch send nothing (Z0-2).

Source: DeepSpeed ``runtime/engine.py`` and ``runtime/fp16/unfused_optimizer.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.schedules.gradients import FreshGradients
from simulator.schedules.job import DTYPE_BYTES, Job
from simulator.schedules.program import Memory, Program
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero12.engine import Engine
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["deepspeed_stage0"]


def deepspeed_stage0(job: Job, policy: DeepSpeedPolicy) -> Iterator[Program]:
    """Record step after step of plain data parallelism."""
    engine = Engine(job, policy)
    yield from engine.steps(_ReplicatedOptimizer(engine))


class _ReplicatedOptimizer:
    """``FP16_UnfusedOptimizer``, or the user's optimizer itself where all is fp32."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        elements = {name: tensor.elements for name, tensor in engine.job.trainable.items()}
        self._gradients = FreshGradients(elements, DTYPE_BYTES[engine.policy.dtype])

    def born(self, names: Sequence[str]) -> Memory:
        """Whole gradients, which stay until the update."""
        return self._gradients.born(names)

    def gradient_hook(self, name: str) -> None:
        """Do nothing: there are no hooks."""

    def backward_epilogue(self) -> None:
        """Average all gradients, those that backward did not reach as zeros (Z0-2, Z0-4)."""
        if self._engine.boundary:
            trainable = self._engine.job.trainable.values()
            gradients = {tensor.name: tensor.elements for tensor in trainable if tensor.elements}
            self._engine.buffered_allreduce_fallback(gradients, self._engine.policy.dtype)

    def step(self) -> None:
        """Update the weights; no weight travels (Z0-6)."""
        engine, policy = self._engine, self._engine.policy
        if policy.dtype == "fp32":
            if policy.gradient_clipping > 0:  # clip_grad_norm_ averages the norm over the ranks
                engine.communicate("all_reduce", 1, "fp32", "norm", COMPUTE, "gradient norm")
        else:
            engine.read()  # has_overflow
            engine.read()  # get_weight_norm
        engine.job.update(engine.tape, self._gradients.freed())
