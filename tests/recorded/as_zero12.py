"""The schedule that answers for these recordings, set up from what was passed to the library."""

from collections.abc import Iterator
from dataclasses import replace

from simulator.schedules.bf16_optimizer import deepspeed_bf16_optimizer, uses_bf16_optimizer
from simulator.schedules.program import Program
from simulator.schedules.zero0 import deepspeed_stage0
from simulator.schedules.zero12 import deepspeed_stage12
from simulator.world.policy.deepspeed import deepspeed_policy, load_deepspeed
from simulator.world.policy.zero import DeepSpeedPolicy
from tests.recorded.recording import Recording


def policy(recording: Recording) -> DeepSpeedPolicy:
    """What was passed to the library, and how the run used it."""
    config = load_deepspeed(recording.config, recording.path, "config")
    options = recording.content["options"]
    return replace(
        deepspeed_policy(config, recording.content["compute_dtype"]),
        coalesce_grad_reduction=options.get("coalesce", False),
        evaluates=options.get("eval_after", False),
    )


def programs(recording: Recording, job=None) -> Iterator[Program]:
    """Our programs, step after step."""
    chosen = policy(recording)
    if chosen.zero_stage == 0:
        schedule = deepspeed_stage0
    elif uses_bf16_optimizer(chosen):
        schedule = deepspeed_bf16_optimizer
    else:
        schedule = deepspeed_stage12
    return schedule(job or recording.job(), chosen)
