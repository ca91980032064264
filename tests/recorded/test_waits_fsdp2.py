"""FSDP2's streams wait for each other where the real ones do, and the host for nothing.

Both sides become one list: collectives with their stream, and waits.  What a stream is waited for is counted in
collectives; for the compute stream, which has none, in copies after which the library records an event.
"""

from collections import Counter
from itertools import islice

import pytest

from simulator.laws.collectives.base import Collective
from simulator.schedules.program import Launch, Synchronize, Wait
from simulator.world.policy.fsdp2 import torchtitan
from tests.recorded.as_fsdp2 import policy
from tests.recorded.recording import recordings
from tests.recorded.systems import programs

FOUND = [item for item in recordings() if item.system == "PyTorch FSDP2 (fully_shard)"]

HOST_WAITS = {"HE", "HS", "DS"}


def recorded(events):
    """Collectives and waits up to the optimizer; a wait for a stream that has done nothing yet does not count."""
    found, done, at_event = [], Counter(), {}
    for kind, *rest in events:
        if kind == "P" and rest[0] == "step":
            break
        if kind == "C":
            done[rest[0]["st"]] += 1
            found.append(("collective", rest[0]["op"].split("_")[0], rest[0]["st"]))
        elif kind == "ER":
            number, stream = rest
            done[stream] += stream == "compute"
            at_event[number] = stream, done[stream]
        elif kind == "SW":
            found.append(("wait", rest[0], rest[1], done[rest[1]]))
        elif kind == "EW" and rest[1] >= 0:
            found.append(("wait", rest[0], *at_event[rest[1]]))
        elif kind in HOST_WAITS:
            found.append(("host", kind))
    return [item for item in found if item[0] != "wait" or item[2:] != ("compute", 0)]


def ours(program):
    """The same of our program."""
    found, done = [], [[0] for _ in program.streams]
    for item in program.instructions:
        counts = 0
        if isinstance(item, Launch):
            operation = program.operations[item.operation]
            if item.phase == "step":
                break
            if isinstance(operation, Collective):
                found.append(("collective", operation.kind.split("_")[0], program.streams[item.stream]))
            counts = isinstance(operation, Collective) or operation.kind in ("copy out", "reshard")
        elif isinstance(item, Wait):
            stream, event = program.streams[item.stream], item.event
            found.append(("wait", stream, program.streams[event.stream], done[event.stream][event.position]))
        elif isinstance(item, Synchronize):
            found.append(("host", item.reason))
        if isinstance(item, Launch | Wait):
            done[item.stream].append(done[item.stream][-1] + counts)
    return found


@pytest.mark.parametrize("recording", FOUND, ids=lambda item: item.path.stem)
def test_same_waits_at_the_same_places(recording):
    step = recording.content["last_step"]
    program = list(islice(programs(recording), step["step_index"] + 1))[-1]
    assert ours(program) == recorded(step["events"])


@pytest.mark.parametrize("recording", FOUND, ids=lambda item: item.path.stem)
def test_the_host_never_waits(recording):
    assert not any(event[0] in HOST_WAITS for event in recording.content["last_step"]["events"])
    assert not any(isinstance(item, Synchronize) for item in next(programs(recording)).instructions)


@pytest.mark.parametrize(
    "recording", [item for item in FOUND if item.config["fsdp2"].get("torchtitan")], ids=lambda item: item.path.stem
)
def test_torchtitan_wraps_the_same_units(recording):
    preset, given = torchtitan(recording.root()), policy(recording)
    assert {(unit,) if isinstance(unit, str) else unit for unit in preset.units} == set(given.units)
    assert preset.unit_reshard_after_forward == given.unit_reshard_after_forward
    assert (preset.param_dtype, preset.reduce_dtype) == (given.param_dtype, given.reduce_dtype)
