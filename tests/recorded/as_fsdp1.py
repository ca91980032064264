"""The schedule that answers for these recordings, set up from what was passed to the library."""

from collections.abc import Iterator
from dataclasses import fields, replace

from simulator.schedules.fsdp1 import fsdp1
from simulator.schedules.job import Job
from simulator.schedules.program import Program
from simulator.world.model.module import Module
from simulator.world.policy.fsdp1 import Fsdp1Policy
from tests.recorded.recording import Recording


def policy(recording: Recording) -> Fsdp1Policy:
    """What was passed to the library, and how the run used it."""
    given, options = recording.config["fsdp1"], recording.content["options"]
    arguments = {**given, **(given.get("mp") or {})}
    if "strategy" in given:
        arguments["sharding_strategy"] = given["strategy"]
    known = {field.name for field in fields(Fsdp1Policy)}
    return Fsdp1Policy(
        units=tuple(unit[0] for unit in recording.content["units"]),
        shard_group_size=given["mesh"][1] if given.get("mesh") else None,
        no_sync=options.get("no_sync", False),
        evaluates=options.get("eval_after", False),
        **{name: value for name, value in arguments.items() if name in known},
    )


def wrapped(job: Job, units: set[str]) -> Job:
    """The job with FSDP's wrappers as modules, which is where its hooks are."""

    def wrap(module: Module) -> Module:
        name = f"FSDP({module.name or '<root>'})"
        inside = replace(module, children=tuple(wrap(child) for child in module.children))
        return Module(name=name, kind="FullyShardedDataParallel", children=(inside,)) if name in units else inside

    return replace(job, root=wrap(job.root))


def programs(recording: Recording, job: Job | None = None) -> Iterator[Program]:
    """Our programs, step after step."""
    chosen = policy(recording)
    return fsdp1(wrapped(job or recording.job(), set(chosen.units)), chosen)
