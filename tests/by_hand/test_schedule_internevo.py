"""Worked examples of InternEvo's ZeRO-1: who owns what, what is sent when, and timelines that can be drawn by hand.

Matrices a, b, c of 1, 2 and 3 million elements in bf16, eight ranks, a link that carries 1 MB/s: a million elements
take two seconds.  Forward takes 1 s each, backward 1 s per million, the update 1 s.
"""

from itertools import islice

import pytest

from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.schedules.internevo import internevo, params_by_block, partition_param_list, shares
from simulator.world.mesh import Mesh
from simulator.world.policy.internevo import InternEvoPolicy, load_internevo
from tests.by_hand.test_schedule_ddp import MILLION, T3, drawn, job, sent, timeline

FIVE = {"reduce_bucket_size": 5 * MILLION, "clip_grad_norm": 0.0}
"""Room for c and b but not for a; no norm, which would take four microseconds."""


def steps(work, number=1, **policy):
    return list(islice(internevo(work, InternEvoPolicy(**{**FIVE, **policy})), number))


def groups(program):
    """Name and size of the group of each collective, in issue order."""
    operations = [program.operations[item.operation] for item in program.launches]
    return [(item.group.name, item.group.size) for item in operations if isinstance(item, Collective)]


def of(kind, *millions):
    return [(kind, number * MILLION, "bf16") for number in millions]


def test_a_bucket_goes_when_the_next_gradient_would_not_fit_and_owners_broadcast_in_turn():
    """A bucket of c and b is full when a comes.

    ::

        compute     a b c|c c c|b b|a|                        |u|
        nccl data                    |---- c and b ----|- a --|
        nccl zero1                                              |--- c ---|-- b --|- a -|
                    0    3     6   8 9                19     21 22       28      32    34
    """
    (program,) = steps(job(T3))
    assert sent(program) == of("all_reduce", 5, 1) + of("broadcast", 3, 2, 1)
    assert groups(program) == [("data", 8)] * 2 + [("zero1", 8)] * 3
    found = timeline(program)
    assert drawn(found, "nccl data") == [("c to b", 9, 19), ("a", 19, 21)]
    assert drawn(found, "compute")[-1] == ("optimizer", 21, 22)
    owners = [(f"weights of rank {rank}", *when) for rank, when in enumerate([(22, 28), (28, 32), (32, 34)])]
    assert drawn(found, "nccl zero1") == owners
    assert max(span.end for span in found.spans) == 34


def test_compute_waits_at_a_full_bucket_for_the_one_before():
    """Buckets of one gradient: c goes when b comes, b when a comes, and then z waits until c is back.

    ::

        compute     z a b c|c c c|b b|a| wait for c |z|
        nccl data                    |------ c -----|-- b --|- a -|- z -|
                    0      4     7   9 10           15 16   19    21    23
    """
    (program,) = steps(job({"z": MILLION, **T3}), reduce_bucket_size=1)
    found = timeline(program)
    assert drawn(found, "nccl data") == [("c", 9, 15), ("b", 15, 19), ("a", 19, 21), ("z", 21, 23)]
    assert drawn(found, "compute", "backward") == [("c", 4, 7), ("b", 7, 9), ("a", 9, 10), ("z", 15, 16)]


def test_only_the_last_micro_batch_reduces():
    (program,) = steps(job(T3, micro_batches=3))
    assert sent(program) == of("all_reduce", 5, 1) + of("broadcast", 3, 2, 1)
    assert {item.micro_batch for item in program.launches if "nccl" in program.streams[item.stream]} == {2}


def test_a_group_of_two_broadcasts_twice_and_reduces_among_all():
    """c is 3 million and b and a are: two owners, whatever the number of ranks."""
    (program,) = steps(job(T3), zero1=2)
    assert sent(program) == of("all_reduce", 5, 1) + of("broadcast", 3, 3)
    assert groups(program) == [("data", 8)] * 2 + [("zero1", 2)] * 2


def test_without_overlap_gradients_are_reduced_in_the_step_in_the_order_of_registration():
    """a and b fit together and c no more; backward ends at 9 s."""
    (program,) = steps(job(T3), overlap_sync_grad=False)
    assert sent(program)[:2] == of("all_reduce", 3, 3)
    assert drawn(timeline(program), "nccl data") == [("a to b", 9, 15), ("c", 15, 21)]


def test_broadcasts_beside_the_next_forward():
    """Ranks 1, 2, 3 own a, b, c, in the order of blocks; the second step begins with what the first has left.

    ::

        compute          |a|      |b|            |c|
        nccl zero1  |-a -|-- b ---|----- c ------|
                    0    2        6              12
    """
    first, second = steps(job(T3), 2, overlap_sync_param=True)
    assert sent(first) == of("all_reduce", 5, 1)
    assert sent(second) == of("broadcast", 1, 2, 3) + of("all_reduce", 5, 1)
    found = timeline(second)
    assert drawn(found, "compute", "forward") == [("a", 2, 3), ("b", 6, 7), ("c", 12, 13)]
    assert [when for _, *when in drawn(found, "nccl zero1")] == [[0, 2], [2, 6], [6, 12]]


def test_whole_parameters_go_to_the_rank_that_has_least():
    """The largest first: 5 | 4 | 3 3; then 2 to the second and 1 to the first."""
    elements = {"a": 3, "b": 1, "c": 4, "d": 5, "e": 3, "f": 2}
    assert partition_param_list(elements, 3) == [["d", "b"], ["c", "f"], ["a", "e"]]
    assert partition_param_list(elements, 100) == [["d"], ["c"], ["a"], ["e"], ["f"], ["b"]]


def test_in_the_order_of_blocks_what_is_too_much_is_not_counted_where_it_goes():
    """Average 3 of two ranks: b makes it too much and goes to rank 1, which c and d then join: it is the last."""
    root = job({"a": 2, "b": 2, "c": 1, "d": 1}).root
    by_param, by_block = params_by_block(root, 2)
    assert list(by_param.values()) == [0, 1, 1, 1]
    assert by_block == {"a": [0], "b": [0, 1], "c": [1], "d": [1]}
    assert shares(InternEvoPolicy(zero1=2, overlap_sync_param=True), root, 8) == [2, 4]


def test_the_step_passes_over_the_parameters_of_the_largest_owner():
    """3 million elements: norm 10 B (to fp32, read), flat, cast and scaled 18 B, back into the weights 6 B.

    AdamW with a kernel per operation adds 60 B: 22 arrays of fp32 in place of seven.
    """
    programs = [*steps(job(T3), clip_grad_norm=1.0), *steps(job(T3), clip_grad_norm=1.0, fused=False)]
    traffic = [
        {
            operation.kind: operation.works[0].constant_traffic / (3 * MILLION)
            for operation in program.operations
            if not isinstance(operation, Collective) and operation.works and not operation.is_copy
        }
        for program in programs
    ]
    assert traffic[0] == {"norm": 10, "flat gradients": 18, "weights": 6}
    assert traffic[1] == traffic[0] | {"unfused": 60}


def test_the_norm_is_summed_in_the_zero1_group_and_read():
    (program,) = steps(job(T3), clip_grad_norm=1.0, zero1=2)
    assert sent(program)[2] == ("all_reduce", 1, "fp32")
    assert groups(program)[2] == ("zero1", 2)


def test_buckets_and_fp32_gradients_are_given_back():
    """Gradients of c, b and a live until the update; a bucket needs a buffer, the largest owner 12 MB of fp32."""
    (program,) = steps(job(T3))
    taken = [item for launch in program.launches for item in launch.takes]
    given = [item for launch in program.launches for item in launch.gives]
    buffers = [("reduce buckets", 10e6), ("optimizer temporaries", 12e6)]
    assert taken == [("gradients", 6e6), ("gradients", 4e6), ("gradients", 2e6), *buffers]
    assert given == [*buffers, ("gradients", 12e6)]


def test_a_parameter_without_gradient_is_refused():
    with pytest.raises(InputError, match="gets no gradient"):
        steps(job(T3, order=["a", "b"]))


@pytest.mark.parametrize(("raw", "problem"), [
    ({"zero1": {"size": 3}}, r"zero1\.size: 3: does not divide the 16 ranks"),
    ({"zero1": {"size": 8, "fsdp": True}}, r"zero1\.fsdp: is FSDP"),
    ({"zero1": {"sise": 8}}, "did you mean 'size'"),
    ({"overlap_sync_grads": True}, "did you mean 'overlap_sync_grad'"),
    ({"reduce_bucket_size": 0}, "must be at least 1"),
])  # fmt: skip
def test_a_wrong_config_is_one_line(raw, problem):
    with pytest.raises(InputError, match=problem):
        load_internevo(raw, Mesh(hosts=2, devices_per_host=8), "file.yaml", "variants[0].internevo")


def test_zero1_is_a_number_or_a_mapping():
    mesh = Mesh(hosts=2, devices_per_host=8)
    assert load_internevo({"zero1": 8}, mesh, "", "") == load_internevo({"zero1": {"size": 8}}, mesh, "", "")
    assert load_internevo({}, mesh, "", "").zero1_size(16) == 16
