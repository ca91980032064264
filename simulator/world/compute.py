"""How kernels are chosen and how fast they run: the ``compute`` section of a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from simulator.units import FlopRate
from simulator.world.document import Section

__all__ = ["Attention", "Compute", "ComputeSection", "asked_compute"]

Attention = Literal["flash", "flash3", "sdpa", "naive"]
"""FlashAttention-2; FlashAttention-3 and later; PyTorch's fused attention, which is FlashAttention-2; not fused."""


ElementWise = Literal["python", "kernels", "compiled"]
"""What runs between matrix products: Python that calls PyTorch's own kernels; norms and rotary positions written by
hand (apex, Transformer Engine, Liger); neighbours compiled into one (``torch.compile``)."""


class ComputeSection(Section):
    """``compute``: the kernels, and measured rates that replace the roofline."""

    stack: str = "pytorch"
    """Efficiencies measured with a software stack, a file of ``topologies/stacks``; ``none`` for those that single
    kernels reach at best."""
    achieved: FlopRate | None = None
    """FLOP/s of the whole computation, matrix products and all; then nothing else takes time."""
    measured: str | None = None
    """A table of measured times of layers or modules (.csv)."""
    scale_measured: bool = False
    """Whether rows of the table that were measured with other numbers of tokens count in proportion."""
    overlap_slowdown: Annotated[float, Meta(ge=1)] | Literal["channels"] | None = None
    """How many times longer kernels take while their rank communicates; ``channels`` reckons it."""
    element_wise: ElementWise = "python"
    """Where the kernels between matrix products come from."""
    attention: Attention = "flash"
    matrix_precision: Literal["fp8"] | None = None
    """Of matrix products in blocks, if it is not that of training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What kernels run, and how they are timed."""

    precision: str
    """Of training: bf16, fp16 or fp32."""
    stack: str | None = None
    """Software stack whose efficiencies the accelerators have; None for those that single kernels reach at best."""
    achieved: float | None = None
    """Measured rate instead of the roofline [FLOP/s]."""
    overlap_slowdown: float | None = None
    """How many times longer kernels take while their rank communicates; None: what channels and traffic make of it."""
    element_wise: ElementWise = "python"
    attention: Attention = "flash"
    matrix_precision: str | None = None
    """Of matrix products in blocks; None: as training."""


def asked_compute(section: ComputeSection, precision: str) -> Compute:
    """Resolve *section*."""
    slowdown = section.overlap_slowdown
    if slowdown is None and section.achieved is not None:
        slowdown = 1.0  # a rate measured over a whole job contains it
    return Compute(
        precision=precision,
        stack=None if section.stack == "none" or section.achieved is not None else section.stack,
        achieved=None if section.achieved is None else float(section.achieved),
        overlap_slowdown=None if slowdown == "channels" else slowdown,
        element_wise=section.element_wise,
        attention=section.attention,
        matrix_precision=section.matrix_precision,
    )
