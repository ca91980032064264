"""The schedule that answers for these recordings, set up from what was passed to the library."""

from collections.abc import Iterator

from simulator.schedules.fsdp2 import fsdp2
from simulator.schedules.program import Program
from simulator.world.policy.fsdp2 import Fsdp2Policy
from tests.recorded.recording import Recording


def programs(recording: Recording) -> Iterator[Program]:
    """Our programs, step after step."""
    return fsdp2(recording.job(), policy(recording))


def policy(recording: Recording) -> Fsdp2Policy:
    """What was asked of ``fully_shard`` and its setters; `raf` is of the units below the root."""
    config = recording.config["fsdp2"] or {}
    calls = tuple(call(unit) for unit in recording.content["units"] if unit != "<root>")
    precision = config.get("mp") or {}
    return Fsdp2Policy(
        units=calls,
        reshard_after_forward=config.get("raf"),
        root_reshard_after_forward=config.get("root_raf"),
        # torchtitan keeps the one unit that it makes of several modules: final norm and output
        unit_reshard_after_forward={one[0]: False for one in calls if config.get("torchtitan") and len(one) > 1},
        param_dtype=precision.get("param_dtype"),
        reduce_dtype=precision.get("reduce_dtype"),
        replicate=config["mesh"][0] if config.get("mesh") else None,
        forward_prefetch=int(config.get("fwd_prefetch") or 0),
        backward_prefetch=int(config.get("bwd_prefetch") or 0),
        separate_reduce_scatter_group=bool(config.get("sep_rs")),
        reduce_scatter_max_input_buffers=config.get("rsbuf") or 1,
        requires_gradient_sync=not config.get("nosync"),
        reshard_after_backward=not config.get("keep"),
        evaluates=bool(recording.content["options"].get("eval_after")),
    )


def call(unit: str) -> tuple[str, ...]:
    """The modules of one call: a name, or several in brackets."""
    return tuple(unit.strip("[]").split(","))
