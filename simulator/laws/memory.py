r"""Model states: what a rank keeps from step to step.

With mixed precision and Adam a parameter costs 2 B (weight) + 2 B (gradient) + 12 B (fp32 copy, momentum, variance);
without, everything has the type of the parameter: 4 + 4 + 8 B in fp32.  A ZeRO stage divides more of it by the N ranks
(Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1 and table 1):

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

from typing import Final, NamedTuple

__all__ = ["MIXED", "StateBytes", "model_states", "sharded_states", "unmixed"]

FP32: Final = 4
"""definition: bytes."""


class StateBytes(NamedTuple):
    """What one parameter costs [B]."""

    weight: int
    gradient: int
    master: int
    """Copy of the weight that the optimizer updates, if the weight itself has too few digits."""
    moments: int
    """Momentum and variance of Adam."""

    @property
    def optimizer(self) -> int:
        """Optimizer states."""
        return self.master + self.moments

    @property
    def update_traffic(self) -> int:
        """What an update moves: it reads the gradient, reads and writes the states, and writes the weight.

        Without a master copy it reads the weight as well.
        """
        return self.gradient + 2 * self.optimizer + (1 if self.master else 2) * self.weight


def unmixed(element_bytes: int) -> StateBytes:
    """Everything in the type of the parameter."""
    return StateBytes(weight=element_bytes, gradient=element_bytes, master=0, moments=2 * element_bytes)


_HALF = StateBytes(weight=2, gradient=2, master=FP32, moments=2 * FP32)

MIXED: Final = {"bf16": _HALF, "fp16": _HALF, "fp32": unmixed(FP32)}
"""definition: weights and gradients in this precision, and an optimizer that works in fp32."""


def sharded_states(elements: float, trainable: float, over: int, each: StateBytes) -> dict[str, float]:
    """Bytes that a rank keeps of what *over* ranks share, 1 for whole: FSDP, DDP.

    Parameters
    ----------
    trainable
        Those of the parameters that have gradients and optimizer states.

    Examples
    --------
    >>> sum(sharded_states(8e9, 8e9, 64, unmixed(4)).values()) / 1e9
    2.0
    """
    return {
        "weights": each.weight * elements / over,
        "gradients": each.gradient * trainable / over,
        "optimizer states": each.optimizer * trainable / over,
    }


def model_states(
    elements: float,
    each: StateBytes,
    zero_stage: int,
    ranks: float,
    secondary: int = 1,
    *,
    trainable: float | None = None,
) -> dict[str, float]:
    """Bytes that a rank keeps under a ZeRO stage, by item.

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
    >>> [sum(model_states(7.5e9, MIXED["bf16"], stage, 8).values()) / 1e9 for stage in range(4)]
    [120.0, 41.25, 28.125, 15.0]
    """
    trained = elements if trainable is None else trainable
    states = {
        "weights": each.weight * elements / (ranks if zero_stage >= 3 else 1),
        "gradients": each.gradient * trained / (ranks if zero_stage >= 2 else 1),
        "optimizer states": each.optimizer * trained / (ranks if zero_stage >= 1 else 1),
    }
    if secondary > 1:
        states["secondary weights"] = each.weight * elements / secondary
    return states
