"""The resources of a scenario, and the scenario with one of them better.

*f times better* means: bandwidths and rates times f; latencies, times of the host and the share of the GPU that
communication takes through f; sizes, which are better in neither direction, times f and through f, each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from simulator.clock.cast import RankClass, Stage
from simulator.clock.stage import stage
from simulator.laws.interference import AbstractInterference, Contention, Measured
from simulator.laws.offload import Transfer
from simulator.schedules.program import HostWork
from simulator.schedules.record import Recorder
from simulator.units import readable
from simulator.world.catalog import Accelerator, Number
from simulator.world.policy.choice import Policy
from simulator.world.policy.ddp import DEFAULT_BUCKET_CAP_MB, DdpPolicy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.internevo import InternEvoPolicy
from simulator.world.policy.textbook import TextbookPolicy
from simulator.world.policy.zero import DeepSpeedPolicy
from simulator.world.scenario import Scenario, Variant
from simulator.world.topology.cluster import Cluster, LinkKind
from simulator.world.topology.servers import server_of

__all__ = ["SIZES", "Resource", "relinked", "resources"]

SIZES: Final[Mapping[type, tuple[str, ...]]] = {
    TextbookPolicy: ("prefetch", "bucket_size"),
    DeepSpeedPolicy: (
        "reduce_bucket_size",
        "stage3_prefetch_bucket_size",
        "stage3_max_live_parameters",
        "stage3_param_persistence_threshold",
    ),
    DdpPolicy: ("bucket_cap_mb",),
    Fsdp2Policy: ("forward_prefetch", "backward_prefetch", "reduce_scatter_max_input_buffers"),
    InternEvoPolicy: ("reduce_bucket_size",),
}
"""Prefetch and buckets by policy, named as the framework names them."""

SERVER_RATES: Final = ("memory_bandwidth", "uplink", "device_link", "pageable", "nvme_read", "nvme_write")
"""What a host gives to variants that offload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that could be better."""

    name: str
    now: str
    """Its value, for people."""
    change: str
    """``better``; of sizes ``larger`` or ``smaller``."""
    at: Callable[[float], Stage]
    """The stage on which it is so many times better."""
    slowdown: bool = False
    """It is the share of the GPU that communication takes from kernels."""

    @property
    def has_slope(self) -> bool:
        """Whether the program stays the same, so that its critical path says something."""
        return self.change == "better"


def resources(scenario: Scenario, variant: Variant, ready: Stage, recorder: Recorder) -> Iterator[Resource]:
    """Yield what the steps of *variant* may depend on.

    Parameters
    ----------
    scenario
        Where the variant runs.
    ready
        The variant on its stage.
    recorder
        Records the programs of changed scenarios.
    """

    def on(changed: Callable[[float], tuple[Scenario, Variant]]) -> Callable[[float], Stage]:
        def at(factor: float) -> Stage:
            asked, chosen = changed(factor)
            return stage(asked, recorder.record(asked, chosen))

        return at

    def placed(changed: Callable[[Cluster, float], Cluster]) -> Callable[[float], Stage]:
        return on(lambda factor: (_with_cluster(scenario, changed(scenario.cluster, factor)), variant))

    yield from _links(scenario.cluster, placed)
    yield from _of_stage(ready)
    yield from _rates(scenario, placed, on, variant)
    program = ready.classes[0].program
    if any(isinstance(item, HostWork) for item in program.instructions):
        yield _host(scenario, variant, on)
    if any(isinstance(item, Transfer) for item in program.operations):
        yield from _server(scenario.cluster, placed)
    yield from _sizes(scenario, variant, on)


Placed = Callable[[Callable[[Cluster, float], Cluster]], Callable[[float], Stage]]
On = Callable[[Callable[[float], tuple[Scenario, Variant]]], Callable[[float], Stage]]


def _with_cluster(scenario: Scenario, cluster: Cluster) -> Scenario:
    return replace(scenario, place=replace(scenario.place, cluster=cluster))


def _scaled(number: Number, factor: float) -> Number:
    return replace(number, value=number.value * factor)


def _links(cluster: Cluster, placed: Placed) -> Iterator[Resource]:
    """Bandwidth and latency of each kind of link, of all types of hosts at once."""
    for link in cluster.links:

        def wider(cluster: Cluster, factor: float, name: str = link.name) -> Cluster:
            return relinked(cluster, name, lambda item: replace(item, nominal=_scaled(item.nominal, factor)))

        def nearer(cluster: Cluster, factor: float, name: str = link.name) -> Cluster:
            return relinked(cluster, name, lambda item: replace(item, latency=_scaled(item.latency, 1 / factor)))

        now = readable(link.nominal.value, "B/s")
        yield Resource(name=f"{link.name} bandwidth", now=now, change="better", at=placed(wider))
        if link.latency.value:
            now = readable(link.latency.value, "s")
            yield Resource(name=f"{link.name} latency", now=now, change="better", at=placed(nearer))


def relinked(cluster: Cluster, name: str, change: Callable[[LinkKind], LinkKind]) -> Cluster:
    """Return *cluster* with another kind of link called *name*, on hosts of all types."""

    def changed(links: tuple[LinkKind, ...]) -> tuple[LinkKind, ...]:
        return tuple(change(link) if link.name == name else link for link in links)

    others = tuple(replace(item, links=changed(item.links)) for item in cluster.others)
    return replace(cluster, links=changed(cluster.links), others=others)


def _of_stage(ready: Stage) -> Iterator[Resource]:
    """What is no single number: all bandwidths, latencies and kernels, and what communication takes from kernels."""

    def recast(change: Callable[[RankClass, float], RankClass]) -> Callable[[float], Stage]:
        return lambda factor: replace(ready, classes=tuple(change(item, factor) for item in ready.classes))

    def wider(factor: float) -> Stage:
        links = tuple(replace(link, bandwidth=link.bandwidth * factor) for link in ready.links)
        return replace(recast(_wider)(factor), links=links)

    yield Resource(name="every bandwidth", now="", change="better", at=wider)
    yield Resource(name="every latency", now="", change="better", at=recast(_nearer))
    yield Resource(name="every kernel", now="", change="better", at=recast(_faster))
    if any(item.interferes for item in ready.classes):
        now = _taken(ready.classes[0].interference)
        yield Resource(
            name="GPU share of communication", now=now, change="better", at=recast(_less_taken), slowdown=True
        )


def _wider(cast: RankClass, factor: float) -> RankClass:
    """Links, and what a kernel of a collective sends on links that are fast enough."""
    phases = tuple(tuple(replace(each, rate=each.rate * factor) for each in item) for item in cast.phases)
    return replace(cast, phases=phases)


def _nearer(cast: RankClass, factor: float) -> RankClass:
    phases = tuple(tuple(replace(each, latency=each.latency / factor) for each in item) for item in cast.phases)
    return replace(cast, phases=phases)


def _faster(cast: RankClass, factor: float) -> RankClass:
    return replace(cast, times=tuple(time / factor for time in cast.times))


def _less_taken(cast: RankClass, factor: float) -> RankClass:
    """Channels and copies take a smaller part of the multiprocessors and of the memory's bandwidth."""
    found: AbstractInterference = cast.interference
    if isinstance(found, Contention):
        found = Contention(multiprocessors=found.multiprocessors * factor, memory=found.memory * factor)
    elif isinstance(found, Measured):
        found = Measured(1 + (found.slowdown - 1) / factor)
    return replace(cast, interference=found)


def _taken(found: AbstractInterference) -> str:
    return f"slowdown {found.slowdown:g}" if isinstance(found, Measured) else "channels"


def _rates(scenario: Scenario, placed: Placed, on: On, variant: Variant) -> Iterator[Resource]:
    """What the accelerator does, or was measured to achieve."""
    achieved, part = scenario.compute.achieved, scenario.accelerator
    if achieved is not None:
        yield Resource(
            name="achieved rate",
            now=readable(achieved, "FLOP/s"),
            change="better",
            at=on(
                lambda factor: (
                    replace(scenario, compute=replace(scenario.compute, achieved=achieved * factor)),
                    variant,
                )
            ),
        )
        return
    peak, memory = part.peak_flops[scenario.compute.precision], part.memory_bandwidth

    def multiplies(part: Accelerator, factor: float) -> Accelerator:
        return replace(part, peak_flops={name: _scaled(item, factor) for name, item in part.peak_flops.items()})

    def moves(part: Accelerator, factor: float) -> Accelerator:
        return replace(part, memory_bandwidth=_scaled(part.memory_bandwidth, factor))

    for name, number, change in (("matrix rate", peak, multiplies), ("memory bandwidth", memory, moves)):

        def faster(cluster: Cluster, factor: float, change: Callable[..., Accelerator] = change) -> Cluster:
            others = tuple(replace(item, accelerator=change(item.accelerator, factor)) for item in cluster.others)
            return replace(cluster, accelerator=change(cluster.accelerator, factor), others=others)

        now = readable(number.value, number.unit)
        yield Resource(name=f"accelerator {name}", now=now, change="better", at=placed(faster))


def _host(scenario: Scenario, variant: Variant, on: On) -> Resource:
    """The thread that launches."""

    def faster(factor: float) -> tuple[Scenario, Variant]:
        host = scenario.host
        times = {name: _scaled(getattr(host, name), 1 / factor) for name in ("kernel", "collective", "hook")}
        quick = replace(scenario, host=replace(host, **times), launch_time=scenario.launch_time / factor)
        return quick, variant

    time = scenario.launch_time if variant.schedule == "textbook" else scenario.host.kernel.value
    return Resource(name="host speed", now=f"{readable(time, 's')} a launch", change="better", at=on(faster))


def _server(cluster: Cluster, placed: Placed) -> Iterator[Resource]:
    """Memory and drives of hosts, which offloading uses."""
    found = server_of(cluster)
    for name in (*SERVER_RATES, "copy_latency"):
        number = getattr(found, name)
        if number is None:
            continue

        def faster(cluster: Cluster, factor: float, name: str = name) -> Cluster:
            by = 1 / factor if name == "copy_latency" else factor
            changed: dict[str, Any] = {name: _scaled(getattr(server_of(cluster), name), by)}
            return replace(cluster, server=replace(server_of(cluster), **changed))

        now = readable(number.value, number.unit)
        yield Resource(name=f"server {name}", now=now, change="better", at=placed(faster))


def _sizes(scenario: Scenario, variant: Variant, on: On) -> Iterator[Resource]:
    """Prefetch and buckets that the variant has, in both directions; none of them where it is 0 or not a number."""
    for key in SIZES.get(type(variant.policy), ()):
        size = _size(variant.policy, key)
        if not size or (key.startswith("stage3") and getattr(variant.policy, "zero_stage", 3) < 3):
            continue

        def larger(factor: float, key: str = key, size: float = size) -> tuple[Scenario, Variant]:
            changed: dict[str, Any] = {key: _resized(size, factor, 0 if "prefetch" in key else 1)}
            return scenario, replace(variant, policy=replace(variant.policy, **changed))

        def smaller(factor: float, larger: Callable[[float], tuple[Scenario, Variant]] = larger) -> Any:
            return larger(1 / factor)

        for change, resized in (("larger", larger), ("smaller", smaller)):
            yield Resource(name=key, now=f"{size:g}", change=change, at=on(resized))


def _size(policy: Policy, key: str) -> float:
    """Of *policy*; 0 where it is not one number."""
    if isinstance(policy, DdpPolicy) and policy.bucket_cap_mb is None:
        return 0 if policy.bucket_cap_mb_list else DEFAULT_BUCKET_CAP_MB
    size = getattr(policy, key)
    return size if isinstance(size, int | float) else 0


def _resized(size: float, factor: float, least: int) -> float:
    """A whole number stays one, and changes by one if it may."""
    if not isinstance(size, int):
        return size * factor
    return math.ceil(size * factor) if factor > 1 else max(least, math.floor(size * factor))
