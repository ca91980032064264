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

The loss over V words has arrays of V elements for each token.  Of b bytes per element of the logits, with
cross-entropy on an fp32 copy as ``torch.nn.functional.cross_entropy(logits.float(), labels)`` computes it:

===========================  ===========================================  =========
when                         what                                         bytes
===========================  ===========================================  =========
forward only                 logits; their fp32 copy, if b < 4            b + 4
forward to backward          log-probabilities (``log_softmax`` saves)    4
backward only                gradients of these and of the fp32 logits    4 + 4
===========================  ===========================================  =========

so that backward of the loss holds 12 B per word and token.  The gradient in b bytes comes when the first two are gone.
Until then the place of logits in 16 bits is a hole: every array that backward of the loss makes is larger.  A loss that
is compiled or one kernel reads the logits and writes their gradient: b bytes kept, b more in backward.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["MIXED", "LossBytes", "StateBytes", "kept_states", "loss_bytes", "model_states", "unmixed"]

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


class LossBytes(NamedTuple):
    """What the loss costs per word and token [B]."""

    kept: int
    """From forward to backward."""
    forward: int
    """Further, while forward runs."""
    backward: int
    """Further, while backward runs."""
    hole: int
    """What the allocator keeps beside them in backward and cannot use."""


def loss_bytes(element_bytes: int, *, fused: bool = False) -> LossBytes:
    """Bytes of cross-entropy on logits of *element_bytes*; *fused* into one kernel each way.

    >>> loss_bytes(2), loss_bytes(4)
    (LossBytes(kept=4, forward=6, backward=8, hole=2), LossBytes(kept=4, forward=4, backward=8, hole=0))
    """
    if fused:
        return LossBytes(kept=element_bytes, forward=0, backward=element_bytes, hole=0)
    if element_bytes < FP32:
        return LossBytes(kept=FP32, forward=element_bytes + FP32, backward=2 * FP32, hole=element_bytes)
    return LossBytes(kept=FP32, forward=element_bytes, backward=2 * FP32, hole=0)


def unmixed(element_bytes: int) -> StateBytes:
    """Everything in the type of the parameter."""
    return StateBytes(weight=element_bytes, gradient=element_bytes, master=0, moments=2 * element_bytes)


_HALF = StateBytes(weight=2, gradient=2, master=FP32, moments=2 * FP32)

MIXED: Final = {"bf16": _HALF, "fp16": _HALF, "fp32": unmixed(FP32)}
"""definition: weights and gradients in this precision, and an optimizer that works in fp32."""


def kept_states(weights: float, gradients: float, owned: float, each: StateBytes) -> dict[str, float]:
    """Bytes that a rank keeps from step to step, by item.

    Parameters
    ----------
    weights, gradients
        Elements of them that it keeps.
    owned
        Elements that it updates, which have optimizer states.

    Examples
    --------
    >>> shard = 8e9 / 64
    >>> sum(kept_states(shard, shard, shard, unmixed(4)).values()) / 1e9
    2.0
    """
    return {
        "weights": each.weight * weights,
        "gradients": each.gradient * gradients,
        "optimizer states": each.optimizer * owned,
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
    states = kept_states(
        elements / (ranks if zero_stage >= 3 else 1),
        trained / (ranks if zero_stage >= 2 else 1),
        trained / (ranks if zero_stage >= 1 else 1),
        each,
    )
    if secondary > 1:
        states["secondary weights"] = each.weight * elements / secondary
    return states
