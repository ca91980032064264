"""What commands say of variants that offload, and what is refused about hosts."""

import pytest

from simulator.errors import InputError
from simulator.explore import compare, volume_of
from simulator.laws.offload import Transfer
from simulator.readings.issued import issued
from simulator.readings.resolved import resolved
from simulator.readings.table import comparison, notes
from simulator.readings.trace import chrome_trace
from simulator.schedules.record import record
from simulator.world.topology.cluster import load_cluster, shipped_clusters
from simulator.world.topology.servers import server_of, usual_server

ZERO = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}
VARIANTS = [
    {"name": "here", "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}},
    {"name": "there", "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": ZERO}},
]


def asked(scenario, variants=VARIANTS, **topology):
    return scenario(variants=variants, topology={"cluster": "dgx-a100-80gb", "hosts": 1, **topology})


@pytest.mark.parametrize(("cluster", "name"), [
    ("dgx-2", "volta"), ("dgx-a100-40gb", "ampere"), ("dgx-h100", "hopper"), ("dgx-b200", "blackwell"),
    ("gb200-nvl72", "grace"), ("mi300x", "cdna"), ("l40s-pcie", "pcie"), ("cloud-100gbe", "pcie"), ("flat", "ampere"),
])  # fmt: skip
def test_devices_stand_in_the_server_of_their_generation(cluster, name):
    assert usual_server(load_cluster(cluster)) == name


def test_every_cluster_has_a_server():
    assert all(server_of(load_cluster(path.stem)).numbers() for path in shipped_clusters())


def test_a_scenario_names_or_changes_the_server(scenario):
    named = asked(scenario, server="volta").cluster
    assert server_of(named).name == "volta"
    changed = server_of(asked(scenario, server={"nvme_read": "7 GB/s"}).cluster)
    assert (changed.name, changed.nvme_read.value, changed.nvme_read.basis) == ("ampere", 7e9, "chosen")
    assert (
        server_of(asked(scenario, server={"name": "hopper", "device_link": "1 TB/s"}).cluster).device_link.value == 1e12
    )


@pytest.mark.parametrize(("server", "part"), [
    ("hoper", "did you mean 'hopper'"),
    ({"memori": "1 TB"}, "did you mean 'memory'"),
    ({"memory": 5}, "topology.server.memory"),
    ({"adam": 1.5}, "topology.server.adam"),
])  # fmt: skip
def test_a_wrong_server_is_refused_on_one_line(scenario, server, part):
    with pytest.raises(InputError, match=part):
        asked(scenario, server=server)


def test_what_does_not_fit_on_the_host_is_said(scenario):
    found = asked(scenario, server={"memory": "10 GB"})
    results = [outcome.result.as_json() for outcome in compare(found)]
    assert [result["memory"].get("host", {"fits": True})["fits"] for result in results] == [True, False]
    assert any("there does not fit into the memory of the host" in line for line in notes(results))
    assert not any(line.startswith("here ") for line in notes(results))
    column = next(column for column in comparison(results, "t").columns if column.header == "fits")
    assert list(column.cells) == ["yes", "[red]host no[/red]"]


def test_copies_are_issued_counted_and_traced(scenario):
    found = asked(scenario)
    there = found.variant("there")
    program = record(found, there)
    rows = [row for row in issued(program) if row["communicator"] == "host"]
    assert {row["kind"] for row in rows} == {"to_host", "to_device"}
    assert volume_of(found, found.variant("here")).transfers == {}
    moved = volume_of(found, there).transfers
    # of 4e9 parameters an eighth: gradients in fp32, weights in 16 bits
    assert moved == {"to_host": pytest.approx(4 * 0.5e9), "to_device": pytest.approx(2 * 0.5e9)}
    assert sum(row["bytes"] for row in rows) == pytest.approx(sum(moved.values()))
    outcome = compare(found, [there])[0]
    trace = chrome_trace(outcome.timeline, outcome.readings(), "there", outcome.path())
    traced = [event for event in trace["traceEvents"]
              if event.get("args", {}).get("kind") == "to_host"]  # fmt: skip
    assert all(event["args"]["pinned"] is False for event in traced)
    assert sum(event["args"]["amount [B]"] for event in traced) == pytest.approx(4 * 0.5e9)
    assert outcome.result.volume["to_host_per_rank"] == pytest.approx(4 * 0.5e9)


def test_numbers_of_the_host_are_told_where_they_are_used(scenario):
    found = asked(scenario)
    here, there = (resolved(found, [variant])["numbers"] for variant in found.variants)
    assert {number["name"] for number in there} - {number["name"] for number in here} >= {
        "ampere.adam",
        "ampere.uplink",
    }
    results = {outcome.variant.name: outcome.result for outcome in compare(found)}
    assert not any(name.startswith("ampere.") for name in results["here"].assumed)
    assert {"ampere.adam", "ampere.uplink", "ampere.pageable"} <= set(results["there"].assumed)
    assert "ampere.nvme_read" not in results["there"].assumed


def test_pageable_memory_slows_copies(scenario):
    pinned = {"name": "pinned", "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {
        "stage": 2, "offload_optimizer": {"device": "cpu"}}}}  # fmt: skip
    slow = {"server": {"pageable": "1 GB/s", "copy_latency": "0 s"}}
    found = asked(scenario, [VARIANTS[1], pinned], **slow)
    pageable, fast = (outcome.timeline.classes[0] for outcome in compare(found))
    times = [
        [
            span.end - span.start
            for span in item.spans
            if isinstance(item.program.operations[span.launch.operation], Transfer)
        ]
        for item in (pageable, fast)
    ]
    assert sum(times[0]) == pytest.approx((4 + 2) * 0.5e9 / 1e9)
    # four layers of 1e9 on eight devices over 96 GB/s: 12 GB/s each
    assert sum(times[1]) == pytest.approx((4 + 2) * 0.5e9 / 12e9)


def test_buffers_for_parameters_on_drives_must_be_enough(scenario):
    def variant(**shares):
        zero = {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/drives", "max_in_cpu": 0, **shares}}
        return [{"name": "v", "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}}]

    small = asked(scenario, variant(buffer_size=10))
    with pytest.raises(InputError, match=r"buffer_size: 10: smaller than the 125000000 elements"):
        record(small, small.variants[0])
    few = asked(scenario, variant(buffer_size=10**9, buffer_count=0))
    with pytest.raises(InputError, match="buffer_count: 0: 0 buffers are free where 1 are needed"):
        record(few, few.variants[0])
