"""`zerosim report`: what the page says, that it is the same each time, and what it refuses."""

import re
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.readings.colours import CAUSE_COLOURS
from simulator.readings.plots import finding_of, footprints_figure, inline_svg, waterfall_figure
from simulator.review import SECTIONS
from simulator.review.timeline import Bar, crowded
from tests.command import zerosim
from tests.review_pages import EVIL, page_of, written


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_of(tmp_path_factory.mktemp("review"), "--quick")


@pytest.fixture(scope="module")
def html(page):
    return page.read_text(encoding="utf-8")


def headings(html):
    return dict(re.findall(r'<h2 id="([a-z]+)-finding">(.*?)</h2>', html))


def test_headings_are_findings_with_numbers(html):
    found = headings(html)
    assert found["variants"].startswith("zero0 is the fastest that fits in memory: 31.5 s a step")
    assert found["timeline"].startswith("zero0 waits 3.5 s of a step of 31.5 s for communication")
    assert found["memory"].startswith("3 of 3 fit into the device")
    # 2 ranks x 2 $/h x 31.5 s for 4 tokens; a ninth of it waits
    assert found["cost"] == (
        "A billion tokens cost $8,750,000.00 with zero0, $972,222.22 of them for exposed communication"
    )


def test_what_is_left_out_is_said(html):
    assert list(headings(html)) == [name for name in SECTIONS if name not in ("whatif", "breakeven")]
    assert "Left out on request: whatif, breakeven." in html


def test_a_name_is_text_wherever_it_stands(html):
    assert EVIL not in html
    assert html.count("<script") == 2  # the timeline's numbers, and the page's own
    assert "alert('x')" in re.sub(r"&#(39|x27);", "'", html)


def test_nothing_is_fetched(html):
    assert "default-src &#39;none&#39;" in html
    assert re.findall(r'\b(?:src|href)="(?!#|data:)', html) == []
    assert "url(" not in re.sub(r"url\(#", "", html)


def test_identifiers_are_unique_and_lead_somewhere(html):
    names = re.findall(r'\bid="([^"]+)"', html)
    assert len(names) == len(set(names))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', html)) <= set(names)


def test_the_same_input_gives_the_same_bytes_but_for_the_date(page, html, tmp_path):
    again = page_of(tmp_path, "--quick").read_text(encoding="utf-8")
    different = [line for line, other in zip(html.splitlines(), again.splitlines(), strict=True) if line != other]
    assert all("<dt>Date</dt>" in line or "zerosim report" in line for line in different)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".html"] == ["review.html"]


def test_the_command_makes_the_page_again(tmp_path, monkeypatch):
    source = written(tmp_path)
    options = ["--set", "training.micro_batch=2", "--variant", "zero2", "--without", "timeline, cost", "--quick"]
    zerosim("report", source, *options, "-o", tmp_path / "page.html")
    (command,) = re.findall(r"<code>(zerosim report .*)</code>", (tmp_path / "page.html").read_text())
    assert command == (
        f"zerosim report {source} --set training.micro_batch=2 --variant zero2 "
        "--without whatif,breakeven,timeline,cost -o page.html"
    )


def test_another_variant_can_be_looked_into(tmp_path):
    html = page_of(tmp_path, "--quick", "--timeline", "zero2").read_text()
    assert headings(html)["timeline"].startswith("zero2 waits")


def test_what_does_not_run_and_what_does_not_fit_are_rows_and_not_the_fastest(tmp_path):
    source = written(tmp_path)
    text = source.read_text().replace("parameters: 1e9", "parameters: 1.5e9")
    text = text[: text.index('  - {name: "<script>')] + (
        "  - {name: refused, ddp: {static_graph: true, no_sync: true}}\n  - {name: zero3, zero_stage: 3}\n"
    )
    source.write_text(text)
    page = tmp_path / "page.html"
    done = zerosim("report", source, "--quick", "-o", page)
    assert done.returncode == 0, done.stderr
    found = headings(page.read_text())
    assert found["variants"].startswith(
        "zero2 is the fastest that fits in memory"
    )  # zero0 keeps 16 B x 6e9 = 96 of 80 GB
    assert "zero0 needs most" in found["memory"]
    assert "refused cannot run" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--without", "what-if", "-o", "page.html"], "--without: 'what-if': unknown section; did you mean 'whatif'?"),
        (["--timeline", "zero9", "-o", "page.html"], "--timeline: 'zero9': unknown variant; did you mean"),
        (["-o", "missing/page.html"], "no such folder"),
        (["-o", "page.pdf"], "expected a name that ends in .html"),
        ([], "Missing option '-o'"),
    ],
)
def test_mistakes_are_one_line(tmp_path, arguments, said):
    done = zerosim("report", written(tmp_path), *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*.html"))


bars = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=60)


@given(bars, st.integers(1, 80))
def test_a_crowded_lane_keeps_its_ends_its_order_and_all_operations(pairs, most):
    lane, at = [], 0.0
    for gap, length in pairs:
        lane.append(Bar(at + gap, at + gap + length, "forward", "forward", ""))
        at += gap + length
    found = crowded(lane, most, at)
    assert len(found) <= max(most, 1)
    assert (found[0].start, found[-1].end) == (lane[0].start, lane[-1].end)
    assert all(one.end <= other.start for one, other in pairwise(found))
    counts = [int(bar.name.split()[0]) if bar.name.endswith("operations") else 1 for bar in found]
    assert sum(counts) == len(lane)


def result(name, compute, causes, needed=60e9):
    step = compute + sum(causes.values())
    return {
        "name": name, "step_time": step, "compute_time": compute, "copy_time": 0.0, "host_time": 0.0,
        "exposed_by_cause": causes,
        "memory": {"items": {"weights": 32e9, "gradients": 16e9}, "needed": needed, "capacity": 64e9,
                   "fits": needed <= 64e9},
    }  # fmt: skip


def test_bars_of_a_waterfall_lead_from_compute_to_the_step():
    """compute 4 s |####|, bandwidth 2 s |    ##|, queueing 1 s |      #|, step |#######|."""
    figure = waterfall_figure([result("zero3", 4.0, {"bandwidth": 2.0, "queueing": 1.0})], "title")
    (axes,) = figure.axes
    drawn = {bars.get_label(): (bars[0].get_x(), bars[0].get_width()) for bars in axes.containers}
    assert drawn == {"compute": (0, 4), "bandwidth": (4, 2), "queueing": (6, 1), "step": (0, 7)}
    assert finding_of(figure) == "Waiting adds 43 % of the step, mainly bandwidth"


def test_an_axis_that_does_not_begin_at_zero_says_so():
    figure = waterfall_figure([result("zero3", 64.0, {"bandwidth": 2.0})], "title")
    (axes,) = figure.axes
    assert axes.get_xlim()[0] == 63
    assert axes.get_xlabel() == "time [s]; the axis begins at 63 s"


def test_footprints_stack_to_what_is_needed_and_mark_what_there_is():
    figure = footprints_figure([result("zero2", 1.0, {}), result("zero0", 1.0, {}, needed=96e9)], "title")
    (axes,) = figure.axes
    widths = [bars[0].get_width() for bars in axes.containers]
    assert sum(widths) == 60 + 96
    assert [line.get_segments()[0][0][0] for line in axes.collections] == [64, 64]
    assert finding_of(figure) == "1 of 2 fit into the device; zero0 needs most: 96.0 of 64 GB, 32.0 of them weights"


def test_an_inline_figure_has_its_own_names_the_page_s_ink_and_no_title():
    figure = waterfall_figure([result('a "\\1" <b> #000000', 4.0, {"bandwidth": 2.0})], "the title")
    svg = inline_svg(figure, "one", 'say "this" \\1')
    assert svg.startswith("<svg ")
    assert 'aria-label="say &quot;this&quot; \\1"' in svg
    assert "the title" not in svg
    assert "Waiting adds" not in svg
    assert "&lt;b&gt; #000000" in svg  # a name is no ink
    assert "#000000" not in "".join(re.findall(r"<[^>]+>", svg))
    assert all(name.startswith("one-") for name in re.findall(r'\bid="([^"]+)"', svg))
    assert not re.search(r'<svg [^>]*\b(width|height)="', svg)


SIMULATED = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
"""Of linear RGB; Machado, Oliveira and Fernandes 2009, IEEE Trans. Vis. Comput. Graph. 15(6), severity 1.0."""

TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
"""Of linear sRGB, IEC 61966-2-1."""

TOLD_APART = 10.0
"""Distance in CIELAB; 2.3 is one that is just noticed (Mahy, Van Eycken and Oosterlinck 1994)."""


def lab(colour, seen):
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    x, y, z = np.array(TO_XYZ) @ np.clip(np.array(seen) @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    root = [t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29 for t in (x, y, z)]
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("vision", SIMULATED)
def test_causes_are_told_apart_with_any_colour_vision(vision):
    places = {cause: lab(colour, SIMULATED[vision]) for cause, colour in CAUSE_COLOURS.items()}
    near = {pair: np.linalg.norm(places[pair[0]] - places[pair[1]]) for pair in combinations(places, 2)}
    assert {pair: round(gap, 1) for pair, gap in near.items() if gap < TOLD_APART} == {}


def test_the_page_s_own_files_are_beside_the_code():
    room = Path(inline_svg.__code__.co_filename).parents[2] / "review"
    assert {path.name for path in room.glob("page.*")} == {"page.css", "page.html.j2", "page.js", "page.py"}
