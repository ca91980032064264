"""Traces against the Chrome trace-event format, on steps of several programs."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.critical import critical_path
from simulator.readings.exposure import exposure
from simulator.readings.files import write_atomically, write_json
from simulator.readings.trace import chrome_trace
from simulator.schedules.program import Program
from simulator.schedules.record import record
from simulator.schedules.tape import Tape
from simulator.world.mesh import Mesh
from simulator.world.scenario import load_scenario

SCENARIO = """
name: small
model:
  sequence_length: 1
  layers: [{name: layer, count: 5, parameters: 1.1e9, forward_time: 7 ms, backward_time: 13 ms}]
training: {micro_batch: 1, gradient_accumulation: 3}
topology: {cluster: flat, hosts: 2, links: {link: {bandwidth: 123 GB/s, latency: 3 us}}}
run: {ranks: RANKS}
variants:
  - {name: zero0, zero_stage: 0}
  - {name: zero2, zero_stage: 2}
  - {name: zero3, zero_stage: 3}
  - {name: zero++, zero_stage: 3, zero_quantized_weights: true, zero_quantized_gradients: true}
"""

CASES = [("classes", 0), ("classes", 1), ("classes", 2), ("classes", 3), ("all", 2), ("classes", "host")]


def host_bound_program() -> Program:
    """A gather that compute waits for, and a host that waits for compute."""
    tape = Tape(0.25, 0.25)
    group = Mesh(hosts=2, devices_per_host=1).world()
    gather = Collective(kind="all_gather", elements=1e9, bytes_per_element=2, group=group, role="forward_all_gather")
    weights = (("gathered weights", 2e9),)
    gathered = tape.launch(gather, "all_gather", label="layer.0", takes=weights)
    tape.wait("compute", gathered)
    done = tape.launch(Kernel(kind="forward", time=0.5), "compute", label="layer.0", gives=weights)
    tape.synchronize(done)
    tape.launch(Kernel(kind="backward", time=0.5), "compute", label="layer.0")
    return tape.program()


@pytest.fixture(params=CASES, ids=str)
def played(request, tmp_path):
    """Timeline, exposures and critical path of one of the cases."""
    ranks, number = request.param
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("RANKS", ranks))
    scenario = load_scenario(path)
    program = host_bound_program() if number == "host" else record(scenario, scenario.variants[number])
    ready = stage(scenario, program)
    timeline = simulate(ready)
    path = critical_path(timeline.classes, ready, timeline.step_time)
    return timeline, [exposure(item) for item in timeline.classes], path


@pytest.fixture
def trace(played):
    timeline, exposures, path = played
    return chrome_trace(timeline, exposures, "small", path)


def events(trace, ph):
    return [event for event in trace["traceEvents"] if event["ph"] == ph]


def threads(trace):
    """Slices of each thread by its process and name, in order of time."""
    names = {event["tid"]: event["args"]["name"] for event in events(trace, "M") if event["name"] == "thread_name"}
    found = defaultdict(list)
    for event in sorted(events(trace, "X"), key=lambda event: event["ts"]):
        found[event["pid"], names[event["tid"]]].append(event)
    return found


def test_the_object_is_json_without_nan(trace):
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert trace["displayTimeUnit"] == "ms"
    assert trace["otherData"]["title"] == "small"


def test_every_event_has_the_keys_of_its_phase(trace):
    required = {
        "M": {"name", "pid", "tid", "args"},
        "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
        "C": {"name", "pid", "ts", "args"},
    }
    assert {event["ph"] for event in trace["traceEvents"]} == required.keys()
    assert all(event.keys() == required[event["ph"]] | {"ph"} for event in trace["traceEvents"])


def test_numbers_are_plain_and_names_are_texts(trace):
    for event in trace["traceEvents"]:
        values = [*event.values(), *event["args"].values()]
        assert {type(value) for value in values} <= {int, float, str, dict}
        assert all(type(event[key]) is int for key in ("pid", "tid") if key in event)
        assert type(event["name"]) is str


def test_slices_have_a_length_and_no_two_of_a_thread_overlap(trace):
    for slices in threads(trace).values():
        assert all(event["dur"] > 0 and event["ts"] >= 0 for event in slices)
        assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in pairwise(slices))


def test_one_process_per_rank_class_and_one_thread_per_stream(played, trace):
    timeline, *_ = played
    for pid, item in enumerate(timeline.classes, start=1):
        named = [event for event in events(trace, "M") if event["pid"] == pid and event["name"] == "thread_name"]
        lanes = [event["args"]["name"] for event in named]
        host = ["host"] if item.host_waits else []
        path = ["critical path"] if pid == 1 else []
        assert lanes == ["compute", "stalls", *path, *item.program.streams[1:], *host]
    order = [event["args"]["sort_index"] for event in events(trace, "M") if event["name"] == "thread_sort_index"]
    assert order[:2] == [0, 1]


def test_thread_numbers_are_unique_in_the_trace(trace):
    numbers = [event["tid"] for event in events(trace, "M") if event["name"] == "thread_name"]
    assert len(set(numbers)) == len(numbers)


def test_the_compute_thread_lasts_as_long_as_compute(played, trace):
    _, exposures, _ = played
    for pid, reading in enumerate(exposures, start=1):
        total = sum(event["dur"] for event in threads(trace)[pid, "compute"])
        assert total / 1e6 == pytest.approx(reading.compute + reading.copies, abs=1e-6)  # 1/1024 us a span


def test_the_critical_path_lies_side_by_side_and_lasts_as_long_as_the_step(played, trace):
    timeline, _, path = played
    slices = threads(trace)[1, "critical path"]
    assert slices[0]["ts"] == 0
    assert all(one["ts"] + one["dur"] == other["ts"] for one, other in pairwise(slices))
    assert slices[-1]["ts"] + slices[-1]["dur"] == pytest.approx(1e6 * timeline.step_time, abs=1e-3)
    assert {event["args"]["kind"] for event in slices} == path.total("kind").keys()


def test_the_stalls_say_why_and_last_as_long_as_what_is_exposed(played, trace):
    _, exposures, _ = played
    for pid, reading in enumerate(exposures, start=1):
        stalls = threads(trace)[pid, "stalls"]
        assert sum(event["dur"] for event in stalls) / 1e6 == pytest.approx(
            reading.stalled + reading.host_bound, abs=1e-6
        )
        assert {event["name"] for event in stalls} == {event["args"]["cause"] for event in stalls}


def test_a_collective_shows_its_payload_and_group(trace):
    gathers = [event for event in events(trace, "X") if event["name"].startswith("forward_all_gather")]
    assert all(event["args"]["payload [B]"] > 0 and event["args"]["ranks"] == 2 for event in gathers)
    assert all(event["cat"] == "forward" for event in gathers)


def test_memory_is_never_negative_and_never_counted_twice_at_a_moment(trace):
    counters = events(trace, "C")
    assert counters
    assert all(amount >= 0 for event in counters for amount in event["args"].values())
    moments = [(event["pid"], event["ts"]) for event in counters]
    assert len(set(moments)) == len(moments)


def test_memory_ends_as_the_timeline_ends(played, trace):
    timeline, *_ = played
    total = sum(change.amount for change in timeline.classes[0].memory)
    last = [event for event in events(trace, "C") if event["pid"] == 1][-1]
    assert sum(last["args"].values()) == pytest.approx(total, abs=10)  # whole bytes


def test_the_file_holds_the_trace_and_nothing_else_is_left(trace, tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    write_json(target / "trace.json", trace)
    assert [path.name for path in target.iterdir()] == ["trace.json"]
    assert json.loads((target / "trace.json").read_text(encoding="utf-8")) == trace


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError("disk full")])
def test_a_writer_that_fails_leaves_the_old_file_and_no_other(failure, tmp_path):
    def writer(path: Path) -> None:
        path.write_text("half")
        raise failure

    kept = tmp_path / "report.json"
    kept.write_text("old")
    with pytest.raises((KeyboardInterrupt, OSError)):
        write_atomically(kept, writer)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.json", "old")]


def test_the_temporary_file_has_the_suffix_and_lies_beside(tmp_path):
    seen = []
    write_atomically(tmp_path / "figure.svg", lambda path: (seen.append(path), path.write_text("x")))
    assert (seen[0].suffix, seen[0].parent) == (".svg", tmp_path)
    assert seen[0].name != "figure.svg"


def test_a_number_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"time": float("nan")})
    assert list(tmp_path.iterdir()) == []
