"""Whatever ranks are slower: one rank for all that behave alike gives what every single rank gives."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.clock.parts import divided
from simulator.clock.stage import stage
from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.schedules.record import record
from simulator.world.mesh import Mesh
from tests.laws import checks, strategies, test_frameworks


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.json"
    path.write_text(json.dumps(test_frameworks.LLAMA))
    return str(path)


@st.composite
def meshes(draw):
    """A mesh and some of its groups."""
    mesh = Mesh(hosts=draw(st.integers(1, 6)), devices_per_host=draw(st.sampled_from([1, 2, 4, 8])))
    shapes = [
        (size, stride)
        for stride in range(1, mesh.ranks + 1)
        for size in range(1, mesh.ranks // stride + 1)
        if mesh.ranks % (size * stride) == 0
    ]
    groups = {}
    for size, stride in draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=4)):
        try:
            groups[f"{size}x{stride}"] = mesh.group(f"{size}x{stride}", size, stride)
        except InputError:
            continue
    return mesh, list(groups.values())


@given(meshes(), st.data())
def test_ranks_of_a_class_meet_as_many_of_every_class(given_mesh, data):
    mesh, groups = given_mesh
    own = np.array(data.draw(st.lists(st.integers(0, 2), min_size=mesh.ranks, max_size=mesh.ranks)))
    parts, of_rank = divided(own, groups)
    for number, part in enumerate(parts):
        members = np.flatnonzero(of_rank == number)
        assert (members[0], len(members)) == (part.rank, part.ranks)
        assert len(set(own[members])) == 1
        for group in groups:
            met = {tuple(np.sort(of_rank[list(group.members(int(rank)))])) for rank in members}
            assert len(met) == 1
            assert part.meets[group.name][1] == set(met.pop())


def seen(own, groups, steps):
    """What each rank has seen of the others after so many collectives on every group; naively."""
    known = [(value,) for value in own]
    for _ in range(steps):
        known = [
            (known[rank], *(tuple(sorted(known[other] for other in group.members(rank))) for group in groups))
            for rank in range(len(own))
        ]
        numbers = {item: number for number, item in enumerate(sorted(set(known)))}
        known = [(numbers[item],) for item in known]
    return known


@settings(max_examples=30)
@given(meshes(), st.data())
def test_no_class_is_split_without_need(given_mesh, data):
    mesh, groups = given_mesh
    own = np.array(data.draw(st.lists(st.integers(0, 1), min_size=mesh.ranks, max_size=mesh.ranks)))
    parts, _ = divided(own, groups)
    assert len(parts) == len(set(seen(own.tolist(), groups, mesh.ranks)))


@st.composite
def uneven(draw, topology):
    """Entries for some cluster."""
    entries = []
    for _ in range(draw(st.integers(1, 2))):
        entry = {"slowdown": draw(st.sampled_from([0.5, 1.0, 1.3, 3.0]))}
        if draw(st.booleans()):
            entry["host"] = draw(st.integers(0, topology["hosts"] - 1))
        else:
            entry["hosts"] = draw(st.integers(1, topology["hosts"]))
        if "accelerators_per_host" in topology and draw(st.booleans()):
            entry["device"] = draw(st.integers(0, topology["accelerators_per_host"] - 1))
        if draw(st.booleans()):
            entry["micro_batches"] = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=3))
        if draw(st.booleans()):
            entry["host_slowdown"] = draw(st.sampled_from([0.5, 4.0]))
        entries.append(entry)
    return entries


def is_the_same_step(scenario, sections, entries):
    """By classes and by ranks."""
    found = []
    for how in ("classes", "all"):
        run = {**sections.get("run", {}), "ranks": how}
        asked = scenario(**{**sections, "uneven": entries, "run": run})
        found.append(run_variant(asked, asked.variants[0]))
        ready = stage(asked, record(asked, asked.variants[0]))
        checks.recurrence_is_the_engine_on_an_infinitely_fast_network(ready)
    classes, ranks = found
    assert classes.result.step_time == pytest.approx(ranks.result.step_time, rel=1e-9)
    assert sum(item.ranks for item in classes.timeline.classes) == len(ranks.timeline.classes)
    step = ranks.result.step_time
    # every class stalls as one of the ranks does, and the other way round
    for some, others in ((classes, ranks), (ranks, classes)):
        other = sorted({round(reading.stalled / step, 8) for reading in others.readings()}) if step else []
        for reading in some.readings() if step else ():
            assert min(abs(reading.stalled / step - stalled) for stalled in other) < 1e-6


@settings(max_examples=60)
@given(strategies.scenarios(strategies.topologies(st.sampled_from([1, 2, 4]), st.integers(1, 3))), st.data())
def test_classes_of_textbook_schedules(scenario, sections, data):
    (variant,) = sections["variants"]
    shared = {**sections, "variants": [{**variant, "reduce_communicator": "shared"}]}
    is_the_same_step(scenario, shared, data.draw(uneven(sections["topology"])))


@settings(max_examples=60)
@given(test_frameworks.scenarios(strategies.topologies(st.sampled_from([1, 2, 4]), st.integers(1, 3))), st.data())
def test_classes_of_frameworks(scenario, llama, sections, data):
    if sections["model"]["layers"] is None:
        sections = {**sections, "model": {"sequence_length": 64, "config": llama}}
    try:
        is_the_same_step(scenario, sections, data.draw(uneven(sections["topology"])))
    except InputError:
        assume(False)
