"""Random times of kernels: what theory says of the latest of many, and what the engine says of the same times."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.batch.lane import timeline_of
from simulator.clock.batch.ranks import replications, sampled
from simulator.clock.cast import NO_COMMUNICATOR
from simulator.clock.engine import simulate
from simulator.clock.parts import Division, Own, divided
from simulator.clock.stage import stage
from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.laws.collectives.base import Collective
from simulator.readings.batch import read
from simulator.readings.exposure import exposure
from simulator.schedules.program import Launch
from simulator.schedules.record import record
from simulator.world.mesh import Mesh
from simulator.world.uneven import Pace
from tests.conftest import flat
from tests.laws import strategies, test_frameworks
from tests.laws.test_uneven import uneven

MANY = 2000

LAYER = [{"name": "layer", "parameters": 1.0, "forward_time": "1 s", "backward_time": "0 s"}]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(test_frameworks.LLAMA))
    return str(path)


def latest(count):
    """Mean and standard deviation of the largest of *count* standard normal numbers, by integration of its density."""
    x = np.linspace(-9, 9, 200_001)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    below = np.cumsum(density) * (x[1] - x[0])
    largest = count * below ** (count - 1) * density * (x[1] - x[0])
    mean = (x * largest).sum()
    return mean, np.sqrt(((x - mean) ** 2 * largest).sum())


def one_kernel(scenario, ranks, jitter):
    """One kernel of a second on every rank, then a reduction that takes no time."""
    asked = scenario(
        model={"sequence_length": 1, "layers": LAYER},
        topology=flat(hosts=ranks, bandwidth="1000000 GB/s"),
        variants=[{"name": "v", "zero_stage": 1}],
        jitter={"replications": MANY, "kernel": 0.01, **jitter},
    )
    return run_variant(asked, asked.variants[0]).result.jitter["step_time"]


@pytest.mark.parametrize("ranks", [8, 64, 512])
def test_the_latest_of_n_ranks_is_as_late_as_theory_says(scenario, ranks):
    found = one_kernel(scenario, ranks, {"ranks": 512})
    mean, deviation = latest(ranks)
    assert found["mean"] == pytest.approx(1 + 0.01 * mean, abs=3 * 0.01 * deviation / np.sqrt(MANY) + 1e-6)
    assert found["deviation"] == pytest.approx(0.01 * deviation, rel=0.1)


@pytest.mark.parametrize("ranks", [512, 16_384])
def test_ranks_that_are_not_sampled_come_as_late_as_if_they_were(scenario, ranks):
    """64 ranks are sampled; what is drawn for the others rests on their mean, whose error adds to the deviation."""
    found = one_kernel(scenario, ranks, {"ranks": 64})
    mean, deviation = latest(ranks)
    error = 0.01 * np.hypot(deviation, 1 / np.sqrt(64))
    assert found["mean"] == pytest.approx(1 + 0.01 * mean, abs=3 * error / np.sqrt(MANY) + 1e-5)


@pytest.mark.parametrize("distribution", ["normal", "lognormal"])
def test_factors_have_mean_one_and_the_deviation_that_was_asked_for(scenario, distribution):
    found = one_kernel(scenario, 1, {"kernel": 0.2, "distribution": distribution})
    assert found["mean"] == pytest.approx(1, abs=3 * 0.2 / np.sqrt(MANY) + 1e-5)
    assert found["deviation"] == pytest.approx(0.2, rel=0.1)


def test_the_same_seed_gives_the_same_steps(scenario):
    first, again, other = (one_kernel(scenario, 8, {"seed": seed, "replications": 20}) for seed in (1, 1, 2))
    assert first == again
    assert first["mean"] != other["mean"]


def accumulated(scenario, variant, hosts=8):
    """Eight micro-batches that are short or long by chance, equally likely, on one rank per host."""
    layers = [{"name": "layer", "count": 2, "parameters": 1.0, "forward_time": "1 s", "backward_time": "2 s"}]
    asked = scenario(
        model={"sequence_length": 1, "layers": layers},
        training={"micro_batch": 1, "gradient_accumulation": 8},
        topology=flat(hosts=hosts, bandwidth="1000000 GB/s"),
        host={"kernel_time": "0 s", "collective_time": "0 s", "hook_time": "0 s"},
        variants=[{"name": "v", **variant}],
        jitter={"micro_batches": [0.5, 1.5], "replications": 400},
    )
    return run_variant(asked, asked.variants[0]).result


def test_gathers_in_every_micro_batch_make_every_one_a_long_one(scenario):
    """A12: FSDP waits for the slowest rank 8 times, DDP without synchronisation once."""
    fsdp = accumulated(scenario, {"fsdp2": {}})
    ddp = accumulated(scenario, {"ddp": {"no_sync": True}})
    lengths = np.random.default_rng(0).choice([0.5, 1.5], (20_000, 8, 8)) * 6
    each_time, once = lengths.max(axis=2).sum(axis=1).mean(), lengths.sum(axis=1).max(axis=1).mean()
    assert each_time == pytest.approx(8 * 9, rel=0.01)  # one of eight ranks is long nearly always
    assert fsdp.jitter["step_time"]["mean"] == pytest.approx(each_time, rel=0.01)
    assert ddp.jitter["step_time"]["mean"] == pytest.approx(once, rel=0.01)
    assert fsdp.jitter["step_time"]["even"] == pytest.approx(48, rel=1e-6)


def test_the_tail_is_skew(scenario):
    tail = accumulated(scenario, {"ddp": {"no_sync": True}}).jitter["tail"]
    assert tail["longer"] > 0
    assert sum(tail["by_cause"].values()) == pytest.approx(tail["longer"], rel=1e-6)
    assert max(tail["by_cause"], key=tail["by_cause"].get) == "skew"


def with_these_times(asked, program, batch):
    """The stage of every rank, whose kernels take what they took in the batch's only replication."""
    ready = stage(replace(asked, all_ranks=True, jitter=None), program)
    alone = batch.lanes.alone
    classes = []
    for rank, cast in enumerate(ready.classes):
        old = [launch.operation for launch in cast.program.launches]
        numbers = iter(range(len(old)))
        instructions = tuple(
            item._replace(operation=next(numbers)) if isinstance(item, Launch) else item
            for item in cast.program.instructions
        )
        of_launch = {
            name: tuple(getattr(cast, name)[number] for number in old)
            for name in ("movement", "phases", "communicators")
        }
        is_kernel = [communicator == NO_COMMUNICATOR for communicator in of_launch["communicators"]]
        times = tuple(float(alone[number, rank]) if kernel else 0.0 for number, kernel in enumerate(is_kernel))
        operations = tuple(cast.program.operations[number] for number in old)
        classes.append(
            replace(
                cast,
                times=times,
                **of_launch,
                program=replace(cast.program, operations=operations, instructions=instructions),
            )
        )
    return replace(ready, classes=tuple(classes))


def is_the_engine(asked):
    """Times, stalls and causes of every rank of a replication are those of the engine with the same kernels."""
    variant = asked.variants[0]
    program = record(asked.at(variant), variant)
    ready = stage(asked, program)
    ((sample, batch),) = replications(asked, asked.jitter, ready, simulate(ready))
    assert len(sample.ranks) == asked.mesh.ranks
    timeline = simulate(with_these_times(asked, program, batch))
    step = timeline.step_time
    shares = any(
        abs((span.end - span.start) - (other.end - other.start)) > 1e-9 * step
        for played in timeline.classes
        for span, other in zip(played.spans, timeline_of(batch, 0).spans, strict=True)
        if isinstance(played.program.operations[span.launch.operation], Collective)
    )
    slowed_as_before = ready.classes[0].interferes and not (batch.lanes.held.any() or batch.lanes.moved.any())
    if shares or slowed_as_before or batch.fallback.any():
        # a collective takes as long as without jitter, and a kernel is slowed as much; the engine knows better
        return False
    found, close = read(batch), {"rel": 1e-9, "abs": 1e-9 * step}
    for rank, played in enumerate(timeline.classes):
        lane = timeline_of(batch, rank)
        for name in ("reached_at", "met_at", "start", "end"):
            times = [[getattr(span, name) for span in item.spans] for item in (lane, played)]
            assert times[0] == pytest.approx(times[1], **close), name
        expected = exposure(played, step)
        assert found.stalled[rank] == pytest.approx(expected.stalled, **close)
        causes = {cause: row[rank] for cause, row in found.by_cause.items()}
        assert causes == pytest.approx(expected.by_cause(), **close)
    assert batch.step_time == pytest.approx(np.full(len(sample.ranks), step), **close)
    return True


JITTER = {"kernel": 0.2, "micro_batch": 0.1, "rank": 0.1, "replications": 1}

SMALL = strategies.topologies(st.sampled_from([1, 2, 4]), st.integers(1, 3))


def test_a_replication_of_textbook_schedules_is_the_engines_step(scenario):
    equal = []

    @settings(max_examples=60)
    @given(strategies.scenarios(SMALL), st.integers(0, 100), st.data())
    def holds(sections, seed, data):
        entries = data.draw(uneven(sections["topology"])) if data.draw(st.booleans()) else []
        equal.append(is_the_engine(scenario(**{**sections, "uneven": entries, "jitter": {**JITTER, "seed": seed}})))

    holds()
    assert equal.count(True) >= 30


def test_a_replication_of_frameworks_is_the_engines_step(scenario, llama):
    equal = []

    @settings(max_examples=60)
    @given(test_frameworks.scenarios(SMALL), st.integers(0, 100))
    def holds(sections, seed):
        if sections["model"]["layers"] is None:
            sections = {**sections, "model": {"sequence_length": 64, "config": llama}}
        try:
            equal.append(is_the_engine(scenario(**{**sections, "jitter": {**JITTER, "seed": seed}})))
        except InputError:
            return

    holds()
    assert equal.count(True) >= 30


@pytest.mark.parametrize(("policy", "again"), [({"fsdp2": {}}, True), ({"fsdp2": {"replicate": 2}}, False)])
def test_kernels_beside_several_communicators_are_slowed_as_without_jitter(scenario, llama, policy, again):
    """HSDP's shards and replicas are two communicators; next to no jitter gives next to the even step either way."""
    asked = scenario(
        model={"config": llama, "sequence_length": 64},
        topology={"cluster": "dgx-a100-80gb", "hosts": 2, "accelerators_per_host": 2},
        variants=[{"name": "v", **policy}],
        jitter={"kernel": 1e-9, "replications": 2},
    )
    variant = asked.variants[0]
    ready = stage(asked, record(asked, variant))
    even = simulate(ready)
    ((_, batch),) = replications(asked, asked.jitter, ready, even)
    assert ready.classes[0].interferes
    assert bool(batch.lanes.held.any()) is again
    assert batch.step_time == pytest.approx(np.full(8, even.step_time), rel=1e-6)


def test_hosts_that_differ_are_sampled_first():
    mesh = Mesh(hosts=8, devices_per_host=2)
    slow = Own(pace=Pace(2.0))
    own = np.zeros(16, dtype=np.intp)
    own[11] = 1
    found = division_of(own, [Own(), slow], mesh)
    sample = sampled(found, mesh, 6)
    assert sample.ranks.tolist() == [0, 1, 2, 3, 10, 11]
    assert sample.on_pace.tolist() == [0, 1, 2, 3, 4]
    assert sample.weights.tolist() == [3 / 16] * 5 + [1 / 16]
    with pytest.raises(InputError, match=r"jitter.ranks"):
        sampled(found, mesh, 2)


def division_of(own, owns, mesh):
    parts, of_rank = divided(own, [mesh.world()])
    return Division(parts=parts, owns=tuple(owns), of_rank=of_rank)


def test_jitter_needs_no_ranks_all(scenario):
    asked = scenario(run={"ranks": "all"}, jitter={"kernel": 0.1})
    with pytest.raises(InputError, match=r"run.ranks"):
        run_variant(asked, asked.variants[0])


@pytest.mark.parametrize(("section", "words"), [
    ({}, ["jitter", "nothing is random"]),
    ({"kernel": 1.5}, ["jitter.kernel"]),
    ({"kernel": -0.1}, ["jitter.kernel"]),
    ({"micro_batch": 0.1, "micro_batches": [1, 2]}, ["jitter.micro_batches", "told twice"]),
    ({"kernel": 0.1, "distribution": "uniform"}, ["jitter.distribution"]),
])  # fmt: skip
def test_wrong_sections_are_told(scenario, section, words):
    with pytest.raises(InputError) as caught:
        scenario(jitter=section)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("policy", [{"fsdp1": {}}, {"zero_stage": 3}, {"fsdp2": {}}])
def test_thousand_collectives_that_follow_each_other_are_looked_through(scenario, policy):
    """A network that is never idle: whoever waits looks for late ranks before all that went before it."""
    asked = scenario(
        model={"sequence_length": 1, "layers": [{**LAYER[0], "count": 400, "parameters": 1e6, "forward_time": "1 us"}]},
        topology=flat(hosts=4, bandwidth="1 GB/s"),
        variants=[{"name": "v", **policy}],
        jitter={"replications": 4, "kernel": 0.1},
    )
    result = run_variant(asked, asked.variants[0]).result
    assert sum(result.exposed_by_cause.values()) == pytest.approx(result.exposed["stalled"])
    assert result.jitter["step_time"]["mean"] >= result.step_time * (1 - 1e-9)
