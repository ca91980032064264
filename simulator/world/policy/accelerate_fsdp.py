"""The ``fsdp_config`` of an accelerate configuration, for both versions of FSDP.

Defaults are those of ``accelerate launch``, which differ from FSDP's own: without ``fsdp_backward_prefetch`` nothing is
prefetched in backward, and ``fsdp_use_orig_params`` is on.

Source: accelerate 1.15 commands/launch.py (arguments), utils/dataclasses.py (``FullyShardedDataParallelPlugin``),
utils/fsdp_utils.py (``fsdp2_prepare_model``), accelerator.py (``no_sync``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import Section, convert
from simulator.world.model.module import Module
from simulator.world.policy.deepspeed_lax import relaxed
from simulator.world.policy.fsdp1 import Fsdp1Policy, ShardingStrategy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.launch import block_kinds, known_kinds
from simulator.world.training import Dtype

__all__ = ["FsdpSection", "Place", "carved", "fsdp_section", "policy_of"]

STRATEGIES: Final[tuple[ShardingStrategy, ...]] = (
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "_HYBRID_SHARD_ZERO2",
)
"""In the order of their numbers, from 1; accelerate also writes the last one without the underscore."""

PREFETCHES: Final[tuple[Literal["BACKWARD_PRE", "BACKWARD_POST"], ...]] = ("BACKWARD_PRE", "BACKWARD_POST")
WRAPPINGS: Final = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
OBSOLETE: Final = ("fsdp_sharding_strategy", "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params")
"""Keys that FSDP2 ignores."""


class FsdpSection(Section):
    """``fsdp_config``."""

    fsdp_version: int = 1
    fsdp_sharding_strategy: str | int | None = None
    fsdp_reshard_after_forward: bool | int | str | None = None
    fsdp_backward_prefetch: str | int | None = None
    fsdp_forward_prefetch: bool | None = None
    fsdp_use_orig_params: bool | None = None
    fsdp_auto_wrap_policy: str = "NO_WRAP"
    fsdp_transformer_layer_cls_to_wrap: str | list[str] | None = None
    fsdp_min_num_params: int = 100_000_000
    fsdp_offload_params: bool = False
    fsdp_activation_checkpointing: bool = False
    fsdp_activation_checkpointing_offload: bool = False
    fsdp_ignored_modules: Any = None
    fsdp_state_dict_type: str | int | None = None
    fsdp_cpu_ram_efficient_loading: bool | None = None
    fsdp_sync_module_states: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """Where a section stands."""

    file: object
    key: str

    def error(self, name: str, value: object, problem: str, remedy: str | None = None) -> InputError:
        """Return an error about the key *name* of the section."""
        return InputError(problem, file=self.file, key=f"{self.key}.{name}", value=value, remedy=remedy)


def fsdp_section(raw: Mapping[str, Any], place: Place) -> FsdpSection:
    """Check the section *raw*, whose keys may lack their prefix.

    Raises
    ------
    InputError
        An unknown key, a wrong type, or something that is not simulated.
    """
    prefixed = {name if name.startswith("fsdp") else f"fsdp_{name}": value for name, value in raw.items()}
    section = convert(
        relaxed(prefixed, FsdpSection, place.file, place.key, auto=False), FsdpSection, place.file, place.key
    )
    if section.fsdp_version not in (1, 2):
        raise place.error("fsdp_version", section.fsdp_version, "there is FSDP 1 and 2", "write 1 or 2")
    if section.fsdp_activation_checkpointing_offload:
        name = "fsdp_activation_checkpointing_offload"
        raise place.error(name, True, "offloading activations is not simulated yet", "set it to false")
    if section.fsdp_ignored_modules is not None:
        value = section.fsdp_ignored_modules
        raise place.error("fsdp_ignored_modules", value, "ignored modules are not simulated", "remove the key")
    if section.fsdp_cpu_ram_efficient_loading and not section.fsdp_sync_module_states:
        problem, remedy = "needs fsdp_sync_module_states", "set that to true"
        raise place.error("fsdp_cpu_ram_efficient_loading", True, problem, remedy)
    return section


def policy_of(
    section: FsdpSection, dtype: Dtype | None, replicate: int | None, root: Module | None, place: Place
) -> tuple[Fsdp1Policy | Fsdp2Policy, list[str]]:
    """Return the policy that *section* stands for, and notes.

    Parameters
    ----------
    dtype
        Of gathered weights and reduced gradients; None: that of the parameters.
    replicate
        Replicas of the sharded model, FSDP2 only.
    root
        The model; without it units are classes as the file names them.

    Raises
    ------
    InputError
        A value that accelerate does not know, or a class that the model does not contain.
    """
    units, notes = _units(section, root, place)
    if section.fsdp_version == 1:
        return _fsdp1(section, dtype, units, place), [*notes, *_notes1(section)]
    policy = Fsdp2Policy(
        units=units,
        reshard_after_forward=_reshard2(section.fsdp_reshard_after_forward, place),
        param_dtype=dtype,
        reduce_dtype=dtype,
        replicate=replicate,
        requires_gradient_sync=False,
        cpu_offload=section.fsdp_offload_params,
    )
    ignored = [name for name in OBSOLETE if getattr(section, name) is not None]
    notes += [f"your `{name}` has no effect: FSDP2 does not have it" for name in ignored]
    return (policy if root is None else carved(policy, root)), notes


def carved(policy: Fsdp2Policy, root: Module) -> Fsdp2Policy:
    """Give input embedding and last norm with output head units of their own, as accelerate does for FSDP2.

    The latter stays gathered from forward to backward, as does what is left to the root.  Tied weights put the
    embedding into the last unit.
    """
    head = next((child for child in reversed(root.children) if child.kind == "Linear"), None)
    trunk = next((child for child in root.children if child is not head and child.children), root)
    norms = [child for child in trunk.children if "Norm" in child.kind]
    embedding = next((module for module in root.walk() if module.takes_numbers), None)
    tied = bool(head and embedding and {*embedding.tensors()} & {*head.tensors()})
    last = [*norms[-1:], *([embedding] if tied and embedding else []), *([head] if head else [])]
    names = tuple(module.name for module in last if module.name not in policy.units)
    first = [embedding.name] if embedding and not tied else []
    return replace(
        policy,
        units=(*policy.units, *first, *([names] if names else [])),
        unit_reshard_after_forward={names[0]: False} if names else {},
    )


def _fsdp1(section: FsdpSection, dtype: Dtype | None, units: tuple[str, ...], place: Place) -> Fsdp1Policy:
    name, chosen = "fsdp_sharding_strategy", section.fsdp_sharding_strategy
    if chosen is None and section.fsdp_reshard_after_forward is not None:
        name, reshard = "fsdp_reshard_after_forward", section.fsdp_reshard_after_forward
        if isinstance(reshard, bool) or str(reshard).lower() in ("true", "false"):
            remedy = "set fsdp_version: 2 or name an fsdp_sharding_strategy"
            raise place.error(name, reshard, "true and false belong to FSDP2, this is FSDP1", remedy)
        chosen = reshard
    prefetch = section.fsdp_backward_prefetch
    without = prefetch is None or str(prefetch).upper() == "NO_PREFETCH"
    return Fsdp1Policy(
        units=units,
        sharding_strategy=_one_of(STRATEGIES, "FULL_SHARD" if chosen is None else chosen, name, place),
        backward_prefetch=None if without else _one_of(PREFETCHES, prefetch, "fsdp_backward_prefetch", place),
        forward_prefetch=bool(section.fsdp_forward_prefetch),
        use_orig_params=section.fsdp_use_orig_params is not False,
        param_dtype=dtype,
        reduce_dtype=dtype,
        buffer_dtype=dtype,
        cpu_offload=section.fsdp_offload_params,
        no_sync=True,
    )


def _one_of(names: Sequence[Any], value: object, key: str, place: Place) -> Any:
    """Return the member of *names* that *value* stands for: its name in any case, or its number from 1."""
    text = str(value).upper()
    if text.isdigit() and 1 <= int(text) <= len(names):
        return names[int(text) - 1]
    for name in names:
        if text.lstrip("_") == name.lstrip("_"):
            return name
    known = [*names, *([] if names is STRATEGIES else ["NO_PREFETCH"])]
    raise UnknownNameError("choice", text, known, file=place.file, key=f"{place.key}.{key}")


def _reshard2(value: object, place: Place) -> bool:
    if value is None or isinstance(value, bool):
        return value is not False
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    remedy = "write true for FULL_SHARD and HYBRID_SHARD, false for SHARD_GRAD_OP and HYBRID_SHARD_ZERO2"
    raise place.error("fsdp_reshard_after_forward", value, "FSDP2 knows true and false", remedy)


def _units(section: FsdpSection, root: Module | None, place: Place) -> tuple[tuple[str, ...], list[str]]:
    name, wrapping = "fsdp_auto_wrap_policy", section.fsdp_auto_wrap_policy.upper()
    if wrapping not in WRAPPINGS:
        raise UnknownNameError("choice", wrapping, WRAPPINGS, file=place.file, key=f"{place.key}.{name}")
    if wrapping == "SIZE_BASED_WRAP":
        raise place.error(name, wrapping, "units by size are not simulated", "use TRANSFORMER_BASED_WRAP")
    if wrapping == "NO_WRAP":
        return (), [f"`{name}` is NO_WRAP: the whole model is one unit and nothing overlaps"]
    named = section.fsdp_transformer_layer_cls_to_wrap
    classes = tuple(item.strip() for item in (named.split(",") if isinstance(named, str) else named or ()))
    if root is None:
        return classes, [] if classes else ["units are the model's blocks, whose class the file does not name"]
    kinds = classes or block_kinds(root)
    return known_kinds(kinds, root, place.file, f"{place.key}.fsdp_transformer_layer_cls_to_wrap"), []


def _notes1(section: FsdpSection) -> Iterator[str]:
    if section.fsdp_backward_prefetch is None:
        yield "`fsdp_backward_prefetch` is not given: accelerate prefetches nothing in backward (NO_PREFETCH)"
    if section.fsdp_sharding_strategy is None and section.fsdp_reshard_after_forward is not None:
        yield (
            "`fsdp_reshard_after_forward` was read as the sharding strategy; `accelerate launch` 1.15 takes FULL_SHARD"
            " unless `fsdp_sharding_strategy` is given"
        )
    if section.fsdp_sharding_strategy is not None and section.fsdp_reshard_after_forward is not None:
        yield "your `fsdp_reshard_after_forward` has no effect beside `fsdp_sharding_strategy`"
