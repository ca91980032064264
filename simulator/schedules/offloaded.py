r"""Where model states are if they are offloaded: what stays on the device, what the host and its drives keep.

For a rank that owns n of the parameters, bytes on the host, with b bytes an element in the training precision:

==================  ============================================  =================================================
                    DeepSpeed, stages 1 and 2                     DeepSpeed, stage 3
==================  ============================================  =================================================
optimizer states    12 n                                          12 n
gradients           4 n, and b n of sums over micro-batches       4 n, and those that are kept
weights             b n, on their way to the device               b n with ``offload_param``
buffers             one of the largest parameter                  ``buffer_count`` for NVMe
==================  ============================================  =================================================

What NVMe holds is not in memory but for the buffers.  FSDP keeps weights, gradients and moments in the type of the
shards; FSDP1 keeps gradients on the device, too, until backward is over (``_saved_grad_shard``).

Source: DeepSpeed ``stage_1_and_2.py``, ``stage3.py``, ``swap_tensor``; PyTorch ``_flat_param.py``, ``_fsdp_param.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.schedules.job import DTYPE_BYTES
from simulator.schedules.ownership import owners, state_bytes
from simulator.schedules.prepare import prepared
from simulator.schedules.zero3.offload import FP32, OptimizerOnHost, on_nvme
from simulator.schedules.zero3.parameters import Parameters
from simulator.schedules.zero3.rank import Rank
from simulator.world.policy.choice import Policy
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.zero import DeepSpeedPolicy
from simulator.world.scenario import Scenario

__all__ = ["Offloaded", "offloaded"]

STATES: Final = 12
"""definition: fp32 weight, momentum, variance [B per parameter]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloaded:
    """States of one rank by place [B]."""

    device: Mapping[str, float]
    """What these items are on the device, in place of what they would be."""
    host: Mapping[str, float]
    pinned: float
    """The part of what is on the host that is page-locked."""
    nvme: float = 0.0


@dataclass(slots=True)
class _Host:
    """Adds up items, pinned or not."""

    items: dict[str, float] = field(default_factory=dict)
    pinned: float = 0.0

    def add(self, item: str, amount: float, *, pinned: bool) -> None:
        if amount:
            self.items[item] = self.items.get(item, 0.0) + amount
            self.pinned += amount if pinned else 0.0


def offloaded(scenario: Scenario, policy: Policy) -> Offloaded | None:
    """Return where *policy* puts the states of a rank; None if they all stay on the device."""
    if isinstance(policy, Fsdp1Policy | Fsdp2Policy):
        return _fsdp(scenario, policy) if policy.cpu_offload else None
    if not isinstance(policy, DeepSpeedPolicy):
        return None
    if policy.offload_optimizer is None and policy.offload_param is None:
        return None
    return _stage3(scenario, policy) if policy.zero_stage == 3 else _stage12(scenario, policy)


def _fsdp(scenario: Scenario, policy: Fsdp1Policy | Fsdp2Policy) -> Offloaded:
    each, over = state_bytes(policy, scenario.training.precision), owners(policy, scenario.mesh)
    elements, trainable = scenario.model.elements / over, scenario.model.trainable / over
    pins, host = isinstance(policy, Fsdp1Policy) or policy.pin_memory, _Host()
    host.add("weights", each.weight * elements, pinned=pins)
    host.add("gradients", each.gradient * trainable, pinned=pins)
    host.add("optimizer states", each.optimizer * trainable, pinned=False)
    stays = {} if isinstance(policy, Fsdp1Policy) else {"gradients": 0.0}
    device = {"weights": 0.0, "optimizer states": 0.0, **stays}
    return Offloaded(device=device, host=host.items, pinned=host.pinned)


def _stage12(scenario: Scenario, policy: DeepSpeedPolicy) -> Offloaded:
    offload, size, host = policy.offload_optimizer, DTYPE_BYTES[policy.dtype], _Host()
    pins = offload is not None and offload.pin_memory
    own = scenario.model.trainable / scenario.mesh.ranks
    largest = max(tensor.elements for tensor in scenario.model.root.tensors())
    compact = policy.grad_accum_dtype == "fp32" != policy.dtype
    sums = policy.zero_stage == 2 and scenario.training.gradient_accumulation > 1 and not compact
    host.add("optimizer states", FP32 * own, pinned=pins)
    host.add("optimizer states", (STATES - FP32) * own, pinned=False)
    host.add("gradients", FP32 * own, pinned=pins)
    host.add("accumulated gradients", size * own if sums else 0.0, pinned=pins)
    host.add("weights", size * own, pinned=pins)
    host.add("copy buffers", float(size * largest), pinned=pins)
    device = {"optimizer states": 0.0, "offload buffers": float(size * largest)}
    if policy.zero_stage == 2:
        device["gradients"] = FP32 * own if compact else 0.0
    return Offloaded(device=device, host=host.items, pinned=host.pinned)


def _stage3(scenario: Scenario, policy: DeepSpeedPolicy) -> Offloaded:
    job = prepared(scenario, 0.0)
    parameters, size, host = Parameters(job, policy), DTYPE_BYTES[policy.dtype], _Host()
    own = float(sum(item.share for item in parameters.trainable))
    states, shares, nvme, device = policy.offload_optimizer, policy.offload_param, 0.0, dict[str, float]()
    if states is not None:
        places = OptimizerOnHost(Rank(job, policy), parameters).elements_by_place()
        kept = DTYPE_BYTES[policy.grad_accum_dtype or policy.dtype]
        host.add("optimizer states", STATES * places["cpu"], pinned=False)
        host.add("gradients", kept * own, pinned=states.pin_memory)
        host.add("gradients", FP32 * places["cpu"], pinned=states.pin_memory)
        host.add("swap buffers", float(states.buffer_count * FP32 * places["buffer"]), pinned=True)
        nvme += (STATES + FP32) * places["nvme"]
        device |= {"optimizer states": STATES * places["device"], "gradients": FP32 * places["device"]}
    if shares is not None:
        away = float(sum(item.share for item in on_nvme(parameters, policy)))
        everything = float(sum(item.share for item in parameters.all))
        host.add("weights", size * (everything - away), pinned=True)
        host.add("swap buffers", float(shares.buffer_count * shares.buffer_size * size) if away else 0.0, pinned=True)
        nvme += size * away
        device["weights"] = 0.0
    return Offloaded(device=device, host=host.items, pinned=host.pinned, nvme=nvme)
