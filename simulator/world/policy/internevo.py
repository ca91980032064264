"""What one writes into a config of InternEvo about ``HybridZeroOptimizer``.

The keys are those of ``parallel.zero1`` and ``hybrid_zero_optimizer``, their defaults those of the configs that come
with InternEvo (``configs/7B_sft.py``).  Sizes count elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.errors import InputError
from simulator.world.document import Section, convert, convert_options
from simulator.world.mesh import Mesh

__all__ = ["InternEvoPolicy", "load_internevo"]

REDUCE_BUCKET_SIZE: Final = 512 * 1024 * 1024
"""configs/7B_sft.py, in elements: ``BucketStore.num_elements_in_bucket`` adds up ``numel()``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternEvoPolicy:
    """ZeRO-1 of InternEvo."""

    zero1: int = -1
    """``zero1.size``: neighbouring ranks among which parameters are divided; -1: all; 0 and 1: not divided."""
    overlap_sync_grad: bool = True
    """Reduce gradients in backward of the last micro-batch; False: in the step."""
    overlap_sync_param: bool = False
    """Broadcast parameters beside the forward that follows; False: the step waits for them."""
    reduce_bucket_size: int = REDUCE_BUCKET_SIZE
    """Elements of gradients that are reduced together."""
    clip_grad_norm: float = 1.0
    """0: no norm is computed."""
    fused: bool = True
    """AdamW is one kernel, which InternEvo asks for from torch 2.1 on; False: one per operation, as before."""

    def zero1_size(self, ranks: int) -> int:
        """Size of the group that divides parameters (``ParallelContext._set_parallel_size_from_config``).

        >>> [InternEvoPolicy(zero1=size).zero1_size(64) for size in (-1, 0, 8)]
        [64, 1, 8]
        """
        return ranks if self.zero1 == -1 else max(1, self.zero1)

    def check(self, mesh: Mesh, file: object, key: str) -> None:
        """Make sure that the policy fits the ranks.

        Raises
        ------
        InputError
            A group that does not divide them, or a bucket that holds nothing.
        """
        if self.reduce_bucket_size < 1:
            where = f"{key}.reduce_bucket_size"
            raise InputError("must be at least 1", file=file, key=where, value=self.reduce_bucket_size)
        try:
            mesh.group("zero1", self.zero1_size(mesh.ranks))
        except InputError as error:
            where = f"{key}.zero1.size"
            raise InputError(error.problem, file=file, key=where, value=self.zero1, remedy=error.remedy) from None


class _Zero1Section(Section):
    """``parallel.zero1`` as a mapping."""

    size: int = -1
    fsdp: bool = False


def load_internevo(raw: Mapping[str, Any], mesh: Mesh, file: object, key: str) -> InternEvoPolicy:
    """Return the policy of *raw*; ``zero1`` is a mapping or, as in older configs, a number.

    Raises
    ------
    InputError
        An unknown key, a value of the wrong type, ``zero1.fsdp``, or a policy that does not fit the ranks.
    """
    options = dict(raw)
    if isinstance(options.get("zero1"), dict):
        section = convert(options["zero1"], _Zero1Section, file, f"{key}.zero1")
        if section.fsdp:
            remedy = "describe it under 'fsdp1'"
            raise InputError("is FSDP and not this optimizer", file=file, key=f"{key}.zero1.fsdp", remedy=remedy)
        options["zero1"] = section.size
    policy = convert_options(options, InternEvoPolicy, file, key)
    policy.check(mesh, file, key)
    return policy
