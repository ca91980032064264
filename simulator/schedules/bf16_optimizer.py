"""``BF16_Optimizer``: what DeepSpeed's stage 1 becomes with bf16 weights and fp32 gradient accumulation (Z12-6).

Every micro-batch adds its gradients to a flat fp32 buffer.  After the last one the buffer is averaged as stage 0 does
it - no buckets, no overlap - and after the update the weights are gathered.  The norm is computed from whole gradients
and there is no check for overflow, so nothing else is sent.

Source: DeepSpeed ``runtime/bf16_optimizer.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.schedules.gradients import FreshGradients
from simulator.schedules.job import DTYPE_BYTES, Job
from simulator.schedules.program import Memory, Program
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero12.engine import Engine
from simulator.schedules.zero12.partition import flat_partition
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["deepspeed_bf16_optimizer", "uses_bf16_optimizer"]


def uses_bf16_optimizer(policy: DeepSpeedPolicy) -> bool:
    """Whether DeepSpeed takes this optimizer instead of that of stages 1 and 2."""
    on_device = policy.offload_optimizer is None
    return on_device and policy.zero_stage == 1 and policy.dtype == "bf16" and policy.grad_accum_dtype == "fp32"


def deepspeed_bf16_optimizer(job: Job, policy: DeepSpeedPolicy) -> Iterator[Program]:
    """Record step after step of stage 1 with an fp32 gradient buffer."""
    engine = Engine(job, policy)
    yield from engine.steps(_BF16Optimizer(engine))


class _BF16Optimizer:
    """Holds the fp32 gradient buffer, as long as the flat weights with their padding."""

    ACCUMULATION_DTYPE = "fp32"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        tensors = [tensor for tensor in engine.job.trainable.values() if tensor.elements]
        self._elements = sum(tensor.elements for tensor in tensors)
        elements = {tensor.name: tensor.elements for tensor in tensors}
        self._gradients = FreshGradients(elements, DTYPE_BYTES[engine.policy.dtype])
        ranks, element_bytes = engine.group.size, DTYPE_BYTES[engine.policy.dtype]
        self._flat = ranks * flat_partition(tensors, ranks=ranks, element_bytes=element_bytes).partition_numel

    def born(self, names: Sequence[str]) -> Memory:
        """Whole gradients in bf16, beside the buffer that they are added to."""
        return self._gradients.born(names)

    def gradient_hook(self, name: str) -> None:
        """Do nothing: the hooks belong to ``immediate_grad_update``, which is off."""

    def backward_epilogue(self) -> None:
        """Add the gradients of this micro-batch to the buffer, and reduce it when it was the last."""
        kept = DTYPE_BYTES[self.ACCUMULATION_DTYPE]
        traffic = self._elements * (DTYPE_BYTES[self._engine.policy.dtype] + 2 * kept)
        self._engine.copy("cast", traffic, COMPUTE, "update_hp_grads")
        if self._engine.boundary:
            self._engine.buffered_allreduce_fallback({"flat gradients": self._flat}, self.ACCUMULATION_DTYPE)

    def step(self) -> None:
        """Update the own partition and gather the weights."""
        engine = self._engine
        engine.read()  # is_invalid_grad_norm
        engine.job.update(engine.tape, self._gradients.freed())
        if engine.group.size > 1:
            dtype, role = engine.policy.dtype, "parameter_all_gather"
            engine.communicate("all_gather", self._flat, dtype, role, COMPUTE, "weights")
