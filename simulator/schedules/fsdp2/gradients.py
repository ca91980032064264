"""The gradients of one unit: accumulated, reduced, added to those of the shards (``foreach_reduce``).

Buffers are taken and given back where PyTorch's allocator could use them again: the input of a reduce-scatter when
compute has waited for it, its output with the cast that follows.
"""

from __future__ import annotations

from simulator.schedules.fsdp2.context import ALL_REDUCE, BUCKETS, REDUCE_SCATTER, CommContext, ReduceScatterState
from simulator.schedules.fsdp2.traffic import Reduction
from simulator.schedules.gradients import GRADIENTS
from simulator.schedules.program import Event, Memory
from simulator.schedules.tape import COMPUTE

__all__ = ["Gradients"]

IN_FLIGHT = "gradients in flight"
REDUCED = "reduced gradients"
"""Items of memory."""


class Gradients:
    """From backward kernels to the gradients that the optimizer works on."""

    def __init__(self, label: str, traffic: Reduction, context: CommContext) -> None:
        self._label, self._traffic, self._context = label, traffic, context
        self.computed = False
        """Whether backward has reached the unit since they were last accumulated or reduced."""
        self._taken = 0.0
        """Bytes that backward kernels took."""
        self._kept = 0.0
        """Bytes of accumulated gradients."""
        self._shards = 0.0
        """Bytes of the gradients of the shards."""
        self._accumulated = self._partial = self._reduced = False
        self._post_reduce: Event | None = None

    def begin_step(self) -> None:
        """The optimizer has used them."""
        self._reduced = False

    def compute(self, amount: float) -> None:
        """Take *amount* bytes with the next kernel; what a shared parameter or a second run adds is not kept."""
        self.computed = True
        new = min(amount, self._traffic.gradients - self._taken)
        if new:
            self._taken += new
            self._context.tape.take(((IN_FLIGHT, new),))

    def accumulate(self) -> None:
        """Add what was computed to what earlier micro-batches left (``accumulate_unsharded_grad_if_needed``)."""
        if self._accumulated and self.computed:
            taken, computed = self._settle()
            kernel = self._traffic.accumulate[1]
            self._context.tape.launch(kernel, COMPUTE, label=self._label, takes=taken, gives=computed)

    def keep(self) -> None:
        """Leave what was computed for a later micro-batch (``to_accumulated_grad_if_needed``, F2-13)."""
        if self.computed:
            kernel = self._traffic.accumulate[0]
            if kernel is None:
                self._kept, self._taken = self._taken, 0.0
            else:
                taken, computed = self._settle()
                self._kept = self._traffic.accumulated
                taken += _memory(IN_FLIGHT, self._kept)
                self._context.tape.launch(kernel, COMPUTE, label=self._label, takes=taken, gives=computed)
            self._accumulated, self.computed = True, False

    def reduce(self) -> None:
        """Reduce what there is among the ranks (F2-8, F2-11, F2-12)."""
        if not (self.computed or self._accumulated):
            return
        tape = self._context.tape
        if self._post_reduce is not None:  # a unit that runs twice in one backward (``_wait_for_post_backward``)
            tape.wait(COMPUTE, self._post_reduce, "prefetch limit")
        self._copy_in()
        tape.wait(REDUCE_SCATTER, tape.record(COMPUTE))
        self._post_reduce, stream = self._exchange()
        self._context.last_post_reduce_events[stream] = self._post_reduce
        self.computed = self._accumulated = False

    def freed(self) -> Memory:
        """Memory of the gradients of the shards, to give it back after the update."""
        size, self._shards = self._shards, 0.0
        return _memory(GRADIENTS, size)

    def finalize_backward(self) -> None:
        """Nothing of this backward is waited for any more; the host has waited for gradients that come to it."""
        if self._traffic.to_host is not None and self._post_reduce is not None:
            self._context.tape.synchronize(self._post_reduce, "data")
        self._post_reduce = None

    def _keep(self) -> Memory:
        """Memory of the gradients of the shards, which stay until the update."""
        self._shards = self._traffic.kept
        return _memory(GRADIENTS, self._shards)

    def _settle(self) -> tuple[Memory, Memory]:
        """What no backward kernel took of the computed gradients, and all of it, to be given back."""
        missing = self._traffic.gradients - self._taken
        self._taken, self.computed = 0.0, False
        return _memory(IN_FLIGHT, missing), _memory(IN_FLIGHT, self._traffic.gradients)

    def _copy_in(self) -> None:
        """Gradients into the buffer, on the compute stream."""
        traffic = self._traffic
        if self._accumulated:
            taken = _memory(IN_FLIGHT, traffic.accumulated - self._kept)
            given = _memory(IN_FLIGHT, traffic.accumulated)
        else:
            taken, given = self._settle()
        reused = self._context.recycled
        self._context.recycled = 0.0
        taken += _memory(BUCKETS, traffic.input - reused)
        given += _memory(BUCKETS, reused - traffic.input)
        kernel = traffic.copy_in[self._accumulated]
        self._context.tape.launch(kernel, COMPUTE, label=self._label, takes=taken, gives=given)

    def _exchange(self) -> tuple[Event, str]:
        """Reduce in the shard group, then among replicas; return the event of the end and its stream."""
        tape, traffic, label = self._context.tape, self._traffic, self._label
        last = traffic.all_reduce is None or self._context.all_reduce_grads
        # what is reduced first is the gradient of the shards, unless that has another type
        becomes = last and not traffic.casts and not self._reduced
        output = () if becomes else _memory(REDUCED, traffic.output)
        takes = self._keep() if becomes else output
        if traffic.divide is not None:
            tape.launch(traffic.divide, REDUCE_SCATTER, label=label)
        reduces = traffic.reduce_scatter.group.size > 1
        operation = traffic.reduce_scatter if reduces else traffic.local
        scattered = tape.launch(operation, REDUCE_SCATTER, label=label, takes=takes)
        self._context.reduce_scatter_states.append(ReduceScatterState(scattered, traffic.input))
        if self._partial:  # accumulated on the stream of the reduce-scatter
            partial = _memory(REDUCED, traffic.output)
            tape.launch(traffic.add_partial, REDUCE_SCATTER, label=label, gives=partial)
        self._partial = not last
        if not last:
            return tape.record(REDUCE_SCATTER), REDUCE_SCATTER
        if traffic.all_reduce is None:
            return self._view_out(REDUCE_SCATTER, output), REDUCE_SCATTER
        tape.wait(ALL_REDUCE, tape.record(REDUCE_SCATTER))
        tape.launch(traffic.all_reduce, ALL_REDUCE, label=label)
        self._context.all_reduced += output
        return self._view_out(ALL_REDUCE, ()), ALL_REDUCE

    def _view_out(self, stream: str, gives: Memory) -> Event:
        """Divide, cast, add to the gradients of the shards."""
        tape, to_host, adds = self._context.tape, self._traffic.to_host, self._reduced
        kernel = self._traffic.view_out[adds]
        takes = self._keep() if self._traffic.casts and (not adds or to_host is not None) else ()
        self._reduced = True
        if kernel is not None:
            tape.launch(kernel, stream, label=self._label, takes=takes, gives=gives)
            gives = ()
        if to_host is not None:
            tape.launch(to_host, stream, label=self._label, gives=gives + self.freed())
            if adds:  # then the copy blocks, and the host adds
                tape.synchronize(tape.record(stream), "data")
                tape.work(self._context.job.costs.cpu_byte * self._traffic.host_add)
        return tape.record(stream)


def _memory(item: str, amount: float) -> Memory:
    return ((item, amount),) if amount > 0 else ()
