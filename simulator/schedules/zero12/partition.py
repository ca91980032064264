"""Who owns which part of the flat parameters (Z12-21, Z12-22).

All trainable parameters lie one after the other in a flat buffer, whose length is rounded up to a multiple of 2 N
elements; rank r owns the r-th of N equal parts.  A parameter may lie across several parts:

>>> from simulator.world.model.layer import Tensor
>>> flat = flat_partition([Tensor("a", (5,)), Tensor("b", (3,)), Tensor("c", (8,))], ranks=2, element_bytes=2)
>>> flat.partition_numel, flat.slices["b"], flat.slices["c"]
(8, (Slice(owner=0, elements=3),), (Slice(owner=1, elements=8),))
>>> [slice.owner for slice in flat_partition([Tensor("a", (16,))], ranks=4, element_bytes=2).slices["a"]]
[0, 1, 2, 3]

Source: DeepSpeed ``stage_1_and_2.py``, ``DeepSpeedZeroOptimizer.__init__``, ``initialize_gradient_partition``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final, NamedTuple

from simulator.world.model.layer import Tensor

__all__ = ["NCCL_START_ALIGNMENT_FACTOR", "FlatPartition", "Slice", "flat_partition", "round_robin_reorder"]

NCCL_START_ALIGNMENT_FACTOR: Final = 2  # source: stage_1_and_2.py, 4-byte alignment of what is sent
PARAMETER_ALIGNMENT: Final = 16  # source: stage_1_and_2.py, bytes between starts of parameters that are padded


class Slice(NamedTuple):
    """A part of a gradient that one rank owns."""

    owner: int
    elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatPartition:
    """The flat buffer of one parameter group."""

    slices: Mapping[str, tuple[Slice, ...]]
    """By parameter, in the order of the flat buffer; the slices of one in the order of their elements."""
    partition_numel: int
    """Elements that each rank owns, padding included."""


def round_robin_reorder(tensors: Sequence[Tensor], ranks: int) -> list[Tensor]:
    """Deal the parameters out to *ranks* hands like cards, and put the hands one after the other."""
    return [tensor for rank in range(ranks) for tensor in tensors[rank::ranks]]


def flat_partition(
    tensors: Sequence[Tensor],
    *,
    ranks: int,
    element_bytes: int,
    round_robin_gradients: bool = False,
    parameter_alignment: bool = False,
) -> FlatPartition:
    """Lay *tensors*, none of them empty, out in the flat buffer and divide it among *ranks*."""
    ordered = round_robin_reorder(tensors, ranks) if round_robin_gradients else tensors
    alignment = PARAMETER_ALIGNMENT // gcd(PARAMETER_ALIGNMENT, element_bytes) if parameter_alignment else 1
    starts, end = [], 0
    for tensor in ordered:
        start = -(-end // alignment) * alignment
        starts.append(start)
        end = start + tensor.elements
    whole = NCCL_START_ALIGNMENT_FACTOR * ranks
    part = -(-end // whole) * whole // ranks
    slices = {tensor.name: _slices(start, tensor.elements, part) for tensor, start in zip(ordered, starts, strict=True)}
    return FlatPartition(slices=slices, partition_numel=part)


def _slices(start: int, elements: int, part: int) -> tuple[Slice, ...]:
    """Cut the stretch of *elements* from *start* at every multiple of *part*."""
    owners = range(start // part, (start + elements - 1) // part + 1)
    return tuple(Slice(owner, min(start + elements, (owner + 1) * part) - max(start, owner * part)) for owner in owners)
