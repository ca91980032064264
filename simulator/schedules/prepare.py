"""From a scenario to the job that a framework schedules: kernels, order of execution, activations, host costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simulator.laws.kernels import Kernel, activation_bytes
from simulator.laws.memory import loss_bytes
from simulator.laws.offload import cpu_time
from simulator.schedules.job import HostCosts, Job
from simulator.schedules.measured import measured_kernels
from simulator.schedules.program import Memory
from simulator.world.model.checkpointing import Again, computed_again
from simulator.world.model.execution import Checkpointing, execution
from simulator.world.model.layer import Layer, Work
from simulator.world.model.module import Module
from simulator.world.scenario import Scenario
from simulator.world.topology.mixed import host_types
from simulator.world.topology.servers import server_of
from simulator.world.training import ELEMENT_BYTES

__all__ = ["module_kernels", "prepared"]


def prepared(scenario: Scenario, update_traffic: float) -> Job:
    """Return the job of one rank.

    Parameters
    ----------
    update_traffic
        What the update of this rank's parameters reads and writes [B].
    """
    model, again = scenario.model, computed_again(scenario.model, scenario.training)
    blocks = {name for layer in model.layers if layer.name in again for name in layer.modules}
    checkpointing: Checkpointing = "none"
    if blocks:
        checkpointing = "reentrant" if scenario.training.use_reentrant else "non-reentrant"
    order = execution(model.root, checkpointing, lambda module: module.name in blocks)
    return Job(
        root=model.root,
        execution=order,
        micro_batches=scenario.training.gradient_accumulation,
        dtype=scenario.training.precision,
        mesh=scenario.mesh,
        kernels=measured_kernels(scenario, module_kernels(scenario), order),
        activations=dict(_activations(scenario, again)) | dict(_losses(scenario)),
        optimizer=_optimizer(scenario, update_traffic),
        costs=HostCosts(
            kernel=scenario.host.kernel.value,
            collective=scenario.host.collective.value,
            hook=scenario.host.hook.value,
            cpu_byte=_cpu_byte(scenario, torch=False),
            torch_byte=_cpu_byte(scenario, torch=True),
        ),
    )


def _cpu_byte(scenario: Scenario, *, torch: bool) -> float:
    """Time per byte of CPU kernels on the slowest type of host [s/B]."""
    sharers = scenario.mesh.devices_per_host
    return max(cpu_time(1.0, server_of(item), sharers, torch=torch) for item in host_types(scenario.cluster))


def module_kernels(scenario: Scenario) -> dict[tuple[str, str], Kernel]:
    """Return the kernels of the model by module name and ``forward``, ``recompute`` or ``backward``."""
    return dict(_kernels(scenario, computed_again(scenario.model, scenario.training)))


def _kernels(scenario: Scenario, again: Mapping[str, Again]) -> Iterator[tuple[tuple[str, str], Kernel]]:
    model, tokens = scenario.model, scenario.tokens_per_micro_batch
    inside = {name for layer in model.layers if layer.checkpointed for name in layer.modules}
    recomputed = {name: works for item in again.values() for name, works in item.works.items()}
    for top, module in _with_tops(model.root, inside):
        directions = (
            ("forward", module.forward, module.forward_time),
            ("recompute", recomputed.get(module.name, ()), module.forward_time),
            ("backward", module.backward, module.backward_time),
        )
        for direction, works, time in directions:
            if works or time is not None:
                kernel = Kernel(kind=direction, works=works, tokens=tokens, time=time, narrow=top)
                yield (module.name, direction), kernel


def _with_tops(module: Module, blocks: set[str], inside: bool = False) -> Iterator[tuple[bool, Module]]:
    """Yield all modules from *module* down, and whether each is part of a block."""
    inside = inside or module.name in blocks
    yield inside, module
    for child in module.children:
        yield from _with_tops(child, blocks, inside)


def _activations(
    scenario: Scenario, again: Mapping[str, Again]
) -> Iterator[tuple[tuple[str, str], tuple[Memory, Memory]]]:
    """What the kernels of modules take and give back; a unit's are booked on the first module that it runs.

    That module is the first in forward and in a recompute, and the last in backward.
    """
    tokens = scenario.tokens_per_micro_batch
    modules = {module.name: module for module in scenario.model.root.walk()}
    for layer in scenario.model.layers:
        first = next(_ran(layer, modules), None)
        if first is None:
            continue
        needed = tokens * activation_bytes(layer, scenario.compute)
        kept = tokens * again[layer.name].kept if layer.name in again else needed
        yield (first, "forward"), ((("activations", kept),), ())
        if layer.name in again:
            yield (first, "recompute"), ((("activations", needed - kept),), ())
        yield (first, "backward"), ((), (("activations", needed),))


def _losses(scenario: Scenario) -> Iterator[tuple[tuple[str, str], tuple[Memory, Memory]]]:
    """What the kernels of heads take and give back for the loss, which is part of their work."""
    training, tokens = scenario.training, scenario.tokens_per_micro_batch
    each = loss_bytes(ELEMENT_BYTES[training.precision], fused=training.fused_loss)

    def memory(size: int, words: int) -> Memory:
        return (("logits and loss", float(size * words * tokens)),)

    for module in scenario.model.root.walk():
        if words := module.logits:
            taken, given = memory(each.kept + each.forward, words), memory(each.forward, words)
            yield (module.name, "forward"), (taken, given)
            taken, given = memory(each.backward, words), memory(each.kept + each.backward, words)
            yield (module.name, "backward"), (taken, given)


def _ran(layer: Layer, modules: dict[str, Module]) -> Iterator[str]:
    """Names of the modules of *layer* that have work of their own, in the order in which they run."""
    for name in layer.modules:
        yield from _ran_in(modules[name])


def _ran_in(module: Module) -> Iterator[str]:
    for called in module.calls:
        yield from _ran_in(called)
    if module.forward or module.forward_time is not None:
        yield module.name


def _optimizer(scenario: Scenario, traffic: float) -> Kernel:
    given = any(layer.forward_time is not None for layer in scenario.model.layers)
    blocks = sum(layer.checkpointed for layer in scenario.model.layers)
    return Kernel(
        kind="optimizer",
        works=(Work("memory", constant_traffic=traffic),),
        time=0.0 if given else None,
        extra=blocks * (scenario.step_per_layer.value if scenario.step_per_layer else 0.0),
    )
