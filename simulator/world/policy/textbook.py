"""The published idealisation of DDP, ZeRO 1-3 and ZeRO++ and its few knobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.errors import InputError
from simulator.world.mesh import Mesh

__all__ = ["TextbookPolicy"]

QUANTIZATION_BLOCK = 8000  # source: DeepSpeed partition_parameters.py, CUDAQuantizer.target_group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class TextbookPolicy:
    """One idealised data-parallel configuration."""

    zero_stage: int
    """0: plain data parallelism; 1: optimizer states sharded; 2: gradients too; 3: weights too."""
    prefetch: int = 1
    """Layers whose weights may be gathered ahead of the layer that runs; stage 3 only."""
    bucket_size: int = 0
    """Elements of gradients collected before they are reduced; 0: each layer by itself."""
    zero_hpz_partition_size: int = 1
    """Ranks that share a secondary copy of the weights for backward (ZeRO++ hpZ); 1: none."""
    zero_quantized_weights: bool = False
    """Gather weights in int8 (ZeRO++ qwZ)."""
    zero_quantized_gradients: bool = False
    """Reduce gradients in int4 by two all-to-all hops (ZeRO++ qgZ)."""
    reduce_communicator: Literal["shared", "separate"] = "shared"
    """Whether gradient reduction queues behind gathers on one communicator."""

    def check(self, mesh: Mesh, file: object, key: str) -> None:
        """Make sure that the policy fits the ranks.

        Raises
        ------
        InputError
            A ZeRO++ option without stage 3, or a partition that does not divide the ranks.
        """
        plus = {
            "zero_hpz_partition_size": self.zero_hpz_partition_size > 1,
            "zero_quantized_weights": self.zero_quantized_weights,
            "zero_quantized_gradients": self.zero_quantized_gradients,
        }
        for option, used in plus.items():
            if used and self.zero_stage != 3:
                remedy = "set zero_stage: 3 or drop it"
                raise InputError(
                    "needs stage 3", file=file, key=f"{key}.{option}", value=getattr(self, option), remedy=remedy
                )
        try:
            mesh.group("zero_hpz_partition_size", self.zero_hpz_partition_size)
        except InputError as error:
            where = f"{key}.zero_hpz_partition_size"
            raise InputError(error.problem, file=file, key=where, value=error.value, remedy=error.remedy) from None
