r"""The work of a decoder-only transformer, whatever its family.

Notation: h width, q query width (heads x head size), v key/value width, f feed-forward width, V vocabulary,
s sequence length, W elements of weight matrices.

============  ==================================================================================================
matrices      2 W FLOP forward, 4 W backward (gradients of inputs and of weights)
attention     scores and weighted sum: 4 s q FLOP per token, executed half because of the causal mask; backward
              recomputes the scores: 5 instead of 2 products (Dao 2023, arXiv:2307.08691, section 3.1)
MFU           6 W + 12 s q, attention not halved (Chowdhery et al. 2022, arXiv:2204.02311, appendix B)
memory        element-wise kernels read and write the activations that they keep: traffic of two to three times
              the kept bytes in forward, twice that in backward
============  ==================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.world.model.layer import Layer, Tensor, Work

__all__ = ["BlockShape", "block", "embedding", "head"]

FP32 = 4  # definition: bytes; the loss is computed on a copy of the logits in full precision


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """Widths of one transformer block."""

    hidden: int
    query: int
    key_value: int
    sequence_length: int
    kept_elements: int
    """Activation elements per token that backward needs, input included."""
    element_bytes: int
    """Of a weight or an activation [B]."""


def block(name: str, tensors: tuple[Tensor, ...], shape: BlockShape) -> Layer:
    """Build one transformer block; its matrices are its tensors of two dimensions."""
    matrix = sum(tensor.elements for tensor in tensors if len(tensor.shape) == 2)
    scores = 4.0 * shape.sequence_length * shape.query
    kept = float(shape.element_bytes * shape.kept_elements)
    weights = float(shape.element_bytes * matrix)
    return Layer(
        name=name,
        tensors=tensors,
        forward=_works(2.0 * matrix, scores / 2, 2.0 * kept, weights),
        backward=_works(4.0 * matrix, scores / 2 * 5 / 2, 4.0 * kept, 2 * weights),
        model_flop=6.0 * matrix + 3 * scores,
        input_bytes=float(shape.element_bytes * shape.hidden),
        activation_bytes=kept,
    )


def embedding(name: str, tensors: tuple[Tensor, ...], hidden: int, element_bytes: int) -> Layer:
    """Build the embedding: a gather forward, a scatter backward, no matrix product."""
    moved = 2.0 * element_bytes * hidden
    return Layer(
        name=name,
        tensors=tensors,
        forward=(Work("memory", traffic=moved),),
        backward=(Work("memory", traffic=2 * moved),),
        model_flop=6.0 * sum(tensor.elements for tensor in tensors),
        input_bytes=0.0,
        activation_bytes=0.0,
        checkpointed=False,
    )


def head(
    name: str, tensors: tuple[Tensor, ...], hidden: int, vocabulary: int, element_bytes: int, *, tied: bool
) -> Layer:
    """Build the final norm, the projection to the vocabulary and the loss.

    A tied projection uses the embedding's tensor and has none of its own.
    """
    matrix = hidden * vocabulary
    logits = (element_bytes + FP32) * vocabulary
    weights = float(element_bytes * matrix)
    return Layer(
        name=name,
        tensors=tensors,
        forward=_works(2.0 * matrix, 0.0, 2.0 * logits, weights),
        backward=_works(4.0 * matrix, 0.0, 2.0 * logits, 2 * weights),
        model_flop=0.0 if tied else 6.0 * matrix,
        input_bytes=2.0 * element_bytes * hidden,
        activation_bytes=2.0 * element_bytes * hidden + logits,
        checkpointed=False,
    )


def _works(matrix_flop: float, attention_flop: float, traffic: float, weights: float) -> tuple[Work, ...]:
    works = [Work("matrix", flop=matrix_flop, constant_traffic=weights)]
    if attention_flop:
        works.append(Work("attention", flop=attention_flop))
    return (*works, Work("memory", traffic=traffic))
