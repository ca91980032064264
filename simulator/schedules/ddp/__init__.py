"""PyTorch's ``DistributedDataParallel``."""

from simulator.schedules.ddp.distributed import ddp

__all__ = ["ddp"]
