"""FSDP1: the worked examples of its schedule, and each rule by itself.

Four equal units, forward 10, backward 20, a root without parameters, an instantaneous host, free copies.  Unless said
otherwise a gather takes 6 and a reduction 8.  ``f2`` is the gather of unit 2 in forward, ``b2`` the one in backward.
"""

from collections import Counter
from itertools import islice

import pytest

from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage
from simulator.clock.engine import simulate
from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.kernels import Kernel
from simulator.readings.footprint import peak
from simulator.schedules.fsdp1 import fsdp1
from simulator.schedules.job import HostCosts, Job
from simulator.schedules.program import HostWork, Synchronize
from simulator.world.mesh import Mesh
from simulator.world.model.execution import execution
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.fsdp1 import Fsdp1Policy

KINDS = {"forward": "F", "recompute": "C", "backward": "B"}


def tree(sizes, root_size=0, frozen=()):
    """A root that calls units `0`, `1`, ... of one parameter each."""
    names = [str(index) for index in range(len(sizes))]
    units = tuple(
        Module(name=name, kind="Block", parameters=(Tensor(f"{name}.weight", (size,), name not in frozen),))
        for name, size in zip(names, sizes, strict=True)
    )
    own = (Tensor("weight", (root_size,)),) if root_size else ()
    return Module(name="", kind="Model", parameters=own, children=units, calls=units)


def make_job(sizes=(8, 8, 8, 8), ranks=2, devices=None, checkpointing="none", root_size=0, frozen=(), **changes):
    root = tree(sizes, root_size, frozen)
    times = {"forward": 10.0, "recompute": 10.0, "backward": 20.0}
    kernels = {
        (module.name, way): Kernel(kind=way, time=time) for module in root.children for way, time in times.items()
    }
    given = {
        "root": root,
        "execution": execution(root, checkpointing, lambda module: module.kind == "Block"),
        "micro_batches": 1,
        "dtype": "bf16",
        "mesh": Mesh(hosts=ranks // (devices or ranks), devices_per_host=devices or ranks),
        "kernels": kernels,
        "optimizer": Kernel(kind="optimizer", time=0.0),
    }
    return Job(**{**given, **changes})


def program(job=None, step=0, **options):
    return next(islice(fsdp1(job or make_job(), Fsdp1Policy(units=("Block",), **options)), step, None))


def issued(found):
    """Collectives in issue order: f2, b2, R2 and S2 (reduce-scatter and all-reduce), with r for the root."""
    names = []
    for launch in found.launches:
        operation = found.operations[launch.operation]
        if isinstance(operation, Collective):
            kind = {"reduce_scatter": "R", "all_reduce": "S"}.get(operation.kind, launch.phase[0])
            names.append(kind + launch.label.replace("root", "r"))
    return " ".join(names)


def play(found, gather=6.0, reduce=8.0):
    """Timeline of one rank on a network that serves one communicator."""
    durations = {"all_gather": gather, "reduce_scatter": reduce, "all_reduce": reduce}
    groups = {"world": 0}
    for operation in found.operations:
        if isinstance(operation, Collective):
            groups.setdefault(operation.group.name, len(groups))

    def phases(operation):
        if isinstance(operation, Kernel):
            return ()
        link = groups[operation.group.name]
        return (Phase(payload=durations[operation.kind], usage=((link, 1.0),), latency=0.0, rate=1.0),)

    cast = RankClass(
        name="all ranks",
        ranks=2,
        program=found,
        times=tuple(item.time or 0.0 if isinstance(item, Kernel) else 0.0 for item in found.operations),
        phases=tuple(phases(item) for item in found.operations),
        communicators=tuple(
            groups[item.group.name] if isinstance(item, Collective) else NO_COMMUNICATOR for item in found.operations
        ),
    )
    links = tuple(Link(name=name, kind="link", bandwidth=1.0) for name in groups)
    return simulate(Stage(classes=(cast,), members=(1,) * len(groups), links=links))


def spans(timeline):
    """Start and end of what takes time, by name: f2, F2, b2, B2, R2."""
    found = {}
    played = timeline.classes[0]
    for span in played.spans:
        operation = played.program.operations[span.launch.operation]
        if isinstance(operation, Collective):
            kind = {"reduce_scatter": "R", "all_reduce": "S"}.get(operation.kind, span.launch.phase[0])
        else:
            kind = KINDS.get(operation.kind, "")
        if kind:
            found[kind + span.launch.label] = (span.start, span.end)
    return found


def test_w6b_backward_pre():
    """The limiter holds f2 and f3 back until compute has ended twice before; backward prefetches one unit.

    host      f0 f1  | F0 ends 16: f2 | F1 ends 26: f3 | F2 ends 36: b3, b2 | ...
    compute   .. F0 6-16  F1 16-26  F2 26-36  F3 36-46  B3 46-66  B2 66-86  B1 86-106  B0 106-126
    network   f0 f1 . f2 16-22 . f3 26-32 . b3 36-42 b2 42-48 . R3 66-74 b1 74-80 . R2 b0 . R1 . R0 126-134
    """
    timeline = play(program())
    forward = {"F0": (6, 16), "F1": (16, 26), "F2": (26, 36), "F3": (36, 46)}
    backward = {"B3": (46, 66), "B2": (66, 86), "B1": (86, 106), "B0": (106, 126)}
    gathers = {"f0": (0, 6), "f1": (6, 12), "f2": (16, 22), "f3": (26, 32), "b3": (36, 42), "b2": (42, 48)}
    mixed = {"R3": (66, 74), "b1": (74, 80), "R2": (86, 94), "b0": (94, 100), "R1": (106, 114), "R0": (126, 134)}
    assert spans(timeline) == forward | backward | gathers | mixed
    assert timeline.step_time == 134


def test_the_limiter_has_a_free_event_more_from_the_second_step_on():
    """Three frees of step 0 are still in the queue, so each gather of step 1 waits for one unit earlier (recorded).

    f2 waits for nothing of this step, f3 for F0 (16), b3 for F1 (26), b2 for F2 (36), b1 for F3.
    """
    found = spans(play(program(step=1)))
    assert (found["f2"], found["f3"], found["b3"], found["b2"]) == ((12, 18), (18, 24), (26, 32), (36, 42))
    assert [len([i for i in program(step=s).instructions if isinstance(i, Synchronize)]) for s in (0, 1, 2)] == [
        5,
        8,
        8,
    ]


def test_w6b_forward_prefetch():
    """One gather more is on its way: f2 12-18, f3 18-24; the order of units is learnt in the first iteration."""
    found = spans(play(program(step=1, forward_prefetch=True)))
    assert (found["f0"], found["f1"], found["f2"], found["f3"]) == ((0, 6), (6, 12), (12, 18), (18, 24))


def test_w6c_without_backward_prefetch():
    """R3 is issued before b2, so b2 is exposed in full: a period of 8 + 6 + 20."""
    timeline = play(program(backward_prefetch=None))
    found = spans(timeline)
    assert (found["R3"], found["b2"], found["B2"]) == ((66, 74), (74, 80), (80, 100))
    assert timeline.step_time == 176


@pytest.mark.parametrize(("prefetch", "end"), [("BACKWARD_PRE", 205), (None, 280)])
def test_w6d_bound_by_communication(prefetch, end):
    """Gathers of 15 and reductions of 20 on one communicator: a period of 35 behind or, without prefetch, of 55."""
    assert play(program(backward_prefetch=prefetch), gather=15.0, reduce=20.0).step_time == end


def test_backward_post_runs_ahead_of_the_gpu():
    """b2 is issued after B3 was launched, not after it ended: only the limiter holds it back, until F3 ends (F1-9).

    compute   F3 36-46  B3 46-66  B2 66-86   B1 86-106  B0 106-126
    network   b3 36-42  b2 46-52  R3 66-74 b1 74-80  R2 86-94 b0 94-100  R1 106-114  R0 126-134
    """
    timeline = play(program(backward_prefetch="BACKWARD_POST"))
    found = spans(timeline)
    assert (found["b2"], found["R3"], found["b1"]) == ((46, 52), (66, 74), (74, 80))
    assert timeline.step_time == 134


def test_without_limit_the_host_never_waits():
    found = program(step=1, limit_all_gathers=False)
    assert not [item for item in found.instructions if isinstance(item, Synchronize)]
    assert [spans(play(found))[name] for name in ("f2", "f3", "b3", "b2")] == [(12, 18), (18, 24), (24, 30), (30, 36)]


def test_f1_9_issue_order():
    orders = {
        "BACKWARD_PRE": "f0 f1 f2 f3 b3 b2 R3 b1 R2 b0 R1 R0",
        "BACKWARD_POST": "f0 f1 f2 f3 b3 b2 R3 b1 R2 b0 R1 R0",
        None: "f0 f1 f2 f3 b3 R3 b2 R2 b1 R1 b0 R0",
    }
    assert {prefetch: issued(program(backward_prefetch=prefetch)) for prefetch in orders} == orders


def test_f1_9_with_forward_prefetch_each_reduction_comes_one_unit_later():
    """Views made by the hook of the unit before are older than that unit's forward; those of step 0 are not."""
    job = make_job(root_size=8)
    assert issued(program(job, forward_prefetch=True)) == "fr f0 f1 f2 f3 b3 b2 R3 b1 R2 b0 R1 R0 Rr"
    assert issued(program(job, step=1, forward_prefetch=True)) == "fr f0 f1 f2 f3 b3 b2 b1 R3 b0 R2 R1 R0 Rr"


def test_f1_5_forward_prefetch_comes_before_the_forward_of_the_unit():
    found = program(step=1, forward_prefetch=True)
    names = [launch.label + launch.phase[0] + str(launch.stream) for launch in found.launches[:4]]
    unshard = str(found.streams.index("unshard"))
    assert names == [f"0f{unshard}", f"1f{unshard}", "0f0", f"2f{unshard}"]


def test_f1_7_the_root_is_gathered_once_and_the_last_unit_twice():
    assert issued(program(make_job(sizes=(8, 8), root_size=8))) == "fr f0 f1 b1 b0 R1 R0 Rr"


STRATEGIES = {
    "FULL_SHARD": "f0 f1 b1 b0 R1 R0",
    "SHARD_GRAD_OP": "f0 f1 R1 R0",
    "NO_SHARD": "S1 S0",
    "HYBRID_SHARD": "f0 f1 b1 b0 R1 S1 R0 S0",
    "_HYBRID_SHARD_ZERO2": "f0 f1 R1 S1 R0 S0",
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_f1_12_strategies(strategy):
    job = make_job(sizes=(8, 8), ranks=4, devices=2)
    assert issued(program(job, step=1, sharding_strategy=strategy)) == STRATEGIES[strategy]


def test_f1_12_groups_and_sizes_of_a_hybrid():
    job = make_job(sizes=(7,), ranks=4, devices=2)
    found = program(job, sharding_strategy="HYBRID_SHARD", reduce_dtype="fp32")
    operations = [found.operations[launch.operation] for launch in found.launches]
    collectives = [item for item in operations if isinstance(item, Collective)]
    assert [(item.kind, item.elements, item.dtype, item.group.members(0)) for item in collectives[1:]] == [
        ("all_gather", 8, "bf16", (0, 1)),
        ("reduce_scatter", 8, "fp32", (0, 1)),
        ("all_reduce", 4, "fp32", (0, 2)),
    ]


def test_all_reduces_among_replicas_do_not_hold_gathers_back():
    """b1 follows R3 directly; S3 runs beside it on the other communicator, S0 at the very end."""
    found = spans(play(program(make_job(ranks=4, devices=2), sharding_strategy="HYBRID_SHARD")))
    assert (found["R3"], found["b1"], found["S3"]) == ((66, 74), (74, 80), (74, 82))
    assert found["S0"] == (134, 142)


def test_one_rank_shards_nothing():
    assert issued(program(make_job(sizes=(8,), ranks=1))) == "S0"


@pytest.mark.parametrize(("size", "problem"), [(3, "does not divide the 4 ranks"), (1, "shards among one rank")])
def test_shard_groups_that_cannot_be(size, problem):
    policy = Fsdp1Policy(sharding_strategy="HYBRID_SHARD", shard_group_size=size)
    with pytest.raises(InputError, match=problem):
        policy.check(Mesh(hosts=2, devices_per_host=2), "a.yaml", "fsdp1")


def test_f1_13_no_sync():
    """FULL_SHARD gathers 2 k times, SHARD_GRAD_OP once a step; both reduce in the last micro-batch only."""
    job = make_job(sizes=(8, 8), micro_batches=3)
    full = Counter(name[0] for name in issued(program(job, step=1, no_sync=True)).split())
    kept = program(job, step=1, no_sync=True, sharding_strategy="SHARD_GRAD_OP")
    synchronised = program(job, step=1, sharding_strategy="SHARD_GRAD_OP")
    once, every = (Counter(name[0] for name in issued(found).split()) for found in (kept, synchronised))
    assert full == {"f": 6, "b": 6, "R": 2}
    assert (once, every) == ({"f": 2, "R": 2}, {"f": 6, "R": 6})


def test_f1_14_non_reentrant_checkpointing_gathers_twice():
    job = make_job(sizes=(8, 8), checkpointing="non-reentrant")
    assert issued(program(job)) == "f0 f1 b1 b0 R1 R0"


def test_reentrant_checkpointing_of_whole_units_gathers_three_times_and_prefetches_nothing():
    """The first forward keeps no graph, so no hook is there that would tell the prefetch who needs weights."""
    job = make_job(sizes=(8, 8), checkpointing="reentrant")
    assert issued(program(job)) == "f0 f1 r1 b1 R1 r0 b0 R0"


def test_a_frozen_unit_is_gathered_and_freed_but_not_reduced():
    job = make_job(sizes=(8, 8, 8), frozen=("1",))
    assert issued(program(job)) == "f0 f1 f2 b2 b1 R2 b0 R0"


def test_an_evaluation_leaves_the_root_gathered():
    """Nobody frees it before the next backward, so the next forward finds it."""
    job = make_job(sizes=(8,), root_size=8)
    assert issued(program(job, evaluates=True)) == "fr f0 b0 R0 Rr er e0"
    assert issued(program(job, step=1, evaluates=True)) == "f0 b0 R0 Rr er e0"


def elements(found):
    return [item.elements for item in found.operations if isinstance(item, Collective)]


def test_f1_1_padding():
    """7 elements among 4 ranks: 8; with use_orig_params each parameter starts at a multiple of 8 bf16 elements."""
    root = Module(name="", kind="Model", parameters=(Tensor("a", (3,)), Tensor("b", (4,))))
    job = make_job(ranks=4, root=root, execution=execution(root), kernels={})
    assert elements(program(job)) == [8, 8]
    assert elements(program(job, use_orig_params=True)) == [12, 12]
    assert elements(program(job, use_orig_params=True, sharding_strategy="NO_SHARD")) == [12]


def copies(found):
    """Kind of each copy with its stream and bytes."""
    return [
        (operation.kind, found.streams[launch.stream], operation.works[0].constant_traffic)
        for launch in found.launches
        if isinstance(operation := found.operations[launch.operation], Kernel) and operation.is_copy
    ]


def test_f1_11_mixed_precision_casts():
    """6 elements among 4 ranks: shards of 2, fp32 shards, bf16 weights and gradients, fp32 reduction.

    Dividing by 4 happens half before and half after the sum; the second micro-batch adds to the shard of the first.
    """
    job = make_job(sizes=(6,), ranks=4, micro_batches=2)
    once = [
        ("cast", "pre_unshard", 2 * (4 + 2)),
        ("cast", "pre_unshard", 2 * (4 + 2)),
        ("flatten", "compute", 6 * 2 * 2),
        ("cast", "post_backward", 6 * (2 + 4)),
        ("pad", "post_backward", (6 + 8) * 4),
        ("divide", "post_backward", 8 * 4 * 2),
        ("divide", "post_backward", 2 * 4 * 2),
    ]
    again = [*once, ("accumulate", "post_backward", 2 * 4 * 3)]
    assert copies(program(job, param_dtype="bf16", reduce_dtype="fp32")) == once + again


def test_no_copy_but_autograds_and_the_division():
    """Two ranks: the sum of halves needs no second division."""
    found = copies(program(make_job(sizes=(6,))))
    assert found == [("flatten", "compute", 24), ("divide", "post_backward", 24)]


def test_no_sync_adds_whole_gradients():
    found = copies(program(make_job(sizes=(6,), micro_batches=2), no_sync=True))
    assert [kind for kind, _, _ in found] == ["flatten", "flatten", "accumulate", "divide"]


def test_6_3_memory_of_forward_is_three_units_at_most():
    """Units of 8 bf16 elements: F3 begins with units 1 (until F1 has ended), 2 and 3; then gradients join."""
    changes = play(program()).classes[0].memory
    weights = [change for change in changes if change.item == "gathered weights" and change.at < 46]
    assert peak({}, weights).peak == 3 * 16
    assert sum(change.amount for change in changes) == 0


def test_hooks_cost_the_host_time():
    """Before and after each of 3 forwards, before each of 3 backwards, after 2, and when everything is done."""
    job = make_job(sizes=(8, 8), costs=HostCosts(hook=1.0))
    work = [item.time for item in program(job).instructions if isinstance(item, HostWork)]
    assert sum(work) == 2 * 3 + 3 + 2 + 1


def test_a_named_module_can_be_wrapped():
    job = make_job(sizes=(8, 8))
    found = next(fsdp1(job, Fsdp1Policy(units=("1",))))
    assert issued(found) == "fr f1 b1 R1 Rr"


def test_steps_share_state_and_reach_a_steady_one():
    steps = list(islice(fsdp1(make_job(), Fsdp1Policy(units=("Block",))), 3))
    assert issued(steps[0]) == issued(steps[2])
    assert steps[1] == steps[2]


def test_recompute_runs_before_the_backward_that_needs_it():
    """C is the forward that runs again: 46-56, then backward 56-76."""
    found = spans(play(program(make_job(checkpointing="non-reentrant"))))
    assert (found["C3"], found["B3"]) == ((46, 56), (56, 76))


@pytest.mark.parametrize("no_sync", [False, True])
def test_gradients_of_shards_are_cast_to_fp32_and_live_until_the_update(no_sync):
    """Two ranks, units of 8 elements: 4 of each arrive in bf16, 8 B, and become 16 B of fp32.

    Of two micro-batches the second is added: 8 B arrive, a cast of 16 B, then both are gone.  Without synchronisation
    there is one reduction.
    """
    found = program(make_job(sizes=(8,), micro_batches=2), param_dtype="bf16", no_sync=no_sync)
    changes = [(change.item, change.amount) for change in play(found).classes[0].memory]
    kept = [amount for item, amount in changes if item == "gradients"]
    reduced = [amount for item, amount in changes if item == "reduced gradients"]
    assert kept == [16.0, -16.0]
    assert reduced == ([8.0, -8.0] if no_sync else [8.0, -8.0, 8.0, 16.0, -8.0, -16.0])


def test_without_sharding_the_whole_gradient_stays():
    found = program(make_job(sizes=(8,), micro_batches=2), sharding_strategy="NO_SHARD")
    changes = play(found).classes[0].memory
    assert [change.amount for change in changes if change.item == "gradients"] == [16.0, -16.0]
