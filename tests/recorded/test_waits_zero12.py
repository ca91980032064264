"""Stages 0 to 2 of DeepSpeed: waits of streams and of the host, and who owns what, as recorded."""

from dataclasses import replace
from itertools import islice

import pytest

from simulator.laws.collectives.base import Collective
from simulator.schedules.job import DTYPE_BYTES
from simulator.schedules.program import Launch, Synchronize, Wait
from simulator.schedules.zero12.partition import flat_partition
from tests.recorded import as_zero12
from tests.recorded.recording import KERNEL, recordings

FOUND = [item for item in recordings() if item.system == "DeepSpeed" and item.config["zero_optimization"]["stage"] < 3]
PARTITIONED = [item for item in FOUND if item.content["effective"].get("flat_order_and_owner_ranks")]


def name(recording):
    return recording.path.stem


def job(recording):
    """The recorded job with a kernel for every module, so that the compute stream is never empty."""
    modules = [module.name for module in recording.root().walk()]
    kernels = {(module, way): KERNEL for module in modules for way in ("forward", "recompute", "backward")}
    return replace(recording.job(), kernels=kernels)


def marks(program, streams):
    """Collectives, waits between streams, and the host's waits for whole streams or for the device."""
    found, held = [], []
    for item in program.instructions[:-1]:
        if isinstance(item, Synchronize) and item.reason == "host":
            held.append(program.streams[item.event.stream])
            if held == list(streams):
                found.append(("device",))
                held.clear()
            continue
        if held:
            found.extend(("stream", stream) for stream in held)
            held.clear()
        if isinstance(item, Launch) and isinstance(program.operations[item.operation], Collective):
            found.append(("collective", program.operations[item.operation].kind))
        elif isinstance(item, Wait):
            found.append(("wait", program.streams[item.stream], program.streams[item.event.stream]))
    return found


def recorded_marks(events):
    found = []
    for event in events:
        if event[0] == "C":
            found.append(("collective", event[1]["op"].removesuffix("_into_tensor").removesuffix("_tensor")))
        elif event[0] == "SW":
            found.append(("wait", *event[1:]))
        elif event[0] == "HS":
            found.append(("stream", event[1]))
        elif event[0] == "DS":
            found.append(("device",))
    return found


@pytest.mark.parametrize("recording", FOUND, ids=name)
def test_same_waits_at_the_same_places(recording):
    removed = set(recording.content.get("event_kinds_removed_to_limit_size") or ())
    if removed & {"SW", "HS", "DS"}:
        pytest.skip(f"{sorted(removed)} were left out of the recording")
    steps = recording.steps()
    played = list(islice(as_zero12.programs(recording, job(recording)), max(steps) + 1))
    overlaps = recording.content["effective"].get("overlap_comm", False)
    streams = ("compute", "reduce") if overlaps else ("compute",)
    for number, events in steps.items():
        program = played[number]
        found = marks(program, streams)
        if overlaps:  # before the end of the step, which waits for everything
            assert found.pop() == ("wait", "compute", "reduce")
        assert found == recorded_marks(events)


@pytest.mark.parametrize("recording", PARTITIONED, ids=name)
def test_same_owners(recording):
    policy, effective = as_zero12.policy(recording), recording.content["effective"]
    flat = flat_partition(
        list(recording.job().trainable.values()),
        ranks=recording.content["world_size"],
        element_bytes=DTYPE_BYTES[policy.dtype],
        round_robin_gradients=policy.round_robin_gradients,
        parameter_alignment=policy.parameter_alignment,
    )
    owners = [[parameter, [item.owner for item in slices]] for parameter, slices in flat.slices.items()]
    assert owners == effective["flat_order_and_owner_ranks"]
    assert [flat.partition_numel] == effective["partition_numel"]
