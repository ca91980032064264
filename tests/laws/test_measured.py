"""What holds for every table of measured layers."""

import csv
import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.laws.kernels import Kernel
from simulator.schedules.record import record
from tests.laws import strategies
from tests.laws.test_frameworks import LLAMA, asked
from tests.laws.test_frameworks import scenarios as framework_scenarios

KINDS = ("forward", "recompute", "backward")
OFTEN = settings(max_examples=60)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return tmp_path_factory.mktemp("measured") / "layers.csv"


def write(table, rows):
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["layer", *(f"{kind}_s" for kind in KINDS)], *rows])


def measured(scenario, table, sections):
    """The scenario of *sections* with the table; nothing that it refuses is forgiven."""
    model = sections["model"]
    if model["layers"] is None:
        model = {"sequence_length": model["sequence_length"], "config": LLAMA}
    return scenario(**{**sections, "model": model}, compute={"measured": str(table)})


def launched(found):
    """Kernels of the model that the first micro-batch launches: kind, label, time."""
    program = record(found, found.variants[0])
    cast = stage(found, program).classes[0]
    for launch in program.launches:
        operation = program.operations[launch.operation]
        if isinstance(operation, Kernel) and not launch.micro_batch and launch.phase != "eval":
            yield operation.kind, launch.label, cast.times[launch.operation]


def own_times(found, parts):
    """A row for each of *parts*, names of modules by the name of the one above, with what the model takes for it."""
    spent = defaultdict(list)
    for kind, label, time in launched(found):
        for name, part in parts.items():
            if label in part and kind in KINDS:
                spent[name, kind].append(time)
    return [[name, *(repr(math.fsum(spent[name, kind])) for kind in KINDS)] for name in parts]


def chosen(data, model):
    """Some modules that launch kernels, each in one layer, none inside another, with the names of all below each."""
    parts = {}
    below = [module for layer in model.layers for module in model.modules_of(layer)]
    modules = [module for module in below if any(item.forward for item in module.walk())]
    for module in data.draw(st.lists(st.sampled_from(modules), unique_by=lambda item: item.name, max_size=6)):
        names = {below.name for below in module.walk()}
        if not any(names & part for part in parts.values()):
            parts[module.name] = names
    return parts


def simulated(found):
    program = record(found, found.variants[0])
    return simulate(stage(found, program))


def ends(timeline):
    return [span.end for span in timeline.classes[0].spans]


@OFTEN
@given(framework_scenarios(), st.data())
def test_a_table_of_the_models_own_times_changes_nothing(scenario, table, sections, data):
    found = asked(scenario, LLAMA, sections)
    parts = chosen(data, found.model)
    if parts:
        write(table, own_times(found, parts))
        assert ends(simulated(measured(scenario, table, sections))) == ends(simulated(found))


@OFTEN
@given(strategies.scenarios(), st.data())
def test_nor_does_it_under_the_textbook_schedule(scenario, table, sections, data):
    found = scenario(**sections)
    names = [layer.name for layer in found.model.layers]
    parts = {name: {name} for name in data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))}
    write(table, own_times(found, parts))
    assert ends(simulated(measured(scenario, table, sections))) == ends(simulated(found))


@OFTEN
@given(framework_scenarios(), st.data())
def test_a_part_takes_the_tables_time_and_the_rest_the_models(scenario, table, sections, data):
    found = asked(scenario, LLAMA, sections)
    parts = chosen(data, found.model)
    if not parts:
        return
    given = {name: [data.draw(st.sampled_from([0.0, 1e-6, 0.7, 33.0])) for _ in KINDS] for name in parts}
    write(table, [[name, *map(repr, times)] for name, times in given.items()])
    before = list(launched(found))
    after = list(launched(measured(scenario, table, sections)))
    assert [item[:2] for item in after] == [item[:2] for item in before]
    inside = frozenset().union(*parts.values())
    changed = [kind in KINDS and label in inside for kind, label, _ in before]
    assert [item for item, is_in in zip(after, changed, strict=True) if not is_in] == [
        item for item, is_in in zip(before, changed, strict=True) if not is_in
    ]
    for name, times in given.items():
        for kind, time in zip(KINDS, times, strict=True):
            spent = [seconds for what, label, seconds in after if what == kind and label in parts[name]]
            assert not spent or math.fsum(spent) == pytest.approx(time, rel=1e-12)
