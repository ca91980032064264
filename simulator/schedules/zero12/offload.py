"""``offload_optimizer`` at stages 1 and 2: the host keeps fp32 gradients, weights and moments, and updates them.

What a rank owns of a reduced bucket goes to the host parameter by parameter, on the stream of the reduction:

* at the end of a step the own part in fp32, after its norm has been taken and the host has *read* whether it
  overflowed - which blocks the host until the bucket is reduced;
* before it, and after it if there were several micro-batches, the whole of each parameter through a buffer of sums on
  the host: sums to the device, added, back to the host.  The host blocks for the copy before.

Then the host scales and clips, updates (``DeepSpeedCPUAdam``) and casts while the device idles; the 16-bit part goes to
the device in the compute stream, before the all-gather.

Source: DeepSpeed ``stage_1_and_2.py``, ``copy_grads_in_partition``, ``async_accumulate_grad_in_cpu_via_gpu``,
``async_inplace_copy_grad_to_fp32_buffer_from_gpu``, ``update_offload_overflow_tracker``, ``step``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulator.laws.offload import ADAM_BYTES, SCALE_BYTES, Route, Transfer
from simulator.schedules.job import DTYPE_BYTES
from simulator.schedules.program import Event, Memory
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero12.engine import Engine
from simulator.schedules.zero12.partition import FlatPartition

__all__ = ["CpuOffload"]

FP32: Final = 4
"""definition: bytes."""

BUFFERS: Final = "offload buffers"
"""Item of memory."""


class CpuOffload:
    """The host's part of the optimizer.

    Parameters
    ----------
    stream
        On which buckets are reduced.
    kept
        Bytes of an element of a reduced gradient.
    """

    def __init__(self, engine: Engine, partition: FlatPartition, stream: str, kept: int) -> None:
        self._engine, self._partition, self._stream, self._kept = engine, partition, stream, kept
        offload = engine.policy.offload_optimizer
        self._pinned = offload is not None and offload.pin_memory
        self._pending: Event | None = None
        """``_pending_offload_events``: the last copy that the host has not waited for."""

    def copy_grads_in_partition(self, names: Sequence[str], elements: int, label: str, gives: Memory) -> None:
        """Bring to the host what this rank owns of the gradients of *names*, *elements* in all."""
        ranks, slices = self._engine.group.size, self._partition.slices
        pieces = sum(len(slices[name]) for name in names)
        whole = sum(sum(item.elements for item in slices[name]) * len(slices[name]) for name in names)
        copies = max(1, round(pieces / ranks))  # an average rank owns so many
        for number in range(copies):
            if self._engine.micro_batch or not self._engine.boundary:
                self._accumulate(whole / ranks / copies * self._kept, label)
            if self._engine.boundary:
                self.send(elements / ranks / copies, whole / ranks / copies, label)
            if number == copies - 1 and gives:
                self._engine.tape.give(self._stream, gives)

    def send(self, own: float, checked: float, label: str) -> None:
        """Take the norm of *own* elements, let the host read whether the *checked* ones overflowed, send in fp32."""
        engine = self._engine
        engine.copy("norm and check", self._kept * (own + checked), self._stream, label)
        engine.tape.synchronize(engine.tape.record(self._stream), "data")
        buffer: Memory = ()
        if self._kept != FP32:
            buffer = ((BUFFERS, FP32 * own),)
            engine.copy("cast", (self._kept + FP32) * own, self._stream, label, takes=buffer)
        self._transfer("to_host", FP32 * own, "gradients_to_host", label, gives=buffer)

    def wait_for_offload_copies(self) -> None:
        """``_wait_for_offload_copies``: block the host for what is under way."""
        if self._pending is not None:
            self._engine.tape.synchronize(self._pending, "data")
            self._pending = None

    def step(self) -> None:
        """Scale, update and cast on the host; bring the weights to the device."""
        policy, costs = self._engine.policy, self._engine.job.costs
        own, size = self._partition.partition_numel, DTYPE_BYTES[policy.dtype]
        scales = policy.gradient_clipping > 0 or policy.dtype == "fp16"  # unscale_and_clip_grads
        moved = ADAM_BYTES + (FP32 + size) + (SCALE_BYTES if scales else 0)
        self._engine.tape.work(costs.cpu_byte * moved * own)
        weights = Transfer(route="to_device", amount=float(size * own), role="weights_to_device", pinned=self._pinned)
        self._engine.launch(weights, COMPUTE, "weights")

    def _accumulate(self, amount: float, label: str) -> None:
        """``async_accumulate_grad_in_cpu_via_gpu``."""
        self.wait_for_offload_copies()
        if self._engine.micro_batch:
            self._transfer("to_device", amount, "gradients_to_device", label)
            self._engine.copy("accumulate", 3 * amount, self._stream, label)
        self._transfer("to_host", amount, "gradients_to_host", label)

    def _transfer(self, route: Route, amount: float, role: str, label: str, gives: Memory = ()) -> None:
        transfer = Transfer(route=route, amount=amount, role=role, pinned=self._pinned)
        self._engine.launch(transfer, self._stream, label, gives=gives)
        if route == "to_host":
            self._pending = self._engine.tape.record(self._stream)
