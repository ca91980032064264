"""Parameters cut into one share per rank, and the modules whose hooks gather and free them.

Each parameter is padded and cut by itself (Z3-1): a rank keeps p(n) = ceil(n / N) elements of n.  Small ones are
*persistent* (Z3-7): once gathered they stay until the optimizer changes them.

Source: DeepSpeed ``runtime/zero/partition_parameters.py`` and ``parameter_offload.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from simulator.schedules.job import Job
from simulator.schedules.zero3.leaf import leaf_modules
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["HookedModule", "Parameters", "ShardedParameter", "Status"]


class Status(Enum):
    """Where the whole parameter is."""

    NOT_AVAILABLE = "only shares"
    INFLIGHT = "being gathered"
    AVAILABLE = "here"


@dataclass(slots=True, eq=False, kw_only=True)
class ShardedParameter:
    """A parameter with DeepSpeed's ``ds_`` attributes."""

    ds_id: int
    """Position in order of registration, in which buffers are laid out."""
    name: str
    elements: int
    dimensions: tuple[int, ...]
    trainable: bool
    share: int
    """Elements that each rank keeps, padding included."""
    persistent: bool
    has_secondary: bool
    """Whether a second copy exists, cut among the ranks of the hpZ group (ZP-2)."""
    stored_quantized: bool
    """Whether the shares are kept in int8 (ZP-14)."""
    status: Status = Status.NOT_AVAILABLE
    active_sub_modules: set[int] = field(default_factory=set)
    """Modules that have fetched it and not released it yet."""
    held: float = 0.0
    """Memory that the whole parameter occupies [B]."""
    gradient: float = 0.0
    """Memory that its unreduced gradient occupies outside the bucket [B]."""


@dataclass(slots=True, eq=False, kw_only=True)
class HookedModule:
    """A module that DeepSpeed has put its hooks on (Z3-5)."""

    ds_id: int
    name: str
    is_leaf: bool
    direct: tuple[ShardedParameter, ...]
    """Own parameters by ``ds_id``."""
    below: tuple[ShardedParameter, ...]
    """Own parameters and those of all descendants."""
    recompute_parameters: set[ShardedParameter] = field(default_factory=set)
    """Frozen parameters that a recompute has fetched while this module was the last one in backward."""
    parameters: tuple[ShardedParameter, ...] = field(init=False)
    """What a fetch concerns."""

    def __post_init__(self) -> None:
        self.parameters = self.below if self.is_leaf else self.direct

    def elements(self, *, below: bool) -> int:
        """Size of the own parameters or of all below."""
        return sum(parameter.elements for parameter in (self.below if below else self.direct))


class Parameters:
    """All parameters of a job, and the modules with hooks."""

    def __init__(self, job: Job, policy: DeepSpeedPolicy) -> None:
        persistent = _persistent(job.parameters, policy)
        self.by_name = {
            name: _sharded(number, tensor, job.world.size, policy, name in persistent)
            for number, (name, tensor) in enumerate(job.parameters.items())
        }
        self.all = tuple(self.by_name.values())
        self.trainable = tuple(parameter for parameter in self.all if parameter.trainable and parameter.elements)
        self.persistent = tuple(parameter for parameter in self.all if parameter.persistent)
        self.modules: dict[str, HookedModule] = {}
        """By name; what is below a leaf is not among them."""
        self.leaf_of: dict[ShardedParameter, HookedModule] = {}
        self._register(job.root, leaf_modules(job.root, policy))

    def _register(self, module: Module, leaves: frozenset[str]) -> None:
        hooked = HookedModule(
            ds_id=len(self.modules),
            name=module.name,
            is_leaf=module.name in leaves,
            direct=self._sorted(module.parameters),
            below=self._sorted(module.tensors()),
        )
        self.modules[module.name] = hooked
        if hooked.is_leaf:
            self.leaf_of |= dict.fromkeys(hooked.below, hooked)
            return
        for child in module.children:
            self._register(child, leaves)

    def _sorted(self, tensors: tuple[Tensor, ...]) -> tuple[ShardedParameter, ...]:
        found = {self.by_name[tensor.name] for tensor in tensors}
        return tuple(sorted(found, key=lambda parameter: parameter.ds_id))


def _persistent(tensors: Mapping[str, Tensor], policy: DeepSpeedPolicy) -> set[str]:
    """``mark_persistent_parameters``: small ones, as long as their total stays small."""
    found, total, limit = set(), 0, policy.stage3_model_persistence_threshold
    for name, tensor in tensors.items():
        too_many = limit is not None and total + tensor.elements > limit
        if not too_many and tensor.elements <= policy.stage3_param_persistence_threshold:
            found.add(name)
            total += tensor.elements
    return found


def _sharded(number: int, tensor: Tensor, ranks: int, policy: DeepSpeedPolicy, is_persistent: bool) -> ShardedParameter:
    return ShardedParameter(
        ds_id=number,
        name=tensor.name,
        elements=tensor.elements,
        dimensions=tensor.shape,
        trainable=tensor.trainable,
        share=-(-tensor.elements // ranks),
        persistent=is_persistent,
        has_secondary=policy.zero_hpz_partition_size > 1,  # made when the model is first cut up
        stored_quantized=policy.zero_quantized_nontrainable_weights and not tensor.trainable,
    )
