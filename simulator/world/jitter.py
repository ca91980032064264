"""Random times: no two ranks, micro-batches or kernels take exactly as long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.document import Section
from simulator.world.topology.cluster import Count
from simulator.world.uneven import Factor

__all__ = ["Jitter", "JitterSection", "read_jitter"]

Deviation = Annotated[float, Meta(ge=0, lt=1)]
Distribution = Literal["normal", "lognormal"]


class JitterSection(Section):
    """``jitter``: random factors of kernels' times, with mean one and these standard deviations."""

    kernel: Deviation = 0.0
    """Of each kernel, independent of all others."""
    micro_batch: Deviation = 0.0
    """Of forward and backward of a micro-batch on a rank."""
    micro_batches: list[Factor] | None = None
    """Instead of that: factors, of which each rank draws one for each micro-batch, all equally likely."""
    rank: Deviation = 0.0
    """Of all kernels of a rank."""
    distribution: Distribution = "normal"
    """``normal``, but never below zero, or ``lognormal``."""
    replications: Count = 100
    """Steps that are simulated."""
    ranks: Count = 256
    """Ranks that are simulated one by one, at most; when those of larger clusters come is drawn."""
    seed: Annotated[int, Meta(ge=0)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """How much times differ, and how often to look."""

    kernel: float
    micro_batch: float
    micro_batches: tuple[float, ...]
    """Empty: ``micro_batch`` says."""
    rank: float
    distribution: Distribution
    replications: int
    ranks: int
    seed: int


def read_jitter(section: JitterSection, file: Path) -> Jitter:
    """Check *section*.

    Raises
    ------
    InputError
        Nothing is random, or micro-batches are told twice.
    """
    if section.micro_batches is not None and section.micro_batch:
        remedy = "give 'micro_batch' or 'micro_batches'"
        raise InputError(
            "told twice", file=file, key="jitter.micro_batches", value=section.micro_batches, remedy=remedy
        )
    if not (section.kernel or section.micro_batch or section.rank or section.micro_batches):
        remedy = "give kernel, micro_batch, micro_batches or rank, for instance kernel: 0.02"
        raise InputError("nothing is random", file=file, key="jitter", remedy=remedy)
    return Jitter(
        kernel=section.kernel,
        micro_batch=section.micro_batch,
        micro_batches=tuple(section.micro_batches or ()),
        rank=section.rank,
        distribution=section.distribution,
        replications=section.replications,
        ranks=section.ranks,
        seed=section.seed,
    )
