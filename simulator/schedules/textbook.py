"""DDP, ZeRO 1-3 and ZeRO++ as the papers describe them.

Weight and gradient traffic of one step with k micro-batches, in units of the model's size:

=====  ==================================================  ==========
stage  what is communicated                                traffic
=====  ==================================================  ==========
0      all-reduce of gradients, last micro-batch           2
1      reduce-scatter, last micro-batch; weight gather     2
2      reduce-scatter, every micro-batch; weight gather    k + 1
3      gather, gather again, reduce-scatter, every one     3 k
=====  ==================================================  ==========

(Rajbhandari et al. 2020, arXiv:1910.02054, section 7.)  Reduction overlaps with backward.  At stage 3 weights are
gathered at most ``prefetch`` layers ahead of the layer that runs, and not across the border of forward and backward;
in backward the gather for the next layer is issued before this layer's gradients are reduced.  ZeRO++ (Wang et al.
2023, arXiv:2306.10209, section 3) gathers weights in int8 (qwZ), gathers the weights for backward inside a secondary
partition (hpZ), and reduces gradients in int4 by two all-to-all hops (qgZ).

What it leaves out - buckets that never fill, live-parameter limits, host synchronisation - is what the frameworks'
own schedules add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from simulator.laws.collectives.base import Collective, CollectiveKind, Quantization
from simulator.laws.kernels import Kernel
from simulator.laws.memory import OPTIMIZER_BYTES
from simulator.schedules.program import Event, Operation, Program
from simulator.schedules.tape import COMPUTE, Tape
from simulator.world.mesh import Group, Mesh
from simulator.world.model.layer import Layer, Work
from simulator.world.policy.textbook import QUANTIZATION_BLOCK, TextbookPolicy
from simulator.world.scenario import ELEMENT_BYTES, Scenario

__all__ = ["textbook"]

GATHER, REDUCE = "all_gather", "reduce_scatter"
"""Communication streams."""

INT8 = Quantization(bits=8, block=QUANTIZATION_BLOCK)
INT4 = Quantization(bits=4, block=QUANTIZATION_BLOCK)
END = Kernel(kind="end", time=0.0)
"""Waits for everything, so that what is still under way at the end of a step is seen as a wait."""


def textbook(scenario: Scenario, policy: TextbookPolicy) -> Program:
    """Record one step of one rank."""
    tape = Tape(scenario.launch_time)
    plan = _Plan(scenario, policy)
    for micro_batch in range(scenario.training.gradient_accumulation):
        tape.micro_batch = micro_batch
        last = micro_batch == scenario.training.gradient_accumulation - 1
        _forward(tape, plan)
        _backward(tape, plan, reduces=last or policy.zero_stage >= 2)
    _step(tape, plan)
    return tape.program()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """A layer with the operations that it needs."""

    name: str
    elements: int
    forward: Kernel
    recompute: Kernel | None
    backward: Kernel
    kept: float
    """Activations from forward to backward [B]."""
    working: float
    """Further activations while backward runs [B]."""


class _Plan:
    """Everything of a step that does not depend on order; makes each operation once."""

    def __init__(self, scenario: Scenario, policy: TextbookPolicy) -> None:
        self.policy = policy
        self.wire = ELEMENT_BYTES[scenario.training.precision]
        self.units = [_unit(layer, scenario) for layer in scenario.model.layers]
        self.world = scenario.mesh.world()
        self.backward_group = _backward_group(scenario.mesh, policy)
        separate = policy.reduce_communicator == "separate"
        self.reduce_group = replace(self.world, name="world reduce") if separate else self.world
        self.optimizer = _optimizer(scenario, policy)
        self.weights = INT8 if policy.zero_quantized_weights else None
        self.gradients = INT4 if policy.zero_quantized_gradients else None
        self._made: dict[tuple[object, ...], Operation] = {}

    @property
    def gathers(self) -> bool:
        """Whether weights are sharded."""
        return self.policy.zero_stage >= 3

    def collective(
        self, kind: CollectiveKind, elements: float, group: Group, role: str, quantization: Quantization | None
    ) -> Operation:
        """Return the collective on an array of *elements*."""
        key = (role, group.name, elements)
        if key not in self._made:
            self._made[key] = Collective(
                kind=kind,
                elements=elements,
                bytes_per_element=self.wire,
                group=group,
                role=role,
                quantization=quantization,
            )
        return self._made[key]

    def conversion(self, kind: str, elements: float, role: str, quantization: Quantization) -> Operation:
        """Return the kernel that reads *elements* in one format and writes them in the other."""
        key = (kind, role, elements)
        if key not in self._made:
            traffic = elements * (self.wire + quantization.bytes_per_element)
            works = (Work("memory", constant_traffic=traffic),)
            self._made[key] = Kernel(kind=kind, works=works, is_copy=True, serves=role)
        return self._made[key]


def _forward(tape: Tape, plan: _Plan) -> None:
    tape.phase = "forward"
    gathered: dict[str, Event] = {}
    for position, unit in enumerate(plan.units):
        ahead = plan.units[position : position + 1 + plan.policy.prefetch]
        _unshard(tape, plan, ahead, gathered, plan.world, "forward_all_gather")
        _need(tape, unit, gathered)
        tape.allocate(COMPUTE, "activations", unit.kept)
        tape.launch(unit.forward, COMPUTE, label=unit.name)
        _reshard(tape, plan, unit)


def _backward(tape: Tape, plan: _Plan, *, reduces: bool) -> None:
    tape.phase = "backward"
    order = plan.units[::-1]
    gathered: dict[str, Event] = {}
    bucket = _Bucket(plan.policy.bucket_size)
    for position, unit in enumerate(order):
        ahead = order[position : position + 1 + plan.policy.prefetch]
        _unshard(tape, plan, ahead, gathered, plan.backward_group, "backward_all_gather")
        if reduces:
            for full in bucket.before(unit):
                _reduce(tape, plan, full)
        _need(tape, unit, gathered)
        tape.allocate(COMPUTE, "activations", unit.working)
        if unit.recompute:
            tape.launch(unit.recompute, COMPUTE, label=unit.name)
        if reduces and plan.policy.zero_stage >= 2:
            tape.allocate(COMPUTE, "gradients in flight", plan.wire * unit.elements)
        tape.launch(unit.backward, COMPUTE, label=unit.name)
        tape.free(COMPUTE, "activations", unit.working + unit.kept)
        _reshard(tape, plan, unit)
        if reduces:
            for full in bucket.after(unit):
                _reduce(tape, plan, full)
    if reduces:
        for full in bucket.rest():
            _reduce(tape, plan, full)


def _step(tape: Tape, plan: _Plan) -> None:
    tape.phase = "step"
    tape.wait(COMPUTE, tape.record(REDUCE))
    tape.launch(plan.optimizer, COMPUTE, label="optimizer")
    if plan.policy.zero_stage in (1, 2):
        updated = tape.record(COMPUTE)
        tape.wait(GATHER, updated)
        bucket = _Bucket(plan.policy.bucket_size)
        for full in [*(full for unit in plan.units for full in bucket.fill(unit)), *bucket.rest()]:
            elements = sum(unit.elements for unit in full)
            collective = plan.collective("all_gather", elements, plan.world, "parameter_all_gather", None)
            tape.launch(collective, GATHER, label=_label(full))
    tape.wait(COMPUTE, tape.record(GATHER))
    tape.launch(END, COMPUTE, label="end of step")


def _unshard(
    tape: Tape, plan: _Plan, units: Iterable[_Unit], gathered: dict[str, Event], group: Group, role: str
) -> None:
    """Gather the weights of *units* that are not gathered yet; they may start when what runs before is done."""
    if not plan.gathers:
        return
    for unit in units:
        name, elements = unit.name, unit.elements
        if name in gathered or not elements:
            continue
        tape.wait(GATHER, tape.record(COMPUTE), "prefetch limit")
        tape.allocate(GATHER, "gathered weights", plan.wire * elements)
        if plan.weights:
            tape.launch(plan.conversion("quantize", elements / group.size, role, plan.weights), GATHER, label=name)
        collective = plan.collective("all_gather", elements, group, role, plan.weights)
        gathered[name] = tape.launch(collective, GATHER, label=name)
        if plan.weights:
            gathered[name] = tape.launch(
                plan.conversion("dequantize", elements, role, plan.weights), GATHER, label=name
            )


def _need(tape: Tape, unit: _Unit, gathered: dict[str, Event]) -> None:
    if unit.name in gathered:
        tape.wait(COMPUTE, gathered[unit.name])


def _reshard(tape: Tape, plan: _Plan, unit: _Unit) -> None:
    if plan.gathers and unit.elements:
        tape.free(COMPUTE, "gathered weights", plan.wire * unit.elements)


def _reduce(tape: Tape, plan: _Plan, units: Sequence[_Unit]) -> None:
    """Reduce the gradients of *units* once they are computed."""
    label, elements = _label(units), sum(unit.elements for unit in units)
    if not elements:
        return
    kind: CollectiveKind = "all_reduce" if plan.policy.zero_stage == 0 else "reduce_scatter"
    tape.wait(REDUCE, tape.record(COMPUTE))
    if plan.gradients:
        tape.launch(plan.conversion("quantize", elements, kind, plan.gradients), REDUCE, label=label)
    tape.launch(plan.collective(kind, elements, plan.reduce_group, kind, plan.gradients), REDUCE, label=label)
    if plan.gradients:
        tape.launch(
            plan.conversion("dequantize", elements / plan.world.size, kind, plan.gradients), REDUCE, label=label
        )
    if plan.policy.zero_stage >= 2:
        tape.free(REDUCE, "gradients in flight", plan.wire * elements)


class _Bucket:
    """Collects units until the next one would exceed *size* elements; size 0: each by itself."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._units: list[_Unit] = []
        self._elements = 0

    def before(self, unit: _Unit) -> Iterator[list[_Unit]]:
        """Yield the bucket that must go because *unit* does not fit into it."""
        if self._units and self._elements + unit.elements > self._size:
            yield from self.rest()

    def after(self, unit: _Unit) -> Iterator[list[_Unit]]:
        """Add *unit*; yield the bucket if nothing can be added to it."""
        self._units.append(unit)
        self._elements += unit.elements
        if self._elements >= self._size:
            yield from self.rest()

    def fill(self, unit: _Unit) -> Iterator[list[_Unit]]:
        """Do both."""
        yield from self.before(unit)
        yield from self.after(unit)

    def rest(self) -> Iterator[list[_Unit]]:
        """Yield what is left, if anything."""
        if self._units:
            yield self._units
        self._units, self._elements = [], 0


def _unit(layer: Layer, scenario: Scenario) -> _Unit:
    tokens = scenario.tokens_per_micro_batch
    checkpointed = scenario.training.activation_checkpointing and layer.checkpointed
    kept = layer.input_bytes if checkpointed else layer.activation_bytes

    def kernel(kind: str, works: tuple[Work, ...], time: float | None) -> Kernel:
        return Kernel(kind=kind, works=works, tokens=tokens, time=time)

    return _Unit(
        name=layer.name,
        elements=layer.elements,
        forward=kernel("forward", layer.forward, layer.forward_time),
        recompute=kernel("recompute", layer.forward, layer.forward_time) if checkpointed else None,
        backward=kernel("backward", layer.backward, layer.backward_time),
        kept=tokens * kept,
        working=tokens * (layer.activation_bytes - kept),
    )


def _backward_group(mesh: Mesh, policy: TextbookPolicy) -> Group:
    """Ranks that the weights for backward are gathered from."""
    if policy.zero_hpz_partition_size > 1:
        return mesh.group("secondary partition", policy.zero_hpz_partition_size)
    return mesh.world()


def _optimizer(scenario: Scenario, policy: TextbookPolicy) -> Kernel:
    """Adam reads the gradient, reads and writes its states, and writes the weight."""
    precision = scenario.training.precision
    shard = scenario.model.elements / (scenario.mesh.ranks if policy.zero_stage >= 1 else 1)
    traffic = shard * (2 * ELEMENT_BYTES[precision] + 2 * OPTIMIZER_BYTES[precision])
    given = any(layer.forward_time is not None for layer in scenario.model.layers)
    works = (Work("memory", constant_traffic=traffic),)
    return Kernel(kind="optimizer", works=works, time=0.0 if given else None)


def _label(units: Sequence[_Unit]) -> str:
    return units[0].name if len(units) == 1 else f"{units[0].name} to {units[-1].name}"
