"""FSDP1's hooks (``_runtime_utils.py``; every name is that of the function there, without the underscore).

Streams (F1-2): ``unshard`` gathers, ``pre_unshard`` casts before that, ``post_backward`` reduces, ``all_reduce``
reduces among replicas.  Gathers and reductions use one process group, so they queue on one communicator (F1-3).
"""

from __future__ import annotations

from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.schedules.fsdp1.flat_param import FlatParamHandle, flat_params
from simulator.schedules.fsdp1.order import Autograd, ExecOrderData, FreeEventQueue
from simulator.schedules.fsdp1.reduction import ALL_REDUCE, POST_BACKWARD, Reduction, elementwise
from simulator.schedules.job import DTYPE_BYTES, Job, collective
from simulator.schedules.program import Memory
from simulator.schedules.tape import COMPUTE
from simulator.world.policy.fsdp1 import HYBRID, RESHARD_AFTER_FORWARD, Fsdp1Policy

__all__ = ["PRE_UNSHARD", "UNSHARD", "Fsdp1"]

UNSHARD = "unshard"
PRE_UNSHARD = "pre_unshard"


class Fsdp1:
    """The root's state, which all units share, and the hooks of every unit."""

    def __init__(self, job: Job, policy: Fsdp1Policy) -> None:
        self.job, self.policy = job, policy
        self.tape = job.tape()
        self.handles = flat_params(job, policy)
        self.strategy = policy.strategy(job.mesh)
        self.autograd = Autograd(job.execution)
        self.sync_gradients = True
        """False inside ``no_sync()``."""
        self.grad_enabled = True
        self._resharding_after_forward = self.strategy in RESHARD_AFTER_FORWARD
        self._order = ExecOrderData()
        self._free_event_queue = FreeEventQueue()
        self._owners = {name: handle for handle in self.all_handles for name in handle.modules}
        hybrid, ranks = policy.sharding_strategy in HYBRID, policy.shard_size(job.mesh)
        self.process_group = job.mesh.group("shard", ranks) if hybrid else job.world
        self.reduction = Reduction(job, self.process_group, self.strategy, offloads=policy.cpu_offload)
        self._kernels = 0

    @property
    def all_handles(self) -> list[FlatParamHandle]:
        """Handles of the units that have parameters."""
        return [handle for handle in self.handles.values() if handle]

    def begin_step(self) -> None:
        """Begin a program: streams are empty, no gradient is left from before."""
        self.tape = self.job.tape()
        self._kernels = 0
        self._free_event_queue.all_came_to_pass(self.tape.record(COMPUTE))
        for handle in self.all_handles:
            handle.has_sharded_gradient = handle.has_whole_gradient = False

    def run(self, module: str, direction: str) -> None:
        """Launch a kernel of the model; in backward it makes the gradients of the module's own parameters."""
        if (module, direction) in self.job.kernels:
            handle = self._owners.get(module)
            if handle and direction == "backward":
                trainable = [tensor for tensor in self.job.modules[module].parameters if tensor.trainable]
                size = sum(tensor.elements for tensor in trainable) * DTYPE_BYTES[handle.unsharded_dtype]
                handle.gradient_parts += size
                self.tape.take((("gradients in flight", size),) if size else ())
            self.job.run(self.tape, module, direction)
            self._kernels += 1

    def pre_forward(self, unit: str) -> None:
        """F1-5; does nothing in a recompute, the weights are there (F1-14)."""
        self._hook()
        if unit == self.job.root.name:
            self._root_pre_forward()
        handle = self.handles[unit]
        if handle is None or handle.training_state == "BACKWARD_PRE":
            return
        self._order.record_pre_forward(handle)
        handle.training_state = "FORWARD"
        if not handle.prefetched:
            self._unshard(handle, unit)
        handle.needs_pre_forward_unshard = False
        self._wait_for_unshard(handle)
        self._prefetch_handle(handle, unit)

    def _root_pre_forward(self) -> None:
        if self.policy.forward_prefetch:
            for handle in self.all_handles:
                handle.needs_pre_forward_unshard, handle.prefetched = True, False
        for stream in (UNSHARD, PRE_UNSHARD):  # so that gathers see what the optimizer wrote
            self.tape.wait(stream, self.tape.record(COMPUTE))

    def post_forward(self, unit: str) -> None:
        """Free the weights, but not those of the root (F1-7), and register what backward begins with."""
        self._hook()
        handle = self.handles[unit]
        if handle is None or handle.training_state == "BACKWARD_PRE":
            return
        self._order.record_post_forward(handle)
        self._reshard(handle, free=unit != self.job.root.name and self._resharding_after_forward)
        if self.grad_enabled:
            handle.needs_pre_backward_unshard = unit in self.autograd.reached
            handle.ran_pre_backward_hook = False
        handle.training_state = "IDLE"

    def pre_backward(self, unit: str) -> None:
        """F1-8: gather if nobody has, wait, gather for the unit before."""
        handle = self.handles[unit]
        if handle and handle.ran_pre_backward_hook:
            return
        self._hook()
        if handle is None:
            return
        handle.training_state = "BACKWARD_PRE"
        if handle.needs_pre_backward_unshard:
            if not handle.prefetched:
                self._unshard(handle, unit)
            self._wait_for_unshard(handle)
        handle.needs_pre_backward_unshard = False  # a mistaken prefetch must not gather this unit again
        self._prefetch_handle(handle, unit)
        handle.ran_pre_backward_hook = True

    def post_backward(self, handle: FlatParamHandle) -> None:
        """Free the weights and reduce the gradient, which autograd has just put together in the compute stream."""
        self._kernels += self.reduction.gather_parts(self.tape, handle)
        self._hook()
        handle.training_state = "BACKWARD_POST"
        self._post_backward_reshard(handle)
        if not self.sync_gradients:
            handle.has_whole_gradient = True  # F1-13
            return
        self.tape.wait(POST_BACKWARD, self.tape.record(COMPUTE))
        self.reduction.reduce(self.tape, handle)

    def post_backward_reshard_only(self, handle: FlatParamHandle) -> None:
        """Free the weights of a unit that is frozen, once the gradients of its inputs are there."""
        self._hook()
        handle.training_state = "BACKWARD_POST"
        self._post_backward_reshard(handle)

    def post_backward_final_callback(self) -> None:
        """F1-10: what follows waits for all reductions; weights that no hook has freed are freed."""
        self._hook()
        if self.sync_gradients:
            self.tape.wait(COMPUTE, self.tape.record(POST_BACKWARD))
            if self.strategy in HYBRID:
                self.tape.wait(COMPUTE, self.tape.record(ALL_REDUCE))
            if self.policy.cpu_offload:
                self.tape.synchronize(self.tape.record(COMPUTE), "data")
        self._order.next_iteration()
        for handle in self.all_handles:
            if not handle.uses_shard or handle.skipped_sharded_views:
                self._reshard(handle, free=self._should_free_in_backward(handle))
            handle.ran_pre_backward_hook = handle.needs_pre_backward_unshard = handle.prefetched = False
            handle.post_forward_index = None
            handle.training_state = "IDLE"

    def _hook(self) -> None:
        if self.job.costs.hook:
            self.tape.work(self.job.costs.hook)

    def _unshard(self, handle: FlatParamHandle, unit: str) -> None:
        """Gather unless the weights are there; the hook of *unit* asked for it."""
        tape = self.tape
        if self._pre_unshard(handle):
            tape.wait(UNSHARD, tape.record(PRE_UNSHARD))
        if self.policy.limit_all_gathers:
            event = self._free_event_queue.dequeue_if_needed()
            if event is not None:
                tape.synchronize(event, "prefetch limit")
        if handle.needs_unshard:
            role = f"{'forward' if tape.phase == 'eval' else tape.phase}_all_gather"
            gather = collective("all_gather", handle.padded, handle.unsharded_dtype, self.process_group, role)
            cast = handle.low_precision_shard if handle.uses_param_mixed_precision else ()
            tape.launch(gather, UNSHARD, label=handle.label, takes=handle.unsharded, gives=cast)
            handle.is_unsharded = True
        handle.uses_shard = not (handle.shards or handle.uses_param_mixed_precision)
        if handle.training_state == "FORWARD" and self.grad_enabled:
            self.autograd.make_views(handle, unit)

    def _pre_unshard(self, handle: FlatParamHandle) -> bool:
        """Bring the shard to the device and cast it to what travels (F1-11); with NO_SHARD it is all, every time."""
        copied: Memory = ()
        if self.policy.cpu_offload and handle.needs_unshard:
            copied = (("offload buffers", float(handle.shard_bytes)),)
            copy = Transfer(route="to_device", amount=float(handle.shard_bytes), role="parameters_to_device")
            self.tape.launch(copy, PRE_UNSHARD, label=handle.label, takes=copied)
            if not handle.uses_param_mixed_precision:
                self.tape.give(PRE_UNSHARD, copied)
                return True
        if not handle.uses_param_mixed_precision or (handle.shards and not handle.needs_unshard):
            return False
        role = "" if not handle.shards else f"{'forward' if self.tape.phase == 'eval' else self.tape.phase}_all_gather"
        moved = DTYPE_BYTES[handle.original_dtype] + DTYPE_BYTES[handle.unsharded_dtype]
        cast = elementwise("cast", handle.padded // handle.ranks * moved, role)
        self.tape.launch(cast, PRE_UNSHARD, label=handle.label, takes=handle.low_precision_shard, gives=copied)
        return True

    def _wait_for_unshard(self, handle: FlatParamHandle) -> None:
        self.tape.wait(COMPUTE, self.tape.record(UNSHARD))
        handle.kernels_before = self._kernels

    def _reshard(self, handle: FlatParamHandle, *, free: bool) -> None:
        """Point to the shard; freeing the whole puts an event into the queue of the limiter."""
        handle.skipped_sharded_views = (
            self.policy.use_orig_params
            and self.grad_enabled
            and handle.training_state == "FORWARD"
            and self.strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
        )
        casts_whole = handle.uses_param_mixed_precision and not handle.shards
        if casts_whole and not handle.uses_shard:
            self._give(handle, handle.low_precision_shard)
        handle.uses_shard = True
        if free:
            if handle.is_unsharded:
                self._give(handle, handle.unsharded)
            handle.is_unsharded = False
            if self.policy.limit_all_gathers:
                self._free_event_queue.enqueue(self.tape.record(COMPUTE))
        handle.prefetched = False

    def _give(self, handle: FlatParamHandle, memory: Memory) -> None:
        """Give *memory* back when the compute stream is done with the unit."""
        if self._kernels > handle.kernels_before:
            self.tape.give(COMPUTE, memory)
        else:
            self.tape.launch(Kernel(kind="free", time=0.0), COMPUTE, label=handle.label, gives=memory)

    def _should_free_in_backward(self, handle: FlatParamHandle) -> bool:
        """F1-12, F1-13: without synchronisation, strategies that keep weights after forward keep them on."""
        return handle.shards and (self.sync_gradients or self._resharding_after_forward)

    def _post_backward_reshard(self, handle: FlatParamHandle) -> None:
        self._reshard(handle, free=self._should_free_in_backward(handle))
        self._prefetch_handle(handle, handle.unit)

    def _prefetch_handle(self, current: FlatParamHandle, unit: str) -> None:
        """Gather for the next unit, as if its own hook did."""
        handle = self._handle_to_prefetch(current)
        if handle is not None:
            before = handle.training_state
            handle.training_state = "FORWARD" if current.training_state == "FORWARD" else "BACKWARD_PRE"
            self._unshard(handle, unit)
            handle.training_state = before
            handle.prefetched = True

    def _handle_to_prefetch(self, current: FlatParamHandle) -> FlatParamHandle | None:
        """F1-8: the unit before at the moment that ``backward_prefetch`` names; in forward the next one."""
        if current.training_state == "FORWARD":
            handle = self._order.handle_to_forward_prefetch(current) if self.policy.forward_prefetch else None
            return handle if handle and handle.needs_pre_forward_unshard and not handle.prefetched else None
        if current.training_state == self.policy.backward_prefetch:
            handle = self._order.handle_to_backward_prefetch(current)
            return handle if handle and handle.needs_pre_backward_unshard and not handle.prefetched else None
        return None
