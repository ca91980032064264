"""Figures of sweeps: what stands where, and that they show what the results say."""

import math
from itertools import product
from numbers import Number

import pytest
from matplotlib.colors import to_hex

from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.readings.colours import SERIES_COLOURS
from simulator.readings.layout import default_figure, layout
from simulator.readings.metrics import metric
from simulator.readings.plots import best_figure, curves_figure, heatmap_figure, pareto_figure
from simulator.readings.rows import flat_rows
from simulator.readings.varied import dimensions
from simulator.world.scenario import load_scenario

SPEED, BATCH = "topology.links.network.bandwidth", "training.micro_batch"


def result(name, point, tokens=1.0, fits=True, needed=1e9, failure=None, **others):
    if failure:
        return {"point": point, "name": name, "failure": failure, "memory": None, "tokens_per_second_per_gpu": None}
    memory = {"fits": fits, "needed": needed}
    known = {"point": point, "name": name, "failure": None, "memory": memory, "tokens_per_second_per_gpu": tokens}
    return known | others


def crossing_lines(**point):
    """zero1 stays at 200; zero3 rises from 100 to 300 between 1 and 16 Gbit/s: they cross at 4, half of the ratio."""
    heights = {"zero1": (200.0, 200.0, 200.0), "zero3": (100.0, 300.0, 300.0)}
    return [
        result(name, {SPEED: speed, **point}, tokens)
        for name, line in heights.items()
        for speed, tokens in zip(("1 Gbit/s", "16 Gbit/s", "256 Gbit/s"), line, strict=True)
    ]


def grid(**changed):
    """Two variants at 2 x 2 points; zero3 is better at 2 Gbit/s."""
    found = [
        result(name, {SPEED: f"{speed} Gbit/s", BATCH: batch}, 10.0 * batch + (speed if name == "zero3" else 1.5))
        for name, speed, batch in product(("zero1", "zero3"), (1, 2), (1, 2))
    ]
    return [item | changed if item["point"][BATCH] == 2 and item["name"] == "zero3" else item for item in found]


def said(axes):
    return [text.get_text().strip() for text in axes.texts]


def legend(figure):
    return [text.get_text() for item in figure.legends for text in item.get_texts()]


def marked(axes, gid):
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


# what varied


def test_numbers_of_a_key_are_in_the_unit_of_the_largest_and_ascend():
    points = [{"name": "a", "point": {SPEED: speed}} for speed in ("1 GB/s", "200 Mbit/s", "4 GB/s")]
    found = dimensions(points)[SPEED]
    assert (found.numbers, found.unit, found.shown()) == ((0.025, 1.0, 4.0), "GB/s", ("0.025", "1", "4"))
    assert found.label == f"{SPEED} [GB/s]"


@pytest.mark.parametrize("values", [("ring", "tree"), (True, False), (1, "auto"), ("1 GB", "1 s"), ("1 GB", 3)])
def test_what_is_not_a_number_of_one_kind_keeps_its_order(values):
    found = dimensions({"name": "a", "point": {"key": value}} for value in values)["key"]
    assert (found.numbers, found.texts) == (None, tuple(map(str, values)))


# metrics


def test_every_number_of_a_result_is_a_metric_and_is_found():
    asked = load_scenario("llama-2-13b-two-hosts", ["training.gradient_accumulation=1"])
    whole = run_variant(asked, asked.variant("zero3")).result.as_json()
    numbers = {
        name: value
        for name, value in next(flat_rows([{"point": {}} | whole])).items()
        if isinstance(value, Number) and not isinstance(value, bool)
    }
    assert len(numbers) > 40
    assert {name: metric(name).of(whole) for name in numbers} == numbers


def test_a_metric_that_no_result_can_have_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"did you mean 'exposed\.stalled'"):
        metric("exposed.staled")
    with pytest.raises(InputError, match="same unit"):
        metric("exposed.stalled/memory.peak")


# layout


def test_without_a_word_curves_go_over_the_key_of_most_numbers_and_the_rest_becomes_panels():
    asked = layout("curves", grid())
    assert {place: key.key for place, key in asked.keys.items()} == {"x": SPEED, "color": "variant", "cols": BATCH}
    assert asked.metrics["y"].name == "tokens_per_second_per_gpu"


def test_keys_that_move_side_by_side_need_one_place():
    rows = [
        {"name": "zero1", "point": {"topology.hosts": n, "training.gradient_accumulation": 8 // n}} for n in (1, 2, 4)
    ]
    assert set(layout("curves", rows, x="topology.hosts").keys) == {"x", "color"}


def test_a_heat_map_has_a_panel_for_each_variant_and_a_map_of_the_best_has_one():
    assert layout("heatmap", grid()).keys["cols"].key == "variant"
    assert layout("best", grid()).facets() == ()


def test_the_default_is_what_can_be_drawn():
    assert default_figure(grid()) == "curves"
    assert default_figure([{"name": "a", "point": {"algorithm": name}} for name in ("ring", "tree")]) == "pareto"


@pytest.mark.parametrize(("kind", "asked", "expected"), [
    ("curves", {"x": "training.micro_batches"}, f"did you mean '{BATCH}'"),
    ("curves", {"y": "mfuu"}, "did you mean 'mfu'"),
    ("curves", {"x": "variant"}, "not a key of numbers"),
    ("curves", {"rows": "variant"}, "stands at two places"),
    ("heatmap", {"x": SPEED, "y": SPEED}, "stands at two places"),
    ("best", {"cols": "variant"}, "what the colour says"),
    ("pareto", {"color": "training.micro_batches"}, f"did you mean '{BATCH}'"),
])  # fmt: skip
def test_a_wrong_layout_is_one_line(kind, asked, expected):
    with pytest.raises(InputError) as refused:
        layout(kind, grid(), **asked)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_keys_than_places_are_refused_with_the_one_that_is_left():
    keys = "abcd"
    rows = [{"name": "zero1", "point": dict(zip(keys, values, strict=True))} for values in product((1, 2), repeat=4)]
    with pytest.raises(InputError, match="no place is left for d"):
        layout("curves", rows)


def test_too_many_panels_are_refused():
    rows = [{"name": "zero1", "point": {"a": a, "b": b}} for a in range(40) for b in range(40)]
    with pytest.raises(InputError, match="40 panels"):
        layout("curves", rows)


# curves


def test_curves_name_their_axes_with_units_and_say_who_is_best_where():
    figure = curves_figure(crossing_lines(), "small")
    (axes,) = figure.axes
    assert axes.get_xlabel() == f"{SPEED} [Gbit/s]"
    assert axes.get_ylabel() == "throughput [tokens/s per GPU]"
    assert figure.get_suptitle() == f"Throughput over {SPEED}: small"
    assert figure.texts[1].get_text() == "Best: zero1, then zero3 from 4 Gbit/s"
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()][::-1] == ["1", "16", "256"]


def test_a_line_for_each_variant_in_its_colour_and_a_dotted_one_where_another_becomes_the_best():
    (axes,) = curves_figure(crossing_lines(), "small").axes
    lines = {line.get_label(): line for line in axes.lines if line.get_label() in ("zero1", "zero3")}
    assert {name: list(line.get_ydata()) for name, line in lines.items()} == {
        "zero1": [200, 200, 200], "zero3": [100, 300, 300]
    }  # fmt: skip
    assert [line.get_color() for line in lines.values()] == list(SERIES_COLOURS[:2])
    assert said(axes) == ["zero3 from 4"]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"] == [4.0]


def test_lines_that_cross_below_the_best_get_a_ring_with_the_value():
    lines = [*crossing_lines(), *(result("ddp", {SPEED: f"{speed} Gbit/s"}, 400.0) for speed in (1, 16, 256))]
    (axes,) = curves_figure(lines, "small").axes
    ring, label = marked(axes, "crossing")
    assert (ring.get_xdata()[0], ring.get_ydata()[0], label.get_text()) == (4.0, 200.0, "4")
    assert marked(axes, "change") == []


def test_crossings_of_lines_that_nobody_can_tell_apart_are_not_marked():
    lines = [
        *crossing_lines(),
        *(result("twin", {SPEED: f"{speed} Gbit/s"}, 200.5 - speed / 256) for speed in (1, 16, 256)),
    ]
    (axes,) = curves_figure(lines, "small").axes
    assert all(ring.get_ydata()[0] > 150 for ring in marked(axes, "crossing")[::2])
    pairs = [line for line in axes.lines if line.get_gid() == "crossing"]
    assert len(pairs) == 1


def test_what_does_not_fit_is_hollow_and_never_the_best_and_what_failed_is_a_cross():
    lines = crossing_lines()
    lines[4] = result("zero3", {SPEED: "16 Gbit/s"}, 300.0, fits=False)
    lines[5] = result("zero3", {SPEED: "256 Gbit/s"}, failure="no groups")
    figure = curves_figure(lines, "small")
    (axes,) = figure.axes
    crosses = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert crosses == [[256.0]]
    assert marked(axes, "change") == []
    assert figure.texts[1].get_text() == "Best: zero1, at all 3 points"
    assert {"does not fit in memory", "no result"} <= set(legend(figure))
    assert figure.texts[-1].get_text() == "1 of 6 have no result: no groups"
    hollow = next(line for line in axes.lines if list(line.get_ydata())[:2] == [100, 300])
    assert hollow.get_markerfacecolor() == "white"
    full = next(line for line in axes.lines if line.get_label() == "zero3")
    assert [math.isnan(value) for value in full.get_ydata()] == [False, True, True]


def test_small_multiples_share_their_axes_and_their_colours():
    lines = [item for batch in (1, 2, 4) for item in crossing_lines(**{BATCH: batch})]
    figure = curves_figure(lines, "small")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"micro_batch = {batch}" for batch in (1, 2, 4)]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert [axes.get_ylabel() != "" for axes in figure.axes] == [True, False, False]
    assert {axes.get_xlabel() for axes in figure.axes} == {"bandwidth [Gbit/s]"}


def test_rows_and_columns_make_a_grid():
    lines = [
        item
        for batch in (1, 2)
        for hosts in (4, 8)
        for item in crossing_lines(**{BATCH: batch, "topology.hosts": hosts})
    ]
    figure = curves_figure(lines, "small", rows=BATCH, cols="topology.hosts")
    places = {axes.get_title(loc="left"): axes.get_position().bounds[:2] for axes in figure.axes}
    assert list(places) == [f"micro_batch = {batch}, hosts = {hosts}" for batch in (1, 2) for hosts in (4, 8)]
    assert places["micro_batch = 1, hosts = 4"][0] == places["micro_batch = 2, hosts = 4"][0]
    assert places["micro_batch = 1, hosts = 4"][1] > places["micro_batch = 2, hosts = 4"][1]


def test_a_quotient_is_in_percent():
    lines = [result("zero1", {BATCH: n}, exposed={"stalled": 1.0}, step_time=4.0 * n) for n in (1, 2)]
    (axes,) = curves_figure(lines, "small", y="exposed.stalled/step_time").axes
    assert axes.get_ylabel() == "exposed communication / step time [%]"
    assert list(next(line for line in axes.lines if line.get_label() == "zero1").get_ydata()) == [25.0, 12.5]


def test_a_metric_that_no_result_has_is_said():
    with pytest.raises(InputError, match=r"it has no cost\.per_step"):
        curves_figure([item | {"cost": None} for item in grid()], "small", y="cost.per_step")


# maps


def test_a_heat_map_writes_its_numbers_and_its_unit():
    figure = heatmap_figure(grid(), "small")
    first, second, bar = figure.axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("zero1", "zero3")
    assert sorted(said(first)) == ["11.5", "11.5", "21.5", "21.5"]
    assert bar.get_xlabel() == "throughput [tokens/s per GPU]"
    assert (
        figure.texts[1]
        .get_text()
        .startswith("Best: 22 tokens/s per GPU at bandwidth = 2 Gbit/s, micro_batch = 2, zero3")
    )


def test_cells_of_the_same_number_have_the_same_colour_in_all_panels():
    found = [item | {"tokens_per_second_per_gpu": 10.0 * item["point"][BATCH]} for item in grid()]
    first, second, _ = heatmap_figure(found, "small").axes
    shades = [[to_hex(patch.get_facecolor()) for patch in axes.patches] for axes in (first, second)]
    assert shades[0] == shades[1]
    assert len(set(shades[0])) == 2


def test_cells_that_fail_or_do_not_fit_are_hatched():
    figure = heatmap_figure(grid(memory={"fits": False, "needed": 1e12}), "small")
    assert [patch.get_hatch() for patch in figure.axes[1].patches] == [None, "////", None, "////"]
    assert "does not fit in memory" in legend(figure)
    failed = heatmap_figure(grid(failure="no groups"), "small")
    assert [patch.get_hatch() for patch in failed.axes[1].patches] == [None, "xxxx", None, "xxxx"]
    assert "no result" in legend(failed)


def test_the_map_of_the_best_has_the_colours_of_the_curves_and_says_the_lead():
    figure = best_figure(grid(), "small")
    (axes,) = figure.axes
    assert [to_hex(patch.get_facecolor()).upper() for patch in axes.patches] == [
        SERIES_COLOURS[0], SERIES_COLOURS[0], SERIES_COLOURS[1], SERIES_COLOURS[1]
    ]  # fmt: skip
    assert said(axes) == ["11.5\n4.3 %", "21.5\n2.3 %", "12\n4.2 %", "22\n2.3 %"]
    assert legend(figure) == ["zero1", "zero3"]


def test_what_does_not_fit_is_not_the_best():
    (axes,) = best_figure(grid(memory={"fits": False, "needed": 1e12}), "small").axes
    assert said(axes) == ["11.5\n4.3 %", "21.5", "12\n4.2 %", "21.5"]


# pareto


def spread():
    """Throughput and memory [GB]; a, b and c are on the front, d is beaten by b, e would not fit."""
    values = {"a": (10.0, 1e9), "b": (20.0, 2e9), "c": (30.0, 4e9), "d": (20.0, 3e9)}
    found = [result(name, {BATCH: 1}, tokens, needed=needed) for name, (tokens, needed) in values.items()]
    return [*found, result("e", {BATCH: 1}, 99.0, fits=False, needed=9e9)]


def test_the_front_is_drawn_and_its_members_are_listed_the_best_first():
    figure = pareto_figure(spread(), "small")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("throughput [tokens/s per GPU]", "memory needed [GB]")
    rings = [(ring.get_xdata()[0], ring.get_ydata()[0]) for ring in marked(axes, "front")]
    assert rings == [(30.0, 4.0), (20.0, 2.0), (10.0, 1.0)]
    assert said(axes) == ["1", "2", "3"]
    listed = next(text.get_text() for text in figure.texts if text.get_text().startswith("1  "))
    assert listed.splitlines() == [
        "1  c:  30 tokens/s per GPU,  4 GB", "2  b:  20 tokens/s per GPU,  2 GB", "3  a:  10 tokens/s per GPU,  1 GB"
    ]  # fmt: skip
    assert figure.texts[1].get_text() == "On the front: 3 of 4 results that fit in memory"
    (front,) = (line for line in axes.lines if line.get_label() == "front")
    assert list(front.get_xdata()) == [30.0, 20.0, 10.0]


def test_a_price_as_colour_is_a_third_thing_to_be_good_at():
    prices = dict(zip("abcde", (3.0, 3.0, 3.0, 1.0, 1.0), strict=True))
    found = [item | {"cost": {"per_step": prices[item["name"]]}} for item in spread()]
    figure = pareto_figure(found, "small", color="cost.per_step")
    axes, bar = figure.axes
    assert len(marked(axes, "front")) == 4
    assert bar.get_xlabel() == "price of a step [US$]"
    assert not [line for line in axes.lines if line.get_label() == "front"]


def test_members_that_are_the_same_in_all_metrics_are_one():
    figure = pareto_figure([*spread(), result("f", {BATCH: 1}, 30.0, needed=4e9)], "small")
    listed = next(text.get_text() for text in figure.texts if text.get_text().startswith("1  "))
    assert listed.splitlines()[0].endswith("(the same: 1 more)")
    assert len(listed.splitlines()) == 3
