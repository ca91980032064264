"""Figures: what they say, in which colours, and that the bars are as long as what they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.explore import run_variant
from simulator.readings import colours
from simulator.readings.colours import CAUSE_COLOURS, colour
from simulator.readings.exposure import CAUSES, exposure
from simulator.readings.files import write_atomically
from simulator.readings.plots import exposed_figure, memory_figure, timeline_figure, topology_figure
from simulator.readings.plots.lanes import Bar, Lane, exposed_lane, lanes, liveliest, memory_held, shares
from simulator.readings.report import timeline_of
from simulator.schedules.record import record
from simulator.world.scenario import load_scenario
from simulator.world.topology.cluster import load_cluster

SCENARIO = """
name: small
model:
  sequence_length: 1
  layers: [{name: layer, count: 6, parameters: 1e9, forward_time: 7 ms, backward_time: 13 ms}]
training: {micro_batch: 1, gradient_accumulation: 2}
topology: {cluster: flat, hosts: 2, links: {link: {bandwidth: 80 GB/s, latency: 3 us}}}
variants:
  - {name: zero1, zero_stage: 1}
  - {name: zero3, zero_stage: 3}
  - {name: zero++, zero_stage: 3, zero_quantized_weights: true, zero_quantized_gradients: true}
"""


@pytest.fixture(params=[0, 1, 2], ids=["zero1", "zero3", "zero++"])
def played(request, tmp_path):
    """Rank class and exposure of one variant."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    scenario = load_scenario(path)
    timeline = simulate(stage(scenario, record(scenario, scenario.variants[request.param]))).classes[0]
    return timeline, exposure(timeline)


def drawn_bars(axes):
    """Length of all bars of each colour and lane: {(colour, lane): length}."""
    found = {}
    for collection in axes.collections:
        for path in collection.get_paths():
            (left, bottom), (right, top) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            key = to_hex(collection.get_facecolor()[0]).upper(), round(-(bottom + top) / 2)
            found[key] = found.get(key, 0.0) + right - left
    return found


def legend_colours(legend):
    """Colour of each filled entry."""
    handles = [handle for handle in legend.legend_handles if hasattr(handle, "get_height")]
    return {handle.get_label(): to_hex(handle.get_facecolor()).upper() for handle in handles}


def texts(figure: Figure) -> list[str]:
    legends = (text for legend in figure.legends for text in legend.get_texts())
    return [
        text.get_text() for text in [*figure.texts, *legends, *(text for axes in figure.axes for text in axes.texts)]
    ]


def result(name, causes, collectives, **others):
    usual = {"step_time": 10.0, "failure": None, "memory": {"fits": True}}
    return {"name": name, "exposed_by_cause": causes, "exposed_by_collective": collectives, **usual, **others}


RESULTS = [
    result("zero3", {"bandwidth": 0.75, "queueing": 0.25}, {"forward_all_gather": 1.0}),
    result("zero++", {"bandwidth": 0.25, "latency": 0.0}, {"forward_all_gather": 0.125, "reduce_scatter": 0.125}),
    result("ddp", {"bandwidth": 0.125}, {"all_reduce": 0.125}, memory={"fits": False}),
    result("mics", None, None, step_time=None, failure="groups of 12 do not divide 16 ranks"),
]


# colours


def test_every_cause_has_a_colour_of_its_own():
    assert {*CAUSES, "host bound"} == CAUSE_COLOURS.keys()
    assert len(set(CAUSE_COLOURS.values())) == len(CAUSE_COLOURS)


def test_no_name_stands_in_two_tables():
    tables = (colours.CAUSE_COLOURS, colours.KIND_COLOURS, colours.ROLE_COLOURS, colours.ITEM_COLOURS)
    names = [name for table in tables for name in table]
    assert len(set(names)) == len(names)
    assert all(colour(name) == table[name] for table in tables for name in table)


# timeline


def test_the_headline_is_the_title(played):
    assert timeline_figure(*played, "zero3: nothing is exposed").get_suptitle() == "zero3: nothing is exposed"


def test_a_stream_that_never_ran_has_no_lane(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("zero_stage: 1", "zero_stage: 0"))
    scenario = load_scenario(path)
    timeline = simulate(stage(scenario, record(scenario, scenario.variants[0]))).classes[0]
    assert set(timeline.program.streams) > {lane.name for lane in lanes(timeline)}


def test_axes_carry_units(played):
    streams, causes, memory, window = timeline_figure(*played, "x").axes
    assert [axes.get_xlabel() for axes in (memory, window)] == ["time [ms]", "time [ms]"]
    assert "[% of time]" in causes.get_ylabel()
    assert "[GB]" in memory.get_ylabel()
    names = [text.get_text() for text in streams.get_yticklabels()]
    assert names == [name.replace("_", " ") for name in played[0].program.streams]


def test_compute_and_exposed_bars_cover_the_step(played):
    timeline, reading = played
    end = max(span.end for span in timeline.spans)
    axes = timeline_figure(timeline, reading, "x", (0.0, end)).axes[3]
    last = len(timeline.program.streams)
    drawn = sum(length for (_, lane), length in drawn_bars(axes).items() if lane in (0, last))
    assert drawn == pytest.approx(end, rel=1e-9)


def test_exposed_bars_have_the_colour_and_the_length_of_their_cause(played):
    timeline, reading = played
    end = max(span.end for span in timeline.spans)
    axes = timeline_figure(timeline, reading, "x", (0.0, end)).axes[3]
    last = len(timeline.program.streams)
    drawn = {shade: length for (shade, lane), length in drawn_bars(axes).items() if lane == last}
    expected = {CAUSE_COLOURS[cause]: time for cause, time in reading.by_cause().items() if time > 1e-12}
    assert {shade: length for shade, length in drawn.items() if length > 1e-12} == pytest.approx(expected, rel=1e-9)


def test_the_legend_names_what_occurs_in_the_colours_of_the_table(played):
    entries = {}
    for legend in timeline_figure(*played, "x").legends:
        entries |= legend_colours(legend)
    assert entries.keys() >= {"forward", "backward", "bandwidth"}
    names = [name for name in entries if name in CAUSE_COLOURS]
    assert {name: entries[name] for name in names} == {name: CAUSE_COLOURS[name] for name in names}


def test_all_type_is_legible(played):
    figure = timeline_figure(*played, "x")
    sizes = [text.get_fontsize() for axes in figure.axes for text in axes.texts]
    sizes += [text.get_fontsize() for legend in figure.legends for text in legend.get_texts()]
    assert min(sizes) >= 9


def test_a_window_shows_only_what_is_inside(played):
    axes = timeline_figure(*played, "x", (0.05, 0.075)).axes[3]
    assert axes.get_xlim() == (0.05, 0.075)
    compute = sum(length for (_, lane), length in drawn_bars(axes).items() if lane == 0)
    assert 0 < compute <= 0.025 + 1e-12


# what lies under the timeline


def test_shares_add_up_to_what_was_busy():
    lane = Lane("compute", (Bar(0.0, 1.5, "forward", ""), Bar(1.5, 2.0, "backward", ""), Bar(3.0, 3.5, "forward", "")))
    found = shares(lane, np.linspace(0, 4, 5))
    assert found["forward"].tolist() == [1.0, 0.5, 0.0, 0.5]
    assert found["backward"].tolist() == [0.0, 0.5, 0.0, 0.0]


def test_shares_of_streams_and_stalls_are_those_of_the_exposure(played):
    timeline, reading = played
    edges = np.linspace(0, max(span.end for span in timeline.spans), 38)
    busy = sum((share * np.diff(edges)).sum() for share in shares(lanes(timeline)[0], edges).values())
    idle = sum((share * np.diff(edges)).sum() for share in shares(exposed_lane(reading), edges).values())
    assert busy == pytest.approx(reading.compute + reading.copies, rel=1e-9)
    assert idle == pytest.approx(reading.stalled + reading.host_bound, rel=1e-9)


def test_the_peak_of_memory_is_not_averaged_away(played):
    timeline, _ = played
    edges = np.linspace(0, max(span.end for span in timeline.spans), 4)
    held, highest, at = 0.0, 0.0, -1.0
    for change in timeline.memory:
        highest = max(highest, held) if change.at > at else highest
        held, at = held + change.amount, change.at
    means, peaks = memory_held(timeline, edges)
    assert peaks.max() == max(highest, held)
    assert (sum(means.values()) <= peaks * (1 + 1e-9)).all()


def test_the_default_window_holds_the_most_exposed_time():
    lane = Lane("exposed", (Bar(1.0, 1.1, "latency", ""), Bar(50.0, 53.0, "bandwidth", ""), Bar(90, 92, "host", "")))
    start, end = liveliest(lane, 400, 100.0)
    assert start < 50
    assert end > 53
    assert end - start < 6


def test_without_exposed_time_the_window_is_the_beginning():
    assert liveliest(Lane("exposed", ()), 1000, 100.0)[0] == 0.0


def test_a_short_step_is_shown_whole():
    assert liveliest(Lane("exposed", (Bar(1.0, 1.1, "latency", ""),)), 7, 3.0) == (0.0, 3.0)


# exposed


def widths(axes):
    return [(to_hex(bar.get_facecolor()).upper(), bar.get_width()) for bar in axes.patches if bar.get_width()]


def test_the_bars_of_both_panels_are_the_seconds_of_the_results():
    by_collective, by_cause = exposed_figure(RESULTS, "x").axes
    assert widths(by_collective) == [
        (colour("forward_all_gather"), 1.0),
        (colour("forward_all_gather"), 0.125),
        (colour("reduce_scatter"), 0.125),
        (colour("all_reduce"), 0.125),
    ]
    assert widths(by_cause) == [
        (CAUSE_COLOURS["bandwidth"], 0.75),
        (CAUSE_COLOURS["queueing"], 0.25),
        (CAUSE_COLOURS["bandwidth"], 0.25),
        (CAUSE_COLOURS["bandwidth"], 0.125),
    ]


def test_bar_ends_carry_time_and_per_cent_of_the_step():
    found = texts(exposed_figure(RESULTS, "x"))
    assert sum(" 1 s (10 %)" in text for text in found) == 2
    assert sum(" 250 ms (2.5 %)" in text for text in found) == 2


def test_a_variant_that_cannot_run_is_a_row_with_the_reason():
    figure = exposed_figure(RESULTS, "x")
    assert figure.axes[0].get_yticklabels()[3].get_text() == "mics"
    assert any("does not run: groups of 12 do not divide" in text for text in texts(figure))


def test_the_finding_compares_variants_that_fit():
    figure = exposed_figure(RESULTS, "Ten seconds")
    assert figure.get_suptitle() == "Ten seconds"
    assert any("least with zero++, 2.5 % of the step, and most with zero3, 10 %" in text for text in texts(figure))
    assert figure.axes[0].get_yticklabels()[2].get_text() == "ddp*"
    assert "* does not fit in memory" in texts(figure)


def test_time_axes_of_the_bars_carry_a_unit_that_fits():
    small = [result("a", {"bandwidth": 2e-3}, {"all_reduce": 2e-3})]
    assert exposed_figure(small, "x").axes[0].get_xlabel() == "exposed time of a step [ms]"
    assert exposed_figure(RESULTS, "x").axes[1].get_xlabel() == "exposed time of a step [s]"


@pytest.mark.parametrize("results", [[], RESULTS[3:], [result("none", {}, {})]])
def test_nothing_exposed_is_a_figure_too(results, tmp_path):
    exposed_figure(results, "x").savefig(tmp_path / "x.png", dpi=40)


# files


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_figure_is_written_whole_in_the_format_of_its_suffix(suffix, tmp_path):
    figure = topology_figure(load_cluster("flat", hosts=2))
    write_atomically(tmp_path / f"x{suffix}", figure.savefig)
    (written,) = tmp_path.iterdir()
    magic = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert (written.name, written.read_bytes()[:4]) == (f"x{suffix}", magic[suffix][:4])


def test_a_figure_that_cannot_be_written_leaves_nothing(tmp_path):
    figure = exposed_figure(RESULTS, "x")
    with pytest.raises(ValueError, match="not supported"):
        write_atomically(tmp_path / "x.nonsense", figure.savefig)
    assert list(tmp_path.iterdir()) == []


# memory


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "scenario.yaml"
    path.write_text(SCENARIO)
    scenario = load_scenario(path)
    found = run_variant(scenario, scenario.variants[0])
    return found, timeline_of(scenario, found.variant, found.timeline)


def drawn_memory(outcome, **changed):
    found, curve = outcome
    memory = {**found.result.memory, **changed}
    return memory_figure(found.timeline.classes[0], memory, curve, "title", "finding")


def test_the_highest_point_of_the_areas_is_the_peak(outcome):
    held, _ = drawn_memory(outcome).axes
    outline = held.lines[0].get_ydata()
    assert max(outline) == pytest.approx(outcome[0].result.memory["peak"] / 1e9)
    tops = [path.vertices[:, 1].max() for area in held.collections for path in area.get_paths()]
    assert max(tops) == pytest.approx(max(outline))


def test_the_peak_is_named_and_its_items_have_their_sizes(outcome):
    memory = outcome[0].result.memory
    figure = drawn_memory(outcome)
    said = texts(figure)
    assert any(f"peak {memory['peak'] / 1e9:.1f} GB" in text for text in said)
    for item, size in memory["items"].items():
        assert f"{item}  {size / 1e9:.1f} GB" in said


@pytest.mark.parametrize(("factor", "line"), [(1.5, True), (3.0, False)])
def test_the_capacity_is_a_line_unless_it_is_far_above(outcome, factor, line):
    capacity = factor * outcome[0].result.memory["peak"]
    figure = drawn_memory(outcome, capacity=capacity)
    held, _ = figure.axes
    assert any(list(drawn.get_ydata()) == [capacity / 1e9] * 2 for drawn in held.lines) is line
    assert bool(held.get_ylim()[1] > capacity / 1e9) is line
    assert any(text.startswith("capacity") and ("above" in text) is not line for text in texts(figure))


def test_what_stays_lies_at_the_bottom_and_every_item_has_its_colour(outcome):
    held, _ = drawn_memory(outcome).axes
    _, curve = outcome
    sizes = [curve["items"][area.get_label()] for area in held.collections]
    steady = [min(item) == max(item) for item in sizes]
    assert steady == sorted(steady, reverse=True)
    assert all(to_hex(area.get_facecolor()[0]) == colour(area.get_label()).lower() for area in held.collections)
