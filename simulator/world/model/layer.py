"""A layer holds parameter tensors and has work to do per token.

Embedding and head are layers like the others.  FLOP count a multiply-add as two.  ``forward`` and ``backward`` list
the work of one token; bytes that do not depend on the number of tokens (weights read from memory) are listed apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

__all__ = ["Layer", "Product", "Tensor", "Work"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter tensor."""

    name: str
    """As the implementation registers it, for instance ``model.layers.0.mlp.up_proj.weight``."""
    shape: tuple[int, ...]
    trainable: bool = True
    """False for a frozen parameter: it has no gradient and no optimizer state."""

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Shape of a matrix product, m x k times k x n; None stands for the tokens of a micro-batch."""

    m: int | None = None
    n: int | None = None
    k: int | None = None
    count: int = 1
    """Products alike, among which the tokens are shared out."""
    per_token: float = 1.0
    """Vectors per token."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one kind of kernel has to do for one token."""

    kind: Literal["matrix", "attention", "memory"]
    flop: float = 0.0
    """Executed, per token [FLOP]."""
    traffic: float = 0.0
    """Memory read and written, per token [B]."""
    constant_traffic: float = 0.0
    """Memory read and written whatever the number of tokens [B]."""
    python: float | None = None
    """``traffic`` where Python puts it together from simpler kernels; None: the same."""
    fused: float | None = None
    """``traffic`` where neighbouring element-wise kernels are compiled into one; None: the same."""
    product: Product | None = None
    """Of a matrix product; None: large enough for every multiprocessor."""
    result: float = 0.0
    """Elements of its result that can be kept instead of computing them again, per token."""
    scores: float = 0.0
    """Of attention to all tokens behind a mask: elements of its matrix of scores, per token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A unit of the model whose parameters are gathered together."""

    name: str
    modules: tuple[str, ...]
    """Names of the modules that it consists of."""
    tensors: tuple[Tensor, ...]
    forward: tuple[Work, ...]
    backward: tuple[Work, ...]
    model_flop: float
    """Forward and backward FLOP of one token as MFU counts them (attention in full, no recompute)."""
    input_bytes: float
    """What full activation checkpointing keeps, per token [B]."""
    activation_bytes: float
    """What backward needs when nothing is recomputed, per token, the input included and the loss left out [B]."""
    python_bytes: float = 0.0
    """The part of these that norms in Python keep, and norms of one kernel do not [B]."""
    logits: int = 0
    """Words that the loss is computed over; 0 for a layer without loss."""
    checkpointed: bool = True
    """Whether activation checkpointing applies; not to embedding and head."""
    forward_time: float | None = None
    """Given instead of work: time of a forward pass of a whole micro-batch [s]."""
    backward_time: float | None = None
    """Given instead of work: time of a backward pass of a whole micro-batch [s]."""

    def __hash__(self) -> int:
        """By name, as that of modules."""
        return hash(self.name)

    @property
    def elements(self) -> int:
        """Parameters of the layer."""
        return sum(tensor.elements for tensor in self.tensors)
