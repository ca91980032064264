"""Fetches, prefetches and releases parameters around modules: ``PartitionedParameterCoordinator``.

The order inside a fetch is: submit what the module lacks, wait for what it needs, submit prefetches (Z3-13).  So
compute never waits for a prefetch that was submitted in the same hook.

Source: DeepSpeed ``runtime/zero/partitioned_param_coordinator.py``; names are those of that file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from simulator.schedules.program import Event
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero3.gather import GATHERED, Gatherer, Handle
from simulator.schedules.zero3.parameters import HookedModule, ShardedParameter, Status
from simulator.schedules.zero3.rank import Rank
from simulator.schedules.zero3.trace import Trace, TraceMode

__all__ = ["PartitionedParameterCoordinator"]

MAX_ONGOING_FETCH_EVENTS: Final = 2  # source: __max_ongoing_fetch_events
NEVER: Final = -1


class PartitionedParameterCoordinator:
    """Decides for one rank which parameters are whole at what time."""

    def __init__(self, rank: Rank, gatherer: Gatherer) -> None:
        self._rank, self._policy, self._gatherer = rank, rank.policy, gatherer
        self.trace_mode = TraceMode.INVALID
        self.live = 0
        """Elements gathered or in flight since the last ``reset_step``, minus released ones (Z3-22)."""
        self._step_id = 0
        self._submodule_order: list[HookedModule] = []
        self._trace = Trace()
        self._next_in_queue = 0
        """The queue of parameters to fetch is the trace's ``uses`` from here on."""
        self._step_id_fetched_for: dict[ShardedParameter, int] = {}
        """Latest use for which each parameter was fetched, or found to be there already."""
        self._inflight: dict[ShardedParameter, Handle] = {}
        self._ongoing_fetch_events: deque[Event | None] = deque()
        self._active_backward: dict[HookedModule, None] = {}
        self._decisions: dict[tuple[HookedModule, int], set[ShardedParameter]] = {}
        self._prefetch_bucket_size = self._policy.stage3_prefetch_bucket_size
        if self._policy.stage3_allgather_sequential:
            self._prefetch_bucket_size = min(self._prefetch_bucket_size, 1)  # Z3-25
        # set_z3_leaf_modules_by_threshold also switches on fast fetches, which leave no events
        self._fast_fetch = self._policy.stage3_module_granularity_threshold > 0

    # Tracing (Z3-8 to Z3-12)

    def reset_step(self) -> None:
        """Begin a micro-batch, in the first pre-forward hook of the root."""
        self._clean_inflight()
        if self.trace_mode is not TraceMode.COMPLETE:
            self._assert_same_as_other_ranks(len(self._submodule_order))
            if self.trace_mode is TraceMode.RECORD:
                self._trace = Trace(self._submodule_order)
                for _ in ("parameters", "last uses"):
                    self._assert_same_as_other_ranks(len(self._trace.uses))
                self.trace_mode = TraceMode.COMPLETE
            else:
                self.trace_mode = TraceMode.RECORD
        self._next_in_queue, self._step_id, self.live = 0, 0, 0
        self._step_id_fetched_for = {}

    def trace_prologue(self, module: HookedModule) -> None:
        """Compare *module* with the trace, or record it."""
        if self.trace_mode is TraceMode.COMPLETE:
            expected = self._trace.modules
            if self._step_id >= len(expected) or expected[self._step_id] is not module:
                self._invalidate_trace()
        elif self.trace_mode is TraceMode.RECORD:
            self._submodule_order.append(module)

    def _invalidate_trace(self) -> None:
        """Z3-10: two micro-batches without prefetch follow."""
        self.trace_mode = TraceMode.INVALID
        self._submodule_order, self._trace = [], Trace()
        self._next_in_queue, self._step_id_fetched_for = 0, {}
        self._clean_inflight()

    def _clean_inflight(self) -> None:
        """What was prefetched and never used is waited for and freed."""
        for parameter, handle in self._inflight.items():
            handle.wait(COMPUTE)
            self._release_param(parameter)
        self._inflight.clear()

    def _assert_same_as_other_ranks(self, length: int) -> None:
        """Z3-11: the length of a list, then the list, from rank 0; the host reads every number of it."""
        for elements in (1, length):
            check = self._rank.collective("broadcast", elements, "i64", self._rank.world, "trace_check")
            self._rank.blocking(check, COMPUTE, "trace")
            if elements:
                self._rank.read()

    # Fetch (Z3-13 to Z3-19)

    def fetch_sub_module(self, module: HookedModule, *, forward: bool, in_backward: bool) -> None:
        """Make the parameters of *module* whole before its forward or backward; *in_backward* with both is a recompute.

        Prefetches follow if the trace is complete.
        """
        if not forward:
            self._active_backward[module] = None
        if module.parameters:
            self._fetch(module, recomputes=forward and in_backward)
        self._rank.tape.wait(COMPUTE, self._rank.tape.record(self._rank.gather_stream))  # Z3-18
        if self.trace_mode is TraceMode.COMPLETE:
            if module.parameters:
                self._skip_in_queue(module.parameters)
            self._prefetch()
            if self._gatherer.swapper is not None and self._prefetch_bucket_size > 0:
                in_flight = sum(parameter.elements for parameter in self._inflight)
                following = (parameter for parameter, _ in self._trace.uses[self._next_in_queue :])
                self._gatherer.swapper.prefetch(following, in_flight)
        self._step_id += 1

    def _fetch(self, module: HookedModule, *, recomputes: bool) -> None:
        """Submit what is lacking, then wait for it and for what was prefetched."""
        missing = [item for item in module.parameters if item.status is Status.NOT_AVAILABLE]
        if missing:
            self._all_gather_params(missing)
        recomputed_for = next(reversed(self._active_backward), None) if recomputes else None
        for parameter in module.parameters:
            parameter.active_sub_modules.add(module.ds_id)
            if recomputed_for is not None and not parameter.trainable:
                recomputed_for.recompute_parameters.add(parameter)
                parameter.active_sub_modules.add(recomputed_for.ds_id)
            if parameter in self._inflight:
                self._wait_for(parameter, leaves_event=not (self._fast_fetch and module.is_leaf))

    def _wait_for(self, parameter: ShardedParameter, *, leaves_event: bool) -> None:
        """Z3-17: the host is at most three waited parameters ahead of the all-gather stream."""
        events, tape = self._ongoing_fetch_events, self._rank.tape
        if len(events) > MAX_ONGOING_FETCH_EVENTS:
            oldest = events.popleft()
            if oldest is not None:
                tape.synchronize(oldest, "prefetch limit")
        self._inflight.pop(parameter).wait(self._rank.gather_stream)
        if leaves_event:
            events.append(tape.record(self._rank.gather_stream))

    def forget_events(self) -> None:
        """Nothing of an earlier program can be waited for, as it was done when this one began; the number counts."""
        self._ongoing_fetch_events = deque(None for _ in self._ongoing_fetch_events)

    def _skip_in_queue(self, parameters: Collection[ShardedParameter]) -> None:
        """Z3-20: take what is fetched now from the head of the queue, unless a prefetch took it before."""
        waiting = {item for item in parameters if self._step_id_fetched_for.get(item, NEVER) < self._step_id}
        uses, taken = self._trace.uses, set[ShardedParameter]()
        while self._next_in_queue < len(uses) and len(taken) < len(waiting):
            parameter, step = uses[self._next_in_queue]
            self._next_in_queue += 1
            self._step_id_fetched_for[parameter] = step
            taken.add(parameter)

    def _prefetch(self) -> None:
        """Z3-21 to Z3-23: one batch per hook, as long as not too much is whole."""
        limit = min(self._policy.stage3_max_live_parameters - self.live, self._prefetch_bucket_size)
        if limit <= 0:
            return
        uses, batch, elements = self._trace.uses, dict[ShardedParameter, None](), 0
        swapper = self._gatherer.swapper
        while self._next_in_queue < len(uses) and elements < limit:
            parameter, step = uses[self._next_in_queue]
            if swapper is not None and swapper.is_away(parameter):  # another prefetch reads it first
                break
            self._next_in_queue += 1
            self._step_id_fetched_for[parameter] = max(self._step_id_fetched_for.get(parameter, NEVER), step)
            if parameter.status is Status.NOT_AVAILABLE and parameter not in batch:
                batch[parameter] = None
                elements += parameter.elements
        if batch:
            self._all_gather_params(list(batch))

    def _all_gather_params(self, parameters: Sequence[ShardedParameter]) -> None:
        """One submission for each way of being stored, with and without a secondary copy (Z3-15)."""
        alike: dict[tuple[bool, bool], list[ShardedParameter]] = {}
        for parameter in parameters:
            self.live += parameter.elements
            alike.setdefault((parameter.stored_quantized, parameter.has_secondary), []).append(parameter)
        for stored_quantized, has_secondary in sorted(alike, reverse=True):
            batch = alike[stored_quantized, has_secondary]
            quantize = stored_quantized or self._policy.zero_quantized_weights  # ZP-9
            self._inflight |= dict.fromkeys(batch, self._gatherer.submit(batch, quantize=quantize))

    # Release (Z3-26 to Z3-29)

    def release_sub_module(self, module: HookedModule, *, forward: bool) -> None:
        """Free what *module* does not need any more, after its forward or backward."""
        if not forward:
            self._active_backward.pop(module, None)
        if not module.parameters and (forward or not module.recompute_parameters):
            return
        to_release = set(module.parameters)
        if self.trace_mode is TraceMode.COMPLETE:
            to_release = self._params_to_release(module)
        parameters = dict.fromkeys(module.parameters)
        if not forward:
            # the decision is kept, so what is added here stays added: DeepSpeed changes the set that it remembers
            to_release |= {item for item in module.recompute_parameters if not item.persistent}
            parameters |= dict.fromkeys(_in_order(module.recompute_parameters))
            module.recompute_parameters.clear()
        for parameter in parameters:
            parameter.active_sub_modules.discard(module.ds_id)
            if parameter in to_release:
                self._release_param(parameter)

    def release_backward_leftovers(self) -> None:
        """Z3-28: modules whose inputs need no gradient have no backward exit."""
        while self._active_backward:
            module, _ = self._active_backward.popitem()
            parameters = dict.fromkeys(module.parameters) | dict.fromkeys(_in_order(module.recompute_parameters))
            module.recompute_parameters.clear()
            for parameter in parameters:
                parameter.active_sub_modules.discard(module.ds_id)
                if not parameter.persistent:
                    self._release_param(parameter)

    def release_and_reset_all(self, parameters: Collection[ShardedParameter]) -> None:
        """Free everything, persistent parameters included (Z3-42)."""
        for parameter in parameters:
            if parameter in self._inflight:
                self._inflight.pop(parameter).wait(COMPUTE)
            parameter.active_sub_modules.clear()
            self._release_param(parameter)

    def _params_to_release(self, module: HookedModule) -> set[ShardedParameter]:
        """Decide once per module and step, for the life of the process (Z3-26, Z3-27)."""
        key = (module, self._step_id)
        if key not in self._decisions:
            reuse, step = self._policy.stage3_max_reuse_distance, self._step_id
            self._decisions[key] = {
                item
                for item in module.parameters
                if not item.persistent
                and self._step_id_fetched_for.get(item, NEVER) <= step  # (a): no later use was skipped by a prefetch
                and not self._trace.is_reused(item, step, reuse, below=module.is_leaf)  # (b)
            }
        return self._decisions[key]

    def _release_param(self, parameter: ShardedParameter) -> None:
        if parameter.status is not Status.AVAILABLE or parameter.active_sub_modules:
            return
        if self._policy.zero_hpz_partition_size > 1 and not parameter.has_secondary:
            self._partition_param_sec(parameter)
        if self._gatherer.swapper is not None:
            self._gatherer.swapper.release(parameter)
        parameter.status = Status.NOT_AVAILABLE
        self.live -= parameter.elements
        if parameter.held:
            self._rank.tape.give(COMPUTE, ((GATHERED, parameter.held),))  # Z3-29
            parameter.held = 0.0

    def _partition_param_sec(self, parameter: ShardedParameter) -> None:
        """ZP-3, ZP-5: keep a share for the hpZ group, for which the host waits until compute is done."""
        rank = self._rank
        share = parameter.share * rank.world.size / min(self._policy.zero_hpz_partition_size, rank.world.size)
        copy = rank.copy_kernel("secondary copy", 3 * share * rank.element_bytes, "backward_all_gather")
        rank.tape.launch(copy, COMPUTE, label=parameter.name)
        rank.tape.synchronize(rank.tape.record(COMPUTE), "host")
        parameter.has_secondary = True


def _in_order(parameters: Collection[ShardedParameter]) -> list[ShardedParameter]:
    return sorted(parameters, key=lambda parameter: parameter.ds_id)
