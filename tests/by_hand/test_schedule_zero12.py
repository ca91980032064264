"""Worked examples of DeepSpeed stages 0 to 2: what is sent in which order, and timelines that can be drawn by hand."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice

import pytest

from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage
from simulator.clock.engine import simulate
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.kernels import Kernel
from simulator.readings.exposure import exposure
from simulator.schedules.bf16_optimizer import deepspeed_bf16_optimizer, uses_bf16_optimizer
from simulator.schedules.job import HostCosts, Job
from simulator.schedules.program import HostWork, Synchronize, Wait
from simulator.schedules.zero0 import deepspeed_stage0
from simulator.schedules.zero12 import deepspeed_stage12
from simulator.schedules.zero12.partition import flat_partition
from simulator.world.mesh import Mesh
from simulator.world.model.execution import execution
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.zero import DeepSpeedPolicy

MILLION = 1_000_000
T3 = {"w0": 1 * MILLION, "w1": 2 * MILLION, "w2": 3 * MILLION}
LAYERS = {"l0": 4, "l1": 4, "l2": 4}
EVERY_WAY = [{"contiguous_gradients": False}, {"reduce_scatter": False}, {"use_multi_rank_bucket_allreduce": False}]


def job(sizes, ranks=8, micro_batches=1, backward=0.0, **others):
    """A chain of matrices under a root without parameters; only backward takes time."""
    children = tuple(
        Module(name=name, kind="Linear", parameters=(Tensor(f"{name}.weight", (size,)),))
        for name, size in sizes.items()
    )
    root = Module(name="", kind="Chain", children=children, calls=children)
    kernels = {(name, "forward"): Kernel(kind="forward", time=0.0) for name in sizes}
    kernels |= {(name, "backward"): Kernel(kind="backward", time=backward) for name in sizes}
    return Job(
        root=root,
        execution=execution(root),
        micro_batches=micro_batches,
        dtype="bf16",
        mesh=Mesh(hosts=1, devices_per_host=ranks),
        kernels=kernels,
        optimizer=Kernel(kind="optimizer", time=0.0),
        **others,
    )


def sent(program):
    """Kind, label, elements of all collectives, in issue order."""
    operations = [(program.operations[item.operation], item) for item in program.launches]
    return [
        (item.kind, launch.label.replace(".weight", ""), item.elements)
        for item, launch in operations
        if isinstance(item, Collective)
    ]


def first(schedule, work, **policy):
    return next(schedule(work, DeepSpeedPolicy(**policy)))


def stage(program, per_element):
    """One rank class on one link: copies are free, gradients take *per_element* seconds, the rest is free."""

    def phases(item):
        if isinstance(item, Collective) and item.role in ("all_reduce", "reduce"):
            return (Phase(payload=item.elements * per_element, usage=((0, 1.0),), latency=0.0, rate=1.0),)
        return ()

    cast = RankClass(
        name="all ranks",
        ranks=8,
        program=program,
        times=tuple(getattr(item, "time", None) or 0.0 for item in program.operations),
        phases=tuple(phases(item) for item in program.operations),
        communicators=tuple(0 if isinstance(item, Collective) else NO_COMMUNICATOR for item in program.operations),
    )
    return Stage(classes=(cast,), members=(1,), links=(Link(name="link", bandwidth=1.0, kind="link"),))


def drawn(program, per_element=15 / 4):
    """Start and end of what takes time, by layer and kind, and the rest of the timeline."""
    timeline = simulate(stage(program, per_element)).classes[0]
    spans = defaultdict(list)
    for span in timeline.spans:
        if span.end > span.start:
            is_collective = isinstance(program.operations[span.launch.operation], Collective)
            spans["AR" if is_collective else "B"].append((span.start, span.end))
    return dict(spans), timeline


STEP_END = [("all_reduce", "overflow", 1), ("all_reduce", "gradient norm", 1), ("all_gather", "weights", 6 * MILLION)]


def test_w1a_stage_0_sends_once_after_the_last_backward():
    program = first(deepspeed_stage0, job(T3, micro_batches=2), zero_stage=0)
    assert sent(program) == [("all_reduce", "w0 to w2", 6 * MILLION)]
    assert [item.micro_batch for item in program.launches if item.label == "w0.weight to w2.weight"] == [1] * 4


def test_w1b_stage_0_closes_a_bucket_after_the_tensor_that_exceeds_it():
    sizes = {"a": 3 * MILLION, "b": 200 * MILLION, "c": 400 * MILLION, "d": 600 * MILLION}
    program = first(deepspeed_stage0, job(sizes), zero_stage=0, reduce_bucket_size=1000)
    assert sent(program) == [("all_reduce", "a to c", 603 * MILLION), ("all_reduce", "d", 600 * MILLION)]


def test_z0_4_a_parameter_without_gradient_takes_part_in_stage_0_only():
    work = job(T3)
    backward = tuple(mark for mark in work.execution.backward if mark.name != "w1.weight")
    work = replace(work, execution=replace(work.execution, backward=backward))
    assert sent(first(deepspeed_stage0, work, zero_stage=0)) == [("all_reduce", "w0 to w2", 6 * MILLION)]
    for zero_stage in (1, 2):
        reduced = sent(first(deepspeed_stage12, work, zero_stage=zero_stage))
        assert [elements for _, _, elements in reduced[:-3]] == [4 * MILLION]


@pytest.mark.parametrize(("clipping", "norms"), [(1.0, 1), (0.0, 0)])
def test_stage_0_in_fp32_averages_the_norm_that_it_clips_by(clipping, norms):
    program = first(deepspeed_stage0, job(T3), zero_stage=0, dtype="fp32", gradient_clipping=clipping)
    assert sent(program)[1:] == [("all_reduce", "gradient norm", 1)] * norms


def test_w2a_stage_2_with_overlap():
    work = job(T3, micro_batches=2)
    program = first(deepspeed_stage12, work, zero_stage=2, overlap_comm=True, reduce_bucket_size=3 * MILLION)
    reduced = [("all_reduce", "w2", 3 * MILLION), ("all_reduce", "w1 to w0", 3 * MILLION)]
    assert sent(program) == reduced + reduced + STEP_END


def test_w2b_stage_1_without_overlap_goes_in_forward_order():
    program = first(deepspeed_stage12, job(T3, micro_batches=2), zero_stage=1, reduce_bucket_size=3 * MILLION)
    assert sent(program) == [("all_reduce", "w0 to w1", 3 * MILLION), ("all_reduce", "w2", 3 * MILLION), *STEP_END]


def test_w2c_stage_1_with_overlap_reduces_in_the_last_backward():
    work = job(T3, micro_batches=2)
    program = first(deepspeed_stage12, work, zero_stage=1, overlap_comm=True, reduce_bucket_size=3 * MILLION)
    assert sent(program)[:2] == [("all_reduce", "w2", 3 * MILLION), ("all_reduce", "w1 to w0", 3 * MILLION)]
    assert sent(program)[2:] == STEP_END


def test_w2d_one_reduce_per_owner():
    options = {"use_multi_rank_bucket_allreduce": False, "reduce_bucket_size": 3 * MILLION}
    program = first(deepspeed_stage12, job(T3, ranks=2), zero_stage=2, **options)
    assert sent(program)[:2] == [("reduce", "w2", 3 * MILLION), ("reduce", "w1 to w0", 3 * MILLION)]


def test_w2e_an_oversized_gradient_flushes_an_empty_bucket_and_is_reduced_alone():
    sizes = {"a": 3 * MILLION, "b": 200 * MILLION, "c": 400 * MILLION, "d": 600 * MILLION}
    program = first(deepspeed_stage12, job(sizes, ranks=2), zero_stage=2, overlap_comm=True)
    assert [elements for _, _, elements in sent(program)[:3]] == [600 * MILLION, 400 * MILLION, 203 * MILLION]
    waits = [item for item in program.instructions[:-2] if isinstance(item, Wait)]
    assert len(waits) == 2 * 4  # the empty bucket waits as the others do
    copied = [item.label for item in program.launches if program.operations[item.operation].kind == "copy in"]
    assert copied == ["c.weight", "b.weight", "a.weight"]


def test_w2e_several_slices_of_an_oversized_gradient_may_be_several_collectives():
    """Three slices of 4: a run is closed by the slice that makes it exceed 5."""
    program = first(deepspeed_stage12, job({"a": 12}, ranks=4), zero_stage=2, reduce_bucket_size=5)
    assert [elements for _, _, elements in sent(program)[:-3]] == [8, 4]


def test_z12_5_coalesced_backwards_reduce_once_in_forward_order():
    options = {"coalesce_grad_reduction": True, "overlap_comm": True, "reduce_bucket_size": 3 * MILLION}
    program = first(deepspeed_stage12, job(T3, micro_batches=4), zero_stage=2, **options)
    assert sent(program) == [("all_reduce", "w0 to w1", 3 * MILLION), ("all_reduce", "w2", 3 * MILLION), *STEP_END]
    assert Counter(item.phase for item in program.launches)["coalesce_exit"] > 0


def test_z12_6_bf16_optimizer_pads_and_sends_two_collectives():
    """10 elements on 4 ranks are padded to 16."""
    policy = {"zero_stage": 1, "grad_accum_dtype": "fp32"}
    assert uses_bf16_optimizer(DeepSpeedPolicy(**policy))
    program = first(deepspeed_bf16_optimizer, job({"a": 10}, ranks=4, micro_batches=2), **policy)
    assert sent(program) == [("all_reduce", "flat gradients", 16), ("all_gather", "weights", 16)]


@pytest.mark.parametrize(
    ("options", "step_end"),
    [
        ({"dtype": "fp32"}, ["norm", "parameter_all_gather"]),
        ({"dtype": "fp16", "check_grad_overflow": False}, ["overflow", "norm", "parameter_all_gather"]),
        ({"check_grad_overflow": False}, ["norm", "parameter_all_gather"]),
        ({"compute_grad_norm": False, "gradient_clipping": 0.0}, ["overflow", "parameter_all_gather"]),
    ],
)
def test_z12_23_what_step_sends(options, step_end):
    program = first(deepspeed_stage12, job(T3), zero_stage=2, **options)
    found = [program.operations[item.operation] for item in program.launches if item.phase == "step"]
    assert [item.role for item in found if isinstance(item, Collective)] == step_end


def test_z12_19_the_communication_type_is_cast_to():
    program = first(deepspeed_stage12, job(T3), zero_stage=2, communication_data_type="fp32")
    kinds = [
        program.operations[item.operation].kind for item in program.launches if item.label == "w2.weight to w0.weight"
    ]
    assert kinds == ["scale", "flatten", "cast", "all_reduce", "copy out"]  # parameters across parts: several slices
    found = {item.role: item.dtype for item in program.operations if isinstance(item, Collective)}
    assert (found["all_reduce"], found["parameter_all_gather"]) == ("fp32", "bf16")


def test_z12_21_round_robin_deals_parameters_out():
    tensors = [Tensor(name, (4,)) for name in "abcde"]
    assert list(flat_partition(tensors, ranks=2, element_bytes=2, round_robin_gradients=True).slices) == list("acebd")


def test_w2f_stage_2_with_overlap():
    """The reduction of a bucket starts in the hook of the next layer, and the one before holds backward up.

    compute B2 B1 B0 ..
    reduce     .. AR2 AR1 AR0          0 10 20 (30) 35 50 65
    """
    program = first(
        deepspeed_stage12, job(LAYERS, backward=10.0), zero_stage=2, overlap_comm=True, reduce_bucket_size=4
    )
    spans, timeline = drawn(program)
    assert spans == {"B": [(0, 10), (10, 20), (20, 30)], "AR": [(20, 35), (35, 50), (50, 65)]}
    assert max(wait.end for wait in timeline.host_waits) == 65
    assert exposure(timeline).stalled == 35


def test_w2f_stage_2_without_overlap():
    """B2 B1 AR2 B0 AR1 AR0 one after the other."""
    spans, timeline = drawn(first(deepspeed_stage12, job(LAYERS, backward=10.0), zero_stage=2, reduce_bucket_size=4))
    assert spans == {"B": [(0, 10), (10, 20), (35, 45)], "AR": [(20, 35), (45, 60), (60, 75)]}
    assert timeline.program.streams == ("compute",)


def test_w2f_stage_1_without_overlap():
    spans, timeline = drawn(first(deepspeed_stage12, job(LAYERS, backward=10.0), zero_stage=1, reduce_bucket_size=4))
    assert spans == {"B": [(0, 10), (10, 20), (20, 30)], "AR": [(30, 45), (45, 60), (60, 75)]}
    labels = [span.launch.label for span in timeline.spans if span.end - span.start == 15]
    assert labels == ["l0.weight", "l1.weight", "l2.weight"]


def test_w2f_a_bucket_that_never_fills_is_exposed():
    program = first(deepspeed_stage12, job(LAYERS, backward=10.0), zero_stage=2, overlap_comm=True)
    spans, _ = drawn(program)
    assert spans == {"B": [(0, 10), (10, 20), (20, 30)], "AR": [(30, 75)]}


@pytest.mark.parametrize(("zero_stage", "end", "reductions"), [(2, 80, 6), (1, 70, 3)])
def test_w2f_two_micro_batches(zero_stage, end, reductions):
    work = job(LAYERS, micro_batches=2, backward=10.0)
    spans, _ = drawn(
        first(deepspeed_stage12, work, zero_stage=zero_stage, overlap_comm=True, reduce_bucket_size=4), 5 / 4
    )
    assert len(spans["AR"]) == reductions
    assert spans["AR"][-1][1] == end
    assert spans["B"][3][0] == (40 if zero_stage == 2 else 30)  # stage 2 ends each backward with a synchronisation


@pytest.mark.parametrize("synchronises", [True, False])
def test_the_throughput_timer_synchronises_from_the_third_step_on(synchronises):
    policy = DeepSpeedPolicy(zero_stage=1, synchronises_timers=synchronises)
    played = islice(deepspeed_stage12(job(T3, micro_batches=2), policy), 3)
    waits = [
        sum(isinstance(item, Synchronize) and item.reason == "host" for item in program.instructions)
        for program in played
    ]
    assert waits == [0, 0, 4 if synchronises else 0]


@pytest.mark.parametrize(("option", "waits"), [("comms_logger", 1 + 3), ("wall_clock_breakdown", 2)])
def test_logging_synchronises(option, waits):
    """After every collective; or when timers are read, once by the optimizer and once by the engine."""
    program = first(deepspeed_stage12, job(T3), zero_stage=1, **{option: True})
    assert sum(isinstance(item, Synchronize) and item.reason == "host" for item in program.instructions) == waits


def test_an_evaluation_follows_the_step():
    program = first(deepspeed_stage12, job(T3), zero_stage=2, evaluates=True)
    assert [item.label for item in program.launches if item.phase == "eval"] == ["w0", "w1", "w2", "end of step"]


def test_the_host_pays_for_one_hook_per_gradient():
    work = job(T3, costs=HostCosts(hook=1.0))
    for zero_stage, schedule, hooks in ((0, deepspeed_stage0, 0), (1, deepspeed_stage12, 3), (2, deepspeed_stage12, 3)):
        program = first(schedule, work, zero_stage=zero_stage)
        assert sum(item.time for item in program.instructions if isinstance(item, HostWork)) == hooks


@pytest.mark.parametrize("zero_stage", [1, 2])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("way", [{}, *EVERY_WAY, {"coalesce_grad_reduction": True}], ids=str)
@pytest.mark.parametrize("size", [5 * MILLION, 3 * MILLION, MILLION])
def test_memory_is_given_back(zero_stage, overlap, way, size):
    work = job(T3, micro_batches=2)
    program = first(
        deepspeed_stage12, work, zero_stage=zero_stage, overlap_comm=overlap, reduce_bucket_size=size, **way
    )
    held = defaultdict(float)
    for item in program.launches:
        for name, amount in item.takes:
            held[name] += amount
        for name, amount in item.gives:
            held[name] -= amount
            assert held[name] >= 0
    assert set(held.values()) <= {0.0}
    assert ("gradients in flight" in held) == (zero_stage == 2)
    simulate(stage(program, 1e-6))


@pytest.mark.parametrize(("zero_stage", "until"), [(1, "w2.weight"), (2, "w1.weight to w0.weight")])
def test_z12_11_two_buffers_live_from_the_first_gradient_to_the_epilogue(zero_stage, until):
    work = job(T3)
    size = 3 * MILLION + 4
    program = first(
        deepspeed_stage12, work, zero_stage=zero_stage, reduce_bucket_size=size, overlap_comm=zero_stage == 2
    )
    memory = (("reduce buckets", 2.0 * size * zero_stage),)  # stage 2 overlaps here
    takes = [item.label for item in program.launches if item.takes[:1] == memory]
    gives = [item.label for item in program.launches if item.gives[-1:] == memory]
    assert (takes, gives) == (["w1"] if zero_stage == 1 else ["w2.weight"], [until])
