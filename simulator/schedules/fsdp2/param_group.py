"""The parameters of one unit: gathered, freed, prefetched, reduced (``FSDPParamGroup``).

Streams (F2-2): ``copy_in`` and ``all_gather`` bring weights, ``reduce_scatter`` and ``all_reduce`` take gradients away;
copies out of a gathered buffer and into a reduced one run on ``compute`` (F2-4, F2-8).  The host never blocks (F2-5):
what bounds memory are waits of streams.
"""

from __future__ import annotations

from typing import Literal

from simulator.schedules.fsdp2.context import ALL_GATHER, COPY_IN, CommContext
from simulator.schedules.fsdp2.gradients import Gradients
from simulator.schedules.fsdp2.traffic import Gather, Sharding, gather, reduction, reshard
from simulator.schedules.fsdp2.units import Unit
from simulator.schedules.program import Event, Memory
from simulator.schedules.tape import COMPUTE

__all__ = ["ParamGroup", "TrainingState"]

WEIGHTS = "gathered weights"
FLAT = "all-gather buffers"
"""Items of memory."""

ROLES = {
    "forward": "forward_all_gather",
    "backward": "backward_all_gather",
    "recompute": "recompute_all_gather",
    "eval": "forward_all_gather",
}
"""What a gather is for, by the phase in which it is issued."""

TrainingState = Literal["idle", "forward", "pre-backward", "post-backward"]


class ParamGroup:
    """Communicates the parameters of one unit together.

    Parameters
    ----------
    post_forward_order
        Groups as their forwards ended, shared by all: what backward's default prefetch goes back along (F2-7).
    """

    def __init__(self, unit: Unit, over: Sharding, context: CommContext, post_forward_order: list[ParamGroup]) -> None:
        self.unit, self._over, self._context = unit, over, context
        self._post_forward_order = post_forward_order
        self.gradients = Gradients(unit.label, reduction(unit, over), context)
        self.training_state: TrainingState = "idle"
        self._sharded_state: Literal["sharded", "sharded post forward", "unsharded"] = "sharded"
        self._result: tuple[Event, Gather] | None = None
        """``_all_gather_result``: a gather that compute does not wait for yet."""
        self._resharded: Event | None = None
        """``_reshard_after_forward_event``."""
        self._post_forward_indices: list[int] = []
        self._gathers: dict[str, Gather] = {}
        self._kept, self._reshard = over.shard, None
        if unit.post_forward is not None and unit.post_forward != over.ranks:
            # each call makes a mesh of its own, so gathers of different units do not queue behind each other (F2-10)
            self._kept = context.job.mesh.group(f"post-forward {unit.label}", unit.post_forward)
            self._reshard = reshard(unit, over, unit.post_forward)
        sizes = gather(unit, over, "", self._kept)
        self._whole: Memory = ((WEIGHTS, sizes.parameters),)
        self._part: Memory = ((WEIGHTS, sizes.part),)
        self._flat: Memory = ((FLAT, sizes.parameters),)

    @property
    def is_unsharded(self) -> bool:
        """Whether the weights are whole."""
        return self._sharded_state == "unsharded"

    @property
    def held(self) -> Memory:
        """Memory of the weights beyond the shard."""
        return {"sharded": (), "sharded post forward": self._part, "unsharded": self._whole}[self._sharded_state]

    def begin_step(self) -> None:
        """Events of the step before are over."""
        self._resharded = None
        self.gradients.begin_step()

    def unshard(self) -> None:
        """Gather the weights unless they are there or on their way."""
        if self._result is not None or self.is_unsharded:
            return
        tape, label = self._context.tape, self.unit.label
        if self._resharded is not None:
            self._context.gathers_wait(self._resharded, "data")
            self._resharded = None
        found = self._gather()
        if found.from_host is not None:
            tape.launch(found.from_host, COPY_IN, label=label)
        if found.group.size == 1:
            if found.from_host is not None:
                tape.wait(COMPUTE, tape.record(COPY_IN))
            self._result = tape.record(COMPUTE), found
            return
        tape.launch(found.copy_in, COPY_IN, label=label, takes=self._flat)
        tape.wait(ALL_GATHER, tape.record(COPY_IN))
        self._result = tape.launch(found.all_gather, ALL_GATHER, label=label), found

    def wait_for_unshard(self) -> None:
        """Let compute wait for the gather, copy out, and let later gathers wait for that (F2-4, F2-7)."""
        if self._result is None:
            return
        context, (event, found) = self._context, self._result
        alone = found.group.size == 1
        in_forward = self.training_state == "forward"
        if in_forward and context.copied_out is not None:
            context.gathers_wait(context.copied_out, "prefetch limit")
            context.copied_out = None
        context.tape.wait(COMPUTE, event)
        given = () if alone else self._flat  # the buffer, as large as the parameters
        if self._sharded_state == "sharded post forward":
            given += self._part
        label = self.unit.label
        copied_out = context.tape.launch(found.copy_out, COMPUTE, label=label, takes=self._whole, gives=given)
        self._sharded_state, self._result = "unsharded", None
        if in_forward and not alone:
            context.copied_out = copied_out  # so that the next gather may run beside this copy
        else:
            context.gathers_wait(copied_out, "prefetch limit")

    def pre_forward(self, module: str) -> bool:
        """Have the weights before *module* runs; return whether it is the first of the unit to run."""
        entering = self.training_state != "forward"
        self.training_state = "forward"
        self.unshard()
        self.wait_for_unshard()
        return entering

    def post_forward(self) -> None:
        """Free the weights, unless this is a recompute in backward (F2-14)."""
        if self._context.tape.phase not in ("backward", "recompute"):
            self._reshard_after_forward()
            self._post_forward_indices.append(len(self._post_forward_order))
            self._post_forward_order.append(self)
        self.training_state = "idle"

    def pre_backward(self, *, prefetches: bool) -> None:
        """Have the weights before gradients are computed, and gather the next unit's (F2-7)."""
        if self.training_state == "pre-backward":
            return
        self.training_state = "pre-backward"
        self.unshard()
        self.wait_for_unshard()
        if prefetches and self._post_forward_indices:
            index = self._post_forward_indices.pop()
            if index > 0:
                self._post_forward_order[index - 1].unshard()

    def post_backward(self) -> None:
        """Free the weights and reduce the gradients (F2-8); or keep either for the next micro-batch (F2-13)."""
        context = self._context
        self.training_state = "post-backward"
        self.gradients.accumulate()
        if context.reshard_after_backward:
            self._to_sharded()
        if not context.reduce_grads:
            self.gradients.keep()
            return
        context.recycle_reduce_inputs(context.reduce_scatter_max_input_buffers)
        self.gradients.reduce()

    def finalize_backward(self) -> None:
        """Let compute wait for reductions (F2-15), and for a gather that nothing used."""
        context = self._context
        for event in context.last_post_reduce_events.values():
            context.tape.wait(COMPUTE, event)
        context.last_post_reduce_events.clear()
        self.gradients.finalize_backward()
        if self._result is not None:
            event, found = self._result
            context.tape.wait(COMPUTE, event, "prefetch limit")
            if found.group.size > 1:
                context.tape.give(ALL_GATHER, self._flat)
            self._result = None
        self._post_forward_indices.clear()

    def _gather(self) -> Gather:
        """How the weights are gathered from what this rank holds now, in this phase."""
        role = ROLES[self._context.tape.phase]
        kept = self._sharded_state == "sharded post forward"
        key = f"{role} of what was kept" if kept else role
        if key not in self._gathers:
            self._gathers[key] = gather(self.unit, self._over, role, self._kept if kept else self._over.shard)
        return self._gathers[key]

    def _reshard_after_forward(self) -> None:
        """Free the weights, or all but a part that is larger than the shard (F2-10)."""
        if self.unit.post_forward is None:
            return
        if self._reshard is None:
            self._to_sharded()
        elif self.is_unsharded:
            label = self.unit.label
            self._resharded = self._context.tape.launch(
                self._reshard, COMPUTE, label=label, takes=self._part, gives=self._whole
            )
            self._sharded_state = "sharded post forward"

    def _to_sharded(self) -> None:
        """Free the weights as soon as compute is done with what uses them."""
        if self.held:
            self._context.tape.give(COMPUTE, self.held)
        self._sharded_state = "sharded"
