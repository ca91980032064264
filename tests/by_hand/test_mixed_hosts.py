"""Hosts of different types in one cluster."""

from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.world.scenario import load_scenario
from simulator.world.topology.cluster import load_cluster
from simulator.world.topology.mixed import host_types, slowest, type_of

MAIN = Path(__file__).parents[2] / "scenarios/llama-2-13b-two-hosts.yaml"
OLD = "topology.others=[{hosts: 1, accelerator: a100-sxm-40gb}]"
NARROW = "topology.others=[{hosts: 1, links: {network: {bandwidth: 100 Gbit/s}}}]"
SLOW_INSIDE = "topology.others=[{hosts: 1, links: {nvlink: {bandwidth: 100 GB/s}}}]"


def outcome(*overrides, variant="zero3"):
    asked = load_scenario(MAIN, overrides)
    return run_variant(asked, asked.variant(variant))


@pytest.mark.parametrize("others", [OLD, NARROW, SLOW_INSIDE])
@pytest.mark.parametrize("variant", ["zero3", "zero++"])
def test_one_class_per_type_gives_the_same_answer_as_all_ranks(others, variant):
    classes, ranks = (outcome(others, f"run.ranks={how}", variant=variant) for how in ("classes", "all"))
    assert len(classes.timeline.classes) == 2
    assert classes.result.step_time == pytest.approx(ranks.result.step_time, rel=1e-12)
    assert classes.result.exposed_by_cause == pytest.approx(ranks.result.exposed_by_cause, rel=1e-9, abs=1e-12)


def test_the_faster_hosts_wait_for_the_others():
    """The step is that of equal hosts, so the fast ones stall for what they compute faster: mostly for late ranks.

    The rest of it is transfers: they start when the late ranks come, and only late ranks have work to hide them.
    """
    alone = "compute.overlap_slowdown=1"
    mixed, old = outcome(OLD, alone), outcome("topology.accelerator=a100-sxm-40gb", alone)
    assert mixed.result.step_time == pytest.approx(old.result.step_time, rel=1e-3)
    slower = old.reading.compute - mixed.reading.compute
    assert slower > 0
    assert mixed.reading.stalled - old.reading.stalled == pytest.approx(slower, rel=0.01)
    assert slower / 2 < mixed.reading.skew <= slower
    assert mixed.readings()[1].skew == 0


def test_a_narrow_card_slows_everybody_and_nobody_waits_for_a_rank():
    mixed = outcome(NARROW)
    uniform = outcome("topology.links.network.bandwidth=100 Gbit/s")
    assert mixed.result.step_time == pytest.approx(uniform.result.step_time, rel=1e-12)
    assert mixed.reading.skew == 0


def test_the_smallest_memory_decides_whether_it_fits():
    assert outcome(OLD).result.memory["capacity"] == 40e9


def test_types_follow_each_other_at_the_end():
    asked = load_scenario(
        MAIN, ["topology.hosts=8", "topology.others=[{hosts: 2, accelerator: v100-sxm-32gb}, {hosts: 3}]"]
    )
    assert [type_of(asked.cluster, host) for host in range(8)] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert [item.accelerator.name for item in host_types(asked.cluster)] == [
        "a100-sxm-80gb", "v100-sxm-32gb", "a100-sxm-80gb",
    ]  # fmt: skip
    assert slowest(asked.cluster).accelerator.generation == "volta"


def test_a_uniform_cluster_has_one_type():
    cluster = load_cluster("dgx-h100", hosts=4)
    (only,) = host_types(cluster)
    assert only.links == slowest(cluster).links == cluster.links


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ("[{hosts: 2}]", ["too many", "at least one"]),
        ("[{hosts: 1, accelerator: a100-sxm-40g}]", ["did you mean 'a100-sxm-40gb'?"]),
        ("[{hosts: 1, links: {uplink: {bandwidth: 1 GB/s}}}]", ["uplink", "not a link of hosts"]),
        ("[{hosts: 1, links: {nvlik: {bandwidth: 1 GB/s}}}]", ["did you mean 'nvlink'?"]),
    ],
)
def test_wrong_entries_are_told(others, words):
    with pytest.raises(InputError) as caught:
        load_scenario(MAIN, [f"topology.others={others}"])
    assert all(word in str(caught.value) for word in words)
