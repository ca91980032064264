"""How a full bucket is reduced: never by a reduce-scatter (Z12-16).

=============== ================================== ======================================================
reduce_scatter  use_multi_rank_bucket_allreduce    collectives of a bucket
=============== ================================== ======================================================
true            true                               one all-reduce of the concatenated slices
true            false                              one reduce per owner, in the order in which they come
false           either                             one all-reduce of the bucket in place
=============== ================================== ======================================================

Without contiguous gradients it is always one all-reduce of the flattened bucket (Z12-12).  Programs are those of an
average rank: a bucket of n elements leaves n / N of them with their owner.

Source: DeepSpeed ``stage_1_and_2.py``, functions of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulator.laws.collectives.base import CollectiveKind
from simulator.schedules.job import DTYPE_BYTES
from simulator.schedules.program import Memory
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero12.engine import TEMPORARIES, Engine, bucket_label, small_buckets
from simulator.schedules.zero12.offload import CpuOffload
from simulator.schedules.zero12.partition import FlatPartition, Slice

__all__ = ["REDUCE", "Reducer"]

REDUCE: Final = "reduce"
"""``reduction_stream``, used with ``overlap_comm`` only."""

ACCUMULATOR_BYTES: Final = 4  # definition: fp32


class Reducer:
    """Reduces buckets.

    Parameters
    ----------
    dtype
        Of the bucket before it is cast to what is sent.
    compact
        Whether what is reduced is added to an fp32 partition at once, instead of being copied back.

    Attributes
    ----------
    offload
        Where reduced gradients go if the optimizer is on the host.
    """

    def __init__(self, engine: Engine, partition: FlatPartition, dtype: str, *, compact: bool) -> None:
        self._engine, self._policy = engine, engine.policy
        self._partition, self._compact = partition, compact
        self._ranks = engine.group.size
        self.stream = REDUCE if engine.policy.overlap_comm else COMPUTE
        self._casts = engine.wire_dtype != dtype
        self._kept, self._sent = DTYPE_BYTES[dtype], DTYPE_BYTES[engine.wire_dtype]
        self.offload: CpuOffload | None = None
        if engine.policy.offload_optimizer is not None:
            kept = ACCUMULATOR_BYTES if compact else self._kept
            self.offload = CpuOffload(engine, partition, self.stream, kept)

    def average_tensor(self, names: Sequence[str], elements: int, takes: Memory, gives: Memory) -> None:
        """Reduce a contiguous bucket, an empty one included (Z12-8), then keep what this rank owns."""
        if self._policy.overlap_comm:  # Z12-13
            tape = self._engine.tape
            tape.wait(REDUCE, tape.record(COMPUTE))
            tape.wait(COMPUTE, tape.record(REDUCE), "prefetch limit")
        if not names:
            return
        label = bucket_label(names)
        if self._policy.reduce_scatter:
            self._engine.copy("scale", 2 * self._kept * elements, self.stream, label)
            for owner, sizes in self._slices_by_owner(names):
                self._allreduce_no_retain(owner, sizes, label)
        else:
            self._gradient_reduction_w_predivide(elements, label)
        self._copy_out(names, elements, label, takes, gives)

    def buffered_reduce_fallback(self, names: Sequence[str], elements: int, takes: Memory, gives: Memory) -> None:
        """Reduce gradients that lie in no common buffer; an empty bucket does nothing at all."""
        if not names:
            return
        label = bucket_label(names)
        self._synchronize()
        self._engine.copy("scale", 2 * self._kept * elements, self.stream, label)
        self._allreduce_bucket("all_reduce", len(names), elements, label)
        traffic = (self._kept + self._sent) * elements
        self._engine.copy("copy out", traffic, self.stream, label, takes=takes, gives=gives)

    def _slices_by_owner(self, names: Sequence[str]) -> Iterator[tuple[int | None, list[int]]]:
        """Sizes of slices that go together; those of an all-reduce belong to no owner.

        Neighbours in the bucket that have the same owner are one slice.
        """
        merged: list[Slice] = []
        for item in (item for name in names for item in self._partition.slices[name]):
            if merged and merged[-1].owner == item.owner:
                merged[-1] = Slice(item.owner, merged[-1].elements + item.elements)
            else:
                merged.append(item)
        if self._policy.use_multi_rank_bucket_allreduce:
            yield None, [item.elements for item in merged]
        else:
            for owner in dict.fromkeys(item.owner for item in merged):
                yield owner, [item.elements for item in merged if item.owner == owner]

    def _allreduce_no_retain(self, owner: int | None, sizes: Sequence[int], label: str) -> None:
        """Reduce slices, to *owner* or to all, in runs that end where they exceed the bucket size (Z12-17)."""
        numbered = {str(number): size for number, size in enumerate(sizes)}
        for run in small_buckets(list(numbered), numbered, self._policy.reduce_bucket_size):
            elements = sum(numbered[number] for number in run)
            if owner is None:
                self._allreduce_bucket("all_reduce", len(run), elements, label)
            else:
                self._synchronize()
                self._allreduce_bucket("reduce", len(run), elements, label)

    def _synchronize(self) -> None:
        """Make sure that the gradients are there, the hard way: ``allreduce_and_copy``."""
        if self._policy.overlap_comm:
            self._engine.device_synchronize()

    def _allreduce_bucket(self, kind: CollectiveKind, tensors: int, elements: int, label: str) -> None:
        """Flatten if there are several tensors, cast if needed, send."""
        kept, sent = self._kept * elements, self._sent * elements
        gives: Memory = ()
        if tensors > 1:
            takes = ((TEMPORARIES, float(kept)),)
            self._engine.copy("flatten", 2 * kept, self.stream, label, takes=takes)
            gives += takes
        if self._casts:
            takes = ((TEMPORARIES, float(sent)),)
            self._engine.copy("cast", kept + sent, self.stream, label, takes=takes)
            gives += takes
        self._engine.communicate(kind, elements, self._engine.wire_dtype, kind, self.stream, label, gives)

    def _gradient_reduction_w_predivide(self, elements: int, label: str) -> None:
        """All-reduce the bucket where it lies."""
        kept, sent = self._kept * elements, self._sent * elements
        takes = ((TEMPORARIES, float(sent)),) if self._casts else ()
        if self._casts:
            self._engine.copy("cast", kept + sent, self.stream, label, takes=takes)
        self._engine.communicate("all_reduce", elements, self._engine.wire_dtype, "all_reduce", self.stream, label)
        self._engine.copy("scale", 2 * sent, self.stream, label, gives=() if self._casts else takes)
        if self._casts:
            self._engine.copy("cast", kept + sent, self.stream, label, gives=takes)

    def _copy_out(self, names: Sequence[str], elements: int, label: str, takes: Memory, gives: Memory) -> None:
        """Keep the own slices: copied back and then out of the bucket, or added to the fp32 partition.

        Each rank copies the whole of a parameter that it owns a part of (``copy_grads_in_partition``).
        """
        own = elements / self._ranks
        if self.offload is not None and not self._compact:
            if self._policy.reduce_scatter:
                self._engine.copy("copy back", own * (self._sent + self._kept), self.stream, label)
            self.offload.copy_grads_in_partition(names, elements, label, gives)
            return
        if self._compact:
            traffic = own * (self._sent + 2 * ACCUMULATOR_BYTES)
        else:
            slices = self._partition.slices
            touched = sum(sum(item.elements for item in slices[name]) * len(slices[name]) for name in names)
            back = own * (self._sent + self._kept) if self._policy.reduce_scatter else 0.0
            traffic = back + 2 * self._kept * touched / self._ranks
        self._engine.copy("copy out", traffic, self.stream, label, takes=takes, gives=gives)
        if self.offload is not None and self._engine.boundary:
            self.offload.send(own, own, label)
