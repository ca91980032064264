"""The report of one variant: everything people and machines are told about it.

Field names are the keys of ``zerosim run --json``; they are a contract.  SI units throughout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from simulator.clock.timeline import Timeline
from simulator.errors import BrokenLawError
from simulator.laws.collectives.base import Collective
from simulator.laws.estimators import Offloading, deepspeed_estimate, deepspeed_host_estimate
from simulator.laws.kernels import Kernel, rates
from simulator.laws.memory import loss_bytes
from simulator.laws.offload import Transfer
from simulator.laws.price import cost
from simulator.readings.ceilings import ceilings
from simulator.readings.exposure import Totals
from simulator.readings.footprint import Beside, Footprint, over_time
from simulator.readings.spread import Spread, summary
from simulator.readings.step import ClassTotals, Step
from simulator.readings.volume import Volume
from simulator.schedules.offloaded import offloaded
from simulator.schedules.ownership import states
from simulator.schedules.program import Program
from simulator.world.catalog import Number, memory_number
from simulator.world.model.checkpointing import Again, computed_again
from simulator.world.model.layer import Layer
from simulator.world.policy.choice import Policy
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.zero import DeepSpeedPolicy
from simulator.world.scenario import Scenario, Variant
from simulator.world.topology.mixed import host_types
from simulator.world.topology.servers import server_of
from simulator.world.training import ELEMENT_BYTES

__all__ = ["Result", "failed", "numbers_of", "states_of", "summarise", "timeline_of"]

IDENTITY_TOLERANCE = 1e-9
"""Relative rounding allowed in compute + stalled + copies + host-bound = step."""

MFU_CONVENTION = "6 FLOP per parameter and token, plus 12 x layers x width x sequence length for attention, not halved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One simulated variant."""

    name: str
    schedule: str
    ranks: int
    step_time: float
    compute_time: float
    slowed_time: float
    """The part of ``compute_time`` that communication beside it added."""
    host_time: float
    """The compute stream idles because the host has not launched its next kernel."""
    copy_time: float
    """Copies on the compute stream."""
    tokens_per_second_per_gpu: float
    mfu: float
    hfu: float
    flop_convention: str
    exposed: Mapping[str, float]
    exposed_by_cause: Mapping[str, float]
    exposed_by_collective: Mapping[str, float]
    communication_time: float
    rank_classes: tuple[Mapping[str, Any], ...]
    """Ranks that behave alike, and where their time went; empty if each rank was simulated."""
    ceilings: Mapping[str, float | None]
    """What the step would gain at most."""
    phases: Mapping[str, float]
    """Parts of the step as timers of frameworks tell them [s]."""
    links: Mapping[str, float]
    """Utilisation by kind of link, busiest first."""
    volume: Mapping[str, float]
    memory: Mapping[str, Any]
    cost: Mapping[str, float] | None
    assumed: tuple[str, ...]
    jitter: Mapping[str, Any] | None
    """Quantiles over replications with random times, see :mod:`simulator.readings.spread`; None without jitter."""
    measured: tuple[str, ...]
    """Names of layers and modules, as the scenario's table has them, whose times are the table's."""
    failure: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        return asdict(self)


def failed(scenario: Scenario, variant: Variant, reason: str) -> dict[str, Any]:
    """Return what :meth:`Result.as_json` gives for a variant that cannot run: null where there is nothing to say."""
    known = {"name": variant.name, "schedule": variant.schedule, "ranks": scenario.mesh.ranks, "failure": reason}
    return {field.name: known.get(field.name) for field in fields(Result)}


def summarise(
    scenario: Scenario,
    variant: Variant,
    read: Step,
    traffic: Volume,
    ideal_step: float,
    replications: Spread | None = None,
) -> Result:
    """Make the report of what was read off a step.

    Parameters
    ----------
    ideal_step
        Step time on an infinitely fast network [s].
    replications
        Steps with random times.

    Raises
    ------
    BrokenLawError
        The parts of the step do not add up.
    """
    step, reading = read.time, read.totals
    _check_identity(reading, step, variant)
    possible = _peak_rate(scenario) * step
    mfu = scenario.model.model_flop * scenario.tokens_per_step / possible if step else 0.0
    return Result(
        name=variant.name,
        schedule=variant.schedule,
        ranks=scenario.mesh.ranks,
        step_time=step,
        compute_time=reading.compute,
        slowed_time=reading.slowed,
        host_time=reading.host_bound,
        copy_time=reading.copies,
        tokens_per_second_per_gpu=scenario.tokens_per_step / step if step else 0.0,
        mfu=mfu,
        hfu=_hardware_flop(scenario) * scenario.tokens_per_step / possible if step else 0.0,
        flop_convention=MFU_CONVENTION,
        exposed=_exposed(reading, step - ideal_step),
        exposed_by_cause=reading.by_cause,
        exposed_by_collective=reading.by_collective,
        communication_time=reading.communication,
        rank_classes=tuple(_rank_class(item) for item in read.classes),
        ceilings=asdict(ceilings(reading, step, mfu)),
        phases=read.phases,
        links=read.links,
        volume=_volume(traffic),
        memory=_memory(_footprint(scenario, read), *read.ran)
        | {"deepspeed_estimate": estimate_of(scenario, variant), **_host_memory(scenario, variant)},
        cost=_cost(scenario, step, reading.stalled),
        assumed=_assumed(scenario, variant, read),
        jitter=None if replications is None else summary(replications, step),
        measured=tuple(item.row.name for item in scenario.measured),
    )


def _exposed(reading: Totals, counterfactual: float) -> dict[str, float]:
    return {
        "stalled": reading.stalled,
        "uncovered": reading.uncovered,
        "counterfactual": counterfactual,
        "skew": reading.skew,
    }


def _rank_class(item: ClassTotals) -> dict[str, Any]:
    return {
        "name": item.name,
        "ranks": item.ranks,
        "compute_time": item.totals.compute,
        "stalled": item.totals.stalled,
        "skew": item.totals.skew,
        "host_time": item.totals.host_bound,
    }


def _footprint(scenario: Scenario, read: Step) -> Footprint:
    """Compare the peak with the smallest accelerator."""
    smallest = min(item.accelerator.memory.value for item in host_types(scenario.cluster))
    groups = {item.group.name for item in read.program.operations if isinstance(item, Collective)}
    context, communicator, fragmentation = (number.value for number in _beside())
    beside = Beside(context + len(groups) * communicator, fragmentation)
    return Footprint(most=read.peak, capacity=smallest, beside=beside, hole=_hole(scenario, *read.ran))


def timeline_of(scenario: Scenario, variant: Variant, timeline: Timeline) -> dict[str, Any]:
    """Memory over the step: instants, what is held then, and that by item; each a list as long as the others."""
    moments = over_time(states_of(scenario, variant), timeline.classes[0].memory, timeline.step_time)
    items = dict.fromkeys(item for moment in moments for item in moment.items)
    return {
        "time": [moment.at for moment in moments],
        "total": [moment.total for moment in moments],
        "items": {item: [moment.items.get(item, 0.0) for moment in moments] for item in items},
    }


def _hole(scenario: Scenario, phase: str, ran: str) -> float:
    """What the allocator keeps unused while the backward of the loss runs, if that is when memory is fullest [B]."""
    if phase != "backward" or ran not in scenario.model.modules:
        return 0.0
    each = loss_bytes(ELEMENT_BYTES[scenario.training.precision], fused=scenario.training.fused_loss)
    return float(each.hole * scenario.model.modules[ran].logits * scenario.tokens_per_micro_batch)


def states_of(scenario: Scenario, variant: Variant) -> dict[str, float]:
    """Bytes that a rank keeps on its device from step to step, by item."""
    kept = states(variant.policy, scenario.model, scenario.mesh, scenario.training.precision)
    elsewhere = offloaded(scenario, variant.policy)
    return kept if elsewhere is None else kept | dict(elsewhere.device)


def _beside() -> tuple[Number, Number, Number]:
    """What a process holds beside its arrays: context, each communicator, holes."""
    return memory_number("context"), memory_number("communicator"), memory_number("fragmentation")


def estimate_of(scenario: Scenario, variant: Variant) -> float | None:
    """Return what DeepSpeed's estimator says of the model states [B]; None for other frameworks and stages 0, 1."""
    if not isinstance(variant.policy, DeepSpeedPolicy):
        return None
    offloads, elements = _offloading(variant.policy), scenario.model.elements
    if offloads is None:
        return None
    return deepspeed_estimate(variant.policy.zero_stage, elements, _largest(scenario), scenario.mesh.ranks, offloads)


def _largest(scenario: Scenario) -> int:
    """Elements of the module that has most itself."""
    return max(sum(tensor.elements for tensor in module.parameters) for module in scenario.model.root.walk())


def _offloading(policy: DeepSpeedPolicy) -> Offloading | None:
    """What DeepSpeed's estimators take as offloaded; they do not know parameters alone."""
    if policy.offload_optimizer is None:
        return None if policy.offload_param is not None else "nothing"
    return "both" if policy.offload_param is not None else "optimizer"


def _host_memory(scenario: Scenario, variant: Variant) -> dict[str, Any]:
    """Memory and drives of a host, if anything is offloaded there."""
    found = offloaded(scenario, variant.policy)
    if found is None:
        return {}
    devices, hosts = scenario.mesh.devices_per_host, scenario.mesh.hosts
    servers = [server_of(item) for item in host_types(scenario.cluster)]
    items = {name: devices * size for name, size in sorted(found.host.items(), key=lambda item: -item[1])}
    offloads = _offloading(variant.policy) if isinstance(variant.policy, DeepSpeedPolicy) else None
    estimate = None
    if isinstance(variant.policy, DeepSpeedPolicy) and offloads is not None:
        stage, largest = variant.policy.zero_stage, _largest(scenario)
        estimate = deepspeed_host_estimate(stage, scenario.model.elements, largest, devices, hosts, offloads)
    host = _place(sum(items.values()), min(item.memory.value for item in servers))
    host |= {"pinned": devices * found.pinned, "items": items, "deepspeed_estimate": estimate}
    drives = _place(devices * found.nvme, min(item.nvme.value for item in servers))
    return {"host": host, **({"nvme": drives} if found.nvme else {})}


def _place(peak: float, capacity: float) -> dict[str, Any]:
    return {"peak": peak, "capacity": capacity, "fits": peak <= capacity}


def _peak_rate(scenario: Scenario) -> float:
    """Mean peak of the accelerators at the precision of training [FLOP/s]; infinite where one has none."""
    cluster = scenario.cluster
    first = cluster.hosts - sum(item.hosts for item in cluster.others)
    parts = ((first, cluster.accelerator), *((item.hosts, item.accelerator) for item in cluster.others))
    peaks = [(hosts, part.peak_flops.get(scenario.training.precision)) for hosts, part in parts]
    return sum(hosts * (peak.value if peak else float("inf")) for hosts, peak in peaks) / cluster.hosts


def _volume(traffic: Volume) -> dict[str, float]:
    return {
        "sent_per_rank": traffic.intra_host + traffic.inter_host,
        "intra_host_per_rank": traffic.intra_host,
        "inter_host_per_rank": traffic.inter_host,
        "in_psi": traffic.in_psi,
        "inter_host_in_psi": traffic.inter_host_in_psi,
        **{f"{route}_per_rank": amount for route, amount in traffic.transfers.items()},
    }


def _memory(found: Footprint, phase: str, module: str) -> dict[str, Any]:
    return {
        "peak": found.most.peak,
        "peak_at": found.most.at,
        "peak_phase": phase,
        "peak_module": module,
        "reserved": found.reserved,
        "device": found.device,
        "needed": found.needed,
        "capacity": found.capacity,
        "fits": found.fits,
        "items": dict(found.most.items),
    }


def _check_identity(reading: Totals, step: float, variant: Variant) -> None:
    parts = reading.compute + reading.stalled + reading.copies + reading.host_bound
    if abs(parts - step) > IDENTITY_TOLERANCE * max(step, parts):
        raise BrokenLawError(f"{variant.name}: compute, stalls, copies and host add up to {parts} s, not to {step} s")


def _hardware_flop(scenario: Scenario) -> float:
    """FLOP of one token with what activation checkpointing computes again: of all of forward, a third of the total."""
    again = computed_again(scenario.model, scenario.training)
    return sum(layer.model_flop * (1 + _again(layer, again) / 3) for layer in scenario.model.layers)


def _again(layer: Layer, again: Mapping[str, Again]) -> float:
    """Part of forward that runs again."""
    forward = sum(work.flop for work in layer.forward)
    return again[layer.name].flop / forward if layer.name in again and forward else 0.0


def _cost(scenario: Scenario, step: float, stalled: float) -> dict[str, float] | None:
    if scenario.per_gpu_hour is None:
        return None
    ranks = scenario.mesh.ranks
    return cost(scenario.per_gpu_hour, ranks, step, stalled, float(scenario.tokens_per_step * ranks))


def _assumed(scenario: Scenario, variant: Variant, read: Step) -> tuple[str, ...]:
    """Names of the numbers without a source that the result rests on."""
    used = numbers_of(scenario, variant, read.program, read.links)
    return tuple(dict.fromkeys(number.name for number in used if number.basis == "assumed"))


def numbers_of(
    scenario: Scenario, variant: Variant, program: Program, used_links: Collection[str]
) -> tuple[Number, ...]:
    """Return the numbers of the catalogue that a result rests on.

    Parameters
    ----------
    used_links
        Kinds of links that carried something.
    """
    at = rates(scenario.accelerator, scenario.compute)
    kernels = [item for item in program.operations if isinstance(item, Kernel)]
    kinds = dict.fromkeys(work.kind for kernel in kernels if kernel.time is None for work in kernel.works)
    links = [link for link in scenario.cluster.links if link.name in used_links]
    used = [
        *(number for kind in kinds for number in at.numbers.get(kind, ())),
        *([scenario.step_per_layer] if scenario.step_per_layer else []),
        scenario.accelerator.memory,
        *_beside(),
        *(number for link in links for number in link.numbers()),
        *_server_numbers(scenario, variant.policy, program),
        *(scenario.host.numbers() if variant.schedule != "textbook" else ()),
    ]
    return tuple(dict.fromkeys(used))


def _server_numbers(scenario: Scenario, policy: Policy, program: Program) -> Iterator[Number]:
    """Numbers of the hosts' memory, CPUs and drives that the result rests on."""
    copies = [item for item in program.operations if isinstance(item, Transfer)]
    if not copies:
        return
    found, routes = server_of(scenario.cluster), {copy.route for copy in copies}
    yield from (found.memory, found.memory_bandwidth)
    torch = isinstance(policy, Fsdp1Policy | Fsdp2Policy) and not policy.fused_optimizer
    yield found.torch_adam if torch else found.adam
    if routes & {"to_host", "to_device"}:
        yield from (found.uplink, found.copy_latency, *([found.device_link] if found.device_link else []))
    if not all(copy.pinned for copy in copies):
        yield found.pageable
    if routes & {"nvme_read", "nvme_write"}:
        yield from (found.nvme, found.nvme_read, found.nvme_write)
