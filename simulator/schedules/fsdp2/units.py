"""Which parameters travel together: one group for each call of ``fully_shard`` (F2-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from simulator.errors import InputError, UnknownNameError
from simulator.schedules.job import Job
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.fsdp2 import Fsdp2Policy, Prefetch, post_forward_size

__all__ = ["Unit", "prefetched", "units"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one call of ``fully_shard`` covers."""

    modules: tuple[str, ...]
    """Names of the modules that it was called on."""
    covers: frozenset[str]
    """Names of all modules below them that belong to no other unit, themselves included."""
    tensors: tuple[Tensor, ...]
    """Parameters of the modules that it covers."""
    post_forward: int | None
    """Ranks among which the weights stay sharded after forward; None where they stay whole."""

    @property
    def name(self) -> str:
        """As policies name it."""
        return self.modules[0]

    @property
    def label(self) -> str:
        """As reports name it."""
        return ", ".join(self.modules) or "root"

    @property
    def trainable(self) -> tuple[Tensor, ...]:
        """Parameters that have gradients."""
        return tuple(tensor for tensor in self.tensors if tensor.trainable)


def units(job: Job, policy: Fsdp2Policy) -> tuple[Unit, ...]:
    """Return the units in the order in which the root finds them: ``named_modules()``, so the root comes first.

    Raises
    ------
    InputError
        An entry of ``units`` names nothing, or two units share a parameter (``_validate_no_duplicate_params``).
    """
    named = dict.fromkeys(call for entry in policy.units for call in _calls(entry, job.modules))
    calls = [call for call in named if call != ("",)]
    _check("unit_reshard_after_forward", policy.unit_reshard_after_forward, {call[0] for call in calls})
    place = {name: position for position, name in enumerate(job.modules)}
    calls.sort(key=lambda call: min(place[name] for name in call))
    wrapped = {name for call in calls for name in call}
    shard = policy.shard_size(job.mesh.ranks)
    found = tuple(_unit(call, job, policy, wrapped, shard) for call in [("",), *calls])
    owners: dict[str, Unit] = {}
    for unit in found:
        for tensor in unit.tensors:
            if owners.setdefault(tensor.name, unit) is not unit:
                both = f"{tensor.name} is shared by the units {owners[tensor.name].label} and {unit.label}"
                raise InputError(both, key="units", remedy="wrap the modules that share it in one unit")
    return found


def _calls(entry: str | tuple[str, ...], modules: Mapping[str, Module]) -> list[tuple[str, ...]]:
    if isinstance(entry, str) and entry not in modules:
        found: list[tuple[str, ...]] = [(module.name,) for module in modules.values() if module.kind == entry]
        if not found:
            raise UnknownNameError("module or class", entry, {module.kind for module in modules.values()}, key="units")
        return found
    call = (entry,) if isinstance(entry, str) else entry
    for name in call:
        if name not in modules:
            raise UnknownNameError("module", name, modules, key="units")
    return [call]


def _unit(call: tuple[str, ...], job: Job, policy: Fsdp2Policy, wrapped: set[str], shard: int) -> Unit:
    covered = [module for name in call for module in _managed(job.modules[name], wrapped)]
    if call == ("",):
        # the root's weights would be gathered again at once, so FSDP2's own default keeps them (F2-10)
        value = policy.root_reshard_after_forward
        value = False if value is None else value
    else:
        value = policy.unit_reshard_after_forward.get(call[0], policy.reshard_after_forward)
    return Unit(
        modules=call,
        covers=frozenset(module.name for module in covered),
        tensors=tuple({tensor.name: tensor for module in covered for tensor in module.parameters}.values()),
        post_forward=post_forward_size(value, shard, key="reshard_after_forward"),
    )


def _managed(module: Module, wrapped: set[str]) -> Iterable[Module]:
    """*module* and what is below it, without nested units (``_get_managed_modules``)."""
    yield module
    for child in module.children:
        if child.name not in wrapped:
            yield from _managed(child, wrapped)


def prefetched(job: Job, policy: Fsdp2Policy, found: Iterable[Unit]) -> dict[str, dict[str, tuple[str, ...]]]:
    """For ``forward`` and ``backward``, the names of the units that each unit prefetches by request (F2-6)."""
    unit_of = {name: unit.name for unit in found for name in unit.modules}
    entered = [unit_of[mark.name] for mark in job.execution.forward if mark.kind == "enter" and mark.name in unit_of]
    order = [name for name in dict.fromkeys(entered) if name]
    asked = {"forward": policy.forward_prefetch, "backward": policy.backward_prefetch}
    for key, item in asked.items():
        if not isinstance(item, int):
            _check(f"{key}_prefetch", [*item, *chain.from_iterable(item.values())], set(unit_of.values()))
    return {
        "forward": _requested(asked["forward"], order),
        "backward": _requested(asked["backward"], order[::-1]),
    }


def _requested(asked: Prefetch, order: list[str]) -> dict[str, tuple[str, ...]]:
    if not isinstance(asked, int):
        return dict(asked)
    return {name: tuple(order[place + 1 : place + 1 + asked]) for place, name in enumerate(order)}


def _check(key: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError("unit", name, known, key=key)
