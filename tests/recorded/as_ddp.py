"""The schedule that answers for these recordings, set up from what was passed to the library."""

from collections.abc import Iterator

from simulator.schedules.ddp import ddp
from simulator.schedules.program import Program
from simulator.world.policy.ddp import DdpPolicy
from tests.recorded.recording import Recording

LAST_BUCKET_CAP = "DDP_SET_LAST_BUCKET_CAP"


def programs(recording: Recording) -> Iterator[Program]:
    """Our programs, step after step."""
    return ddp(recording.job(), policy(recording))


def policy(recording: Recording) -> DdpPolicy:
    """Our policy: the keyword arguments of DDP are its fields."""
    given = dict(recording.config["ddp"])
    given["bucket_cap_mb_list"] = tuple(given.get("bucket_cap_mb_list") or ())
    environment = recording.config.get("env") or recording.content["options"].get("env") or {}
    return DdpPolicy(
        **given,
        no_sync=bool(recording.content["options"].get("no_sync")),
        evaluates=bool(recording.content["options"].get("eval_after")),
        last_bucket_cap=str(environment.get(LAST_BUCKET_CAP)) == "1",
    )
