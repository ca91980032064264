"""What encoders have in common: attention that looks both ways, and work that is not done for each token.

Attention to n keys takes 4 n q FLOP per token (q width of the queries), all of it executed as nothing is masked;
backward 5 products in place of 2, as in decoders.  Parts of a model that see other vectors than a sequence's tokens,
patches of images or the first token alone, are counted per token of the sequence nevertheless: that is what work is
multiplied with.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.world.model.layer import Work
from simulator.world.model.module import Module

__all__ = ["attends", "per_token"]


def attends(module: Module, keys: int, query: int) -> Module:
    """Give *module*, which calls the projections, the work of attention to *keys* keys per query.

    Examples
    --------
    >>> attends(Module(name="self", kind="BertSelfAttention"), keys=10, query=8).forward[0].flop
    320.0
    """
    flop = 4.0 * keys * query
    return replace(
        module, forward=(Work("attention", flop=flop, result=query),), backward=(Work("attention", flop=flop * 5 / 2),)
    )


def per_token(module: Module, vectors: float) -> Module:
    """Return *module*, alone and all below it, for that many *vectors* per token of the sequence."""
    children = tuple(per_token(child, vectors) for child in module.children)
    below = {item.name: item for child in children for item in child.walk()}
    return replace(
        module,
        children=children,
        calls=tuple(below[called.name] for called in module.calls),
        forward=_times(module.forward, vectors),
        backward=_times(module.backward, vectors),
    )


def _times(works: tuple[Work, ...], vectors: float) -> tuple[Work, ...]:
    return tuple(
        replace(
            work,
            flop=work.flop * vectors,
            traffic=work.traffic * vectors,
            fused=None if work.fused is None else work.fused * vectors,
            python=None if work.python is None else work.python * vectors,
            scores=work.scores * vectors,
            result=work.result * vectors,
            product=work.product and replace(work.product, per_token=work.product.per_token * vectors),
        )
        for work in works
    )
