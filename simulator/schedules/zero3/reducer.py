"""Gradients: collected in a bucket, reduce-scattered from it on a stream of their own.

A gradient that does not fit flushes what is in the bucket *before* the reduction stream is made to wait for it
(Z3-34), so a reduce-scatter depends on its own gradients only.  Compute never waits for reductions (Z3-37); the host
does at the end of every backward (Z3-38), which leaves the last bucket exposed.

Source: DeepSpeed ``runtime/zero/stage3.py`` and ``runtime/comm/coalesced_collectives.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from simulator.errors import InputError
from simulator.laws.collectives.base import CollectiveKind
from simulator.schedules.job import DTYPE_BYTES
from simulator.schedules.program import Event, Memory
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero3.offload import OptimizerOnHost
from simulator.schedules.zero3.parameters import ShardedParameter
from simulator.schedules.zero3.quantized import gradient_groups
from simulator.schedules.zero3.rank import Rank, label_of
from simulator.world.mesh import Group

__all__ = ["BUCKETS", "GRADIENTS", "GradientReducer"]

GRADIENTS: Final = "gradients in flight"
BUCKETS: Final = "reduce buckets"
TEMPORARIES: Final = "reduce temporaries"
QUANTIZED: Final = "quantization buffers"
"""Items of memory."""

MAX_PARAM_REDUCE_EVENTS: Final = 2  # source: stage3.py, max_param_reduce_events
ROLE: Final = "reduce_scatter"
SCALE_BYTES: Final = 4  # definition: fp32


class GradientReducer:
    """The bucket of one rank (``ipg_bucket``: independent parameter gradients).

    Parameters
    ----------
    on_host
        Where reduced gradients go if the optimizer is on the host.

    Raises
    ------
    InputError
        Quantised gradients without ``reduce_scatter``, which DeepSpeed refuses (ZP-15).
    """

    def __init__(self, rank: Rank, on_host: OptimizerOnHost | None = None) -> None:
        if rank.policy.zero_quantized_gradients and not rank.policy.reduce_scatter:
            key, remedy = "zero_optimization.reduce_scatter", "leave it out or set it to true"
            raise InputError("zero_quantized_gradients needs it", key=key, value=False, remedy=remedy)
        self._rank, self._policy, self._stream = rank, rank.policy, rank.reduce_stream
        self._dtype = self._policy.communication_data_type or rank.job.dtype  # Z3-40
        self._bytes = DTYPE_BYTES[self._dtype]
        self._kept_bytes = DTYPE_BYTES[self._policy.grad_accum_dtype or rank.job.dtype]
        self._params_in_bucket: list[ShardedParameter] = []
        self._elements = 0
        self._in_buffer: set[ShardedParameter] = set()
        self._events: deque[Event | None] = deque()
        self._accumulates = False
        self._on_host = on_host
        mesh = rank.job.mesh
        self._local = mesh.group("local", mesh.devices_per_host)
        self._across = mesh.group("global", mesh.hosts, stride=mesh.devices_per_host)
        # on one host the plain reduce-scatter is used silently (ZP-15)
        self._quantizes = self._policy.zero_quantized_gradients and mesh.hosts > 1

    @property
    def buffer(self) -> Memory:
        """The flat bucket, which exists all the time."""
        size = self._policy.reduce_bucket_size if self._policy.contiguous_gradients else 0
        return ((BUCKETS, float(size * self._bytes)),) if size else ()

    def begin(self) -> None:
        """Begin a step: gradients overwrite what was accumulated (Z3-39)."""
        self._accumulates = False
        self._events = deque(None for _ in self._events)  # a program cannot wait for the one before it

    def reduce(self, parameter: ShardedParameter) -> None:
        """``reduce_independent_p_g_buckets_and_remove_grads``: flush if it does not fit, then add it (Z3-33)."""
        if self._elements and self._elements + parameter.elements > self._policy.reduce_bucket_size:
            self._reduce_and_partition()
        self._add_to_bucket(parameter)

    def epilogue(self) -> None:
        """``independent_gradient_partition_epilogue``: flush the rest and wait until everything is reduced (Z3-38)."""
        self._reduce_and_partition()
        self._rank.tape.synchronize(self._rank.tape.record(self._stream), "host")
        self._accumulates = True

    def _add_to_bucket(self, parameter: ShardedParameter) -> None:
        tape = self._rank.tape
        tape.wait(self._stream, tape.record(COMPUTE))
        fits = self._elements + parameter.elements <= self._policy.reduce_bucket_size
        if self._policy.contiguous_gradients and fits:
            traffic = parameter.elements * (self._rank.element_bytes + self._bytes)
            kernel = self._rank.copy_kernel("copy to bucket", traffic, ROLE)
            tape.launch(kernel, self._stream, label=parameter.name, gives=_gradients([parameter]))
            self._in_buffer.add(parameter)
        self._params_in_bucket.append(parameter)
        self._elements += parameter.elements

    def _reduce_and_partition(self) -> None:
        """``__reduce_and_partition_ipg_grads``: one flush; at most three are under way (Z3-37)."""
        bucket, tape = self._params_in_bucket, self._rank.tape
        if not bucket:
            return
        if len(self._events) > MAX_PARAM_REDUCE_EVENTS:
            oldest = self._events.popleft()
            if oldest is not None:
                tape.synchronize(oldest, "prefetch limit")
        fits = self._elements <= self._policy.reduce_bucket_size
        if self._policy.contiguous_gradients and fits and not self._policy.reduce_scatter:
            self._avg_scatter_contiguous(bucket)
        else:
            self._avg_scatter(sorted(bucket, key=lambda parameter: parameter.ds_id))
        self._params_in_bucket, self._elements = [], 0
        self._in_buffer.clear()
        self._events.append(tape.record(self._stream))

    def _avg_scatter_contiguous(self, bucket: Sequence[ShardedParameter]) -> None:
        """Z3-36: all-reduce the bucket where it is, although every rank needs its share only."""
        label = label_of(item.name for item in bucket)
        self._copy("average", 2 * self._elements * self._bytes, label)
        self._send("all_reduce", self._elements, self._dtype, self._rank.world, label)
        self._partition_grads(bucket, label)

    def _avg_scatter(self, bucket: Sequence[ShardedParameter]) -> None:
        """Z3-35: one reduce-scatter of the bucket, or four all-to-alls for each parameter (qgZ)."""
        label = label_of(item.name for item in bucket)
        separate = sum(item.elements for item in bucket if item not in self._in_buffer)
        cast: Memory = ()
        if self._dtype != self._rank.job.dtype and separate:
            cast = ((TEMPORARIES, float(separate * self._bytes)),)
            self._copy("cast", separate * (self._rank.element_bytes + self._bytes), label, takes=cast)
        if self._quantizes:
            for parameter in bucket:
                self._all_to_all_quant_reduce(parameter)
        else:
            self._reduce_scatter_coalesced(bucket)
        self._partition_grads(bucket, label, cast)

    def _reduce_scatter_coalesced(self, bucket: Sequence[ShardedParameter]) -> None:
        """Pad each parameter, lay shares out by rank, divide, reduce-scatter."""
        label, ranks = label_of(item.name for item in bucket), self._rank.world.size
        whole = sum(item.share for item in bucket) * ranks
        size = float(whole * self._bytes)
        in_place = len(bucket) == 1 and bucket[0].elements % ranks == 0
        if not in_place:
            self._copy("interleave", 2 * size, label, takes=((TEMPORARIES, size),))
        self._copy("average", 2 * size, label)
        self._send("reduce_scatter", whole, self._dtype, self._rank.world, label)
        if not in_place:
            self._rank.tape.give(self._stream, ((TEMPORARIES, size),))

    def _all_to_all_quant_reduce(self, parameter: ShardedParameter) -> None:
        """ZP-16, ZP-17: int4 inside the host, summed and requantised, int4 between hosts."""
        elements, ranks = parameter.elements, self._rank.world.size
        if len(parameter.dimensions) == 1 or elements % (2 * ranks):
            self._reduce_scatter_coalesced([parameter])
            return
        groups = gradient_groups(parameter.dimensions, ranks)
        near = elements // 2, groups
        far = elements // (2 * self._local.size), groups // self._local.size
        near_bytes, far_bytes = (payload + scales * SCALE_BYTES for payload, scales in (near, far))
        restored = 2 * far[0] * self._bytes
        shared = restored * (1 + 1 / self._across.size)
        # what is sent and what arrives at each hop, then what both hops left in full
        buffers = [((QUANTIZED, float(size)),) for size in (2 * near_bytes, 2 * far_bytes, shared)]
        self._copy("quantize", elements * self._bytes + near_bytes, parameter.name, takes=buffers[0])
        self._hop(*near, self._local, parameter.name)
        self._copy("reduce and quantize", near_bytes + far_bytes, parameter.name, takes=buffers[1])
        self._hop(*far, self._across, parameter.name)
        gives = buffers[0] + buffers[1] + buffers[2]  # variables of a loop over parameters
        self._copy("dequantize and reduce", far_bytes + shared, parameter.name, takes=buffers[2], gives=gives)

    def _hop(self, payload: int, scales: int, group: Group, label: str) -> None:
        self._send("all_to_all", payload, "u8", group, label)
        self._send("all_to_all", scales, "fp32", group, label)

    def _partition_grads(self, bucket: Sequence[ShardedParameter], label: str, buffers: Memory = ()) -> None:
        """Copy or add the own shares to the gradients that are kept (Z3-39)."""
        if self._on_host is not None:
            boundary = self._rank.tape.micro_batch == self._rank.job.micro_batches - 1
            gives = _gradients(bucket)
            self._on_host.partition_grads(bucket, self._kept_bytes, accumulates=self._accumulates, boundary=boundary)
            self._rank.tape.give(self._stream, gives)
            return
        share = sum(item.share for item in bucket)
        touched = self._bytes + self._kept_bytes * (2 if self._accumulates else 1)
        kind = "accumulate" if self._accumulates else "keep"
        self._copy(kind, share * touched, label, gives=_gradients(bucket) + buffers)

    def _send(self, kind: CollectiveKind, elements: int, dtype: str, group: Group, label: str) -> None:
        """Launch a collective on the reduction stream itself (O-6)."""
        self._rank.blocking(self._rank.collective(kind, elements, dtype, group, ROLE), self._stream, label)

    def _copy(self, kind: str, traffic: float, label: str, takes: Memory = (), gives: Memory = ()) -> None:
        kernel = self._rank.copy_kernel(kind, traffic, ROLE)
        self._rank.tape.launch(kernel, self._stream, label=label, takes=takes, gives=gives)


def _gradients(parameters: Sequence[ShardedParameter]) -> Memory:
    """Take the memory of unreduced gradients from *parameters*, to give it back."""
    held = sum(parameter.gradient for parameter in parameters)
    for parameter in parameters:
        parameter.gradient = 0.0
    return ((GRADIENTS, held),) if held else ()
