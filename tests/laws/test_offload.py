"""Laws of offloading, for clusters and policies of every kind."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.stage import stage
from simulator.explore import run_variant
from simulator.laws.collectives.fabric import ClassFabric
from simulator.laws.estimators import deepspeed_estimate, deepspeed_host_estimate
from simulator.laws.offload import ADAM_BYTES, HostLinks, Transfer, cpu_time
from simulator.schedules.record import record
from simulator.world.server import server
from simulator.world.topology.cluster import load_cluster, shipped_clusters
from simulator.world.topology.servers import server_of

CLUSTERS = [path.stem for path in shipped_clusters()]
ROUTES = ("to_host", "to_device", "nvme_read", "nvme_write")

INFINITE = {
    "memory_bandwidth": "1e30 B/s",
    "uplink": "1e30 B/s",
    "device_link": "1e30 B/s",
    "pageable": "1e30 B/s",
    "copy_latency": "0 s",
    "nvme_read": "1e30 B/s",
    "nvme_write": "1e30 B/s",
}
MODEL = {
    "sequence_length": 128,
    "layers": [{"name": "l", "count": 4, "parameters": 1e7, "forward_time": "2 ms", "backward_time": "4 ms"}],
}
HOST = dict.fromkeys(("kernel_time", "collective_time", "hook_time"), "0 s")
CPU, NVME = {"device": "cpu"}, {"device": "nvme", "nvme_path": "/drives"}


def zero(stage, **options):
    return {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage, **options}}}


PAIRS = {
    "stage 1": (zero(1), zero(1, offload_optimizer=CPU)),
    "stage 2": (zero(2), zero(2, offload_optimizer=CPU)),
    "stage 2, overlap": (zero(2, overlap_comm=True), zero(2, overlap_comm=True, offload_optimizer=CPU)),
    "stage 3": (zero(3), zero(3, offload_optimizer=CPU)),
    "stage 3, parameters": (zero(3), zero(3, offload_param=CPU)),
    "stage 3, both": (zero(3), zero(3, offload_optimizer=CPU, offload_param=CPU)),
    "stage 3, drives": (zero(3), zero(3, offload_optimizer=NVME, offload_param={**NVME, "max_in_cpu": 0})),
    "fsdp1": ({"fsdp1": {}}, {"fsdp1": {"cpu_offload": True}}),
    "fsdp2": ({"fsdp2": {}}, {"fsdp2": {"cpu_offload": True}}),
}
"""Without offload, with it."""


def results(scenario, pair, server_of_hosts=None, **others):
    topology = {"cluster": "dgx-a100-80gb", "hosts": 1, **({"server": server_of_hosts} if server_of_hosts else {})}
    variants = [{"name": "without", **pair[0]}, {"name": "with", **pair[1]}]
    found = scenario(model=MODEL, topology=topology, variants=variants, host=HOST, **others)
    return [run_variant(found, variant).result for variant in found.variants]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("accumulation", [1, 2])
def test_on_an_infinitely_fast_host_offloading_costs_waits_of_the_host_only(scenario, name, accumulation):
    """What is left is that the host waits: it launches backward behind reductions instead of ahead of them.

    The update itself takes no time of the device any more.
    """
    training = {"micro_batch": 1, "gradient_accumulation": accumulation}
    without, offloads = results(scenario, PAIRS[name], INFINITE, training=training, compute={"achieved": "1 TFLOP/s"})
    assert offloads.compute_time == pytest.approx(without.compute_time, rel=1e-9)
    assert offloads.host_time <= 1e-9
    if (
        name != "stage 3, drives"
    ):  # where gathers ahead stop at shares that nobody has read, and come in smaller batches
        assert offloads.step_time >= without.step_time * (1 - 1e-9)
    # a rank waits for each of its reductions at most once more
    assert offloads.step_time <= without.step_time + without.communication_time
    copies = {"gradients", "parameters", "weights", "optimizer"}
    assert not any(
        value > 1e-9 for role, value in offloads.exposed_by_collective.items() if role.split("_")[0] in copies
    )


@pytest.mark.parametrize("name", PAIRS)
def test_a_device_loses_what_is_offloaded_and_the_host_gets_it(scenario, name):
    """Optimizer states are moved whole: 12 B per parameter with DeepSpeed, two moments of bf16 with FSDP."""
    without, offloads = results(scenario, PAIRS[name])
    ours, theirs = without.memory["items"], offloads.memory["items"]
    elements = 4 * 1e7 / 8
    moves_states = name != "stage 3, parameters"
    moves_weights = name in ("stage 3, parameters", "stage 3, both", "stage 3, drives", "fsdp1", "fsdp2")
    each = 12 if name.startswith("stage") else 4
    assert ours["optimizer states"] == each * elements
    assert theirs.get("optimizer states", 0.0) == (0.0 if moves_states else each * elements)
    shards = 2 * elements if "stage 3" in name or "fsdp" in name else 2 * 8 * elements
    assert ours["weights"] == shards
    assert theirs.get("weights", 0.0) == (0.0 if moves_weights else shards)
    kept = offloads.memory["host"]["items"]
    on_drives = offloads.memory.get("nvme", {"peak": 0.0})["peak"]
    expected = 8 * elements * ((each if moves_states else 0) + (2 if moves_weights else 0))
    if name == "stage 3, drives":
        assert on_drives == 8 * elements * (12 + 4 + 2)
    else:
        held = kept.get("optimizer states", 0.0) + (kept.get("weights", 0.0) if moves_weights else 0.0)
        assert held == expected
    assert "host" not in without.memory


@settings(max_examples=100)
@given(st.sampled_from(CLUSTERS), st.sampled_from(ROUTES), st.floats(1e3, 1e11), st.booleans())
def test_a_copy_takes_what_the_narrowest_of_its_links_allows(name, route, amount, pinned):
    """All devices of a host copy at once: S at the device, their sum at the host."""
    cluster = load_cluster(name)
    found, devices = server_of(cluster), cluster.accelerators_per_host
    hosts = HostLinks(cluster, ClassFabric(cluster).links, [0])
    phase = hosts.phase(Transfer(route=route, amount=amount, role="x", pinned=pinned), 0, 0)
    whole = {"nvme_read": found.nvme_read, "nvme_write": found.nvme_write}.get(route, found.uplink).value
    rates = [whole / devices]
    if route in ("to_host", "to_device"):
        own = [link.bandwidth for link in cluster.links if link.technology == "pcie" and link.ends[0] == "device"]
        rates += [found.device_link.value] if found.device_link else own[:1]
    if not pinned:
        rates.append(found.pageable.value)
    latency = found.copy_latency.value if route in ("to_host", "to_device") else 0.0
    assert phase.duration == pytest.approx(latency + amount / min(rates))
    assert phase.payload == pytest.approx(amount)


def test_copies_compete_with_messages_on_the_link_of_the_device(scenario):
    """Two hosts of one device: a gather sends over the same PCIe link as a copy to the host, in the same direction."""
    topology = {"cluster": "cloud-100gbe", "hosts": 2, "accelerators_per_host": 1}
    found = scenario(model=MODEL, topology=topology, variants=[{"name": "v", **zero(3, offload_optimizer=CPU)}])
    ready = stage(found, record(found, found.variants[0]))
    used = {"to_host": set(), "reduce_scatter": set()}
    for operation, phases in zip(ready.classes[0].program.operations, ready.classes[0].phases, strict=True):
        kind = getattr(operation, "route", getattr(operation, "role", ""))
        used.get(kind, set()).update(ready.links[link].name for phase in phases for link, _ in phase.usage)
    assert used["to_host"] & used["reduce_scatter"] == {"pcie:device>pcie_switch"}


@given(st.floats(1, 1e12), st.integers(1, 16), st.booleans())
def test_ranks_of_a_host_share_its_memory(amount, sharers, torch):
    found = server("ampere")
    alone = cpu_time(amount, found, 1, torch=torch)
    assert cpu_time(amount, found, sharers, torch=torch) == pytest.approx(sharers * alone)
    assert cpu_time(amount, found, 1, torch=True) >= cpu_time(amount, found, 1)
    assert alone >= amount / found.memory_bandwidth.value


@given(st.integers(1, 10**12), st.integers(1, 10**9), st.integers(1, 16), st.integers(1, 64))
def test_estimators_agree_where_they_meet(parameters, largest, devices, hosts):
    """Offloading everything leaves the largest module; what leaves the devices of a host comes to it."""
    ranks = devices * hosts
    whole = deepspeed_estimate(3, parameters, largest, ranks)
    states = deepspeed_estimate(3, parameters, largest, ranks, "optimizer")
    both = deepspeed_estimate(3, parameters, largest, ranks, "both")
    assert math.isclose(whole - states, 16 * parameters / ranks, rel_tol=1e-6, abs_tol=1)
    assert math.isclose(states - both, 2 * parameters / ranks, rel_tol=1e-6, abs_tol=1)
    at_host = [deepspeed_host_estimate(3, parameters, largest, devices, hosts, what) for what in ("optimizer", "both")]
    assert at_host == pytest.approx([1.5 * devices * (whole - size) for size in (states, both)], rel=1e-6, abs=100)


def test_a_variant_may_stand_in_another_server(scenario):
    """Twice the bandwidth of the memory halves the update."""
    slow, fast = (
        results(scenario, PAIRS["stage 2"], {"memory_bandwidth": f"{rate} GB/s", "adam": 1.0})[1] for rate in (28, 56)
    )
    # 8 ranks of 5e6 parameters: update, cast and scaling of gradients, for clipping
    moved = (ADAM_BYTES + 6 + 8) * 4e7
    assert slow.host_time == pytest.approx(moved / 28e9)
    assert fast.host_time == pytest.approx(moved / 56e9)
