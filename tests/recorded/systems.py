"""Which of our schedules answers for which recorded framework."""

from collections.abc import Iterator

from simulator.schedules.program import Program
from tests.recorded import as_ddp, as_fsdp1, as_fsdp2, as_zero3, as_zero12
from tests.recorded.recording import Recording

SYSTEMS = {
    "PyTorch DDP": as_ddp,
    "PyTorch FSDP1 (FullyShardedDataParallel)": as_fsdp1,
    "PyTorch FSDP2 (fully_shard)": as_fsdp2,
}


def programs(recording: Recording) -> Iterator[Program]:
    """Our programs of the recorded run, step after step."""
    if recording.system == "DeepSpeed":
        stage = recording.config["zero_optimization"]["stage"]
        return (as_zero3 if stage == 3 else as_zero12).programs(recording)
    return SYSTEMS[recording.system].programs(recording)
