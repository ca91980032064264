"""Worked examples of PyTorch's DDP: what is sent in which order, and timelines that can be drawn by hand.

Sequences without a W number are what torch 2.13 sends for the same models and options.
"""

from dataclasses import replace
from itertools import islice

import pytest

from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage
from simulator.clock.engine import simulate
from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.kernels import Kernel
from simulator.schedules.ddp import ddp
from simulator.schedules.job import HostCosts, Job
from simulator.schedules.program import HostWork, Synchronize
from simulator.world.mesh import Mesh
from simulator.world.model.execution import Mark, execution
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.ddp import MIB, DdpPolicy

MILLION = 10**6
T3 = {"a": 1 * MILLION, "b": 2 * MILLION, "c": 3 * MILLION}
W1D = {"a": 300_000, "b": 5 * MILLION, "c": 2 * MILLION, "d": 100_000, "e": 300_000}
REBUILT = [("broadcast", 6, "i32"), ("broadcast", 3, "i32")]
"""W1D's five parameters and the number of buckets; the sizes of three buckets."""


def job(sizes, micro_batches=1, dtype="bf16", order=None, frozen="", **others):
    """A chain of matrices under a root without parameters; 1 s of forward each, 1 s of backward per million."""
    linears = {
        name: Module(name=name, kind="Linear", parameters=(Tensor(f"{name}.weight", (size,), name not in frozen),))
        for name, size in sizes.items()
    }
    root = Module(
        name="",
        kind="Chain",
        children=tuple(linears.values()),
        calls=tuple(linears[name] for name in order or sizes),
        buffers=others.pop("buffers", 0),
    )
    kernels = {(name, "forward"): Kernel(kind="forward", time=1.0) for name in sizes}
    kernels |= {(name, "backward"): Kernel(kind="backward", time=size / MILLION) for name, size in sizes.items()}
    return Job(
        root=root,
        execution=execution(root),
        micro_batches=micro_batches,
        dtype=dtype,
        mesh=Mesh(hosts=1, devices_per_host=8),
        kernels=kernels,
        optimizer=Kernel(kind="optimizer", time=1.0),
        **others,
    )


def steps(work, number, **policy):
    return list(islice(ddp(work, DdpPolicy(**policy)), number))


def sent(program):
    """Kind, elements, type of all collectives, in issue order."""
    operations = [program.operations[item.operation] for item in program.launches]
    return [(item.kind, item.elements, item.dtype) for item in operations if isinstance(item, Collective)]


def reduced(program):
    """Labels of reduced buckets, each with the gradient that was copied in before."""
    found, last = [], ""
    for launch in program.launches:
        operation = program.operations[launch.operation]
        if isinstance(operation, Collective) and operation.role == "all_reduce":
            found.append((launch.label.replace(".weight", ""), last))
        elif operation.kind == "copy in":
            last = launch.label.removesuffix(".weight")
    return found


def copies(program, kind):
    """Labels and traffic of copies of one kind."""
    found = [(item.label.replace(".weight", ""), program.operations[item.operation]) for item in program.launches]
    return [(label, copy.works[0].constant_traffic) for label, copy in found if copy.kind == kind]


def all_reduces(*elements, dtype="fp32"):
    return [("all_reduce", number, dtype) for number in elements]


def timeline(program, memory=float("inf")):
    """One rank class on one link of 1 MB/s that carries each payload once; copies run at *memory* B/s."""

    def time(item):
        return item.works[0].constant_traffic / memory if item.time is None else item.time

    collectives = [isinstance(item, Collective) for item in program.operations]
    cast = RankClass(
        name="all ranks",
        ranks=8,
        program=program,
        times=tuple(0.0 if isinstance(item, Collective) else time(item) for item in program.operations),
        phases=tuple(
            (Phase(payload=item.payload, usage=((0, 1.0),), latency=0.0, rate=1e6),) if is_one else ()
            for item, is_one in zip(program.operations, collectives, strict=True)
        ),
        communicators=tuple(0 if is_one else NO_COMMUNICATOR for is_one in collectives),
    )
    link = Link(name="link", bandwidth=1e6, kind="link")
    return simulate(Stage(classes=(cast,), members=(1,), links=(link,))).classes[0]


def drawn(found, stream, kind=None):
    """Start and end of what takes time in a stream, by label."""
    operations = found.program.operations
    return [
        (span.launch.label.replace(".weight", ""), span.start, span.end)
        for span in found.stream(stream)
        if span.end > span.start and kind in (None, operations[span.launch.operation].kind)
    ]


def test_w1c_the_first_step_sends_one_bucket_and_later_ones_what_closes_it():
    first, second, third = steps(job(T3, micro_batches=2), 3, no_sync=True)
    assert sent(first) == all_reduces(6 * MILLION, dtype="bf16")
    assert reduced(first) == [("a to c", "a")]
    assert sent(second) == [
        ("broadcast", 4, "i32"),
        ("broadcast", 2, "i32"),
        *all_reduces(3 * MILLION, 3 * MILLION, dtype="bf16"),
    ]
    assert reduced(third) == [("c", "c"), ("b to a", "a")]
    assert {item.micro_batch for item in third.launches if "nccl" in third.streams[item.stream]} == {1}


def test_w1c_an_explicit_25_mb_is_the_cap_of_the_first_bucket_too():
    assert [reduced(program) for program in steps(job(T3), 3, bucket_cap_mb=25)[1:]] == [[("c to a", "a")]] * 2


def test_w1c_timeline_of_the_first_step():
    """Nothing of the 12 MB hides: 12 s.

    compute  Fa Fb Fc Bc Bc Bc Bb Bb Ba -- ... -- U
    nccl                                AR 9-21
    """
    found = timeline(steps(job(T3), 1)[0])
    assert drawn(found, "nccl world") == [("a to c", 9.0, 21.0)]
    assert drawn(found, "compute", "optimizer") == [("optimizer", 21.0, 22.0)]


def test_w1c_timeline_of_later_steps():
    """c's 6 s begin with b's backward; b and a wait for the communicator.

    compute  F 0-3  Bc 3-6  Bb 6-8  Ba 8-9 -- ... --        U 18-19
    nccl                    ARc 6-12          ARba 12-18
    """
    found = timeline(steps(job(T3), 3)[2])
    assert drawn(found, "nccl world") == [("c", 6.0, 12.0), ("b to a", 12.0, 18.0)]
    assert drawn(found, "compute", "optimizer") == [("optimizer", 18.0, 19.0)]


def test_w1c_timeline_with_two_micro_batches():
    """The first, of 9 s, sends nothing (D-8); the second is as above."""
    found = timeline(steps(job(T3, micro_batches=2), 3, no_sync=True)[2])
    assert drawn(found, "nccl world") == [("c", 15.0, 21.0), ("b to a", 21.0, 27.0)]
    assert drawn(found, "compute", "optimizer") == [("optimizer", 27.0, 28.0)]


def test_d7_gradients_are_copied_on_the_compute_stream_into_and_out_of_the_buckets():
    """Copies read and write at 4 MB/s: 1 s per million parameters.

    compute  F 0-3  Bc 3-6 c> 6-9  Bb 9-11 b> -13 Ba -14 a> -15  >c 15-18 -- >b 21-23 >a 23-24  U 24-25
    nccl                   ARc 9-15                              ARba 15-21
    """
    found = timeline(steps(job(T3), 3)[2], memory=4e6)
    assert drawn(found, "compute", "copy in") == [("c", 6.0, 9.0), ("b", 11.0, 13.0), ("a", 14.0, 15.0)]
    assert drawn(found, "nccl world") == [("c", 9.0, 15.0), ("b to a", 15.0, 21.0)]
    assert drawn(found, "compute", "copy out") == [("c", 15.0, 18.0), ("b", 21.0, 23.0), ("a", 23.0, 24.0)]
    assert drawn(found, "compute", "optimizer") == [("optimizer", 24.0, 25.0)]


def test_d7_with_views_nothing_is_copied_back_and_gradients_live_until_they_are_in_their_bucket():
    """compute  F 0-3  Bc 3-6 c> 6-9  Bb 9-11 b> -13 Ba -14 a> -15  ------ 21  U 21-22"""
    program = steps(job(T3), 3, gradient_as_bucket_view=True)[2]
    found = timeline(program, memory=4e6)
    assert drawn(found, "compute", "copy out") == []
    assert drawn(found, "compute", "optimizer") == [("optimizer", 21.0, 22.0)]
    assert [tuple(change) for change in found.memory] == [
        (0.0, "reduce buckets", 12e6),
        (3.0, "gradients in flight", 6e6),
        (9.0, "gradients in flight", -6e6),
        (9.0, "gradients in flight", 4e6),
        (13.0, "gradients in flight", -4e6),
        (13.0, "gradients in flight", 2e6),
        (15.0, "gradients in flight", -2e6),
        (22.0, "reduce buckets", -12e6),
    ]


def test_buckets_are_there_all_the_time_and_gradients_from_backward_to_the_update():
    """compute  F 0-3  Bc 3-6  Bb 6-8  Ba 8-9  ------ 18  U 18-19"""
    found = timeline(steps(job(T3), 3)[2])
    assert [tuple(change) for change in found.memory] == [
        (0.0, "reduce buckets", 12e6),
        (3.0, "gradients", 6e6),
        (6.0, "gradients", 4e6),
        (8.0, "gradients", 2e6),
        (19.0, "gradients", -12e6),
        (19.0, "reduce buckets", -12e6),
    ]


def test_batched_grad_copy_moves_a_bucket_at_once_and_divides_it():
    program = steps(job(T3), 3, batched_grad_copy=True)[2]
    assert copies(program, "copy in") == copies(program, "divide") == [("c", 12e6), ("b to a", 12e6)]
    assert [label for label, _ in copies(program, "copy out")] == ["c", "b", "a"]


def test_w1d_a_bucket_overshoots_its_cap():
    first, second, third = steps(job(W1D, dtype="fp32"), 3)
    assert sent(first) == all_reduces(7_700_000)
    assert sent(second) == REBUILT + all_reduces(300_000, 7_100_000, 300_000)
    assert reduced(third) == [("e", "e"), ("d to b", "b"), ("a", "a")]


def test_d1_a_list_of_caps_holds_from_the_first_step():
    """In parameter order first, the list of buckets reversed; then in the order of gradients."""
    for caps in ({"bucket_cap_mb_list": (1, 4, 25)}, {"bucket_cap_mb_list": (1, 4, 25), "bucket_cap_mb": 4}):
        first, second = steps(job(W1D, dtype="fp32"), 2, **caps)
        assert sent(first) == all_reduces(2_400_000, 5_000_000, 300_000)
        assert sent(second) == REBUILT + all_reduces(300_000, 2_100_000, 5_300_000)


def test_d1_a_cap_of_zero_sends_each_gradient_by_itself():
    program = steps(job(W1D, dtype="fp32"), 3, bucket_cap_mb=0)[2]
    assert sent(program) == all_reduces(300_000, 100_000, 2_000_000, 5_000_000, 300_000)


def test_d1_a_bucket_closes_at_exactly_its_cap():
    sizes = {"a": MIB // 4, "b": MIB // 4 - 1, "c": MIB // 4}
    assert sent(steps(job(sizes, dtype="fp32"), 3, bucket_cap_mb=1)[2]) == all_reduces(MIB // 4, MIB // 2 - 1)


def test_d3_without_no_sync_the_second_micro_batch_has_rebuilt_buckets():
    (first,) = steps(job(W1D, micro_batches=2, dtype="fp32"), 1)
    assert sent(first) == all_reduces(7_700_000) + REBUILT + all_reduces(300_000, 7_100_000, 300_000)


def test_d3_a_static_graph_takes_one_iteration_more():
    """The first one counts hooks: all is reduced at its end, after the map of used parameters."""
    found = [sent(program) for program in steps(job(W1D, dtype="fp32"), 4, static_graph=True)]
    assert found[:2] == [all_reduces(5, dtype="i32") + all_reduces(7_700_000), all_reduces(7_700_000)]
    assert found[2:] == [
        REBUILT + all_reduces(300_000, 7_100_000, 300_000),
        all_reduces(300_000, 7_100_000, 300_000),
    ]


def test_d3_a_static_graph_counts_iterations_not_steps():
    first, second = steps(job(W1D, micro_batches=2, dtype="fp32"), 2, static_graph=True)
    assert sent(first) == all_reduces(5, dtype="i32") + all_reduces(7_700_000, 7_700_000)
    assert sent(second) == REBUILT + 2 * all_reduces(300_000, 7_100_000, 300_000)


def test_d3_a_static_graph_puts_unused_parameters_last():
    work = job(W1D, dtype="fp32", order="acde")
    found = [sent(program) for program in steps(work, 3, static_graph=True)]
    assert found[0] == all_reduces(5, dtype="i32") + all_reduces(7_700_000)
    assert found[2] == [("broadcast", 6, "i32"), ("broadcast", 2, "i32"), *all_reduces(300_000, 7_400_000)]


def test_d3_a_search_for_unused_parameters_keeps_the_first_buckets():
    expected = all_reduces(400_000, 7_000_000, 300_000) + all_reduces(5, dtype="i32")
    for order in ("abcde", "acde"):
        found = [sent(item) for item in steps(job(W1D, dtype="fp32", order=order), 3, find_unused_parameters=True)]
        assert found == [expected] * 3


def test_d3_the_host_reads_whether_a_parameter_was_used_elsewhere():
    used, unused = (
        steps(job(W1D, dtype="fp32", order=order), 1, find_unused_parameters=True)[0] for order in ("abcde", "acde")
    )
    assert not [item for item in used.instructions if isinstance(item, Synchronize)]
    assert [item.reason for item in unused.instructions if isinstance(item, Synchronize)] == ["data"]
    assert copies(unused, "zero") == [("b", 2e7)]
    assert "b" not in [label for label, _ in copies(unused, "copy out")]


def test_d3_the_host_reads_rebuilt_buckets_twice():
    second = steps(job(W1D, dtype="fp32"), 2)[1]
    assert [item.reason for item in second.instructions if isinstance(item, Synchronize)] == ["data"] * 2


def test_buckets_of_unused_parameters_can_be_left_out():
    work = job(W1D, dtype="fp32", order="cde")
    found = [
        sent(steps(work, 3, skip_all_reduce_unused_params=True, **options)[2])
        for options in ({"find_unused_parameters": True}, {"static_graph": True, "bucket_cap_mb_list": (1,)})
    ]
    assert found == [
        all_reduces(400_000, 7_000_000) + all_reduces(5, dtype="i32"),
        [("broadcast", 6, "i32"), ("broadcast", 4, "i32"), *all_reduces(300_000, 2_100_000)],
    ]


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        ({}, (400_000, 7_000_000, 300_000)),
        ({"bucket_cap_mb": 4}, (400_000, 2_000_000, 5_300_000)),
        ({"bucket_cap_mb_list": (1, 4, 25)}, (2_400_000, 5_000_000, 300_000)),
    ],
)
def test_d4_the_small_bucket_can_be_the_last(caps, expected):
    program = steps(job(W1D, dtype="fp32"), 3, last_bucket_cap=True, **caps)[2]
    assert sent(program) == all_reduces(*expected)


def test_d5_a_bucket_that_is_ready_early_waits_for_those_before_it():
    """Modules run c, b, a but are registered a, b, c: buckets c, b, a; gradients come a, b, c.

    compute  F 0-3  Ba 3-4  Bb 4-6  Bc 6-9
    nccl                                   ARc 9-15  ARb 15-19  ARa 19-21
    """
    program = steps(job(T3, order="cba"), 2, find_unused_parameters=True, bucket_cap_mb=0)[1]
    assert reduced(program) == [("c", "c"), ("b", "c"), ("a", "c")]
    reductions = [item for item in drawn(timeline(program), "nccl world") if item[0] in T3]
    assert reductions == [("c", 9.0, 15.0), ("b", 15.0, 19.0), ("a", 19.0, 21.0)]


def test_frozen_parameters_are_in_no_bucket():
    second = steps(job(W1D, dtype="fp32", frozen="b"), 2)[1]
    assert sent(second) == [("broadcast", 5, "i32"), ("broadcast", 2, "i32"), *all_reduces(300_000, 2_400_000)]


BUFFERS = ("broadcast", 12, "fp32")


def test_buffers_are_sent_before_a_forward_that_follows_a_synchronised_one():
    """After the buckets, where these are rebuilt."""
    rebuilt = [("broadcast", 4, "i32"), ("broadcast", 2, "i32")]
    whole, parts = all_reduces(6 * MILLION, dtype="bf16"), all_reduces(3 * MILLION, 3 * MILLION, dtype="bf16")
    work = job(T3, micro_batches=2, buffers=12)
    assert [sent(item) for item in steps(work, 2)] == [
        [BUFFERS, *whole, *rebuilt, BUFFERS, *parts],
        [BUFFERS, *parts, BUFFERS, *parts],
    ]
    assert [sent(item) for item in steps(work, 3, no_sync=True)] == [
        [BUFFERS, *whole],
        [*rebuilt, BUFFERS, *parts],
        [BUFFERS, *parts],
    ]


def test_an_evaluation_gets_buffers_and_the_forward_after_it_none():
    whole, parts = all_reduces(6 * MILLION, dtype="bf16"), all_reduces(3 * MILLION, 3 * MILLION, dtype="bf16")
    first, second, third = steps(job(T3, micro_batches=2, buffers=12), 3, no_sync=True, evaluates=True)
    assert sent(first) == [BUFFERS, *whole, BUFFERS]
    assert sent(second) == [("broadcast", 4, "i32"), ("broadcast", 2, "i32"), *parts, BUFFERS]
    assert sent(third) == [*parts, BUFFERS]
    assert [item.phase for item in third.launches][-6:] == ["step", "eval", "eval", "eval", "eval", "eval"]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"broadcast_buffers": False}, 0),
        ({"forward_sync_buffers": False}, 0),
        ({"forward_sync_buffers": True, "broadcast_buffers": False}, 1),
    ],
)
def test_the_newer_name_of_an_option_overrules_the_older(options, count):
    assert sent(steps(job(T3, buffers=12), 1, **options)[0]).count(BUFFERS) == count


def test_large_buffers_are_sent_in_parts_and_small_ones_together():
    sizes = {"x": 40 * MIB, "y": 40 * MIB, "z": 8, "v": 75 * MIB}
    root = Module(name="", kind="R", children=tuple(Module(name=n, kind="B", buffers=s) for n, s in sizes.items()))
    work = job(T3)
    work = replace(work, root=replace(root, children=root.children + work.root.children))
    (program,) = steps(work, 1)
    assert sent(program)[:2] == [("broadcast", 80 * MIB, "fp32"), ("broadcast", 75 * MIB + 8, "fp32")]
    assert [label for label, _ in copies(program, "copy out")][:4] == ["x", "y", "z", "v"]


def test_d7_a_hook_casts_on_the_way():
    """fp32 to fp16: AR of half the bytes; cast back on a stream of its own, memory for the time between."""
    program = steps(job(T3, dtype="fp32"), 3, comm_hook="fp16", gradient_as_bucket_view=True)[2]
    assert sent(program) == all_reduces(3 * MILLION, 3 * MILLION, dtype="fp16")
    assert [program.streams[item.stream] for item in program.launches if item.label == "c.weight"][1:] == [
        "compute",
        "compute",
        "nccl world",
        "comm hook",
    ]
    found = timeline(program)
    assert drawn(found, "nccl world") == [("c", 6.0, 12.0), ("b to a", 12.0, 18.0)]
    casts = [change for change in found.memory if change.item == "reduce temporaries"]
    assert [(change.at, change.amount) for change in casts] == [
        (6.0, 6e6),
        (9.0, 6e6),
        (12.0, -6e6),
        (18.0, -6e6),
    ]


def test_d7_a_hook_of_the_same_type_only_divides():
    program = steps(job(T3, dtype="bf16"), 3, comm_hook="bf16")[2]
    assert sent(program) == all_reduces(3 * MILLION, 3 * MILLION, dtype="bf16")
    assert copies(program, "cast") == []
    assert copies(program, "divide") == [("c", 12e6), ("b to a", 12e6)]


def test_each_hook_costs_the_host():
    """Before and after forward, one per gradient, one at the end of a synchronised backward."""
    work = job(T3, micro_batches=2, costs=HostCosts(hook=0.5))
    program = steps(work, 1, no_sync=True)[0]
    work = [item.time for item in program.instructions if isinstance(item, HostWork)]
    assert sum(work) == 0.5 * (2 * (2 + 3) + 1)


def test_backward_waits_for_the_recompute_of_what_it_reads():
    """Without reentry the block runs again once its backward has been entered; its kernel comes after that."""
    work = job(T3)
    work = replace(
        work,
        execution=execution(work.root, "non-reentrant", lambda module: module.name == "c"),
        kernels={**work.kernels, ("c", "recompute"): Kernel(kind="recompute", time=1.0)},
    )
    assert [item.phase for item in steps(work, 1)[0].launches if item.label == "c"] == [
        "forward",
        "recompute",
        "backward",
    ]


def test_what_pytorch_refuses_is_refused():
    unused, twice = job(T3, order="ab"), job(T3)
    marks = twice.execution.backward
    twice = replace(twice, execution=replace(twice.execution, backward=(*marks, Mark("gradient", "a.weight"))))
    cases = [
        (unused, {}, "c.weight.*no gradient"),
        (twice, {}, "a.weight.*twice"),
        (job(T3, frozen="abc"), {}, "needs a parameter"),
        (job(T3, micro_batches=2), {"static_graph": True, "no_sync": True}, "static_graph: fails"),
    ]
    for work, options, message in cases:
        with pytest.raises(InputError, match=message):
            steps(work, 1, **options)


def test_a_static_graph_may_bring_a_gradient_twice():
    """Its second arrival counts: b is there before a is ready."""
    work = job(T3)
    marks = work.execution.backward
    first = next(index for index, mark in enumerate(marks) if mark == Mark("gradient", "c.weight"))
    marks = (*marks[: first + 1], Mark("gradient", "a.weight"), *marks[first + 1 :])
    work = replace(work, execution=replace(work.execution, backward=marks))
    program = steps(work, 4, static_graph=True, bucket_cap_mb=0)[3]
    assert [label for label, _ in reduced(program)] == ["c", "b", "a"]
