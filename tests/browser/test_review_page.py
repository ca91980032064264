"""The page of `zerosim report` in a browser: it needs nothing from outside, obeys hands and keys, and can be read."""

import json
import re
import shutil

import pytest

from simulator.readings.metrics import metric
from tests.command import zerosim
from tests.review_pages import page_of, written

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome in PATH")

CONTRASTS = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((x) => x / 255)
      .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (channels(colour).length < 4 || channels(colour)[3] > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), inside = element.closest("svg");
    const [a, b] = [light(inside ? style.fill : style.color), light(behind(element))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), walker.currentNode.textContent.trim()]);
  }
  return found;
}"""
"""Contrast of every text that is shown with what is behind it (WCAG 2.1, success criterion 1.4.3)."""


@pytest.fixture(scope="module")
def review(tmp_path_factory):
    return page_of(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as tools:
        found = tools.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def opened(browser, review):
    """Opens the page; a message on the console or a wish for anything else fails the test."""
    complaints, asked = [], []

    def show(width=1280, **options):
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(review.as_uri())
        return page

    yield show
    assert complaints == []
    assert {url for url in asked if not url.startswith("data:")} <= {review.as_uri()}
    for page in browser.contexts:
        page.close()


def shown(page):
    """Start and end of what the timeline shows [ns]."""
    return tuple(float(page.locator("canvas").get_attribute(f"data-{end}")) for end in ("from", "to"))


STEP = 31.5e9  # ns: two micro-batches of 4 x 3.5 s, and what zero0 waits for


def test_the_page_shows_every_section_and_names_are_only_names(opened):
    page = opened()
    assert page.locator("main > section").count() == 8
    assert page.locator("h1").inner_text() == "small </script><b>bold</b>"
    assert page.locator("main b").count() == 0
    assert "<script>alert('x')</script>&\"zero3\"" in page.locator("#variants td").all_inner_texts()


def test_the_wheel_zooms_around_the_pointer_and_reset_shows_the_whole_step(opened):
    page = opened()
    assert shown(page) == (0, STEP)
    canvas = page.locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 30)
    page.mouse.wheel(0, -500)
    page.wait_for_function("Number(document.querySelector('canvas').dataset.from) > 0")
    start, end = shown(page)
    assert end - start == pytest.approx(STEP / 2.718, rel=0.01)  # exp(0.002 x 500)
    assert start + (end - start) / 4 == pytest.approx(STEP / 4, rel=0.01)
    page.get_by_role("button", name="Whole step").click()
    assert shown(page) == (0, STEP)


def test_dragging_moves_and_buttons_do_what_they_say(opened):
    page = opened()
    page.get_by_role("button", name="Zoom in").click()
    assert shown(page) == (STEP / 4, 3 * STEP / 4)
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 400 + box["width"] / 10, box["y"] + 30)
    page.mouse.up()
    assert shown(page)[0] == pytest.approx(STEP / 4 - STEP / 20, rel=0.01)
    page.get_by_role("button", name="Later").click()
    assert shown(page)[0] == pytest.approx(STEP / 4 - STEP / 20 + STEP / 8, rel=0.01)


def test_keys_choose_bars_zoom_and_reset(opened):
    page = opened()
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    about = page.locator(".about")
    assert about.inner_text().startswith("compute: forward layer.0; starts at 0 s, takes 2 s")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert about.inner_text().startswith("stalls: all reduce")
    assert "because of bandwidth" in about.inner_text()
    page.keyboard.press("+")
    start, end = shown(page)
    assert end - start == STEP / 2
    page.keyboard.press("0")
    assert shown(page) == (0, STEP)


def test_pointing_at_a_collective_says_how_many_bytes(opened):
    page = opened()
    canvas = page.locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + 3 * 48 + 30)  # the end of the fourth lane, all-reduce
    assert re.search(r"all reduce .*2 GB among 2 ranks", page.locator(".about").inner_text())


def test_tables_sort_numbers_as_numbers_and_by_keyboard(opened):
    page = opened()
    table = page.locator("#assumptions table")
    heading = table.locator("th", has_text="value")
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    values = "cells => cells.map(cell => Number(cell.dataset.value))"
    ascending = table.locator("td:nth-child(2)").evaluate_all(values)
    assert ascending == sorted(ascending)
    assert [str(value) for value in ascending] != sorted(str(value) for value in ascending)
    assert heading.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert table.locator("td:nth-child(2)").evaluate_all(values) == ascending[::-1]


@pytest.mark.parametrize("width", [375, 1280])
def test_only_wide_things_scroll_and_they_in_their_own_box(opened, width):
    page = opened(width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    if width == 375:
        assert page.locator(".wide").first.evaluate("box => box.scrollWidth > box.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(opened, scheme):
    found = opened(color_scheme=scheme).evaluate(CONTRASTS)
    assert len(found) > 200
    assert [text for ratio, text in found if ratio < 4.5] == []


def test_a_dark_page_is_dark(opened):
    assert opened(color_scheme="dark").evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


def test_it_prints_light_and_whole_without_controls(opened):
    page = opened(color_scheme="dark")
    page.get_by_role("button", name="Zoom in").click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert not page.locator(".tools").is_visible()
    assert page.evaluate("document.querySelector('canvas').width") == 2000  # of the whole step, not of the window
    assert page.evaluate("getComputedStyle(document.querySelector('canvas')).color") == "rgb(27, 31, 36)"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown(page) == (STEP / 4, 3 * STEP / 4)
    pages = len(re.findall(rb"/Type /Page\b", page.pdf(prefer_css_page_size=True)))
    assert 2 <= pages <= 12


def test_numbers_are_those_of_run(opened, tmp_path):
    page = opened()
    results = json.loads(zerosim("run", written(tmp_path), "--json").stdout)["results"]
    table = page.locator("#variants table")
    keys = table.locator("th").evaluate_all("cells => cells.map(cell => cell.dataset.key)")
    rows = table.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.dataset.value ?? cell.textContent))"
    )
    assert [row[0] for row in rows] == [result["name"] for result in results]
    for row, result in zip(rows, results, strict=True):
        told = dict(zip(keys, row, strict=True))
        assert told.pop("fits") == ("yes" if result["memory"]["fits"] else "no")
        del told["name"]
        assert len(told) == 9
        assert {key: float(value) for key, value in told.items()} == {key: metric(key).of(result) for key in told}
