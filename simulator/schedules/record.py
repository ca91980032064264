"""From a variant to its program: which schedule function records it, and which of its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from simulator.schedules.bf16_optimizer import deepspeed_bf16_optimizer, uses_bf16_optimizer
from simulator.schedules.ddp import ddp
from simulator.schedules.fsdp1 import fsdp1
from simulator.schedules.fsdp2 import fsdp2
from simulator.schedules.internevo import internevo
from simulator.schedules.job import Job
from simulator.schedules.ownership import state_bytes, step_temporaries, updated
from simulator.schedules.prepare import prepared
from simulator.schedules.program import Program
from simulator.schedules.textbook import textbook
from simulator.schedules.zero0 import deepspeed_stage0
from simulator.schedules.zero3 import deepspeed_stage3
from simulator.schedules.zero12 import deepspeed_stage12
from simulator.world.policy.choice import Policy
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.internevo import InternEvoPolicy
from simulator.world.policy.textbook import TextbookPolicy
from simulator.world.policy.zero import DeepSpeedPolicy
from simulator.world.scenario import Scenario, Variant
from simulator.world.topology.mixed import host_types
from simulator.world.topology.servers import server_of

__all__ = ["Recorder", "first_step", "record", "steady_step", "steps"]

STEADY = 2
"""Number of the first step that is like all later ones: DeepSpeed's timer starts with it."""


def record(scenario: Scenario, variant: Variant) -> Program:
    """Record one step of one rank of *variant*."""
    policy = variant.policy
    if isinstance(policy, TextbookPolicy):
        return textbook(scenario, policy)
    update = state_bytes(policy, scenario.training.precision).update_traffic
    own = updated(policy, scenario.mesh, scenario.model)
    job = prepared(scenario, update * own)
    job.step_temporaries = step_temporaries(policy, scenario.training.precision, own)
    return first_step(job, policy) if scenario.first_step else steady_step(job, policy)


class Recorder:
    """Records variants of many scenarios, each program once."""

    def __init__(self) -> None:
        self._known: dict[object, list[tuple[object, Program]]] = defaultdict(list)
        self.instructions = 0
        """Of all programs that it knows."""

    def record(self, scenario: Scenario, variant: Variant) -> Program:
        """Return what :func:`record` does."""
        known = self._known[variant.name, scenario.mesh, scenario.training]
        sources = _sources(scenario, variant)
        for other, program in known:
            if other == sources:
                return program
        program = record(scenario, variant)
        known.append((sources, program))
        self.instructions += len(program.instructions)
        return program


def _sources(scenario: Scenario, variant: Variant) -> object:
    """All that a program is recorded from."""
    return (
        variant.policy,
        scenario.model,
        scenario.training,
        scenario.compute,
        scenario.measured,
        scenario.step_per_layer,
        scenario.launch_time,
        scenario.host,
        scenario.first_step,
        scenario.mesh,
        [(each.accelerator, server_of(each)) for each in host_types(scenario.cluster)],
    )


def first_step(job: Job, policy: Policy) -> Program:
    """Record the first optimizer step of a job."""
    return next(steps(job, policy))


def steady_step(job: Job, policy: Policy) -> Program:
    """Record a later step, after a rehearsal in which the framework learns what it keeps from earlier ones."""
    if isinstance(policy, DdpPolicy) and policy.static_graph:  # what it learns depends on the micro-batches
        return next(islice(steps(job, policy), STEADY + 1, None))
    rehearsed = _rehearsals(policy)
    asked, job.micro_batches, job.rehearses = job.micro_batches, 1, True
    job.first_step = STEADY - rehearsed
    programs = steps(job, policy)
    for _ in range(rehearsed):
        next(programs)
    job.micro_batches, job.rehearses = asked, False
    return next(programs)


def _rehearsals(policy: Policy) -> int:
    """Steps of one micro-batch to rehearse."""
    # the second iteration of DDP rebuilds the buckets, which costs broadcasts; ZeRO-3 learns its trace, FSDP1 the order
    # of its units, FSDP2 what stays whole after an evaluation
    return 2 if isinstance(policy, DdpPolicy) else 1


def steps(job: Job, policy: Policy) -> Iterator[Program]:
    """One program per optimizer step, the first of the job first."""
    if isinstance(policy, DeepSpeedPolicy):
        return _deepspeed(job, policy)
    return _SCHEDULES[type(policy)](job, policy)


_SCHEDULES: Mapping[type, Callable[[Job, Any], Iterator[Program]]] = {
    DdpPolicy: ddp,
    Fsdp1Policy: fsdp1,
    Fsdp2Policy: fsdp2,
    InternEvoPolicy: internevo,
}
"""By the type of their policy."""


def _deepspeed(job: Job, policy: DeepSpeedPolicy) -> Iterator[Program]:
    if policy.zero_stage == 3:
        return deepspeed_stage3(job, policy)
    if policy.zero_stage == 0:
        return deepspeed_stage0(job, policy)
    return deepspeed_bf16_optimizer(job, policy) if uses_bf16_optimizer(policy) else deepspeed_stage12(job, policy)
