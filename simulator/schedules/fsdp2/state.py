"""Hooks of one wrapped module or group of modules (``FSDPState`` of ``_fsdp_state.py``)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from simulator.schedules.fsdp2.context import ALL_GATHER, ALL_REDUCE, COPY_IN, REDUCE_SCATTER, CommContext
from simulator.schedules.fsdp2.param_group import ParamGroup, TrainingState
from simulator.schedules.fsdp2.traffic import sharding
from simulator.schedules.fsdp2.units import Unit, prefetched, units
from simulator.schedules.job import Job
from simulator.schedules.program import Reason
from simulator.schedules.tape import COMPUTE
from simulator.world.policy.fsdp2 import Fsdp2Policy

__all__ = ["State", "StateContext", "states"]


@dataclass(kw_only=True)
class StateContext:
    """What the states of one root share."""

    comm: CommContext
    all_states: list[State] = field(default_factory=list)
    """In the order of ``named_modules()``: the root first."""
    post_forward_order: list[ParamGroup] = field(default_factory=list)
    streams: tuple[str, ...] = (COPY_IN, ALL_GATHER, REDUCE_SCATTER)
    iter_forward_root: State | None = None
    """The state whose forward began first."""
    pre_backward_hooks: dict[str, list[State]] = field(default_factory=lambda: defaultdict(list))
    """By the module whose output's gradient they wait for."""
    post_backward_hooks: dict[str, ParamGroup] = field(default_factory=dict)
    """By the module whose inputs' gradients they wait for."""

    def root_post_backward_final_callback(self) -> None:
        """Reduce what no hook did, and let compute wait for everything (F2-15)."""
        self.comm.hook()
        self.iter_forward_root = None
        for state in self.all_states:
            state.modules_to_run.clear()
            if state.group is not None:
                if state.group.training_state != "post-backward":
                    # no input of the unit needs a gradient, as for an embedding: autograd has nothing to call it from
                    state.group.post_backward()
                state.group.training_state = "idle"
                state.group.finalize_backward()
            state.training_state = "idle"
        self.post_forward_order.clear()
        self.comm.finish_reductions()
        self.pre_backward_hooks.clear()
        self.post_backward_hooks.clear()


class State:
    """What ``fully_shard`` adds to the modules that it was called on."""

    def __init__(self, unit: Unit, group: ParamGroup | None, context: StateContext) -> None:
        self.unit, self.group, self._context = unit, group, context
        self.training_state: TrainingState = "idle"
        self.forward_prefetch: list[State] = []
        self.backward_prefetch: list[State] = []
        self.modules_to_run: set[str] = set()
        """Of a call with several modules, those that this forward has not run yet."""

    def pre_forward(self, module: str) -> None:
        """Before *module* runs (F2-4, F2-6)."""
        comm, group = self._context.comm, self.group
        comm.hook()
        if len(self.unit.modules) > 1 and not self.modules_to_run:
            self.modules_to_run.update(self.unit.modules)
        if self.training_state == "pre-backward":
            # a recompute within backward: the pre-backward hook has the weights, if nothing freed them since
            if group is not None:
                group.unshard()
                group.wait_for_unshard()
            return
        first = self.training_state != "forward"
        self.training_state = "forward"
        if first:
            self._root_pre_forward()
        if group is not None and group.pre_forward(module) and comm.tape.phase != "eval":
            self._context.post_backward_hooks[module] = group
        if first:
            for state in self.forward_prefetch:
                if state.group is not None:
                    state.group.unshard()

    def post_forward(self, module: str) -> None:
        """After *module* ran; acts once all modules of the call have run."""
        self._context.comm.hook()
        if len(self.unit.modules) > 1:
            if module not in self.modules_to_run:
                return
            self.modules_to_run.remove(module)
        if self.modules_to_run or self.training_state == "pre-backward":
            return
        self._complete(module)
        if self._context.iter_forward_root is self:
            self._leave_root(module)

    def pre_backward(self) -> None:
        """Once the gradient of the output is there (F2-7)."""
        self._context.comm.hook()
        self.training_state = "pre-backward"
        if self.group is not None:
            self.group.pre_backward(prefetches=not self.backward_prefetch)
        for state in self.backward_prefetch:
            if state.group is not None:
                state.group.unshard()

    def _root_pre_forward(self) -> None:
        """No gather of this forward before the optimizer is done."""
        context, tape = self._context, self._context.comm.tape
        if context.iter_forward_root is None:
            context.iter_forward_root = self
            # the wait is there in later micro-batches too, when nothing has changed the weights
            changed = tape.phase == "eval" or (tape.phase == "forward" and not tape.micro_batch)
            reason: Reason = "data" if changed else "prefetch limit"
            context.comm.gathers_wait(tape.record(COMPUTE), reason)

    def _complete(self, module: str) -> None:
        """Free the weights, and hook on to the gradient of the output."""
        if self.group is not None:
            self.group.post_forward()
        if self._context.comm.tape.phase != "eval":
            hooks = self._context.pre_backward_hooks[module]
            if self not in hooks:
                hooks.append(self)
        self.training_state = "idle"

    def _leave_root(self, module: str) -> None:
        """Complete calls of which not all modules ran, and let gathers wait for the last copy out."""
        context = self._context
        for state in reversed(context.all_states):
            if state is not self and state.modules_to_run:
                state._complete(module)
                state.modules_to_run.clear()
        if context.comm.copied_out is not None:
            context.comm.gathers_wait(context.comm.copied_out, "prefetch limit")
            context.comm.copied_out = None
        context.iter_forward_root = None


def states(job: Job, policy: Fsdp2Policy) -> StateContext:
    """Wrap the model: what calling ``fully_shard`` and the setters does."""
    comm = CommContext(
        job=job, tape=job.tape(), reduce_scatter_max_input_buffers=policy.reduce_scatter_max_input_buffers
    )
    context, over = StateContext(comm=comm), sharding(job, policy)
    if over.replicate is not None:
        context.streams += (ALL_REDUCE,)
    for unit in units(job, policy):
        group = ParamGroup(unit, over, comm, context.post_forward_order) if unit.tensors else None
        context.all_states.append(State(unit, group, context))
    by_name = {state.unit.name: state for state in context.all_states}
    asked = prefetched(job, policy, [state.unit for state in context.all_states])
    for name, state in by_name.items():
        state.forward_prefetch = [by_name[other] for other in asked["forward"].get(name, ())]
        state.backward_prefetch = [by_name[other] for other in asked["backward"].get(name, ())]
    return context
