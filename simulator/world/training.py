"""What one optimizer step of one rank computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ELEMENT_BYTES", "Checkpointing", "Dtype", "Training"]

Dtype = Literal["bf16", "fp16", "fp32"]
"""Of weights, gradients and activations."""

Checkpointing = Literal["none", "full", "selective"]
"""What blocks do to save memory (:mod:`simulator.world.model.checkpointing`)."""

ELEMENT_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4}
"""definition: bytes of a weight, gradient or activation by precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Batch, accumulation, checkpointing, precision."""

    micro_batch: int
    """Sequences per rank and micro-step."""
    gradient_accumulation: int
    """Micro-steps per optimizer step (k)."""
    activation_checkpointing: Checkpointing
    precision: str
    checkpointed_share: float = 1.0
    """Of the blocks, where they are checkpointed at all."""
    use_reentrant: bool = False
    """Whether such a block runs again as a whole before its backward is entered, as torch's reentrant checkpoints."""
    fused_loss: bool = False
    """Whether one kernel makes the gradient of the logits from the logits, without a copy in fp32."""
