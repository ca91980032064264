"""Stage 3 of DeepSpeed, set up from what was passed to the library."""

from collections.abc import Iterator
from dataclasses import replace

from simulator.schedules.program import Program
from simulator.schedules.zero3 import deepspeed_stage3
from simulator.world.policy.deepspeed import deepspeed_policy, load_deepspeed
from simulator.world.policy.zero import DeepSpeedPolicy
from tests.recorded.recording import Recording


def policy(recording: Recording) -> DeepSpeedPolicy:
    """What DeepSpeed makes of the recording's configuration and options."""
    resolved = deepspeed_policy(
        load_deepspeed(recording.config, recording.path, "config"), recording.content["compute_dtype"]
    )
    options = recording.content["options"]
    return replace(
        resolved,
        leaf_classes=tuple(options["leaf"]) if options.get("leaf") else resolved.leaf_classes,
        evaluates=bool(options.get("eval_after")),
        coalesce_grad_reduction=bool(options.get("coalesce")),
    )


def programs(recording: Recording) -> Iterator[Program]:
    """Our programs, step after step."""
    return deepspeed_stage3(recording.job(), policy(recording))
