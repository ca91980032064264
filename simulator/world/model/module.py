"""The module tree: what a framework's hooks are attached to.

Names and shapes are the implementation's.  Children stand in the order of registration, ``calls`` in the order in
which forward runs them, which may leave some out (a list of blocks is never called itself).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from simulator.world.model.layer import Layer, Tensor, Work

__all__ = ["Model", "Module"]


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
    takes_numbers: bool = False
    """Its inputs are token or position numbers, which have no gradient."""
    has_gradient: bool = True
    """False where nothing that it returns needs a gradient: backward never visits it."""
    logits: int = 0
    """Words that it scores for the loss, which follows; 0 for all but a head."""
    normalises: bool = False
    """Autograd gives a norm's gradients in order of registration, those of other modules the other way round."""

    def __hash__(self) -> int:
        """By name: what is below would take long and tell no more apart where one tree is looked up."""
        return hash(self.name)

    def walk(self) -> Iterator[Module]:
        """Yield the module and all below it, in order of registration."""
        yield self
        for child in self.children:
            yield from child.walk()

    def tensors(self) -> tuple[Tensor, ...]:
        """Parameters of this module and all below it, each once, in order of registration."""
        return tuple({tensor.name: tensor for module in self.walk() for tensor in module.parameters}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Layers in the order of the forward pass."""

    name: str
    sequence_length: int
    layers: tuple[Layer, ...]
    """Units whose weights the textbook schedule gathers together."""
    root: Module
    """The module tree that frameworks hook into."""

    def modules_of(self, layer: Layer) -> tuple[Module, ...]:
        """Modules that *layer* consists of, and all below them."""
        names = frozenset(layer.modules)
        return tuple(below for module in self.root.walk() if module.name in names for below in module.walk())

    @property
    def hidden_size(self) -> int | None:
        """Width, from the widest table, as that of words may be narrower; None for a model without one."""
        tables = (module for module in self.root.walk() if module.takes_numbers)
        return max((table.parameters[0].shape[1] for table in tables), default=None)

    def __hash__(self) -> int:
        """By name, as that of modules."""
        return hash(self.name)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Parameters, each once, in order of registration."""
        return _tensors(self.root)

    @property
    def modules(self) -> Mapping[str, Module]:
        """All modules by name, in order of registration."""
        return _modules(self.root)

    @property
    def elements(self) -> int:
        """Parameters of the model; a tensor that two layers share counts once."""
        return _elements(self)

    @property
    def trainable(self) -> int:
        """Parameters that have gradients and optimizer states."""
        return sum(tensor.elements for tensor in self.tensors if tensor.trainable)

    @property
    def model_flop(self) -> float:
        """FLOP of one token, forward and backward, as MFU counts them."""
        return sum(layer.model_flop for layer in self.layers)


@lru_cache(maxsize=16)  # models are shared between the points of a sweep
def _tensors(root: Module) -> tuple[Tensor, ...]:
    return root.tensors()


@lru_cache(maxsize=16)
def _modules(root: Module) -> Mapping[str, Module]:
    return {module.name: module for module in root.walk()}


@lru_cache(maxsize=16)
def _elements(model: Model) -> int:
    return sum({tensor.name: tensor.elements for layer in model.layers for tensor in layer.tensors}.values())
