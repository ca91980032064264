"""``offload_optimizer`` and ``offload_param`` at stage 3: what moves between device, host and NVMe.

Gradients: each reduced share is copied to a buffer of the host, and *back*, because norms and sums are taken on the
device; at the end of a step it goes to the host once more, in fp32.

Update: sub-group by sub-group on the host.  States on NVMe are read before and written after it; ``pipeline_read``
begins to read the next ones, ``pipeline_write`` does not wait for the last ones.  With ``ratio`` the first sub-groups
stay on the device (ZeRO-Offload++).  New weights are cast on the host; where parameters stay on the device they are
copied there from memory that is not pinned, and the host waits.

Parameters: a share is copied to the device before each all-gather, in its stream; ``Tensor.to`` lets the host wait.

Source: DeepSpeed ``stage3.py``, ``partition_grads``, ``step``; ``swap_tensor/pipelined_optimizer_swapper.py``;
``partition_parameters.py``, ``all_gather_coalesced``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from simulator.errors import InputError
from simulator.laws.kernels import Kernel
from simulator.laws.offload import ADAM_BYTES, SCALE_BYTES, Route, Transfer
from simulator.schedules.program import Event, Memory
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero3.parameters import Parameters, ShardedParameter
from simulator.schedules.zero3.rank import Rank, label_of
from simulator.schedules.zero3.swap import MIN_AIO_BYTES, READS, WRITES, GradientSwapper, ParameterSwapper
from simulator.world.policy.zero import DeepSpeedPolicy, OptimizerOffload

__all__ = ["BUFFERS", "FP32", "OptimizerOnHost", "on_nvme", "parameter_swapper", "sub_groups"]

FP32: Final = 4  # definition: bytes
STATES: Final = 3
"""Tensors of a sub-group on NVMe beside its gradient: weight, momentum, variance."""

BUFFERS: Final = "offload buffers"
"""Item of memory."""


def sub_groups(parameters: Sequence[ShardedParameter], size: int) -> list[list[ShardedParameter]]:
    """``_create_fp16_sub_groups``: a group is closed once its shares have reached *size*."""
    groups: list[list[ShardedParameter]] = []
    filled = size
    for parameter in parameters:
        if filled >= size:
            groups.append([])
            filled = 0
        groups[-1].append(parameter)
        filled += parameter.share
    return groups


def on_nvme(parameters: Parameters, policy: DeepSpeedPolicy) -> list[ShardedParameter]:
    """Parameters whose shares live on NVMe: the sub-groups that ``max_in_cpu`` has no room for."""
    offload = policy.offload_param
    if offload is None or offload.device == "cpu":
        return []
    groups = sub_groups(parameters.trainable, policy.sub_group_size)
    # a sub-group that does not fit takes its place all the same, so all after it are away, too
    ends = accumulate(sum(item.share for item in group) for group in groups)
    swapped = [group for group, end in zip(groups, ends, strict=True) if end > offload.max_in_cpu]
    frozen = [item for item in parameters.all if not item.trainable]
    return [item for group in (*swapped, frozen) for item in group if item.share * 2 >= MIN_AIO_BYTES]


def parameter_swapper(rank: Rank, parameters: Parameters) -> ParameterSwapper | None:
    """Return what reads shares from NVMe, if any live there."""
    offload, away = rank.policy.offload_param, on_nvme(parameters, rank.policy)
    return ParameterSwapper(rank, offload, away) if offload is not None and away else None


class OptimizerOnHost:
    """What the host does of a step, and what it needs for that."""

    def __init__(self, rank: Rank, parameters: Parameters) -> None:
        self._rank, self._policy = rank, rank.policy
        offload = rank.policy.offload_optimizer
        self._offload = offload or OptimizerOffload()
        self._on_host = offload is not None
        groups = sub_groups(parameters.trainable, rank.policy.sub_group_size)
        self._sizes = [sum(item.share for item in group) for group in groups]
        first = int((1 - self._offload.ratio) * len(groups)) if self._on_host else len(groups)
        self._place = ["device"] * first + [self._home(size) for size in self._sizes[first:]]
        self._group_of = {item: number for number, group in enumerate(groups) for item in group}
        self._away = frozenset(on_nvme(parameters, rank.policy))
        self._written = [sum(item.share for item in group if item in self._away) for group in groups]
        swapped = self._place.count("nvme")
        self._gradients = GradientSwapper(rank, max(self._sizes, default=0), self._offload.buffer_count)
        self._check_buffers(swapped)
        self._read: Event | None = None
        self._write: Event | None = None

    def elements_by_place(self) -> dict[str, float]:
        """Elements that the ``device``, the ``cpu`` and ``nvme`` update, and those of a ``buffer`` for the last."""
        found = dict.fromkeys(("device", "cpu", "nvme"), 0.0)
        for place, size in zip(self._place, self._sizes, strict=True):
            found[place] += size
        return found | {"buffer": float(max(self._sizes, default=0)) if found["nvme"] else 0.0}

    def partition_grads(
        self, bucket: Sequence[ShardedParameter], kept_bytes: int, *, accumulates: bool, boundary: bool
    ) -> None:
        """Bring the reduced shares of *bucket*, of *kept_bytes* an element, to the host."""
        rank, label = self._rank, label_of(item.name for item in bucket)
        stream, share = rank.reduce_stream, sum(item.share for item in bucket)
        kept = float(share * kept_bytes)
        buffer: Memory = ((BUFFERS, kept),)
        if accumulates:
            self._copy("to_device", kept, "gradients_to_device", stream, label, takes=buffer)
            rank.tape.launch(rank.copy_kernel("accumulate", 3 * kept, "reduce_scatter"), stream, label=label)
            self._copy("to_host", kept, "gradients_to_host", stream, label)
        else:
            self._copy("to_host", kept, "gradients_to_host", stream, label)
            self._copy("to_device", kept, "gradients_to_device", stream, label, takes=buffer)
        if boundary:
            self._send(bucket, share, kept_bytes, label)
        rank.tape.give(stream, buffer)

    def update(self) -> None:
        """Update all sub-groups, one after the other."""
        for number, size in enumerate(self._sizes):
            if self._place[number] == "device":
                self._update_on_device(size)
            else:
                self._swap_in(number)
                moved = SCALE_BYTES + ADAM_BYTES
                self._rank.tape.work(self._rank.job.costs.cpu_byte * moved * size)
            self._reassign(number)
            if self._place[number] == "nvme":
                self._swap_out(number)

    def _home(self, size: int) -> str:
        return "nvme" if self._offload.device == "nvme" and FP32 * size >= MIN_AIO_BYTES else "cpu"

    def _check_buffers(self, swapped: int) -> None:
        """Every sub-group under way holds a buffer for each of its tensors (``SwapBufferManager``)."""
        at_once = min(swapped, 1 + self._offload.pipeline_read + self._offload.pipeline_write)
        needed, key = at_once * (STATES + 1), "zero_optimization.offload_optimizer.buffer_count"
        if self._offload.buffer_count < needed:
            problem, remedy = f"{at_once} sub-groups of four tensors are under way at once", f"write {needed}"
            raise InputError(problem, key=key, value=self._offload.buffer_count, remedy=remedy)

    def _send(self, bucket: Sequence[ShardedParameter], share: int, kept_bytes: int, label: str) -> None:
        """``_offload_grad_partition_at_boundary``: norms on the device, then fp32 to the host."""
        rank, stream = self._rank, self._rank.reduce_stream
        rank.tape.launch(rank.copy_kernel("norm", share * kept_bytes, "reduce_scatter"), stream, label=label)
        to_host = [item for item in bucket if self._place[self._group_of[item]] != "device"]
        swapped = sum(item.share for item in bucket if self._place[self._group_of[item]] == "nvme")
        elements = sum(item.share for item in to_host)
        if not elements:
            return
        buffer: Memory = ((BUFFERS, float(FP32 * elements)),) if kept_bytes != FP32 else ()
        if buffer:
            cast = rank.copy_kernel("cast", elements * (kept_bytes + FP32), "reduce_scatter")
            rank.tape.launch(cast, stream, label=label, takes=buffer)
        self._copy("to_host", float(FP32 * elements), "gradients_to_host", stream, label)
        rank.tape.give(stream, buffer)
        if swapped:
            rank.tape.synchronize(rank.tape.record(stream), "data")  # SwapBuffer.insert_tensor copies blockingly
            self._gradients.insert(swapped, label)

    def _update_on_device(self, size: int) -> None:
        job = self._rank.job
        part = size / sum(self._sizes)
        works = tuple(replace(work, constant_traffic=work.constant_traffic * part) for work in job.optimizer.works)
        kernel = Kernel(kind="optimizer", works=works, time=job.optimizer.time, extra=job.optimizer.extra * part)
        self._rank.tape.launch(kernel, COMPUTE, label="optimizer")

    def _reassign(self, number: int) -> None:
        """``_reassign_or_swap_out_partitioned_parameters``: new weights to where the parameters live."""
        rank, size = self._rank, self._sizes[number]
        half, on_device = rank.element_bytes, self._place[number] == "device"
        if self._policy.offload_param is None:
            if not on_device:
                rank.tape.work(self._cast(size) if half != FP32 else 0.0)
                self._blocking("to_device", float(half * size), "weights_to_device", pinned=half == FP32)
            return
        if on_device:
            self._blocking("to_host", float(FP32 * size), "weights_to_host", pinned=False)
        rank.tape.work(self._cast(size))
        if self._written[number]:
            self._rank.tape.launch(
                Transfer(route="nvme_write", amount=float(half * self._written[number]), role="parameters_to_nvme"),
                WRITES,
                label=f"sub-group {number}",
            )
            rank.tape.synchronize(rank.tape.record(WRITES), "data")

    def _swap_in(self, number: int) -> None:
        """``swap_in_optimizer_state``: have the states of a sub-group in memory, begin to read the next one's."""
        if self._place[number] != "nvme":
            return
        self._gradients.flush()
        if self._read is None:
            self._read = self._begin_read(number)
        self._rank.tape.synchronize(self._read, "data")
        following = self._next_swapped(number)
        self._read = None
        if self._offload.pipeline_read and following is not None:
            self._read = self._begin_read(following)

    def _swap_out(self, number: int) -> None:
        """``swap_out_optimizer_state``."""
        tape, amount = self._rank.tape, float(STATES * FP32 * self._sizes[number])
        if self._write is not None:
            tape.synchronize(self._write, "data")
        states = Transfer(route="nvme_write", amount=amount, role="optimizer_to_nvme")
        self._write = tape.launch(states, WRITES, label=f"sub-group {number}")
        if not (self._offload.pipeline_write and self._next_swapped(number) is not None):
            tape.synchronize(self._write, "data")
            self._write = None

    def _begin_read(self, number: int) -> Event:
        amount = float((STATES + 1) * FP32 * self._sizes[number])
        states = Transfer(route="nvme_read", amount=amount, role="optimizer_from_nvme")
        return self._rank.tape.launch(states, READS, label=f"sub-group {number}")

    def _next_swapped(self, number: int) -> int | None:
        later = range(number + 1, len(self._place))
        return next((index for index in later if self._place[index] == "nvme"), None)

    def _cast(self, size: int) -> float:
        """Host time of copying fp32 weights to the type of the parameters [s]."""
        return self._rank.job.costs.cpu_byte * (FP32 + self._rank.element_bytes) * size

    def _blocking(self, route: Route, amount: float, role: str, *, pinned: bool) -> None:
        tape = self._rank.tape
        tape.launch(Transfer(route=route, amount=amount, role=role, pinned=pinned), COMPUTE, label="weights")
        tape.synchronize(tape.record(COMPUTE), "data")

    def _copy(self, route: Route, amount: float, role: str, stream: str, label: str, takes: Memory = ()) -> None:
        transfer = Transfer(route=route, amount=amount, role=role, pinned=self._offload.pin_memory)
        self._rank.tape.launch(transfer, stream, label=label, takes=takes)
