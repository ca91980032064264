"""``DeepSpeedZeroOptimizer``: ZeRO stages 1 and 2.

=====  =============  ===========================================================================
stage  overlap_comm   gradients are reduced
=====  =============  ===========================================================================
2      off            in backward of every micro-batch, on the compute stream
2      on             in backward of every micro-batch, on a stream of its own
1      off            after backward of the last micro-batch, in forward order, on the compute stream
1      on             in backward of the last micro-batch, on a stream of its own
=====  =============  ===========================================================================

(Z12-2, Z12-3, Z12-4.)  Gradients fill a bucket; the one that does not fit reduces it first (Z12-7).  The last bucket is
reduced after backward (Z12-10).  After the update one all-gather brings all weights to all ranks (Z12-24, Z12-25).

Source: DeepSpeed ``stage_1_and_2.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.schedules.gradients import FreshGradients
from simulator.schedules.job import DTYPE_BYTES, Job
from simulator.schedules.program import Memory, Program
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero12.engine import Engine
from simulator.schedules.zero12.partition import flat_partition
from simulator.schedules.zero12.reducer import REDUCE, Reducer
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["ZeroOptimizer", "deepspeed_stage12"]


def deepspeed_stage12(job: Job, policy: DeepSpeedPolicy) -> Iterator[Program]:
    """Record step after step of ZeRO stage 1 or 2."""
    engine = Engine(job, policy, (COMPUTE, REDUCE) if policy.overlap_comm else (COMPUTE,))
    yield from engine.steps(ZeroOptimizer(engine))


class ZeroOptimizer:
    """Buckets gradients, reduces them, updates the own partition, gathers the weights."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._policy = engine, engine.policy
        self._partition_gradients = self._policy.zero_stage == 2
        # is_optimized_parameter leaves empty parameters out
        tensors = [tensor for tensor in engine.job.trainable.values() if tensor.elements]
        self._elements = {tensor.name: tensor.elements for tensor in tensors}
        dtype, accumulated = self._policy.dtype, self._policy.grad_accum_dtype or self._policy.dtype
        self._partition = flat_partition(
            tensors,
            ranks=engine.group.size,
            element_bytes=DTYPE_BYTES[dtype],
            round_robin_gradients=self._policy.round_robin_gradients,
            parameter_alignment=self._policy.parameter_alignment,
        )
        self._use_grad_accum_attribute = accumulated != dtype and not self._partition_gradients  # Z12-20
        self._buffer_dtype = accumulated if self._use_grad_accum_attribute else dtype
        compact = accumulated == "fp32" != dtype  # _use_compact_grad_partition_buffer
        self._reducer = Reducer(engine, self._partition, self._buffer_dtype, compact=compact)
        self._bucket: list[str] = []
        self._bucket_elements = 0
        self._with_gradient: set[str] = set()
        self._in_flight: dict[str, float] = {}
        # an average rank of stage 2 keeps an equal part of each
        kept = (
            DTYPE_BYTES[accumulated] / engine.group.size
            if self._partition_gradients
            else DTYPE_BYTES[self._buffer_dtype]
        )
        self._gradients = FreshGradients(self._elements, kept)
        self._buffers: Memory = ()
        self._ready_for_gradients = False

    def born(self, names: Sequence[str]) -> Memory:
        """Whole gradients: stage 1 keeps them, if need be in another type; stage 2 no more than the own part."""
        if not (self._partition_gradients or self._use_grad_accum_attribute):
            return self._gradients.born(names)
        element_bytes = DTYPE_BYTES[self._policy.dtype]
        new = {name: float(element_bytes * self._elements[name]) for name in names if name in self._elements}
        new = {name: size for name, size in new.items() if name not in self._in_flight}
        self._in_flight |= new
        return (("gradients in flight", sum(new.values())),) if new else ()

    def gradient_hook(self, name: str) -> None:
        """``process_gradients``, which stage 1 without any of these options has no hook for."""
        policy = self._policy
        self._with_gradient.add(name)
        reduces = self._partition_gradients or policy.overlap_comm
        if not (reduces or self._use_grad_accum_attribute or policy.contiguous_gradients):
            return
        self._engine.hook()
        if policy.coalesce_grad_reduction:  # Z12-5
            return
        self._setup_buckets()
        if self._use_grad_accum_attribute:
            element_bytes = DTYPE_BYTES[policy.dtype] + DTYPE_BYTES[self._buffer_dtype]
            traffic, takes = element_bytes * self._elements[name], self._gradients.born([name])
            self._engine.copy("cast", traffic, COMPUTE, name, takes=takes, gives=self._dead([name]))
        if reduces:
            self._reduce_ready_partitions_and_remove_grads(name)

    def backward_epilogue(self) -> None:
        """Reduce what is left: ``allreduce_gradients``, or the end of ``coalesce_grad_reduction()``."""
        if self._policy.coalesce_grad_reduction:
            if self._engine.boundary:
                self._flush_coalesced_reduction()
        elif self._partition_gradients:
            self._independent_gradient_partition_epilogue()
        elif self._engine.boundary:
            self._reduce_gradients()

    def step(self) -> None:
        """Check, update, gather (Z12-23, Z12-24)."""
        engine, policy, offload = self._engine, self._policy, self._reducer.offload
        if offload is not None:
            offload.wait_for_offload_copies()
        checks = policy.dtype == "fp16" or (policy.dtype == "bf16" and policy.check_grad_overflow)
        if checks:
            engine.communicate("all_reduce", 1, "u8", "overflow", COMPUTE, "overflow")
            engine.read()
        if policy.compute_grad_norm:
            engine.communicate("all_reduce", 1, "fp32", "norm", COMPUTE, "gradient norm")
            if policy.dtype != "bf16" or checks or policy.gradient_clipping > 0 or offload:  # is_invalid_grad_norm
                engine.read()
        if offload is None:
            engine.job.update(engine.tape, self._gradients.freed())
        else:
            offload.step()
            engine.tape.give(COMPUTE, self._gradients.freed())
        ranks = engine.group.size
        if ranks > 1:
            elements = self._partition.partition_numel * ranks
            engine.communicate("all_gather", elements, policy.dtype, "parameter_all_gather", COMPUTE, "weights")
        engine.log_timers()
        self._with_gradient.clear()

    def _setup_buckets(self) -> None:
        """Allocate the buffer, or two of them that are filled in turn (Z12-11)."""
        if self._ready_for_gradients:
            return
        self._ready_for_gradients = True
        if self._policy.contiguous_gradients:
            count = 2 if self._policy.overlap_comm else 1
            size = float(count * self._policy.reduce_bucket_size * DTYPE_BYTES[self._buffer_dtype])
            self._buffers = (("reduce buckets", size),)
            self._engine.tape.take(self._buffers)

    def _reduce_ready_partitions_and_remove_grads(self, name: str) -> None:
        if self._partition_gradients or self._engine.boundary:
            self._reduce_independent_p_g_buckets_and_remove_grads(name)

    def _reduce_independent_p_g_buckets_and_remove_grads(self, name: str) -> None:
        """Put a gradient into the bucket; an oversized one stays where it is, alone (Z12-9)."""
        elements = self._elements.get(name, 0)
        if not elements:
            return
        if self._bucket_elements + elements > self._policy.reduce_bucket_size:  # Z12-7, Z12-8
            self._reduce_ipg_grads()
        if self._policy.contiguous_gradients and elements <= self._policy.reduce_bucket_size:
            traffic = 2 * DTYPE_BYTES[self._buffer_dtype] * elements
            self._engine.copy("copy in", traffic, COMPUTE, name, gives=self._dead([name]))
        self._bucket.append(name)
        self._bucket_elements += elements

    def _reduce_ipg_grads(self, gives: Memory = ()) -> None:
        """Reduce the bucket and empty it."""
        keeps = self._partition_gradients and self._reducer.offload is None  # else the host does
        takes = self._gradients.born(self._bucket) if keeps else ()
        gives = self._dead(self._bucket) + gives
        if self._policy.contiguous_gradients:
            self._reducer.average_tensor(self._bucket, self._bucket_elements, takes, gives)
        else:
            self._reducer.buffered_reduce_fallback(self._bucket, self._bucket_elements, takes, gives)
        self._bucket, self._bucket_elements = [], 0

    def _dead(self, names: Sequence[str]) -> Memory:
        """Memory of those gradients of *names* that lie in no bucket yet."""
        size = sum(self._in_flight.pop(name, 0.0) for name in names)
        return (("gradients in flight", size),) if size else ()

    def _reduce_gradients(self) -> None:
        """Stage 1 at the end of the last backward; without overlap, nothing has been reduced before."""
        if not self._policy.overlap_comm:
            self._reduce_all()
        self._independent_gradient_partition_epilogue()

    def _flush_coalesced_reduction(self) -> None:
        """A single pass over gradients that all backwards have added up."""
        tape = self._engine.tape
        tape.phase = "coalesce_exit"
        if self._policy.overlap_comm:
            tape.synchronize(tape.record(REDUCE), "host")
        self._setup_buckets()
        self._reduce_all()
        self._independent_gradient_partition_epilogue()

    def _reduce_all(self) -> None:
        """Visit the parameters in forward order, whatever their order in the flat buffer."""
        for name in self._elements:
            if name in self._with_gradient:
                self._reduce_ready_partitions_and_remove_grads(name)

    def _independent_gradient_partition_epilogue(self) -> None:
        """Reduce the last bucket and release the buffers (Z12-10, Z12-15)."""
        self._reduce_ipg_grads(gives=self._buffers)
        if self._policy.overlap_comm:
            self._engine.device_synchronize()
        self._buffers, self._ready_for_gradients = (), False
