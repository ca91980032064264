"""Activation checkpointing: what a block keeps for its backward, and what runs again before it.

=========  ============================================================================================================
none       all that backward needs; nothing runs again
full       the input of the block; all of its forward runs again
selective  the input, the results of attention and of every second matrix product, in the order of calls; the other
           products and everything element-wise run again (torchtitan ``distributed/activation_checkpoint.py``, policy
           ``per-op``)
=========  ============================================================================================================

A share p of the blocks may be checkpointed, spread evenly: block i is where p i passes the next of 1/2, 3/2, ...
(fms-fsdp ``policies/ac_handler.py``; with p = 1/2 every second block).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor

from simulator.world.model.layer import Layer, Work
from simulator.world.model.module import Model, Module
from simulator.world.training import ELEMENT_BYTES, Training

__all__ = ["Again", "computed_again"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A block that is checkpointed."""

    kept: float
    """What stays from forward to backward, per token [B]."""
    works: Mapping[str, tuple[Work, ...]]
    """What runs again, by module, in the order of calls."""

    @property
    def flop(self) -> float:
        """Of a token [FLOP]."""
        return sum(work.flop for works in self.works.values() for work in works)


@lru_cache(maxsize=64)  # asked for several times in a run, and again at other points of a sweep
def computed_again(model: Model, training: Training) -> Mapping[str, Again]:
    """Return the layers that run again, by name."""
    if training.activation_checkpointing == "none":
        return {}
    modules = model.modules
    blocks = [layer for layer in model.layers if layer.checkpointed]
    chosen = _spread(blocks, training.checkpointed_share)
    return {layer.name: _checkpointed(layer, modules, training) for layer in chosen}


def _spread(blocks: Sequence[Layer], share: float) -> list[Layer]:
    """Each block at which *share* times its number passes the next of 1/2, 3/2, ..."""
    return [
        block
        for number, block in enumerate(blocks, 1)
        if floor(share * number + 0.5) > floor(share * (number - 1) + 0.5)
    ]


def _checkpointed(layer: Layer, modules: Mapping[str, Module], training: Training) -> Again:
    called = [module for name in layer.modules for module in _called(modules[name])]
    if training.activation_checkpointing == "full":
        return Again(kept=layer.input_bytes, works={module.name: module.forward for module in called})
    saved = _saved(called)
    results = ELEMENT_BYTES[training.precision] * sum(work.result for work in saved.values())
    return Again(
        kept=min(layer.activation_bytes, layer.input_bytes + results),
        works={
            module.name: tuple(work for place, work in enumerate(module.forward) if (module.name, place) not in saved)
            for module in called
        },
    )


def _called(module: Module) -> Iterator[Module]:
    """*module* and all that it calls, each behind what it calls."""
    for called in module.calls:
        yield from _called(called)
    yield module


def _saved(called: Sequence[Module]) -> dict[tuple[str, int], Work]:
    """Work whose result stays, by module and place in it."""
    saved, products = {}, 0
    for module in called:
        for place, work in enumerate(module.forward):
            products += work.kind == "matrix"
            if work.kind == "attention" or (work.kind == "matrix" and products % 2):
                saved[module.name, place] = work
    return saved
