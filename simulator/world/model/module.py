"""The module tree: what a framework's hooks are attached to.

Names and shapes are the implementation's.  Children stand in the order of registration, ``calls`` in the order in
which forward runs them, which may leave some out (a list of blocks is never called itself).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.world.model.layer import Tensor, Work

__all__ = ["Module"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A node of the tree."""

    name: str
    """Full name; empty for the root."""
    kind: str
    """Class, as ``transformer_cls_to_wrap`` or ``leaf_module`` name it."""
    parameters: tuple[Tensor, ...] = ()
    """Direct parameters in order of registration; one that is shared stands in each of its modules."""
    children: tuple[Module, ...] = ()
    calls: tuple[Module, ...] = ()
    """Descendants that the forward of this module calls, in order."""
    forward: tuple[Work, ...] = ()
    """Own work per token, without that of the children."""
    backward: tuple[Work, ...] = ()
    forward_time: float | None = None
    """Given instead of work: time for a whole micro-batch [s]."""
    backward_time: float | None = None
    buffers: int = 0
    """Elements of the module's own buffers."""
    has_input_gradient: bool = True
    """False where no input needs a gradient, as for an embedding: its backward has no end that a hook could see."""
    normalises: bool = False
    """Autograd gives a norm's gradients in order of registration, those of other modules the other way round."""

    def walk(self) -> Iterator[Module]:
        """Yield the module and all below it, in order of registration."""
        yield self
        for child in self.children:
            yield from child.walk()

    def tensors(self) -> tuple[Tensor, ...]:
        """Parameters of this module and all below it, each once, in order of registration."""
        return tuple({tensor.name: tensor for module in self.walk() for tensor in module.parameters}.values())
