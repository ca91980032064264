"""Parameters that are not trained: they have no gradient and no optimizer state, and backward may stop before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.errors import UnknownNameError
from simulator.world.model.layer import Layer, Tensor
from simulator.world.model.module import Module

__all__ = ["freeze"]


def freeze(
    root: Module, layers: Sequence[Layer], names: Sequence[str], file: object, key: str
) -> tuple[Module, tuple[Layer, ...]]:
    """Return *root* and *layers* with the parameters of the modules called *names*, and of all below them, frozen.

    Raises
    ------
    UnknownNameError
        A name that no module has.
    """
    if not names:
        return root, tuple(layers)
    modules = {module.name for module in root.walk()}
    for name in names:
        if name not in modules:
            raise UnknownNameError("module", name, sorted(modules - {""})[:20], file=file, key=key)
    prefixes = tuple(f"{name}." for name in names)

    def trained(tensor: Tensor) -> Tensor:
        return replace(tensor, trainable=False) if tensor.name.startswith(prefixes) else tensor

    def rebuilt(module: Module) -> Module:
        children = {child.name: rebuilt(child) for child in module.children}
        below = {item.name: item for child in children.values() for item in child.walk()}
        return replace(
            module,
            parameters=tuple(trained(tensor) for tensor in module.parameters),
            children=tuple(children.values()),
            calls=tuple(below[called.name] for called in module.calls),
        )

    return rebuilt(root), tuple(
        replace(layer, tensors=tuple(trained(tensor) for tensor in layer.tensors)) for layer in layers
    )
