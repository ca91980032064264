r"""Model states: what a rank keeps from step to step.

With mixed precision and Adam a parameter costs 2 B (weight) + 2 B (gradient) + 12 B (fp32 copy, momentum, variance);
without, 4 + 4 + 8.  A ZeRO stage divides more of it by the N ranks (Rajbhandari et al. 2020, arXiv:1910.02054,
section 3.1 and table 1):

=====  =========  =========  =========
stage  weights    gradients  optimizer
=====  =========  =========  =========
0      whole      whole      whole
1      whole      whole      1/N
2      whole      1/N        1/N
3      1/N        1/N        1/N
=====  =========  =========  =========

A secondary partition (hpZ) keeps the weights once more, divided by the ranks of that partition (ZeRO++, section 3.2).
"""

from __future__ import annotations

from typing import Final

from simulator.world.training import ELEMENT_BYTES

__all__ = ["OPTIMIZER_BYTES", "model_states", "sharded_states"]

FP32: Final = 4
"""definition: bytes."""

OPTIMIZER_BYTES: Final = {"bf16": 12, "fp16": 12, "fp32": 8}
"""definition: fp32 master copy (mixed precision only), momentum and variance of Adam, per parameter."""


def sharded_states(elements: float, trainable: float, over: int) -> dict[str, float]:
    """Bytes that a rank of PyTorch's FSDP or DDP keeps: everything in fp32, mixed precision only in flight.

    Parameters
    ----------
    trainable
        Those of the parameters that have gradients and optimizer states.
    over
        Ranks that share them; 1 for whole.

    Examples
    --------
    >>> sum(sharded_states(8e9, 8e9, 64).values()) / 1e9
    2.0
    """
    return {
        "weights": FP32 * elements / over,
        "gradients": FP32 * trainable / over,
        "optimizer states": 2 * FP32 * trainable / over,
    }


def model_states(
    elements: float, precision: str, zero_stage: int, ranks: int, secondary: int = 1, *, trainable: float | None = None
) -> dict[str, float]:
    """Bytes that a rank keeps, by item.

    Parameters
    ----------
    elements
        Parameters of the model.
    secondary
        Ranks that share a secondary partition of the weights; 1 for none.
    trainable
        Those of the parameters that have gradients and optimizer states; by default all.

    Examples
    --------
    >>> [sum(model_states(7.5e9, "bf16", stage, 8).values()) / 1e9 for stage in range(4)]
    [120.0, 41.25, 28.125, 15.0]
    """
    wire, trained = ELEMENT_BYTES[precision], elements if trainable is None else trainable
    states = {
        "weights": wire * elements / (ranks if zero_stage >= 3 else 1),
        "gradients": wire * trained / (ranks if zero_stage >= 2 else 1),
        "optimizer states": OPTIMIZER_BYTES[precision] * trained / (ranks if zero_stage >= 1 else 1),
    }
    if secondary > 1:
        states["secondary weights"] = wire * elements / secondary
    return states
