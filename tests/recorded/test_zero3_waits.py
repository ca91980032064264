"""Waits of host and streams at stage 3, in the same places between collectives as in the real DeepSpeed."""

from itertools import islice

import pytest

from simulator.laws.collectives.base import Collective
from simulator.schedules.program import Launch, Synchronize, Wait
from simulator.schedules.zero3.rank import Rank
from tests.recorded import as_zero3
from tests.recorded.recording import STEPS, recordings

STREAMS = {"all_gather": "allgather", "reduce_scatter": "reduce"}
WAITS = {"HE", "HS", "DS", "SW"}
FOUND = [item for item in recordings() if item.system == "DeepSpeed" and item.config["zero_optimization"]["stage"] == 3]


def complete_steps(recording):
    """Steps whose waits were not dropped to keep the file small."""
    for name in STEPS:
        step = recording.content.get(name)
        if step and not WAITS & set(step.get("event_kinds_removed_to_limit_size", [])):
            yield step["step_index"], step["events"]


def device_synchronize(rank):
    """Stands for a wait of the host for all streams, which is one mark in a recording."""
    rank.tape.synchronize(rank.tape.record("device"), "host")


def fills_gather_stream(event):
    """A single parameter is gathered without a copy: until it is waited for, the all-gather stream itself is empty."""
    return (
        event[0] == "C"
        and event[1]["st"] == "allgather"
        and (len(event[1]["params"]) > 1 or event[1]["why"] == "fetch")
    )


def recorded(events):
    """Collectives and waits; without those for an empty stream, the same stream, or an event of an earlier step."""
    found, gathers = [], False
    for event in events:
        kind = event[0]
        gathers = gathers or event[0::2] == ["ER", "allgather"] or fills_gather_stream(event)
        if kind == "C":
            found.append(("C", event[1]["op"].split("_into")[0].removesuffix("_tensor")))
        elif kind == "HE" and event[1] >= 0:
            found.append(("HE",))
        elif kind == "HS":
            found.append(("HS", event[1]))
        elif kind == "DS":
            found.append(("DS",))
        elif kind == "SW" and event[1] != event[2] and (event[2] != "allgather" or gathers):
            found.append(("SW", event[1], event[2]))
    return found


def ours(program):
    """The same of our program; a number that the host reads is not marked as a wait in a recording."""
    streams = [STREAMS.get(name, name) for name in program.streams]
    found = []
    for item in program.instructions[:-1]:
        if isinstance(item, Launch) and isinstance(program.operations[item.operation], Collective):
            found.append(("C", program.operations[item.operation].kind))
        elif isinstance(item, Synchronize) and item.reason == "prefetch limit":
            found.append(("HE",))
        elif isinstance(item, Synchronize) and item.reason == "host":
            name = streams[item.event.stream]
            found.append(("DS",) if name == "device" else ("HS", name))
        elif isinstance(item, Wait):
            names = streams[item.stream], streams[item.event.stream]
            if not any(name.startswith("nccl") for name in names):
                found.append(("SW", *names))
    while found[-1][0] == "SW":  # the end of our step waits for every stream
        found.pop()
    return found


@pytest.mark.parametrize("recording", FOUND, ids=lambda item: item.path.stem)
def test_the_host_and_the_streams_wait_where_deepspeed_lets_them_wait(recording, monkeypatch):
    monkeypatch.setattr(Rank, "device_synchronize", device_synchronize)
    steps = dict(complete_steps(recording))
    played = list(islice(as_zero3.programs(recording), max(steps, default=-1) + 1))
    for number, events in steps.items():
        assert ours(played[number]) == recorded(events), f"step {number}"
