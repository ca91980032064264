"""Leaf modules: their parameters, and those of everything below, are gathered at once and nothing below has hooks.

Chosen by class, name or end of name (``leaf_module``), or by size (``stage3_module_granularity_threshold``), which
asks how many parameters a module has for each of its parts: small parts make many small gathers (Z3-6).

Source: DeepSpeed ``utils/z3_leaf_module.py`` and ``runtime/zero/parameter_offload.py``.
"""

from __future__ import annotations

from typing import Final

from simulator.world.model.module import Module
from simulator.world.policy.zero import DeepSpeedPolicy

__all__ = ["leaf_modules"]

MAX_LEAF_SIZE: Final = 1_000_000_000  # source: parameter_offload.py, Z3_MAX_LEAF_SIZE, elements
CONTAINERS: Final = frozenset({"Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"})
"""definition: ``torch.nn.modules.container.__all__``; a list of blocks is never called, so it cannot be a leaf."""


def leaf_modules(root: Module, policy: DeepSpeedPolicy) -> frozenset[str]:
    """Names of the leaf modules below *root*.

    Examples
    --------
    >>> experts = Module(name="moe", kind="MixtralSparseMoeBlock")
    >>> leaf_modules(Module(name="", kind="Model", children=(experts,)), DeepSpeedPolicy(zero_stage=3))
    frozenset({'moe'})
    """
    named = {module.name for module in root.walk() if _is_named(module, policy)}
    threshold = policy.stage3_module_granularity_threshold
    if threshold <= 0:
        return frozenset(named)
    granularity = _Granularity(root)
    if granularity.smallest > threshold:  # "to make it effective, you need to set it to at least ..."
        return frozenset(named)
    return frozenset(named | granularity.up_to(root, threshold))


def _is_named(module: Module, policy: DeepSpeedPolicy) -> bool:
    classes = {name.rpartition(".")[2] for name in policy.leaf_classes}
    by_name = module.name in policy.leaf_names or module.name.endswith(policy.leaf_name_suffixes)
    return module.kind in classes or by_name


class _Granularity:
    """Parameters per part of each module that could be a leaf."""

    def __init__(self, root: Module) -> None:
        self._values: dict[str, int] = {}
        self._measure(root)

    @property
    def smallest(self) -> float:
        """The smallest threshold that makes anything a leaf."""
        return min(self._values.values(), default=float("inf"))

    def up_to(self, module: Module, threshold: int) -> set[str]:
        """Names of modules of at most *threshold*; a module hides those below it."""
        if self._values.get(module.name, threshold + 1) <= threshold:
            return {module.name}
        return {name for child in module.children for name in self.up_to(child, threshold)}

    def _measure(self, module: Module) -> tuple[int, int]:
        """Parts and parameters of *module*; parts without parameters do not count."""
        if not module.tensors():
            return 0, 0
        elements = sum(tensor.elements for tensor in module.parameters)
        if not module.children:
            return 1, elements
        measured = [self._measure(child) for child in module.children]
        parts, elements = sum(part for part, _ in measured), elements + sum(size for _, size in measured)
        if module.kind in CONTAINERS:
            return parts, elements
        if elements <= MAX_LEAF_SIZE:
            self._values[module.name] = elements // (parts + 1)
        return parts + 1, elements
