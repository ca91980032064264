"""Worked examples of offloading: who waits for which copy, and when the host updates.

Copies move 8 B/s, an all-reduce takes a quarter of a second per element, all other collectives and copies on the device
are free, CPU kernels move 64 B/s.
"""

from collections import defaultdict

import pytest

from simulator.clock.cast import NO_COMMUNICATOR, RankClass, Stage
from simulator.clock.engine import simulate
from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.readings.exposure import exposure
from simulator.schedules.fsdp1 import fsdp1
from simulator.schedules.fsdp2 import fsdp2
from simulator.schedules.job import HostCosts, Job
from simulator.schedules.zero3 import deepspeed_stage3
from simulator.schedules.zero3.offload import OptimizerOnHost
from simulator.schedules.zero3.parameters import Parameters
from simulator.schedules.zero3.rank import Rank
from simulator.schedules.zero12 import deepspeed_stage12
from simulator.world.mesh import Mesh
from simulator.world.model.execution import execution
from simulator.world.model.layer import Tensor, Work
from simulator.world.model.module import Module
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.zero import DeepSpeedPolicy, OptimizerOffload, ParameterOffload

MIB = 2**20
ROUTES = ("to_host", "to_device", "nvme_read", "nvme_write")


def job(layers, size=8, ranks=2, micro_batches=1, forward=0.0, cpu_byte=1 / 64):
    """A chain of matrices of *size* elements; backward of each takes 4 s, the update traffic is 256 B."""
    children = tuple(
        Module(name=f"l{index}", kind="Linear", parameters=(Tensor(f"l{index}.weight", (size,)),))
        for index in range(layers)
    )
    root = Module(name="", kind="Chain", children=children, calls=children)
    kernels = {(child.name, "forward"): Kernel(kind="forward", time=forward) for child in children}
    kernels |= {(child.name, "backward"): Kernel(kind="backward", time=4.0) for child in children}
    return Job(
        root=root,
        execution=execution(root),
        micro_batches=micro_batches,
        dtype="bf16",
        mesh=Mesh(hosts=1, devices_per_host=ranks),
        kernels=kernels,
        optimizer=Kernel(kind="optimizer", works=(Work("memory", constant_traffic=256.0),)),
        costs=HostCosts(cpu_byte=cpu_byte, torch_byte=1 / 64),
    )


def played(program, copies=8.0):
    """Spans that take time by role or kind, exposure, time of the step."""

    def phases(item):
        if isinstance(item, Transfer):
            link = ROUTES.index(item.route)
            return (Phase(payload=item.amount, usage=((link, 1.0),), latency=0.0, rate=copies),)
        if isinstance(item, Collective) and item.role == "all_reduce":
            return (Phase(payload=item.elements / 4, usage=((4, 1.0),), latency=0.0, rate=1.0),)
        return ()

    def queue(item):
        if isinstance(item, Transfer):
            return ROUTES.index(item.route)
        return 4 if isinstance(item, Collective) else NO_COMMUNICATOR

    cast = RankClass(
        name="all ranks",
        ranks=2,
        program=program,
        times=tuple(getattr(item, "time", None) or 0.0 for item in program.operations),
        phases=tuple(map(phases, program.operations)),
        communicators=tuple(map(queue, program.operations)),
    )
    copying = (Link(name=name, kind=name, bandwidth=copies) for name in ROUTES)
    links = (*copying, Link(name="link", kind="link", bandwidth=1.0))
    timeline = simulate(Stage(classes=(cast,), members=(1,) * 5, links=links))
    spans = defaultdict(list)
    for span in timeline.classes[0].spans:
        operation = program.operations[span.launch.operation]
        if span.end > span.start:
            spans[getattr(operation, "role", operation.kind if isinstance(operation, Kernel) else "")].append(
                (span.start, span.end)
            )
    return dict(spans), exposure(timeline.classes[0]), timeline.step_time


def zero(stage, **others):
    return DeepSpeedPolicy(
        zero_stage=stage, overlap_comm=True, reduce_bucket_size=8, check_grad_overflow=False, gradient_clipping=0.0,
        **others,
    )  # fmt: skip


def test_stage_2_the_host_waits_for_each_reduction_and_cannot_launch_the_next_backward():
    """Three layers on two ranks, an average rank owns half of each bucket of 8.

    ::

        s         0    4    8   10   12   14   16   18   20   22     28.375  31.375
        compute   | B2 | B1 |....|   B0   |.........................|......|...... |
        reduce              |AR 2|D2H2|...|AR 1|D2H1|AR 0|D2H0|
        host      launches  |    reads    |    reads    | reads |    update|
        compute stream                                                     | H2D   |

    The check for overflow of bucket 2 is read on the host, so B0 is launched at 10 and not before.  Then 12 elements
    are updated and cast: 12 x (28 + 6) B at 64 B/s, and come back in 16 bits: 24 B.
    """
    policy = zero(2, offload_optimizer=OptimizerOffload())
    spans, reading, step = played(next(deepspeed_stage12(job(3), policy)))
    assert spans["backward"] == [(0, 4), (4, 8), (10, 14)]
    assert spans["all_reduce"] == [(8, 10), (14, 16), (18, 20)]
    assert spans["gradients_to_host"] == [(10, 12), (16, 18), (20, 22)]
    assert spans["weights_to_device"] == [(28.375, 31.375)]
    assert step == 31.375
    assert (reading.compute, reading.host_bound, reading.copies) == (12.0, 6.375, 0.0)
    assert reading.by_collective() == {"all_reduce": 6.0, "gradients_to_host": 4.0, "weights_to_device": 3.0}


def test_stage_2_sums_of_micro_batches_live_on_the_host():
    """One layer, two micro-batches; a rank owns a half, but sums are of the whole parameter: 16 B.

    ::

        s         0    4    6     8    12   14     16     18     20    22.125 23.125
        compute   | B  | AR |D2H  |  B  | AR | H2D  | D2H  | D2H  |......|H2D|
                        sum of 1              sum of 1, of 2, fp32 half
    """
    policy = DeepSpeedPolicy(
        zero_stage=2, reduce_bucket_size=8, check_grad_overflow=False, gradient_clipping=0.0,
        offload_optimizer=OptimizerOffload(),
    )  # fmt: skip
    spans, reading, step = played(next(deepspeed_stage12(job(1, micro_batches=2), policy)))
    assert spans["backward"] == [(0, 4), (8, 12)]
    assert spans["gradients_to_host"] == [(6, 8), (16, 18), (18, 20)]
    assert spans["gradients_to_device"] == [(14, 16)]
    assert spans["weights_to_device"] == [(22.125, 23.125)]
    assert step == 23.125
    assert reading.host_bound == 2.125


def test_stage_3_copies_shares_for_each_fetch_and_gradients_three_times():
    """Two layers on two ranks; a share of 4 elements is 8 B: a second to the device, as the host waits.

    ::

        s         0   1     3     5          9         13   14   15     17     22.25
        compute   |...| F0  | F1  |   B1     |   B0    |.......................|
        gathers   |H 0|H 1|H 1|H 0|
        reduce                               |D2H|H2D|fp32|D2H |H2D |fp32|
        host                                                              update|

    The gradient goes to the host, back for its norm, and to the host in fp32.  The update moves 8 x 36 B, the cast to
    16 bits 8 x 6 B; the shares stay where they are.
    """
    policy = zero(
        3, offload_optimizer=OptimizerOffload(), offload_param=ParameterOffload(),
        stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=0, stage3_max_reuse_distance=0,
    )  # fmt: skip
    spans, reading, step = played(next(deepspeed_stage3(job(2, forward=2.0), policy)))
    assert spans["parameters_to_device"] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert spans["forward"] == [(1, 3), (3, 5)]
    assert spans["backward"] == [(5, 9), (9, 13)]
    assert spans["gradients_to_host"] == [(9, 10), (11, 13), (13, 14), (15, 17)]
    assert spans["gradients_to_device"] == [(10, 11), (14, 15)]
    assert step == 22.25
    assert (reading.compute, reading.stalled, reading.host_bound) == (12.0, 5.0, 5.25)
    assert reading.by_collective() == {
        "parameters_to_device": 1.0, "gradients_to_host": 3.0, "gradients_to_device": 1.0,
    }  # fmt: skip


def test_stage_3_without_offloaded_parameters_brings_new_weights_back():
    """As above without fetches: 4 s earlier forward begins at once, and 8 x 2 B go to the device at the end: 2 s."""
    policy = zero(3, offload_optimizer=OptimizerOffload(), stage3_param_persistence_threshold=0)
    spans, reading, step = played(next(deepspeed_stage3(job(2, forward=2.0), policy)))
    assert spans["weights_to_device"] == [(21.25, 23.25)]
    assert step == 23.25
    assert (reading.stalled, reading.host_bound) == (6.0, 5.25)


def updated(**options):
    """Time of the update of three sub-groups of 2^18 elements, and when their states are read and written.

    Copies move 1 MiB/s: 4 s to read four tensors of 1 MiB, 3 s to write three, half a second for 16-bit weights; the
    update takes 2.25 s, the cast 0.375 s.
    """
    policy = DeepSpeedPolicy(
        zero_stage=3, sub_group_size=2**18,
        offload_optimizer=OptimizerOffload(device="nvme", buffer_count=12, **options),
    )  # fmt: skip
    work = job(3, size=2**18, ranks=1, cpu_byte=1 / 4 / MIB)
    rank = Rank(work, policy)
    rank.begin(())
    OptimizerOnHost(rank, Parameters(work, policy)).update()
    spans, _, step = played(rank.end(()), copies=float(MIB))
    return step, spans["optimizer_from_nvme"], spans["optimizer_to_nvme"]


def test_nvme_without_a_pipeline_reads_updates_and_writes_in_turn():
    """3 x (4 + 2.25 + 0.375 + 0.5 + 3)."""
    assert updated() == (
        30.375,
        [(0, 4), (10.125, 14.125), (20.25, 24.25)],
        [(7.125, 10.125), (17.25, 20.25), (27.375, 30.375)],
    )


def test_pipeline_read_reads_the_next_sub_group_during_the_update():
    """4 + 3 x (2.25 + 0.375 + 0.5 + 3): what follows the first read hides the others."""
    assert updated(pipeline_read=True) == (
        22.375,
        [(0, 4), (4, 8), (10.125, 14.125)],
        [(7.125, 10.125), (13.25, 16.25), (19.375, 22.375)],
    )


def test_pipeline_write_does_not_wait_but_for_the_last_one():
    """
    ::

        s        0        4        8        12         18.125
        read     |   0    |   1    |   2    |
        host              |update 0|update 1|update 2|
        write                   |   0   |  1   |   2  |
    """
    assert updated(pipeline_read=True, pipeline_write=True) == (
        18.125,
        [(0, 4), (4, 8), (8, 12)],
        [(7.125, 10.125), (11.125, 14.125), (15.125, 18.125)],
    )


def test_sub_groups_under_way_need_a_buffer_for_each_tensor():
    policy = DeepSpeedPolicy(
        zero_stage=3, sub_group_size=2**18, offload_optimizer=OptimizerOffload(device="nvme", pipeline_read=True)
    )
    with pytest.raises(InputError, match=r"buffer_count: 4: 2 sub-groups .*write 8"):
        next(deepspeed_stage3(job(3, size=2**18, ranks=1), policy))


def test_parameters_on_drives_are_read_copied_used_and_written():
    """One rank, two layers of 2^19 elements, 1 MiB each; copies move 1 MiB/s, the optimizer stays on the device.

    ::

        s         0   1   2   3   4   5   6   7   8  10       14     18    19.5    21.5
        read      | 0 |   | 1 |   | 1 |   | 0 |
        to device     | 0 |   | 1 |   | 1 |   | 0 |
        compute           |  F0   |  F1   |     B1   |   B0   |
        step                                                  |fp32  |cast | write |

    The host waits for each read and each copy, so it never reads ahead while it learns the order of modules.
    """
    policy = zero(
        3, offload_param=ParameterOffload(device="nvme", max_in_cpu=0),
        stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=0, stage3_max_reuse_distance=0,
    )  # fmt: skip
    work = job(2, size=2**19, ranks=1, forward=2.0, cpu_byte=1 / 4 / MIB)
    spans, reading, step = played(next(deepspeed_stage3(work, policy)), copies=float(MIB))
    assert spans["parameters_from_nvme"] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert spans["parameters_to_device"] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    assert spans["forward"] == [(2, 4), (4, 6)]
    assert spans["backward"] == [(6, 10), (10, 14)]
    assert spans["weights_to_host"] == [(14, 18)]
    assert spans["parameters_to_nvme"] == [(19.5, 21.5)]
    assert step == 21.5
    assert (reading.compute, reading.host_bound) == (12.0, 1.5)


@pytest.mark.parametrize(("ratio", "on_host"), [(1.0, 4), (0.5, 2), (0.0, 0)])
def test_ratio_leaves_the_first_sub_groups_to_the_device(ratio, on_host):
    """Four sub-groups of 4 elements: 36 B each for the update and 6 B for the cast."""
    policy = zero(3, sub_group_size=4, offload_optimizer=OptimizerOffload(ratio=ratio))
    _, reading, _ = played(next(deepspeed_stage3(job(4), policy)))
    assert reading.host_bound == on_host * 4 * 42 / 64


@pytest.mark.parametrize(
    ("schedule", "policy", "again"),
    [
        (fsdp1, Fsdp1Policy(units=("Linear",), cpu_offload=True), [(2, 3), (3, 4)]),
        (fsdp2, Fsdp2Policy(units=("Linear",), cpu_offload=True), [(3, 4), (5, 6)]),
    ],
    ids=["fsdp1", "fsdp2"],
)
def test_fsdp_copies_shards_in_streams_and_updates_on_the_host(schedule, policy, again):
    """Two layers on two ranks: 8 B to the device before each gather, 8 B of gradients to the host after each reduction.

    FSDP2's copies for backward wait for the copies out of layer 1, at the end of F0 and of F1.

    ::

        s         0   1     3     5          9         13   14        18
        compute   |...| F0  | F1  |   B1     |   B0    |.....|........|
        copies    |H 0|                      |D2H|     |D2H |
        host                                                | update  |
    """
    spans, reading, step = played(next(schedule(job(2, forward=2.0), policy)))
    assert spans["parameters_to_device"] == [(0, 1), (1, 2), *again]
    assert spans["forward"] == [(1, 3), (3, 5)]
    assert spans["backward"] == [(5, 9), (9, 13)]
    assert spans["gradients_to_host"] == [(9, 10), (13, 14)]
    assert step == 18.0
    assert (reading.compute, reading.stalled, reading.host_bound) == (12.0, 2.0, 4.0)
