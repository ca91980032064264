"""DeepSpeed's ZeRO stages 1 and 2, and the engine that stage 0 and ``BF16_Optimizer`` share with them."""

from simulator.schedules.zero12.optimizer import deepspeed_stage12

__all__ = ["deepspeed_stage12"]
