"""Ranks that are slower than the others, on timelines that can be drawn by hand."""

import numpy as np
import pytest

from simulator.clock.engine import simulate
from simulator.clock.parts import divided
from simulator.clock.stage import stage
from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.readings.exposure import exposure
from simulator.readings.spread_table import jittered
from simulator.schedules.record import record
from simulator.schedules.tape import Tape
from simulator.world.mesh import Mesh
from tests.conftest import flat

LAYER = [{"name": "layer", "parameters": 1e9, "forward_time": "2 s", "backward_time": "4 s"}]


def played(scenario, uneven, **sections):
    """One layer of ZeRO-1 on four ranks; a collective of it takes 1.5 s."""
    given = {
        "model": {"sequence_length": 1, "layers": LAYER},
        "topology": flat(hosts=4, bandwidth="1 GB/s"),
        "variants": [{"name": "v", "zero_stage": 1}],
    }
    asked = scenario(**{**given, **sections, "uneven": uneven})
    return run_variant(asked, asked.variants[0])


def durations(timeline):
    """Of each collective: the shortest of any rank, as trace analysers measure what it takes itself (A12)."""
    spans = zip(*(item.spans for item in timeline.classes), strict=True)
    return [min(span.end - span.reached_at for span in group) for group in spans if group[0].launch.stream > 0]


def test_a_slow_rank_sets_the_step_and_the_others_wait_for_it(scenario):
    """A12: rank 3 takes 1.5 times as long; R reduces gradients, G gathers weights.

    rank 3    F 0-3   B 3-9    R 9-10.5   G 10.5-12
    others    F 0-2   B 2-6    -  R 9-10.5   G 10.5-12       6-9: skew
    """
    even, found = played(scenario, []), played(scenario, [{"host": 3, "slowdown": 1.5}])
    assert (even.result.step_time, found.result.step_time) == (9.0, 12.0)
    usual, slow = found.result.rank_classes
    assert (usual["name"], usual["ranks"], slow["name"], slow["ranks"]) == ("3 ranks like rank 0", 3, "rank 3", 1)
    assert (usual["compute_time"], usual["stalled"], usual["skew"]) == (6.0, 6.0, 3.0)
    assert (slow["compute_time"], slow["stalled"], slow["skew"]) == (9.0, 3.0, 0.0)
    assert found.result.exposed["skew"] == 3.0
    assert durations(even.timeline) == durations(found.timeline) == [1.5, 1.5]


def test_micro_batches_of_different_lengths(scenario):
    """Rank 0's second micro-batch is twice as long; gradients are reduced once, at the end.

    rank 0    F 0-2  B 2-6  F 6-10  B 10-18  R 18-19.5  G 19.5-21
    others    F 0-2  B 2-6  F 6-8   B 8-12   -          6 s of skew
    """
    training = {"micro_batch": 1, "gradient_accumulation": 2}
    found = played(scenario, [{"host": 0, "micro_batches": [1, 2]}], training=training)
    assert found.result.step_time == 21.0
    usual, slow = found.result.rank_classes
    assert (usual["skew"], slow["skew"], slow["compute_time"]) == (6.0, 0.0, 18.0)


def test_factors_go_round_and_multiply(scenario):
    """Three micro-batches, factors 1, 2, 1, and everything takes half as long again: 6 (1 + 2 + 1) 1.5 = 36."""
    uneven = [{"host": 0, "micro_batches": [1, 2]}, {"hosts": 4, "slowdown": 1.5}]
    found = played(scenario, uneven, training={"micro_batch": 1, "gradient_accumulation": 3})
    assert [item["compute_time"] for item in found.result.rank_classes] == [27.0, 36.0]
    assert found.result.step_time == 39.0


def test_many_lists_of_factors_cost_no_more_than_one(scenario):
    """They would go round together only after billions of micro-batches; the first two are 1 and 1.5 as long."""
    lists = [[1] * number for number in (997, 991, 983)]
    uneven = [{"host": 0, "micro_batches": [1, 1.5]}, *({"host": 0, "micro_batches": item} for item in lists)]
    found = played(scenario, uneven, training={"micro_batch": 1, "gradient_accumulation": 2})
    assert found.result.rank_classes[1]["compute_time"] == 15.0


@pytest.mark.parametrize("entry", [{"host": 3}, {"hosts": 3}, {"host": 0, "device": 1}])
def test_ranks_that_only_the_cluster_of_a_variant_lacks_are_told(scenario, entry):
    """Two hosts of one device each, where the scenario has four of eight."""
    topology = {"cluster": "dgx-a100-80gb", "hosts": 4}
    variants = [{"name": "v", "zero_stage": 1, "topology": {"hosts": 2, "accelerators_per_host": 1}}]
    with pytest.raises(InputError, match=r"uneven\[0\]\.\w+: \d: there are fewer; use"):
        played(scenario, [{**entry, "slowdown": 2}], topology=topology, variants=variants)


def test_the_last_hosts_are_those_of_the_variant(scenario):
    """Six hosts, where the scenario has four."""
    variants = [{"name": "v", "zero_stage": 1, "topology": {"hosts": 6}}]
    found = played(scenario, [{"hosts": 1, "slowdown": 1.5}], variants=variants)
    assert [item["name"] for item in found.result.rank_classes] == ["5 ranks like rank 0", "rank 5"]


def test_what_queues_behind_a_collective_that_queues_for_a_late_rank_waits_for_the_rank(scenario):
    """Rank 1 takes 3 s longer for its kernel, which R1 waits for; R2 and G stand behind R1 on the communicator.

    rank 1     K 0-4   R1 4-5   R2 5-6   G 6-7
    rank 0     K 0-1   (1-4 for rank 1)  R1 4-5   R2 5-6   G 6-7

    G could have run from 0 on.  Of the 6 s that compute waits, 3 s are those that R1 waited for rank 1.
    """
    asked = scenario(topology=flat(hosts=2, bandwidth="1 GB/s"), uneven=[{"host": 1, "slowdown": 4}])
    group, tape = asked.mesh.world(), Tape()

    def collective(role):
        return Collective(kind="all_gather", elements=2e9, bytes_per_element=1, group=group, role=role)

    tape.wait("reduce", tape.launch(Kernel(kind="forward", time=1.0), "compute", label="k"))
    for role in ("first", "second"):
        tape.launch(collective(role), "reduce", label=role)
    tape.wait("compute", tape.launch(collective("gather"), "gather", label="g"))
    tape.launch(Kernel(kind="optimizer", time=0.0), "compute", label="end")
    timeline = simulate(stage(asked, tape.program()))
    reading = exposure(timeline.classes[0], timeline.step_time)
    assert {cause: time for cause, time in reading.by_cause().items() if time} == {"queueing": 3.0, "skew": 3.0}


FAULT = {"link": "network", "remaining": 0.25, "host": 1, "index": 2}


@pytest.mark.parametrize(("policy", "classes"), [
    ({"fsdp2": {}}, [31, 1]),  # a card of rank 10, which all wait for
    ({"fsdp2": {"replicate": 4}}, [21, 7, 3, 1]),  # its host and its peers are unlike the rest
])  # fmt: skip
def test_a_bad_card_of_one_host_is_its_own_ranks_alone(scenario, policy, classes):
    found = []
    for how in ("classes", "all"):
        asked = scenario(
            topology={"cluster": "dgx-a100-80gb", "hosts": 4, "faults": [FAULT]},
            variants=[{"name": "v", **policy}],
            run={"ranks": how},
        )
        found.append(run_variant(asked, asked.variants[0]))
    assert [item.ranks for item in found[0].timeline.classes] == classes
    assert found[0].result.step_time == pytest.approx(found[1].result.step_time, rel=1e-9)
    slow = [
        len(classes) == 2 or item.ranks in (3, 1) for item in found[0].timeline.classes
    ]  # those that the card joins
    slowed = [longer_than_alone(item) for item in found[0].timeline.classes]
    assert slowed == slow


def longer_than_alone(played):
    """Whether a collective across hosts took longer than on links of full bandwidth."""
    operations = played.program.operations
    return any(
        span.end - span.start > 1.5 * span.alone
        for span in played.spans
        if isinstance(operations[span.launch.operation], Collective)
        and operations[span.launch.operation].group.hosts > 1
    )


def test_a_slow_host_launches_late(scenario):
    """Each launch takes 1 s of host time, 3 s on rank 1, which launches F, B, R at 3, 6, 9 s.

    rank 1    host 0-3  F 3-5  B 6-10   R 10-11.5                G 15-16.5  (end of step launched at 18)
    others    host 0-1  F 1-3  B 3-7    -  R 10-11.5  (11.5-15)  G 15-16.5  (16.5-18)
    """
    found = played(scenario, [{"host": 1, "host_slowdown": 3}], host={"launch_time": "1 s"})
    usual, slow = found.result.rank_classes
    reduction = found.timeline.classes[0].spans[2]
    assert (reduction.reached_at, reduction.met_at, reduction.end) == (7.0, 10.0, 11.5)
    assert usual["skew"] == (10.0 - 7.0) + (15.0 - 11.5) + (18.0 - 16.5)
    assert slow["skew"] == 0.0


def test_a_slow_device_splits_its_host_its_peers_and_the_rest():
    """Two hosts of four, groups of four inside hosts and of two across: rank 5 is slow.

    0 1 2 3      rest  peer rest rest
    4 5 6 7      host  slow host host
    """
    mesh = Mesh(hosts=2, devices_per_host=4)
    own = np.array([0, 0, 0, 0, 0, 1, 0, 0])
    groups = [mesh.group("shard", 4), mesh.group("replicate", 2, 4)]
    parts, of_rank = divided(own, groups)
    assert of_rank.tolist() == [0, 2, 0, 0, 1, 3, 1, 1]
    assert [(part.rank, part.ranks) for part in parts] == [(0, 3), (4, 3), (1, 1), (5, 1)]
    assert parts[0].meets["shard"][1] == parts[2].meets["shard"][1] == {0, 2}
    assert parts[0].meets["replicate"][1] == parts[1].meets["replicate"][1] == {0, 1}
    assert parts[3].meets["replicate"][1] == {2, 3}


def test_a_slow_device_in_one_group_of_all_splits_nothing_else():
    mesh = Mesh(hosts=2, devices_per_host=4)
    parts, of_rank = divided(np.array([0, 0, 0, 0, 0, 1, 0, 0]), [mesh.world()])
    assert of_rank.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    assert [part.ranks for part in parts] == [7, 1]


def test_a_uniform_cluster_of_any_size_is_one_class(scenario):
    asked = scenario(topology={"cluster": "dgx-h100", "hosts": 16_384})
    ready = stage(asked, record(asked, asked.variants[0]))
    assert [(item.name, item.ranks) for item in ready.classes] == [("all ranks", 131_072)]


@pytest.mark.parametrize(("entry", "words"), [
    ({"slowdown": 2.0}, ["uneven[0]", "either 'host' or 'hosts'"]),
    ({"host": 0, "hosts": 1}, ["uneven[0]", "either 'host' or 'hosts'"]),
    ({"host": 4}, ["uneven[0].host", "4", "use 0 to 3"]),
    ({"hosts": 5}, ["uneven[0].hosts", "5", "use at most 4"]),
    ({"host": 0, "device": 1}, ["uneven[0].device", "1", "use 0 to 0"]),
    ({"host": 0, "micro_batches": []}, ["uneven[0].micro_batches", "no factor"]),
    ({"host": 0, "slowdown": 0}, ["uneven.0.slowdown"]),
    ({"host": 0, "slowdown": 1e308}, ["uneven.0.slowdown", "<= 1000000"]),
    ({"host": 0, "slow": 2}, ["uneven.0", "did you mean 'slowdown'"]),
])  # fmt: skip
def test_wrong_entries_are_told(scenario, entry, words):
    with pytest.raises(InputError) as caught:
        played(scenario, [entry])
    assert all(word in str(caught.value) for word in words)


def test_the_table_of_random_times_leaves_out_what_is_nothing():
    """The slowest twentieth is 2 ms longer, all of it compute: nobody is waited for."""
    step = dict.fromkeys(("even", "mean", "p50", "p95", "p99"), 1.0)
    tail = {"longer": 0.002, "by_cause": {"compute": 0.002, "skew": 1e-5}, "by_collective": {"reduce_scatter": 0.0}}
    jitter = {"replications": 9, "ranks": 1, "step_time": step, "exposed_share": {"mean": 0, "p95": 0}, "tail": tail}
    (table,) = jittered([{"name": "v", "ranks": 1, "failure": None, "jitter": jitter}])
    assert list(table.columns[-1].cells) == ["compute 2"]
