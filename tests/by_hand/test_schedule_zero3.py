"""Stage 3 of DeepSpeed by hand: the worked examples W3a to W3f and W4 of the specification, sequences and times.

T3 is three bias-free matrices of 1, 2 and 3 million elements under a root without parameters, on eight ranks.
"""

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage
from simulator.clock.engine import simulate
from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.kernels import Kernel
from simulator.schedules.job import HostCosts, Job
from simulator.schedules.program import HostWork, Launch, Synchronize
from simulator.schedules.zero3 import deepspeed_stage3
from simulator.schedules.zero3.leaf import leaf_modules
from simulator.schedules.zero3.quantized import weight_groups
from simulator.world.mesh import Mesh
from simulator.world.model.execution import execution
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.policy.zero import DeepSpeedPolicy
from tests.conftest import most_held

MILLION = 1_000_000
OVERLAPPED = DeepSpeedPolicy(
    zero_stage=3, overlap_comm=True, stage3_param_persistence_threshold=0, synchronises_timers=False
)
ONE_AHEAD = replace(OVERLAPPED, stage3_prefetch_bucket_size=1, stage3_max_reuse_distance=0)


def chain(*elements, trainable=True):
    """Linear layers w0, w1, ... that follow each other."""
    layers = tuple(
        Module(name=f"w{number}", kind="Linear", parameters=(Tensor(f"w{number}.weight", shape, trainable),))
        for number, shape in enumerate(elements)
    )
    return Module(name="", kind="Chain", children=layers, calls=layers)


def job(root, micro_batches=1, hosts=1, devices=8, forward=0.0, backward=0.0, **changed):
    kernels = {}
    for module in root.walk():
        if not module.children:
            kernels[module.name, "forward"] = Kernel(kind="forward", time=forward)
            kernels[module.name, "recompute"] = Kernel(kind="recompute", time=forward)
            kernels[module.name, "backward"] = Kernel(kind="backward", time=backward)
    settings = {
        "root": root,
        "execution": execution(root),
        "micro_batches": micro_batches,
        "dtype": "bf16",
        "mesh": Mesh(hosts=hosts, devices_per_host=devices),
        "kernels": kernels,
        "optimizer": Kernel(kind="optimizer", time=0.0),
    }
    return Job(**settings | changed)


def t3(micro_batches=2):
    return job(chain(*((size, MILLION) for size in (1, 2, 3))), micro_batches)


def program_of(asked, policy, step):
    return next(islice(deepspeed_stage3(asked, policy), step, None))


def collectives(program):
    return [
        (launch, program.operations[launch.operation])
        for launch in program.launches
        if isinstance(program.operations[launch.operation], Collective)
    ]


SHORT = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR"}


def sequence(program, micro_batch):
    """Gathers and reductions of a micro-batch as `AG 6 F`: kind, millions of elements, forward or backward."""
    return [
        f"{SHORT[operation.kind]} {operation.elements / MILLION:g} {launch.phase[0].upper()}"
        for launch, operation in collectives(program)
        if launch.micro_batch == micro_batch and operation.role.split("_", 1)[-1] in ("all_gather", "scatter")
    ]


RECORD = ["AG 1 F", "AG 2 F", "AG 3 F", "AG 3 B", "AG 2 B", "AG 1 B", "RS 6 B"]


def test_w3a_default_keys_gather_everything_once():
    first = program_of(t3(), OVERLAPPED, 0)
    assert sequence(first, 0) == RECORD
    assert sequence(first, 1) == ["AG 6 F", "RS 6 B"]
    later = program_of(t3(), OVERLAPPED, 1)
    assert sequence(later, 0) == sequence(later, 1) == ["AG 6 F", "RS 6 B"]


@pytest.mark.parametrize(
    "policy",
    [
        replace(ONE_AHEAD, stage3_prefetch_bucket_size=0),  # W3b
        replace(ONE_AHEAD, stage3_max_live_parameters=0),  # W3d
    ],
)
def test_w3b_w3d_without_prefetch_and_reuse_every_micro_batch_is_like_the_first(policy):
    program = program_of(t3(), policy, 1)
    assert sequence(program, 0) == sequence(program, 1) == RECORD


def test_w3c_one_ahead_gathers_the_last_layer_once():
    """w1 is prefetched for backward while the forward of w2 has not even begun; w2 was marked and is kept."""
    program = program_of(t3(), ONE_AHEAD, 1)
    assert sequence(program, 0) == ["AG 1 F", "AG 2 F", "AG 3 F", "AG 2 F", "AG 1 B", "RS 6 B"]


def test_w3e_a_gradient_that_does_not_fit_flushes_the_bucket():
    policy = replace(ONE_AHEAD, reduce_bucket_size=3 * MILLION)
    program = program_of(t3(), policy, 1)
    reductions = [item for item in sequence(program, 0) if item.startswith("RS")]
    assert reductions == ["RS 3 B", "RS 3 B"]


def test_z3_36_without_reduce_scatter_the_bucket_is_all_reduced():
    program = program_of(t3(1), replace(OVERLAPPED, reduce_scatter=False), 1)
    assert sequence(program, 0) == ["AG 6 F", "AR 6 B"]


def test_z3_25_gathering_by_all_reduce_and_one_by_one():
    by_sum = program_of(t3(1), replace(OVERLAPPED, stage3_use_all_reduce_for_fetch_params=True), 1)
    assert sequence(by_sum, 0) == ["AR 6 F", "RS 6 B"]
    alone = program_of(t3(1), replace(OVERLAPPED, stage3_allgather_sequential=True), 1)
    assert sequence(alone, 0) == ["AG 1 F", "AG 2 F", "AG 3 F", "RS 6 B"]


def test_z12_5_coalesced_reduction_happens_once_after_all_backwards():
    policy = replace(OVERLAPPED, coalesce_grad_reduction=True, reduce_bucket_size=3 * MILLION)
    program = program_of(t3(3), policy, 1)
    assert sequence(program, 0) == sequence(program, 1) == ["AG 6 F"]
    assert sequence(program, 2) == ["AG 6 F", "RS 3 C", "RS 3 C"]
    assert [launch.label for launch, operation in collectives(program) if operation.role == "reduce_scatter"] == [
        "w0.weight to w1.weight",
        "w2.weight",
    ]


# Times


def staged(program, duration):
    """One rank class; *duration* of a collective in seconds; one link that carries a byte per second for each."""
    names = {}
    phases, communicators = [], []
    for operation in program.operations:
        if isinstance(operation, Collective):
            time = float(duration(operation))
            usage = ((0, 1.0),) if time else ()
            phases.append((Phase(payload=time, usage=usage, latency=0.0, rate=1.0),))
            communicators.append(names.setdefault(operation.group.name, len(names)))
        else:
            phases.append(())
            communicators.append(NO_COMMUNICATOR)
    times = tuple(
        operation.time or 0.0 if isinstance(operation, Kernel) else 0.0 for operation in program.operations
    )  # copies are free
    rank_class = RankClass(
        name="all ranks",
        ranks=8,
        program=program,
        times=times,
        phases=tuple(phases),
        communicators=tuple(communicators),
    )
    link = Link(name="link", kind="link", bandwidth=1.0)
    return Stage(classes=(rank_class,), members=(1,) * len(names), links=(link,))


LAYER = 1024


def four_layers(policy, step, gather, reduce):
    """Four equal layers, F = 10, B = 20; what starts when and ends when, without what takes no time."""
    asked = job(chain(*[(32, 32)] * 4), forward=10.0, backward=20.0)
    program = program_of(asked, replace(policy, reduce_bucket_size=min(policy.reduce_bucket_size, 10 * LAYER)), step)
    each = {"all_gather": gather, "reduce_scatter": reduce}
    ready = staged(program, lambda operation: each.get(operation.kind, 0) * operation.elements / LAYER)
    timeline = simulate(ready)
    spans = [span for span in timeline.classes[0].spans if span.end > span.start]
    found = {}
    for span in spans:
        operation = program.operations[span.launch.operation]
        kind = operation.kind if isinstance(operation, Kernel) else SHORT[operation.kind]
        found.setdefault(kind, []).append((span.launch.label, span.start, span.end))
    return found, timeline


def times(spans):
    return [(start, end) for _, start, end in spans]


ONE_PER_BUCKET = replace(ONE_AHEAD, reduce_bucket_size=LAYER)


def test_w3f_one_layer_ahead_hides_everything_but_the_ends():
    """AG 6, RS 8.

    gathers    w0 0-6  w1 6-12  w2 12-18  w3 18-24  w2' 24-30  w1' 30-36  w0' 36-42
    compute    F 6-46                                          B 46-126
    reductions                                                      RS3 66-74  86-94  106-114  RS0 126-134
    """
    found, timeline = four_layers(ONE_PER_BUCKET, 1, 6, 8)
    assert [name for name, _, _ in found["AG"]] == [f"w{number}.weight" for number in (0, 1, 2, 3, 2, 1, 0)]
    assert times(found["AG"]) == [(6.0 * number, 6.0 * number + 6) for number in range(7)]
    assert times(found["forward"]) == [(6.0 + 10 * number, 16.0 + 10 * number) for number in range(4)]
    assert times(found["backward"]) == [(46.0 + 20 * number, 66.0 + 20 * number) for number in range(4)]
    assert times(found["RS"]) == [(66.0, 74.0), (86.0, 94.0), (106.0, 114.0), (126.0, 134.0)]
    assert timeline.step_time == 134.0


def test_w3f_big_buckets_make_a_small_model_slower():
    """One gather 0-24 before the first layer, F 24-64, B 64-144, one reduction 144-176 after the last."""
    found, timeline = four_layers(OVERLAPPED, 1, 6, 8)
    assert times(found["AG"]) == [(0.0, 24.0)]
    assert times(found["forward"])[0] == (24.0, 34.0)
    assert times(found["backward"])[-1] == (124.0, 144.0)
    assert times(found["RS"]) == [(144.0, 176.0)]
    assert timeline.step_time == 176.0


def test_w3f_a_reduction_queues_behind_gathers_of_its_communicator():
    """AG 15, RS 20: gathers back to back 0-105; the gradient of w3 is ready at 90, its reduction runs 105-125."""
    found, timeline = four_layers(ONE_PER_BUCKET, 1, 15, 20)
    assert times(found["AG"]) == [(15.0 * number, 15.0 * number + 15) for number in range(7)]
    assert times(found["backward"])[0] == (70.0, 90.0)
    assert times(found["RS"])[0] == (105.0, 125.0)
    assert timeline.step_time == 185.0


def test_w3f_a_gather_queues_behind_a_reduction_while_the_trace_is_recorded():
    """The gather of w1 for backward was issued after the reduction of w3: 115-130 instead of 95-110."""
    found, timeline = four_layers(ONE_PER_BUCKET, 0, 15, 20)
    (backward_w1,) = [(start, end) for name, start, end in found["AG"][4:] if name == "w1.weight"]
    assert times(found["RS"])[0] == (95.0, 115.0)
    assert backward_w1 == (115.0, 130.0)
    assert timeline.step_time == 205.0


def test_z3_3_without_overlap_reductions_are_serial_but_a_prefetch_still_overlaps_with_the_next_module():
    """One stream: the gather for w1 starts when w0's own is waited for and runs beside the forward of w0."""
    found, timeline = four_layers(replace(ONE_PER_BUCKET, overlap_comm=False), 1, 6, 8)
    assert times(found["AG"])[:2] == [(0.0, 6.0), (6.0, 12.0)]
    assert times(found["forward"])[:2] == [(6.0, 16.0), (16.0, 26.0)]
    assert timeline.step_time == 6 + 40 + 4 * (20 + 8)


# ZeRO++


def linear_with_bias():
    weight, bias = Tensor("linear.weight", (4096, 4096)), Tensor("linear.bias", (4096,))
    embed = Module(name="embed", kind="Embedding", parameters=(), takes_numbers=True)
    linear = Module(name="linear", kind="Linear", parameters=(weight, bias))
    return Module(name="", kind="Model", children=(embed, linear), calls=(embed, linear))


def handed_in(program, micro_batch=None):
    """Group, kind, bytes that a rank hands in, bytes that it gets."""
    found = []
    for launch, operation in collectives(program):
        if micro_batch in (None, launch.micro_batch) and operation.role not in ("norm", "trace_check"):
            whole, size = operation.payload, operation.group.size
            given = whole / size if operation.kind == "all_gather" else whole
            got = whole / size if operation.kind == "reduce_scatter" else whole
            found.append((launch.phase[0].upper(), operation.group.name, operation.kind, given, got))
    return found


def test_w4_all_of_zero_plus_plus_on_one_linear_layer():
    policy = replace(
        ONE_AHEAD,
        stage3_param_persistence_threshold=100_000,
        stage3_prefetch_bucket_size=0,
        zero_hpz_partition_size=8,
        zero_quantized_weights=True,
        zero_quantized_gradients=True,
    )
    asked = job(linear_with_bias(), micro_batches=2, hosts=2)
    program = program_of(asked, policy, 2)
    reductions = [
        ("B", "world", "reduce_scatter", 8192, 512),
        ("B", "local", "all_to_all", 8_388_608, 8_388_608),
        ("B", "local", "all_to_all", 16_384, 16_384),
        ("B", "global", "all_to_all", 1_048_576, 1_048_576),
        ("B", "global", "all_to_all", 2048, 2048),
    ]
    intra = [
        ("hpz", "all_gather", 2_097_152, 16_777_216),
        ("hpz", "all_gather", 2048, 16_384),
    ]
    inter = [("F", "world", "all_gather", 1_048_576, 16_777_216), ("F", "world", "all_gather", 1024, 16_384)]
    backward = [("B", *item) for item in intra]
    # reductions go by ds_id: the weight was registered first
    ordered = [*reductions[1:], reductions[0]]
    assert handed_in(program, 0) == [*inter, *backward, *ordered]
    after = [("S", "world", "all_gather", 512, 8192)]
    assert handed_in(program, 1) == [*[("F", *item) for item in intra], *backward, *ordered, *after]


def test_zp_5_the_host_waits_for_compute_whenever_a_secondary_copy_is_made():
    """Once per parameter and step, at its first release; not in the first step, whose copies exist from the start."""
    policy = replace(ONE_AHEAD, zero_hpz_partition_size=4)
    waits = []
    for program in islice(deepspeed_stage3(t3(), policy), 3):
        blocked = [item for item in program.instructions if isinstance(item, Synchronize) and item.reason == "host"]
        waits.append(sum(program.streams[item.event.stream] == "compute" for item in blocked))
    assert waits == [0, 3, 3]


def test_zp_15_on_one_host_quantised_gradients_are_a_plain_reduce_scatter():
    program = program_of(t3(1), replace(OVERLAPPED, zero_quantized_gradients=True), 1)
    assert sequence(program, 0) == ["AG 6 F", "RS 6 B"]


def test_zp_15_quantised_gradients_need_reduce_scatter():
    policy = replace(OVERLAPPED, zero_quantized_gradients=True, reduce_scatter=False)
    with pytest.raises(InputError, match="reduce_scatter"):
        program_of(t3(1), policy, 0)


def test_zp_16_vectors_and_odd_sizes_are_not_quantised():
    policy = replace(OVERLAPPED, zero_quantized_gradients=True)
    asked = job(chain((1024,), (31, 33), (64, 64)), hosts=2, devices=4)
    kinds = [operation.kind for _, operation in collectives(program_of(asked, policy, 1)) if operation.role == ROLE]
    assert kinds == ["reduce_scatter"] * 2 + ["all_to_all"] * 4


ROLE = "reduce_scatter"


def test_zp_10_a_share_that_is_not_a_multiple_of_8_cannot_be_quantised():
    with pytest.raises(InputError, match="cannot be quantised"):
        weight_groups(1001)


@given(st.integers(1, 5_000).map(lambda units: 8 * units) | st.integers(4_000, 40_000).map(lambda units: 8 * units))
def test_zp_10_groups_are_those_that_counting_up_finds(elements):
    """``CUDAQuantizer.quantize``: the first number from one per 8000 on that divides, doubled while it may be."""
    groups = -(-elements // 8000)
    while elements % (8 * groups):
        groups += 1
    while elements % (16 * groups) == 0 and elements / groups > 8000:
        groups *= 2
    if elements / groups < 16_000 and elements > groups:
        assert weight_groups(elements) == groups
    else:
        with pytest.raises(InputError, match="cannot be quantised"):
            weight_groups(elements)


@pytest.mark.parametrize(
    ("hpz", "qwz", "qgz", "once", "often"),
    [
        (0, 0, 0, (5.168, 0.7383), (41.34, 5.906)),
        (0, 0, 1, (3.884, 0.5470), (31.07, 4.376)),
        (0, 1, 0, (3.447, 0.4924), (27.58, 3.939)),
        (0, 1, 1, (2.163, 0.3011), (17.30, 2.409)),
        (1, 0, 0, (5.195, 0.4922), (41.75, 2.215)),
        (1, 0, 1, (3.911, 0.3009), (31.48, 0.684)),
        (1, 1, 0, (3.461, 0.3693), (27.78, 2.092)),
        (1, 1, 1, (2.176, 0.1780), (17.51, 0.5615)),
    ],
)
def test_table_4_4_bytes_that_a_rank_sends(hpz, qwz, qgz, once, often):
    """12 layers of 4096 x 4096 on 8 hosts of 8: GB per rank inside and between hosts, scaled to 1e9 parameters."""
    layers = 12
    policy = replace(
        ONE_AHEAD,
        stage3_prefetch_bucket_size=0,
        zero_hpz_partition_size=8 if hpz else 1,
        zero_quantized_weights=bool(qwz),
        zero_quantized_gradients=bool(qgz),
    )
    for micro_batches, expected in ((1, once), (8, often)):
        asked = job(chain(*[(4096, 4096)] * layers), micro_batches, hosts=8)
        sent = sent_per_rank(program_of(asked, policy, 2))
        scale = 1 / (layers * 4096**2)  # bytes per parameter are GB per 1e9 parameters
        assert tuple(amount * scale for amount in sent) == pytest.approx(expected, rel=0.002)


def sent_per_rank(program, devices=8):
    """Bytes inside and between hosts: rings, averaged over ranks; all-to-all directly."""
    near = far = 0.0
    for _, operation in collectives(program):
        group, payload = operation.group, operation.payload
        amount = (group.size - 1) / group.size * payload
        if operation.role in ("norm", "trace_check"):
            continue
        if group.name == "world":  # one hop of the ring in `devices` leaves the host
            near, far = near + amount * (devices - 1) / devices, far + amount / devices
        elif group.name == "global":
            far += amount
        else:
            near += amount
    return near, far


# The rest of section 3


def test_z3_6_modules_become_leaves_by_size():
    """Parameters per part: block (100 + 200) // 3 = 100, root 900 // 8 = 112."""

    def block(name, *sizes):
        layers = [
            Module(name=f"{name}.{n}", kind="Linear", parameters=(Tensor(f"{name}.{n}.w", (size,)),))
            for n, size in enumerate(sizes)
        ]
        activation = Module(name=f"{name}.act", kind="GELU")
        return Module(name=name, kind="Block", children=(*layers, activation))

    blocks = Module(name="blocks", kind="ModuleList", children=(block("a", 100, 200), block("b", 300, 300)))
    root = Module(name="", kind="Model", children=(blocks,))
    for threshold, expected in ((99, set()), (100, {"a"}), (128, {""}), (0, set())):
        policy = replace(OVERLAPPED, stage3_module_granularity_threshold=threshold)
        assert leaf_modules(root, policy) == expected
    policy = replace(OVERLAPPED, leaf_names=("blocks.b", "b"), leaf_name_suffixes=(".act",))
    assert leaf_modules(root, policy) == {"b", "a.act", "b.act"}


def test_z3_7_small_parameters_stay_until_the_step_and_come_back_one_by_one():
    policy = replace(OVERLAPPED, stage3_param_persistence_threshold=2 * MILLION)
    program = program_of(t3(2), policy, 1)
    assert sequence(program, 0) == ["AG 3 F", "RS 6 B"]
    assert sequence(program, 1) == ["AG 3 F", "RS 6 B", "AG 1 S", "AG 2 S"]
    limited = replace(policy, stage3_model_persistence_threshold=2 * MILLION)
    assert sequence(program_of(t3(1), limited, 1), 0) == ["AG 5 F", "RS 6 B", "AG 1 S"]


def test_z3_10_a_different_order_of_modules_costs_two_micro_batches_without_prefetch():
    """Training with a graph that differs from time to time: INVALID at once, RECORD, COMPLETE."""
    root = chain(*[(1, MILLION)] * 2)
    usual = execution(root)
    skipped = replace(usual, forward=usual.forward[:1] + usual.forward[3:])  # w0 does not run
    asked = job(root)
    other = replace(asked, execution=skipped)
    steps = deepspeed_stage3(asked, OVERLAPPED)
    assert [sequence(next(steps), 0)[0] for _ in range(2)] == ["AG 1 F", "AG 2 F"]
    engine = steps.gi_frame.f_locals["engine"]
    engine.job = other
    next(steps)
    engine.job = asked
    found = [next(steps) for _ in range(3)]
    assert [sequence(program, 0)[0] for program in found] == ["AG 1 F", "AG 2 F", "AG 2 F"]
    checks = [sum(operation.kind == "broadcast" for _, operation in collectives(program)) for program in found]
    assert checks == [2, 6, 0]


def test_z3_11_the_host_reads_the_traces_of_rank_0():
    first, second, third = islice(deepspeed_stage3(t3(1), OVERLAPPED), 3)
    lengths = [
        [operation.elements for _, operation in collectives(program) if operation.kind == "broadcast"]
        for program in (first, second, third)
    ]
    assert lengths == [[1, 0], [1, 8, 1, 6, 1, 6], []]


def test_z3_42_one_norm_per_sub_group_and_overflow_on_another_communicator_in_fp16():
    policy = replace(OVERLAPPED, sub_group_size=300_000)
    program = program_of(job(chain((1, MILLION), (2, MILLION), (3, MILLION)), dtype="fp16"), policy, 1)
    step = [
        (operation.role, operation.dtype, operation.group.name)
        for launch, operation in collectives(program)
        if launch.phase == "step"
    ]
    assert step == [("overflow", "u8", "world clone"), ("norm", "fp64", "world"), ("norm", "fp64", "world")]


@pytest.mark.parametrize(("gather", "peak_weights"), [(1, 14e6), (10, 8e6), (40, 4e6)])
def test_memory_of_weights_is_bounded_only_where_gathers_are_slower_than_compute(gather, peak_weights):
    """Four layers of 2 MB, F 10, B 20.  Nothing makes gathers wait for compute (Z3-19) and what is freed becomes free
    when compute gets there (Z3-29): on a fast network all seven gathers are done before the first layer is.
    """
    asked = job(chain(*[(1, MILLION)] * 4), forward=10.0, backward=20.0)
    program = program_of(asked, ONE_AHEAD, 1)
    timeline = simulate(staged(program, lambda operation: gather * operation.elements / MILLION)).classes[0]
    most = most_held(timeline.memory)
    assert most["gathered weights"] == peak_weights
    assert most["reduce buckets"] == 2 * 500e6
    assert most["reduce temporaries"] == 2 * 4e6  # shares of four layers, laid out by rank


def test_m2_a_coalesced_gather_holds_its_parameters_twice_until_they_are_cut_out():
    """4 MB for the flat buffer while it is gathered, then 2 MB for each of two matrices; then the buffer is free.

    gather  AG 0-10, cut w, cut v, AG 10-20 for backward
    compute                        F 10-20
    """
    tensors = tuple(Tensor(name, (1, MILLION)) for name in ("m.w", "m.v"))
    module = Module(name="m", kind="Pair", parameters=tensors)
    program = program_of(
        job(Module(name="", kind="Root", children=(module,), calls=(module,)), forward=10.0), ONE_AHEAD, 0
    )
    timeline = simulate(staged(program, lambda item: 10.0 if item.kind == "all_gather" else 0.0)).classes[0]
    changes = [tuple(change) for change in timeline.memory if "reduce" not in change.item]
    assert changes[:4] == [
        (0.0, "all-gather buffers", 4e6),
        (10.0, "gathered weights", 2e6),
        (10.0, "gathered weights", 2e6),
        (10.0, "all-gather buffers", -4e6),
    ]


def test_zp11_quantised_weights_arrive_beside_the_parameters():
    """A square matrix on 16 ranks: int8, and 256 scales of 4 B from each, until all is restored to bf16."""
    policy = replace(ONE_AHEAD, zero_quantized_weights=True)
    asked = job(chain((4096, 4096)), devices=16, forward=1.0)
    most = most_held(simulate(staged(program_of(asked, policy, 0), lambda _: 1.0)).classes[0].memory)
    assert most["quantization buffers"] == 4096**2 + 16 * 256 * 4
    assert most["gathered weights"] == 2 * 4096**2


def test_persistent_parameters_are_counted_from_step_to_step():
    policy = replace(OVERLAPPED, stage3_param_persistence_threshold=10 * MILLION)
    first, second = islice(deepspeed_stage3(t3(1), policy), 2)
    for program, beginning in ((first, 0.0), (second, 12e6)):
        taken = sum(amount for launch in program.launches for item, amount in launch.takes if item == WEIGHTS)
        given = sum(amount for launch in program.launches for item, amount in launch.gives if item == WEIGHTS)
        assert taken == given
        assert sum(amount for item, amount in program.launches[0].takes if item == WEIGHTS) == beginning


WEIGHTS = "gathered weights"


def test_every_hook_costs_the_host():
    """Root and three layers: around forward 8, before backward 4, after it 2 (not root and w0), gradients 3."""
    program = program_of(replace(t3(1), costs=HostCosts(hook=1.0)), OVERLAPPED, 1)
    assert sum(item.time for item in program.instructions if isinstance(item, HostWork)) == 8 + 4 + 2 + 3


def test_timers_empty_the_device_from_the_third_step_on():
    counts = []
    for program in islice(deepspeed_stage3(t3(), replace(OVERLAPPED, synchronises_timers=True)), 3):
        blocked = [item for item in program.instructions if isinstance(item, Synchronize) and item.reason == "host"]
        counts.append(sum(program.streams[item.event.stream] == "reduce_scatter" for item in blocked))
    assert counts == [2, 2, 2 + 3]  # at the first start the reduction stream is still empty


def test_comms_logger_empties_the_device_after_every_collective():
    quiet = program_of(t3(1), OVERLAPPED, 1)
    logged = program_of(t3(1), replace(OVERLAPPED, comms_logger=True), 1)
    followed = [
        isinstance(after, Synchronize)
        for launch, after in zip(logged.instructions, logged.instructions[1:], strict=False)
        if isinstance(launch, Launch) and isinstance(logged.operations[launch.operation], Collective)
    ]
    assert followed == [True] * len(collectives(quiet))


def test_one_rank_gathers_nothing():
    program = program_of(job(chain((1, MILLION)), devices=1), OVERLAPPED, 1)
    assert "all_gather" not in [operation.kind for _, operation in collectives(program)]
