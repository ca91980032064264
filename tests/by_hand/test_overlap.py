"""Timelines of sharded training that can be drawn by hand.

Two ranks of `flat` at 1 GB/s: gathering or reducing a layer of P parameters takes P / 1e9 seconds.  All numbers are
integers of seconds, exact in binary, so equality is exact.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.kernels import Kernel
from simulator.readings.exposure import exposure
from simulator.schedules.record import record
from simulator.schedules.tape import Tape
from tests.conftest import content, flat


def layer(name, forward, backward, gather, count=1):
    return {
        "name": name,
        "count": count,
        "parameters": gather * 1e9,
        "forward_time": f"{forward} s",
        "backward_time": f"{backward} s",
    }


def model(*layers):
    return {"sequence_length": 1, "layers": list(layers)}


def outcome(scenario, **sections):
    asked = scenario(**sections)
    return run_variant(asked, asked.variants[0])


def phase_times(timeline):
    """End of forward and end of everything."""
    forward = max(span.end for span in timeline.stream("compute") if span.launch.phase == "forward")
    return forward, max(span.end for span in timeline.spans)


def test_a1_three_layers_of_the_fsdp2_overlap_test(scenario):
    """PyTorch's `test_fully_shard_overlap.py`: forward 85, backward 170, exposed 10 + 20.

    forward  G0 G1
             .. F0 F0 F0 ..                  gathers of 10, computes of 25: 10 + 3 x 25
    backward G2 G1    R2 G0     R1      R0   reductions of 10: 10 + 3 x 50 + 10
    """
    found = outcome(scenario, model=model(layer("l", 25, 50, 10, count=3)))
    forward, end = phase_times(found.timeline.classes[0])
    assert (forward, end - forward) == (85.0, 170.0)
    assert found.reading.stalled == 30.0


def test_a2_reductions_cannot_hide_behind_the_same_backward_as_gathers(scenario):
    """80 layers, gather = reduce = 10, F = 12, B = 15, one communicator, prefetch 1.

    G79 G78 R79 G77 R78 G76 ...    the communicator works without a break: 20 a layer, not 15
        B79     B78     B77 ...    10 + 80 x 20 = 1610, of which 80 x 15 is compute
    """
    found = outcome(scenario, model=model(layer("l", 12, 15, 10, count=80)))
    forward, end = phase_times(found.timeline.classes[0])
    assert (forward, end - forward) == (970.0, 1610.0)
    assert found.reading.stalled == 10.0 + 410.0
    assert found.reading.by_cause()["queueing"] == 78 * 5.0


def test_a4_accumulation_costs_its_communication_again(scenario):
    """1,536 samples in two micro-steps instead of 1,024 in one, all of the time spent on the network (marin #6304).

    A micro-step takes what its gathers and reductions take, however many samples it has: twice the time for 1.5 times
    the samples.  Measured: 7.18 / 9.37 = 0.766.
    """
    layers = model(layer("l", 0.001, 0.001, 10, count=4))
    once = outcome(scenario, model=layers, training={"micro_batch": 1024})
    twice = outcome(scenario, model=layers, training={"micro_batch": 768, "gradient_accumulation": 2})
    ratio = twice.result.tokens_per_second_per_gpu / once.result.tokens_per_second_per_gpu
    assert ratio == pytest.approx(1.5 / 2, rel=1e-3)


def test_a13_a_second_communicator_on_the_same_link_does_not_beat_its_bandwidth(scenario):
    layers = model(layer("l", 12, 15, 10, count=80))
    variants = [{"name": "separate", "zero_stage": 3, "reduce_communicator": "separate"}]
    found = outcome(scenario, model=layers, variants=variants)
    forward, end = phase_times(found.timeline.classes[0])
    assert end - forward >= 80 * (10 + 10)
    assert found.reading.by_cause()["contention"] > 0


def test_a13_a_second_communicator_on_a_link_of_its_own_hides_all_reductions_but_the_last(scenario):
    """Backward = first gather 10 + 80 x 15 + last reduction 10 = 1220."""
    variants = [{"name": "separate", "zero_stage": 3, "reduce_communicator": "separate"}]
    asked = scenario(model=model(layer("l", 12, 15, 10, count=80)), variants=variants)
    program = record(asked, asked.variants[0])
    ready = stage(asked, program)
    own_link = len(ready.links)
    phases = tuple(
        tuple(on_link(phase, own_link) for phase in of_operation)
        if isinstance(operation, Collective) and operation.role == "reduce_scatter"
        else of_operation
        for operation, of_operation in zip(program.operations, ready.classes[0].phases, strict=True)
    )
    disjoint = replace(
        ready,
        links=(*ready.links, Link(name="own", kind="own", bandwidth=1e9)),
        classes=(replace(ready.classes[0], phases=phases),),
    )
    forward, end = phase_times(simulate(disjoint).classes[0])
    assert (forward, end - forward) == (970.0, 1220.0)


def on_link(phase: Phase, link: int) -> Phase:
    return replace(phase, usage=((link, 1.0),))


times = st.integers(0, 9)


@given(st.lists(st.tuples(times, times, times.filter(bool)), min_size=1, max_size=12))
def test_a14_equals_the_closed_form_of_fsdp_ilp(scenario, layers):
    """fsdp_ilp: each layer's compute must cover the next gather and, in backward, the previous reduction too.

    Exact for unequal layers as well: layer i starts when its gather ends, the communicator is then free, and serves
    the reduction of the layer before and the gather of the layer after, in this order, while layer i computes.
    """
    sections = [layer(f"l{index}", *times) for index, times in enumerate(layers)]
    found = outcome(scenario, model=model(*sections))
    forward, end = phase_times(found.timeline.classes[0])
    assert forward == closed_form([(f, g, 0) for f, _, g in layers])
    assert end - forward == closed_form([(b, g, g) for _, b, g in reversed(layers)])


def closed_form(order):
    """First gather, computes, what they do not cover, last reduction; *order* holds (compute, gather, reduce)."""
    total = order[0][1] + sum(compute for compute, _, _ in order) + order[-1][2]
    for index, (compute, _, _) in enumerate(order):
        gather_of_next = order[index + 1][1] if index + 1 < len(order) else 0
        reduce_of_previous = order[index - 1][2] if index else 0
        total += max(0, gather_of_next + reduce_of_previous - compute)
    return total


def test_a19_slow_compute_exposes_only_the_ends(scenario):
    found = outcome(scenario, model=model(layer("l", 1000, 1000, 10, count=6)))
    assert found.reading.stalled == 10.0 + 10.0 + 10.0


def test_a19_a_very_fast_network_exposes_nothing(scenario):
    found = outcome(scenario, topology=flat(hosts=2, bandwidth="1e300 B/s"))
    assert found.reading.stalled < 1e-280


def test_a19_one_rank_sends_nothing(scenario):
    found = outcome(scenario, topology=flat(hosts=1, bandwidth="1 GB/s"))
    assert found.result.volume["sent_per_rank"] == 0
    assert found.reading.stalled == 0


def test_a19_no_layers_is_a_clear_error(scenario):
    with pytest.raises(InputError, match="the model is empty"):
        scenario(model=model())


def test_without_prefetch_every_gather_is_exposed(scenario):
    """G0 F0 G1 F1 | G1 B1 G0 B0 with reductions behind: gathers of 2, computes of 3 and 6.

    forward 2 + 3 + 2 + 3 = 10; backward G1 10-12, B1 12-18, then the communicator reduces layer 1 first only if
    asked first: the gather of layer 0 is issued after the reduction of layer 1, both ready at 18: R1 18-20, G0 20-22,
    B0 22-28, R0 28-30.
    """
    variants = [{"name": "zero3", "zero_stage": 3, "prefetch": 0}]
    found = outcome(scenario, model=model(layer("l", 3, 6, 2, count=2)), variants=variants)
    assert found.result.step_time == 30.0
    assert found.reading.stalled == 2 + 2 + 2 + 4 + 2


def test_stages_0_to_2_reduce_behind_backward(scenario):
    """Two layers, B = 4, reduce = 3 (an all-reduce takes 6); k = 1.

    stage 1, 2  F0 F1 B1 B1 B1 B1 B0 B0 B0 B0 -- -- -- U -- ...
                                  R1 R1 R1    R0 R0 R0   weights 6
    """
    layers = model(layer("l", 1, 4, 3, count=2))
    steps = {
        stage: outcome(scenario, model=layers, variants=[{"name": "v", "zero_stage": stage}]).result.step_time
        for stage in (0, 1, 2)
    }
    assert steps == {0: 2 + 4 + 6 + 6, 1: 2 + 8 + 3 + 6, 2: 2 + 8 + 3 + 6}


def test_a_bucket_collects_layers_until_the_next_one_does_not_fit(scenario):
    """Four layers of 1e9, buckets of 2e9: two reductions of 2 s, the first behind layers 1 and 0 (B = 4)."""
    variants = [{"name": "v", "zero_stage": 1, "bucket_size": 2e9}]
    found = outcome(scenario, model=model(layer("l", 1, 4, 1, count=4)), variants=variants)
    spans = found.timeline.classes[0].stream("reduce_scatter")
    assert [(span.launch.label, span.start, span.end) for span in spans] == [
        ("l.3 to l.2", 12.0, 14.0),
        ("l.1 to l.0", 20.0, 22.0),
    ]


def test_full_checkpointing_computes_the_forward_again(scenario):
    training = {"micro_batch": 1, "activation_checkpointing": "full"}
    found = outcome(scenario, training=training, model=model(layer("l", 3, 6, 1, count=2)))
    assert found.reading.compute == 2 * (3 + 3 + 6)


def test_a_slow_host_is_seen_as_host_bound_time(scenario):
    """One layer, plain data parallelism, 10 s per launch: forward, backward, reduce, update, end; F 2, B 4.

    host     launches at 10 20 30 40 50
    compute  F 10-12, B 20-24, update 40, end 50      reduction 30-32: hidden behind the slow host
    """
    plain = [{"name": "v", "zero_stage": 0}]
    found = outcome(scenario, model=model(layer("l", 2, 4, 1)), variants=plain, host={"launch_time": "10 s"})
    assert found.result.step_time == 50.0
    assert found.reading.host_bound == 50 - 2 - 4
    assert found.reading.stalled == 0


def test_a_gather_that_the_host_launched_late_is_charged_to_the_host(scenario):
    """One layer at stage 3, launches of 1 s, gather of 1 s: it could have run from 0 to 1, it runs 1-2.

    host     G launched at 1, F at 2
    compute  waits 0-1 because the gather is late, 1-2 because it runs
    """
    found = outcome(scenario, model=model(layer("l", 2, 4, 1)), host={"launch_time": "1 s"})
    first, second = found.reading.stalls[:2]
    assert (first.start, first.end, first.cause) == (0.0, 1.0, "host")
    assert (second.start, second.end, second.cause) == (1.0, 2.0, "bandwidth")


def test_content_is_what_the_fixture_documents():
    assert content()["topology"]["links"]["link"]["bandwidth"] == "1 GB/s"


def test_a_collective_in_the_compute_stream_is_exposed_as_a_whole(scenario):
    """compute  K K R R R K    a kernel of 2, a reduction of 3 in the same stream, a kernel of 1"""
    tape = Tape()
    asked = scenario()
    reduce = Collective(
        kind="reduce_scatter", elements=3e9, bytes_per_element=2, group=asked.mesh.world(), role="reduce"
    )
    tape.launch(Kernel(kind="backward", time=2.0), "compute", label="a")
    tape.launch(reduce, "compute", label="b")
    tape.launch(Kernel(kind="optimizer", time=1.0), "compute", label="c")
    timeline = simulate(stage(asked, tape.program()))
    reading = exposure(timeline.classes[0])
    assert (timeline.step_time, reading.compute, reading.stalled) == (6.0, 3.0, 3.0)
    assert [(stall.start, stall.end, stall.cause) for stall in reading.stalls] == [(2.0, 5.0, "bandwidth")]
