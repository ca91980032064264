"""In which order one micro-batch visits the modules: what a framework's hooks see.

Forward enters a module, runs what it calls, and leaves it.  Backward mirrors it; within a module its own gradients
come last.  Under activation checkpointing a block runs its forward again:

* reentrant: the whole block, before its backward is entered;
* non-reentrant: when the first tensor that was dropped is needed, which is inside the last module that ran; the
  recompute stops as soon as it has what it needs, so the modules that were then still running are never left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from simulator.world.model.module import Module

__all__ = ["Checkpointing", "Execution", "Mark", "execution", "with_kernels"]

MarkKind = Literal["enter", "leave", "abort", "backward", "end_backward", "gradient"]

Checkpointing = Literal["none", "reentrant", "non-reentrant"]


class Mark(NamedTuple):
    """One thing that happens to a module or to a parameter's gradient."""

    kind: MarkKind
    name: str
    """Of the module; for a gradient, of the parameter."""
    recompute: bool = False
    """Part of a forward that is run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One micro-batch."""

    forward: tuple[Mark, ...]
    backward: tuple[Mark, ...]


def execution(
    root: Module, checkpointing: Checkpointing = "none", is_checkpointed: Callable[[Module], bool] = lambda _: False
) -> Execution:
    """Return the marks of one micro-batch.

    Parameters
    ----------
    is_checkpointed
        Which modules are blocks that run again.
    """
    names = {module.name for module in root.walk() if is_checkpointed(module)} if checkpointing != "none" else set()
    visitor = _Backward(names, checkpointing, *_with_gradients(root))
    return Execution(
        forward=tuple(_forward(root, recompute=False)),
        backward=tuple(visitor.visit(root, pending=None)),
    )


def with_kernels(backward: Sequence[Mark]) -> Iterator[tuple[Mark, str | None]]:
    """Yield each mark of backward with the module whose backward kernels are launched right after it, if any.

    They follow the module's ``backward`` mark, or the recompute inside of it, which brings back what they read.
    """
    depth, computes = 0, None
    for mark, following in pairwise((*backward, None)):
        assert mark is not None
        depth += (mark.kind == "enter") - (mark.kind in ("leave", "abort"))
        computes = mark.name if mark.kind == "backward" else computes
        if depth or computes is None or _recomputes(following, computes):
            yield mark, None
        else:
            yield mark, computes
            computes = None


def _recomputes(following: Mark | None, module: str) -> bool:
    """Whether *module*, whose backward has been entered, is run again next: it, or a block that contains it."""
    return following is not None and following.kind == "enter" and _contains(following.name, module)


def _contains(outer: str, inner: str) -> bool:
    return not outer or inner == outer or inner.startswith(f"{outer}.")


def _forward(module: Module, *, recompute: bool) -> Iterator[Mark]:
    yield Mark("enter", module.name, recompute)
    for called in module.calls:
        yield from _forward(called, recompute=recompute)
    yield Mark("leave", module.name, recompute)


def _stopped_early(module: Module) -> Iterator[Mark]:
    """Forward of *module* that stops inside the last module that it calls."""
    yield Mark("enter", module.name, recompute=True)
    for called in module.calls[:-1]:
        yield from _forward(called, recompute=True)
    if module.calls:
        yield from _stopped_early(module.calls[-1])
    yield Mark("abort", module.name, recompute=True)


def _with_gradients(root: Module) -> tuple[set[str], set[str]]:
    """Modules whose outputs, and modules whose inputs, need a gradient: something trainable has run by then."""
    outputs: set[str] = set()
    inputs: set[str] = set()
    flows = False

    def run(module: Module) -> None:
        nonlocal flows
        if flows and not module.takes_numbers:
            inputs.add(module.name)
        for called in module.calls:
            run(called)
        flows = flows or any(tensor.trainable for tensor in module.parameters)
        if flows and module.has_gradient:
            outputs.add(module.name)

    run(root)
    return outputs, inputs


class _Backward:
    """Visits modules in the order in which gradients reach them."""

    def __init__(self, blocks: set[str], checkpointing: Checkpointing, outputs: set[str], inputs: set[str]) -> None:
        self._blocks, self._checkpointing = blocks, checkpointing
        self._outputs, self._inputs = outputs, inputs

    def visit(self, module: Module, pending: Module | None) -> Iterator[Mark]:
        """Backward of *module*; *pending* is the block whose recompute happens in the last module that it ran."""
        if module.name in self._blocks:
            if self._checkpointing == "reentrant":
                yield from _forward(module, recompute=True)
            else:
                pending = module
        yield Mark("backward", module.name)
        called = [item for item in module.calls if item.name in self._outputs]
        if pending is not None and not called:
            yield from _stopped_early(pending)
        for position, item in enumerate(reversed(called)):
            yield from self.visit(item, pending if position == 0 else None)
        yield from self._gradients(module)
        if module.name in self._inputs:
            yield Mark("end_backward", module.name)

    def _gradients(self, module: Module) -> Iterator[Mark]:
        for tensor in module.parameters if module.normalises else module.parameters[::-1]:
            # a shared parameter is complete where backward meets it last, in the module that registered it
            if tensor.trainable and tensor.name.startswith(f"{module.name}." if module.name else ""):
                yield Mark("gradient", tensor.name)
