"""FSDP1: waits of streams and of the host stand where they were recorded."""

from dataclasses import replace
from itertools import islice

import pytest

from simulator.laws.collectives.base import Collective
from simulator.schedules.program import Launch, Synchronize, Wait
from tests.recorded import as_fsdp1
from tests.recorded.recording import KERNEL, OPS, recordings

FOUND = [item for item in recordings() if "FSDP1" in item.system]


def job(recording):
    """The recorded job with a kernel for every module."""
    modules = [module.name for module in recording.root().walk()]
    kernels = {(module, way): KERNEL for module in modules for way in ("forward", "recompute", "backward")}
    return replace(recording.job(), kernels=kernels)


def marks(program):
    """Collectives with their streams, waits between streams, waits of the host."""
    found = []
    for item in program.instructions:
        if isinstance(item, Synchronize):
            found.append(("host",))
        elif isinstance(item, Wait):
            found.append(("wait", program.streams[item.stream], program.streams[item.event.stream]))
        elif isinstance(item, Launch) and isinstance(program.operations[item.operation], Collective):
            found.append((program.operations[item.operation].kind, program.streams[item.stream]))
        elif item is program.launches[-1]:
            while found[-1][0] == "wait" and found[-1][1] == "compute" and len(found) > 1:  # waits of the end
                found.pop()
    return found


def recorded_marks(events, filled):
    """The same, without waits for streams that are not in *filled* and in which nothing is yet."""
    found = []
    for event in events:
        if event[0] == "C":
            found.append((OPS[event[1]["op"]], event[1]["st"]))
            filled.add(event[1]["st"])
        elif event[0] in ("HE", "HS", "DS"):
            found.append(("host",))
        elif event[0] == "SW" and event[2] in filled:
            found.append(("wait", *event[1:]))
            filled.add(event[1])
        elif event[:2] == ["F+", "<root>"]:
            filled.add("compute")
    while found[-1][0] == "wait" and found[-1][1] == "compute":
        found.pop()
    return found


@pytest.mark.parametrize("recording", FOUND, ids=lambda item: item.path.stem)
def test_same_waits_at_the_same_places(recording):
    number, events = recording.content["last_step"]["step_index"], recording.content["last_step"]["events"]
    program = next(islice(as_fsdp1.programs(recording, job(recording)), number, None))
    filled = {"pre_unshard"} if as_fsdp1.policy(recording).param_dtype else set()
    if program.launches[0].label == "begin of step":
        filled.add("compute")
    assert marks(program) == recorded_marks(events, filled)


@pytest.mark.parametrize("recording", FOUND, ids=lambda item: item.path.stem)
def test_memory_is_balanced(recording):
    """What a step takes, it gives back."""
    for program in islice(as_fsdp1.programs(recording, job(recording)), 3):
        held = {}
        for launch in program.launches:
            for sign, memory in ((1, launch.takes), (-1, launch.gives)):
                for item, size in memory:
                    held[item] = held.get(item, 0) + sign * size
        assert held
        assert set(held.values()) == {0}
