"""PyTorch's ``FullyShardedDataParallel`` (FSDP1): one flat parameter per wrapped module, hooks, a host that limits."""

from simulator.schedules.fsdp1.schedule import fsdp1

__all__ = ["fsdp1"]
