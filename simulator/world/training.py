"""What one optimizer step of one rank computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ELEMENT_BYTES", "Dtype", "Training"]

Dtype = Literal["bf16", "fp16", "fp32"]
"""Of weights, gradients and activations."""

ELEMENT_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4}
"""definition: bytes of a weight, gradient or activation by precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Batch, accumulation, checkpointing, precision."""

    micro_batch: int
    """Sequences per rank and micro-step."""
    gradient_accumulation: int
    """Micro-steps per optimizer step (k)."""
    activation_checkpointing: bool
    """Whether blocks keep only their input and run again before their backward."""
    precision: str
