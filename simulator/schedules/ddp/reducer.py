"""``c10d::Reducer``: gradients go into buckets, and buckets are all-reduced in their order.

Functions have the names that they have in PyTorch.  Source: torch 2.13, ``csrc/distributed/c10d/reducer.cpp`` and
``distributed/algorithms/ddp_comm_hooks/default_hooks.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from simulator.schedules.gradients import FreshGradients
from simulator.schedules.job import DTYPE_BYTES
from simulator.schedules.program import Event, Memory
from simulator.schedules.rank import Rank
from simulator.schedules.tape import COMPUTE
from simulator.world.policy.ddp import DdpPolicy

__all__ = ["Reducer", "bucket_label", "compute_bucket_assignment_by_size"]

IN_FLIGHT = "gradients in flight"
"""Item of memory."""

COMM_HOOK = "comm hook"
"""Stream of what a communication hook does after its all-reduce: futures run callbacks on a stream of their own."""


def compute_bucket_assignment_by_size(sizes: Mapping[str, float], limits: Sequence[float]) -> list[list[str]]:
    """Cut names into buckets, each closed by the tensor that brings it to its limit (D-2).

    Parameters
    ----------
    sizes
        By name, in order [B].
    limits
        Bucket by bucket, the last one for all that follow [B].

    Examples
    --------
    >>> compute_bucket_assignment_by_size({"a": 2, "b": 1, "c": 8, "d": 9, "e": 1}, [2, 9])
    [['a'], ['b', 'c'], ['d'], ['e']]
    """
    buckets: list[list[str]] = []
    bucket: list[str] = []
    filled = 0.0
    for name, size in sizes.items():
        bucket.append(name)
        filled += size
        if filled >= limits[min(len(buckets), len(limits) - 1)]:
            buckets.append(bucket)
            bucket, filled = [], 0.0
    return [*buckets, bucket] if bucket else buckets


class Reducer:
    """Collects gradients in buckets and all-reduces them."""

    def __init__(self, rank: Rank, policy: DdpPolicy) -> None:
        self._rank, self._policy = rank, policy
        execution, trainable = rank.job.execution, rank.job.trainable
        self._elements = {name: tensor.elements for name, tensor in trainable.items()}
        self._bytes_per_element = DTYPE_BYTES[rank.job.dtype]
        self._hooks = Counter(mark.name for mark in execution.backward if mark.kind == "gradient")
        self._unused = {name: None for name in trainable if name not in self._hooks}
        """Names in order of registration: those without a gradient."""
        self._gradients = FreshGradients(self._elements, self._bytes_per_element)
        self._outside: dict[str, float] = {}
        """Gradients that will be views but lie outside of their bucket yet [B]."""
        self._inside: set[str] = set()
        """Gradients that are views of their bucket."""
        self._num_iterations = 0  # that reduce gradients; those in no_sync() do not count
        self._expect_autograd_hooks = self._require_finalize = False
        self._rebuilt_params: list[str] = []
        self._has_rebuilt_bucket = False
        self._local_used_map_reduced = False
        self._local_used_work: Event | None = None
        first = compute_bucket_assignment_by_size(self._sizes(trainable), policy.first_bucket_limits)
        self._initialize_buckets(first[::-1])  # parameters stand in forward order, gradients come the other way round

    @property
    def held(self) -> Memory:
        """Memory of the buckets, which are there all the time; gradients that are views of them need no other."""
        return (("reduce buckets", float(sum(self._elements.values()) * self._bytes_per_element)),)

    def born(self, names: Sequence[str]) -> Memory:
        """Memory of the gradients that a backward makes now, of later views only until they are in their bucket."""
        if not self._policy.gradient_as_bucket_view:
            return self._gradients.born(names)
        known = self._inside | self._outside.keys()
        new = {name: size for name, size in self._sizes(names).items() if name not in known}
        self._outside |= new
        return ((IN_FLIGHT, sum(new.values())),) if new else ()

    def freed(self) -> Memory:
        """Memory of the gradients that ``zero_grad()`` frees."""
        self._inside.clear()
        return self._gradients.freed()

    def prepare_for_forward(self) -> None:
        """Act on the start of a forward whose gradients will be reduced."""
        self._num_iterations += 1

    def rebuild_buckets(self) -> None:
        """Assign gradients to buckets in the order in which they were ready, once in training (D-3, D-4)."""
        if not self._should_rebuild_buckets or not self._rebuilt_params:
            return
        # the small bucket is always filled first, so a small last one is made by going backwards
        way = -1 if self._policy.last_bucket_cap else 1
        order = self._rebuilt_params[::way]
        rebuilt = compute_bucket_assignment_by_size(self._sizes(order), self._policy.bucket_limits)[::way]
        self._sync_bucket_indices(len(rebuilt))
        self._has_rebuilt_bucket = True
        self._initialize_buckets(rebuilt)

    def prepare_for_backward(self) -> None:
        """Reset what is counted in each backward; a search of the graph for unused parameters would be here."""
        self._expect_autograd_hooks = True
        self._has_marked_unused_parameters = False
        self._hooks_left = Counter(self._hooks)
        self._pending = [len(bucket) for bucket in self._buckets]
        self._next_bucket = 0
        self._works: dict[int, Event] = {}

    def autograd_hook(self, name: str) -> None:
        """Act on a gradient that has been accumulated."""
        self._rank.hook()
        if self._static_graph_first_iteration or not self._expect_autograd_hooks:
            return
        if not self._has_marked_unused_parameters:
            self._has_marked_unused_parameters = True
            for unused in self._unused:
                self._mark_variable_ready(unused)
        self._hooks_left[name] -= 1
        if self._hooks_left[name]:
            return
        if self._should_rebuild_buckets:
            self._rebuilt_params.append(name)
        self._mark_variable_ready(name)

    def end_of_backward(self) -> None:
        """Run the callbacks that were queued for the end of backward."""
        if self._static_graph_first_iteration:
            self._delay_all_reduce()
        elif self._require_finalize:
            if self._should_rebuild_buckets:
                self._rebuilt_params += self._unused
            self._finalize_backward()

    @property
    def _should_rebuild_buckets(self) -> bool:
        return not self._policy.finds_unused and not self._has_rebuilt_bucket

    @property
    def _static_graph_first_iteration(self) -> bool:
        return self._policy.static_graph and self._num_iterations == 1

    def _sizes(self, names: Sequence[str] | Mapping[str, object]) -> dict[str, float]:
        return {name: float(self._elements[name] * self._bytes_per_element) for name in names}

    def _initialize_buckets(self, buckets: list[list[str]]) -> None:
        self._buckets = buckets
        self._bucket_of = {name: index for index, bucket in enumerate(buckets) for name in bucket}

    def _sync_bucket_indices(self, buckets: int) -> None:
        """Take rank 0's buckets: which parameters, with the number of buckets at the end, and how many in each."""
        for elements in (len(self._elements) + 1, buckets):
            work = self._rank.issue("broadcast", elements, "i32", "bucket_indices", "bucket indices")
            self._rank.tape.wait(COMPUTE, work)
            self._rank.read()

    def _mark_variable_ready(self, name: str) -> None:
        self._mark_variable_ready_dense(name)
        index = self._bucket_of[name]
        self._pending[index] -= 1
        if not self._pending[index]:
            self._flush_deferred_copies(self._buckets[index])
            self._mark_bucket_ready()
        if self._next_bucket == len(self._buckets):
            if self._policy.finds_unused:
                self._all_reduce_local_used_map()
            self._require_finalize = True

    def _mark_variable_ready_dense(self, name: str) -> None:
        """Divide the gradient into its bucket (D-7), where an unused parameter has zeros.

        So it is with views as well: ``zero_grad`` sets gradients to None, so that autograd makes new ones outside of
        the buckets; and gradients that stay are divided in place, which moves as many bytes.
        """
        size = self._elements[name] * self._bytes_per_element
        if name in self._unused:
            self._rank.move("zero", 1.0 * size, "all_reduce", name)
        elif not self._policy.batched_grad_copy:
            self._rank.move("copy in", 2.0 * size, "all_reduce", name, gives=self._enter([name]))

    def _enter(self, names: Sequence[str]) -> Memory:
        """Memory of those of *names* that become views of their bucket."""
        size = sum(self._outside.pop(name, 0.0) for name in names)
        if self._policy.gradient_as_bucket_view:
            self._inside.update(names)
        return ((IN_FLIGHT, size),) if size else ()

    def _flush_deferred_copies(self, bucket: Sequence[str]) -> None:
        used = [name for name in bucket if name not in self._unused]
        if self._policy.batched_grad_copy and used:
            traffic, label = 2 * sum(self._sizes(used).values()), bucket_label(bucket)
            self._rank.move("copy in", traffic, "all_reduce", label, gives=self._enter(used))
            if self._policy.comm_hook == "no":
                self._rank.move("divide", 2 * sum(self._sizes(bucket).values()), "all_reduce", bucket_label(bucket))

    def _mark_bucket_ready(self) -> None:
        """Reduce all buckets that are ready and whose turn it is (D-5)."""
        while self._next_bucket < len(self._buckets) and not self._pending[self._next_bucket]:
            bucket = self._buckets[self._next_bucket]
            if not self._policy.skip_all_reduce_unused_params or any(name not in self._unused for name in bucket):
                self._all_reduce_bucket(self._next_bucket)
            self._next_bucket += 1

    def _all_reduce_bucket(self, index: int) -> None:
        label = bucket_label(self._buckets[index])
        elements = sum(self._elements[name] for name in self._buckets[index])
        hook, dtype = self._policy.comm_hook, self._rank.job.dtype
        if hook == "no":
            self._works[index] = self._rank.issue("all_reduce", elements, dtype, "all_reduce", label)
        else:
            self._works[index] = self._compress_hook(elements, hook, label)

    def _compress_hook(self, elements: int, dtype: str, label: str) -> Event:
        """Cast and divide, all-reduce, and cast back into the bucket."""
        tape, whole, sent = self._rank.tape, elements * self._bytes_per_element, elements * DTYPE_BYTES[dtype]
        casts = dtype != self._rank.job.dtype
        memory = (("reduce temporaries", float(sent)),) if casts else ()
        if casts:
            tape.take(memory)
            self._rank.move("cast", float(whole + sent), "all_reduce", label)
        self._rank.move("divide", 2.0 * sent, "all_reduce", label)
        work = self._rank.issue("all_reduce", elements, dtype, "all_reduce", label)
        if casts:
            tape.wait(COMM_HOOK, work)
            work = self._rank.move("cast", float(whole + sent), "all_reduce", label, COMM_HOOK)
            tape.give(COMM_HOOK, memory)
        return work

    def _all_reduce_local_used_map(self) -> None:
        """Find out which parameters no rank has used."""
        elements = len(self._elements)
        self._local_used_work = self._rank.issue("all_reduce", elements, "i32", "unused_parameters", "used parameters")

    def _delay_all_reduce(self) -> None:
        """Reduce everything at the end of the first backward of a static graph."""
        self._all_reduce_local_used_map()
        for name in self._elements:
            self._mark_variable_ready_dense(name)
        for bucket in self._buckets:
            self._flush_deferred_copies(bucket)
        for index in range(len(self._buckets)):
            self._all_reduce_bucket(index)
        self._finalize_backward()

    def _finalize_backward(self) -> None:
        """Let compute wait for all buckets, and copy gradients back as their buckets come (D-6, D-7)."""
        self._rank.hook()
        self._expect_autograd_hooks = self._require_finalize = False
        for index, work in self._works.items():
            self._rank.tape.wait(COMPUTE, work)
            for name in self._buckets[index]:
                self._copy_bucket_to_grad(name)
        if self._local_used_work is not None and not self._local_used_map_reduced:
            self._rank.tape.wait(COMPUTE, self._local_used_work)
        self._local_used_work = None
        self._local_used_map_reduced &= self._policy.static_graph  # a search in every iteration starts anew

    def _copy_bucket_to_grad(self, name: str) -> None:
        if name in self._unused:  # it gets no gradient if no other rank has used it, which the host must know
            self._read_local_used_map()
        elif not self._policy.gradient_as_bucket_view:
            self._rank.move("copy out", 2.0 * self._elements[name] * self._bytes_per_element, "all_reduce", name)

    def _read_local_used_map(self) -> None:
        if self._local_used_work is not None and not self._local_used_map_reduced:
            self._rank.tape.wait(COMPUTE, self._local_used_work)
            self._rank.read()
            self._local_used_map_reduced = True


def bucket_label(names: Sequence[str]) -> str:
    """What a report calls the bucket that holds *names*."""
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
