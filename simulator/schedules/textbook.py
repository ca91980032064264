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
in backward the gather for the next layer is issued before this layer's gradients are reduced.  From stage 2 on whole
gradients have two buffers: backward waits when both are still being reduced.  ZeRO++ (Wang et al.
2023, arXiv:2306.10209, section 3) gathers weights in int8 (qwZ), gathers the weights for backward inside a secondary
partition (hpZ), and reduces gradients in int4 by two all-to-all hops (qgZ).

What it leaves out - buckets that never fill, live-parameter limits, host synchronisation - is what the frameworks'
own schedules add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.laws.collectives.base import Collective, CollectiveKind, Quantization
from simulator.laws.kernels import Kernel, activation_bytes
from simulator.laws.memory import MIXED, loss_bytes
from simulator.schedules.measured import measured_layer
from simulator.schedules.prepare import module_kernels
from simulator.schedules.program import Event, Memory, Operation, Program
from simulator.schedules.tape import COMPUTE, Tape
from simulator.world.mesh import Group, Mesh
from simulator.world.model.checkpointing import Again, computed_again
from simulator.world.model.layer import Layer, Work
from simulator.world.policy.textbook import QUANTIZATION_BLOCK, TextbookPolicy
from simulator.world.scenario import Scenario
from simulator.world.training import ELEMENT_BYTES

__all__ = ["textbook"]

GATHER = "all_gather"
"""Stream of gathers; reductions have a stream named after their kind."""

GRADIENT_BUFFERS = 2  # source: DeepSpeed stage_1_and_2.py, setup_buckets: one is filled while the other is reduced

INT8 = Quantization(bits=8, block=QUANTIZATION_BLOCK)
INT4 = Quantization(bits=4, block=QUANTIZATION_BLOCK)
END = Kernel(kind="end", time=0.0)
"""Waits for everything, so that what is still under way at the end of a step is seen as a wait."""


def textbook(scenario: Scenario, policy: TextbookPolicy) -> Program:
    """Record one step of one rank."""
    tape = Tape(scenario.launch_time, scenario.launch_time)
    plan = _Plan(scenario, policy)
    reductions: list[Event] = []
    for micro_batch in range(scenario.training.gradient_accumulation):
        tape.micro_batch = micro_batch
        last = micro_batch == scenario.training.gradient_accumulation - 1
        _forward(tape, plan)
        _backward(tape, plan, reductions, reduces=last or plan.shards_gradients)
    _step(tape, plan)
    return tape.program()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """A layer with the operations that it needs."""

    name: str
    elements: int
    trainable: int
    """Elements that have gradients."""
    forward: Kernel
    recompute: Kernel | None
    backward: Kernel
    kept: float
    """Activations from forward to backward [B]."""
    working: float
    """Further activations while backward runs [B]."""
    loss: tuple[float, float, float]
    """What the loss keeps, and further takes while forward and backward run [B]; 0 for a layer without."""


class _Plan:
    """Everything of a step that does not depend on order; makes each operation once."""

    def __init__(self, scenario: Scenario, policy: TextbookPolicy) -> None:
        self.policy = policy
        self.wire = ELEMENT_BYTES[scenario.training.precision]
        again = computed_again(scenario.model, scenario.training)
        kernels = module_kernels(scenario) if scenario.measured else {}
        self.units = [_unit(layer, scenario, again.get(layer.name), kernels) for layer in scenario.model.layers]
        self.world = scenario.mesh.world()
        self.backward_group = _backward_group(scenario.mesh, policy)
        separate = policy.reduce_communicator == "separate"
        self.reduce_group = replace(self.world, name="world reduce") if separate else self.world
        self.optimizer = _optimizer(scenario, policy)
        self.weights = INT8 if policy.zero_quantized_weights else None
        self.gradients = INT4 if policy.zero_quantized_gradients else None
        self._made: dict[tuple[object, ...], Operation] = {}

    @property
    def reduction(self) -> CollectiveKind:
        """How gradients are reduced, and the stream that does it."""
        return "reduce_scatter" if self.policy.zero_stage else "all_reduce"

    @property
    def shards_weights(self) -> bool:
        """Whether weights must be gathered."""
        return self.policy.zero_stage >= 3

    @property
    def shards_gradients(self) -> bool:
        """Whether whole gradients live only until they are reduced."""
        return self.policy.zero_stage >= 2

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
        kept, forward, _ = unit.loss
        takes = (("activations", unit.kept), *_loss(kept + forward))
        tape.launch(unit.forward, COMPUTE, label=unit.name, takes=takes, gives=_weights(plan, unit) + _loss(forward))


def _backward(tape: Tape, plan: _Plan, reductions: list[Event], *, reduces: bool) -> None:
    tape.phase = "backward"
    order = plan.units[::-1]
    gathered: dict[str, Event] = {}
    position = 0
    for bucket in _buckets(order, plan.policy.bucket_size):
        if plan.shards_gradients and len(reductions) >= GRADIENT_BUFFERS:
            tape.wait(COMPUTE, reductions[-GRADIENT_BUFFERS], "prefetch limit")
        for unit in bucket:
            ahead = order[position : position + 1 + plan.policy.prefetch]
            _unshard(tape, plan, ahead, gathered, plan.backward_group, "backward_all_gather")
            _need(tape, unit, gathered)
            _backward_of(tape, plan, unit)
            position += 1
        if reduces and any(unit.trainable for unit in bucket):
            reductions.append(_reduce(tape, plan, bucket))


def _backward_of(tape: Tape, plan: _Plan, unit: _Unit) -> None:
    working, kept = (("activations", unit.working),), (("activations", unit.working + unit.kept),)
    loss, _, backward = unit.loss
    takes, gives = _gradients(plan, unit.trainable) + _loss(backward), kept + _loss(loss + backward)
    if unit.recompute:
        tape.launch(unit.recompute, COMPUTE, label=unit.name, takes=working)
    else:
        takes += working
    tape.launch(unit.backward, COMPUTE, label=unit.name, takes=takes, gives=gives + _weights(plan, unit))


def _step(tape: Tape, plan: _Plan) -> None:
    tape.phase = "step"
    tape.wait(COMPUTE, tape.record(plan.reduction))
    tape.launch(plan.optimizer, COMPUTE, label="optimizer")
    if plan.policy.zero_stage in (1, 2):
        tape.wait(GATHER, tape.record(COMPUTE))
        for bucket in _buckets(plan.units, plan.policy.bucket_size):
            elements = sum(unit.trainable for unit in bucket)  # what is frozen has not changed
            if elements:
                collective = plan.collective("all_gather", elements, plan.world, "parameter_all_gather", None)
                tape.launch(collective, GATHER, label=_label(bucket))
    tape.wait(COMPUTE, tape.record(GATHER))
    tape.launch(END, COMPUTE, label="end of step")


def _unshard(
    tape: Tape, plan: _Plan, units: Iterable[_Unit], gathered: dict[str, Event], group: Group, role: str
) -> None:
    """Gather the weights of *units* that are not gathered yet; they may start when what runs before is done."""
    if not plan.shards_weights:
        return
    for unit in units:
        name, elements = unit.name, unit.elements
        if name in gathered or not elements:
            continue
        tape.wait(GATHER, tape.record(COMPUTE), "prefetch limit")
        takes = _weights(plan, unit)
        if plan.weights:
            tape.launch(plan.conversion("quantize", elements / group.size, role, plan.weights), GATHER, label=name)
        collective = plan.collective("all_gather", elements, group, role, plan.weights)
        gathered[name] = tape.launch(collective, GATHER, label=name, takes=takes)
        if plan.weights:
            gathered[name] = tape.launch(
                plan.conversion("dequantize", elements, role, plan.weights), GATHER, label=name
            )


def _need(tape: Tape, unit: _Unit, gathered: dict[str, Event]) -> None:
    if unit.name in gathered:
        tape.wait(COMPUTE, gathered[unit.name])


def _weights(plan: _Plan, unit: _Unit) -> Memory:
    """Memory of the whole weights of *unit* where only a shard is kept."""
    return (("gathered weights", plan.wire * unit.elements),) if plan.shards_weights and unit.elements else ()


def _gradients(plan: _Plan, elements: float) -> Memory:
    """Memory of whole gradients where only a shard is kept."""
    return (("gradients in flight", plan.wire * elements),) if plan.shards_gradients else ()


def _loss(size: float) -> Memory:
    return (("logits and loss", size),) if size else ()


def _reduce(tape: Tape, plan: _Plan, bucket: Sequence[_Unit]) -> Event:
    """Reduce the gradients of *bucket* once they are computed; the event is the end."""
    label, elements = _label(bucket), sum(unit.trainable for unit in bucket)
    kind = plan.reduction
    tape.wait(kind, tape.record(COMPUTE))
    if plan.gradients:
        tape.launch(plan.conversion("quantize", elements, kind, plan.gradients), kind, label=label)
    collective = plan.collective(kind, elements, plan.reduce_group, kind, plan.gradients)
    tape.launch(collective, kind, label=label, gives=_gradients(plan, elements))
    if plan.gradients:
        share = elements / plan.world.size
        tape.launch(plan.conversion("dequantize", share, kind, plan.gradients), kind, label=label)
    return tape.record(kind)


def _buckets(units: Iterable[_Unit], size: int) -> list[list[_Unit]]:
    """Cut *units* into runs of at most *size* elements; a larger one is a run by itself, and all are with size 0."""
    runs: list[list[_Unit]] = []
    for unit in units:
        if runs and sum(other.elements for other in runs[-1]) + unit.elements <= size:
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return runs


def _unit(layer: Layer, scenario: Scenario, again: Again | None, kernels: Mapping[tuple[str, str], Kernel]) -> _Unit:
    tokens = scenario.tokens_per_micro_batch
    needed = activation_bytes(layer, scenario.compute)
    kept = needed if again is None else again.kept
    loss = loss_bytes(ELEMENT_BYTES[scenario.training.precision], fused=scenario.training.fused_loss)
    scored = float(tokens * layer.logits)

    def kernel(kind: str, works: tuple[Work, ...], time: float | None) -> Kernel:
        modelled = Kernel(kind=kind, works=works, tokens=tokens, time=time, narrow=layer.checkpointed)
        return measured_layer(scenario, layer, modelled, kernels) if scenario.measured else modelled

    return _Unit(
        name=layer.name,
        elements=layer.elements,
        trainable=sum(tensor.elements for tensor in layer.tensors if tensor.trainable),
        forward=kernel("forward", layer.forward, layer.forward_time),
        recompute=None if again is None else kernel("recompute", _recomputed(again), layer.forward_time),
        backward=kernel("backward", layer.backward, layer.backward_time),
        kept=tokens * kept,
        working=tokens * (needed - kept),
        loss=(loss.kept * scored, loss.forward * scored, loss.backward * scored),
    )


def _recomputed(again: Again) -> tuple[Work, ...]:
    return tuple(work for works in again.works.values() for work in works)


def _backward_group(mesh: Mesh, policy: TextbookPolicy) -> Group:
    """Ranks that the weights for backward are gathered from."""
    if policy.zero_hpz_partition_size > 1:
        return mesh.group("secondary partition", policy.zero_hpz_partition_size)
    return mesh.world()


def _optimizer(scenario: Scenario, policy: TextbookPolicy) -> Kernel:
    """Adam reads the gradient, reads and writes its states, and writes the weight."""
    precision = scenario.training.precision
    shard = scenario.model.trainable / (scenario.mesh.ranks if policy.zero_stage >= 1 else 1)
    traffic = shard * MIXED[precision].update_traffic
    given = any(layer.forward_time is not None for layer in scenario.model.layers)
    works = (Work("memory", constant_traffic=traffic),)
    blocks = sum(layer.checkpointed for layer in scenario.model.layers)
    extra = blocks * (scenario.step_per_layer.value if scenario.step_per_layer else 0.0)
    return Kernel(kind="optimizer", works=works, time=0.0 if given else None, extra=extra)


def _label(units: Sequence[_Unit]) -> str:
    return units[0].name if len(units) == 1 else f"{units[0].name} to {units[-1].name}"
