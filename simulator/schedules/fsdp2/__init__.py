"""PyTorch FSDP2 (``fully_shard``), as torch 2.13 does it: ``torch/distributed/fsdp/_fully_shard``."""

from simulator.schedules.fsdp2.step import fsdp2

__all__ = ["fsdp2"]
