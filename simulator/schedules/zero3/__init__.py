"""DeepSpeed's ZeRO stage 3 with ZeRO++: sharded parameters that a coordinator gathers before use and frees after it."""

from simulator.schedules.zero3.stage3 import deepspeed_stage3

__all__ = ["deepspeed_stage3"]
