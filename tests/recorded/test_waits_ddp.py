"""DDP: which gradients a bucket holds, at which gradient it is sent, and what the host waits for, as recorded."""

from itertools import islice

import pytest

from simulator.laws.collectives.base import Collective
from simulator.schedules.program import Launch, Synchronize
from tests.recorded import as_ddp
from tests.recorded.recording import recordings

FOUND = [item for item in recordings() if item.system == "PyTorch DDP"]
each_recording = pytest.mark.parametrize("recording", FOUND, ids=lambda item: item.path.stem)

HOST_WAITS = {"HE", "HS", "DS"}
"""Marks of a blocked host."""


def played(recording):
    """Our programs of the recorded steps with the recorded events."""
    steps = recording.steps()
    programs = list(islice(as_ddp.programs(recording), max(steps) + 1))
    return [(programs[number], events) for number, events in steps.items()]


def sent(program):
    """Label of each reduction of gradients, and of the gradient that was copied last before."""
    found, last = [], None
    for launch in program.launches:
        operation = program.operations[launch.operation]
        if isinstance(operation, Collective):
            if operation.kind == "all_reduce" and operation.dtype != "i32":
                found.append((launch.label, last))
        elif operation.kind == "copy in":
            last = launch.label
    return found


def recorded_reductions(events):
    return [event[1] for event in events if event[0] == "C" and event[1]["op"] == "all_reduce"]


@each_recording
def test_buckets_hold_the_recorded_gradients_and_leave_at_the_recorded_one(recording):
    if as_ddp.policy(recording).batched_grad_copy:
        pytest.skip("gradients are not copied one by one")
    static = as_ddp.policy(recording).static_graph
    for program, events in played(recording):
        expected = [item for item in recorded_reductions(events) if item["dt"] != "i32"]
        delayed = static and len(expected) < len(recorded_reductions(events))
        for (label, copied), item in zip(sent(program), expected, strict=True):
            assert delayed or f"G {copied}" == item["at"]
            if "params" in item:
                names = item["params"]
                assert label == (names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}")


@each_recording
def test_the_host_waits_only_to_read_rebuilt_buckets(recording):
    """Twice, which a recording cannot show: the reads are in C++ and a CPU has nothing to copy."""
    for program, events in played(recording):
        assert not [event for event in events if event[0] in HOST_WAITS]
        waits = [item for item in program.instructions if isinstance(item, Synchronize)]
        rebuilt = [
            event for event in events if event[0] == "C" and (event[1]["op"], event[1]["dt"]) == ("broadcast", "i32")
        ]
        assert [item.reason for item in waits] == ["data"] * len(rebuilt)


@each_recording
def test_all_memory_comes_back_in_each_step(recording):
    for program, _ in played(recording):
        launches = [item for item in program.instructions if isinstance(item, Launch)]
        taken = [amount for item in launches for _, amount in item.takes]
        given = [amount for item in launches for _, amount in item.gives]
        assert taken == given
