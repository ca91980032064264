"""Which of our schedules answers for which recorded framework."""

from collections.abc import Iterator
from types import ModuleType

from simulator.schedules.job import Job
from simulator.schedules.program import Program
from simulator.world.policy.choice import Policy
from tests.recorded import as_ddp, as_fsdp1, as_fsdp2, as_zero3, as_zero12
from tests.recorded.recording import Recording

SYSTEMS = {
    "PyTorch DDP": as_ddp,
    "PyTorch FSDP1 (FullyShardedDataParallel)": as_fsdp1,
    "PyTorch FSDP2 (fully_shard)": as_fsdp2,
}


def programs(recording: Recording) -> Iterator[Program]:
    """Our programs of the recorded run, step after step."""
    return _system(recording).programs(recording)


def policy(recording: Recording) -> Policy:
    """Our policy for what was passed to the library."""
    return _system(recording).policy(recording)


def job(recording: Recording) -> Job:
    """The recorded job; FSDP1's hooks are on modules that it wraps around the model's."""
    found = recording.job()
    return as_fsdp1.wrapped(found, set(policy(recording).units)) if _system(recording) is as_fsdp1 else found


def _system(recording: Recording) -> ModuleType:
    if recording.system == "DeepSpeed":
        return as_zero3 if recording.config["zero_optimization"]["stage"] == 3 else as_zero12
    return SYSTEMS[recording.system]
