"""How many scales a quantised tensor has (ZeRO++).

Weights travel in int8 with one fp32 scale per group (qwZ, ZP-10), gradients in int4 (qgZ, ZP-17).

Source: DeepSpeed ``partition_parameters.py:CUDAQuantizer.quantize`` and ``comm/coalesced_collectives.py``.
"""

from __future__ import annotations

from functools import cache
from math import ceil, isqrt
from typing import Final

from simulator.errors import InputError

__all__ = ["gradient_groups", "weight_groups"]

TARGET_GROUP_SIZE: Final = 8000  # source: CUDAQuantizer.target_group_size
GROUP_SIZE_LIMIT: Final = 16000  # source: CUDAQuantizer.quantize, "hard limit of 16k group_size"
UNIT: Final = 8  # source: CUDAQuantizer.quantize, elements that one thread packs


@cache
def weight_groups(elements: int) -> int:
    """Groups that a rank's *elements* are quantised in.

    Raises
    ------
    InputError
        DeepSpeed's quantiser refuses this number.

    Examples
    --------
    >>> weight_groups(4096 * 4096 // 16), weight_groups(4096 * 4096 // 8)
    (256, 512)
    """
    groups = _fitting(elements, ceil(elements / TARGET_GROUP_SIZE))
    while elements % (2 * UNIT * groups) == 0 and elements / groups > TARGET_GROUP_SIZE:
        groups *= 2
    if elements % (UNIT * groups) or elements / groups >= GROUP_SIZE_LIMIT or elements <= groups:
        raise InputError(
            f"a rank's share of {elements} elements cannot be quantised: not a multiple of 8, or no fitting groups",
            key="zero_quantized_weights",
            remedy="switch it off, or use another number of ranks",
        )
    return groups


def _fitting(elements: int, fewest: int) -> int:
    """The smallest number of at least *fewest* groups of whole units; *elements* if there is none.

    DeepSpeed counts up, which takes millions of steps for a share with few divisors.
    """
    units, rest = divmod(elements, UNIT)
    if rest:
        return elements
    small = [size for size in range(1, isqrt(units) + 1) if units % size == 0]
    return min(count for size in small for count in (size, units // size) if count >= fewest)


def gradient_groups(dimensions: tuple[int, ...], ranks: int) -> int:
    """Groups that a whole gradient is quantised in before the first hop."""
    return max(dimensions[0], dimensions[1], ranks)
