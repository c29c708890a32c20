"""Pages in a real browser: no error, no request, no scrolling sideways; tables sort, and a click lists what is live.

`make test-pages` runs these tests; CI installs Chromium for them. With PAGES_SCREENSHOTS=DIR, pictures are kept there.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_story import DeviceStory
from make import KernelStory, MemoryStory
from memory_story import training
from page_stories import SCRIPT, compared, fixture, hostile, rendered, swept
from report_results import measured

from tbdprof.analysis.summary import summarize
from tbdprof.facts import counters
from tbdprof.facts.records import Phase, Role
from tbdprof.facts.windows import OUT_OF_MEMORY
from tbdprof.results.summary import Summary

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: run make test-pages")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium is installed: apt-get install -y chromium", allow_module_level=True)

SCREENSHOTS = os.environ.get("PAGES_SCREENSHOTS")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def of_story() -> Summary:
    return summarize(training(4).recording())


def of_gpu() -> Summary:
    """Two windows of a GPU: its kernels on two streams, and its power and clock as a driver would report them."""
    story = KernelStory(device="cuda:0")
    story.settle()
    for start in (0, 1_000_000):
        story.step(start, start + 1_000_000, units=4)
        layer = story.layer("fc", start, start + 400_000)
        operator = story.operator("aten::linear", Phase.FORWARD, start + 10_000, start + 50_000, parent=layer)
        story.kernel("gemm", start + 60_000, start + 400_000, span=operator, launch=start + 20_000)
        story.kernel("Memcpy HtoD", start + 100_000, start + 700_000, stream=9, launch=start + 30_000)
    recording = story.recording(device="cuda:0", complete=True)
    sampled = DeviceStory().window("clean", [1.0] * 10, units=4.0)
    times = np.arange(0, 100) / 10
    sampled.instants(counters.POWER, lambda s: 400 + 50 * (s % 2), times)
    sampled.instants(counters.SM_CLOCK, 1.7e9, times)
    clean = sampled.windows[0]
    clean.ordinal = 1
    for name in ("counter", "device"):
        indices = [story.strings.add(sampled.strings[int(each)]) for each in clean.tables["sample"][name]]
        clean.tables["sample"][name] = indices
    recording.windows.append(clean)
    return summarize(recording)


def of_failure() -> Summary:
    """A run that ended out of memory: what was live by its owners, and what the allocator said."""
    story = MemoryStory()
    for size, role in ((100, Role.WEIGHT), (100, Role.GRADIENT), (100, Role.OPTIMIZER_STATE), (60, Role.INPUT)):
        story.own(story.existing(size), role, "w")
    story.existing(300)
    recording = story.recording(asked_for="you tried to allocate 200 bytes", ended_by="OutOfMemoryError")
    recording.windows[0].name = OUT_OF_MEMORY
    return summarize(recording)


SUMMARIES = {
    "torch": lambda: fixture("format-5-torch.tbd"),
    "mxnet": lambda: fixture("format-5-mxnet.tbd"),
    "tensorflow": lambda: fixture("format-5-tensorflow.tbd"),
    "everything": lambda: measured(fixture("format-5-torch.tbd")),
    "hostile": hostile,
    "story": of_story,
    "gpu": of_gpu,
    "out of memory": of_failure,
}


EVERY_CHART_FITS = """[...document.querySelectorAll('.chart .main-svg')].every(
    (drawn) => drawn.getBoundingClientRect().right <= document.documentElement.clientWidth
)"""


def until(page: Any, expression: str) -> None:
    """Wait until something is true of a page, whose policy forbids Playwright's own way: to compile text there."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"never came true: {expression}")


@dataclass
class Open:
    """An open page, and what it complained of and asked the network for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def keep(self, name: str) -> None:
        if SCREENSHOTS:
            self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)

    def draw_all(self) -> None:
        """Scroll to the end, so that every chart is drawn."""
        self.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        until(self.page, "[...document.querySelectorAll('.chart')].every((chart) => chart.querySelector('.main-svg'))")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("pages"), {}
    for name, summary in SUMMARIES.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(rendered(summary()), encoding="utf-8")
    for name, page in (("comparison", compared), ("sweep", swept)):
        made[name] = folder / f"{name}.html"
        made[name].write_text(page(), encoding="utf-8")
    return made


@pytest.fixture
def visit(browser: Any, files: dict[str, Path]) -> Iterator[Any]:
    contexts = []

    def opened(name: str, size: dict[str, int], theme: str = "light") -> Open:
        context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
        contexts.append(context)
        found = Open(context.new_page())
        found.page.on("console", lambda said: found.complaints.append(said.text) if said.type == "error" else None)
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda asked: found.requests.append(asked.url))
        found.page.goto(files[name].as_uri())
        found.page.wait_for_selector("html[data-ready]", state="attached")
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", [*SUMMARIES, "comparison", "sweep"])
def test_a_page_complains_of_nothing_loads_nothing_and_fits(visit: Any, name: str):
    found = visit(name, DESKTOP)
    found.draw_all()

    for device, size in (("desktop", DESKTOP), ("phone", PHONE)):
        found.page.set_viewport_size(size)
        for theme in ("light", "dark"):
            found.page.emulate_media(color_scheme=theme)
            until(found.page, EVERY_CHART_FITS)
            found.keep(f"{name}-{device}-{theme}")
            assert found.page.evaluate("document.documentElement.scrollWidth") <= size["width"], (device, theme)

    assert found.complaints == []
    assert [url.partition(":")[0] for url in found.requests if not url.startswith(("data:", "blob:"))] == ["file"]


def test_a_click_in_the_memory_chart_lists_what_is_live_and_adds_up_to_the_curve(visit: Any):
    found = visit("torch", DESKTOP)
    page = found.page
    page.wait_for_selector("#memory-chart[data-ready]")
    page.locator("#memory-chart").scroll_into_view_if_needed()
    box = page.locator("#memory-chart .nsewdrag").first.bounding_box()
    totals = set()
    for part in (0.1, 0.37, 0.5, 0.83):
        before = page.text_content("#live caption")
        for pixel in range(50):  # a click counts once the chart has seen the pointer, which takes it a moment
            page.mouse.move(box["x"] + part * box["width"] + pixel % 2, box["y"] + 0.6 * box["height"])
            page.wait_for_timeout(100)
            page.mouse.click(box["x"] + part * box["width"] + pixel % 2, box["y"] + 0.6 * box["height"])
            if page.text_content("#live caption") != before:
                break
        table = page.locator("#live table")
        assert table.get_attribute("data-sum") == table.get_attribute("data-total")
        assert "equal to the curve" in page.text_content("#live tfoot")
        totals.add(table.get_attribute("data-total"))
    assert len(totals) > 2
    assert found.complaints == []


def test_at_every_instant_the_rows_add_up_to_the_curve_by_keyboard_too(visit: Any):
    page = visit("story", DESKTOP).page
    slider = page.locator("#instant")
    slider.focus()
    slider.press("Home")
    count = int(slider.get_attribute("max")) + 1
    memory = json.loads(page.text_content("#data"))["memory"]

    for at in range(count):
        table = page.locator("#live table")
        rows = page.eval_on_selector_all(
            "#live tbody tr td.num", "cells => cells.map((cell) => Number(cell.dataset.key))"
        )
        curve = memory["rounding"][at] + sum(role["bytes"][at] for role in memory["roles"])
        assert sum(rows) == int(table.get_attribute("data-sum")) == int(table.get_attribute("data-total")) == curve
        slider.press("ArrowRight")


def test_a_table_sorts_up_and_down_and_filters(visit: Any):
    page = visit("torch", DESKTOP).page
    heading = page.locator("#kernel-table th", has_text="time per step").locator("button")
    column = "rows => rows.map((row) => Number(row.cells[2].dataset.key))"
    rows = "#kernel-table tbody tr:not([hidden])"

    heading.click()
    falling = page.eval_on_selector_all(rows, column)
    heading.click()
    rising = page.eval_on_selector_all(rows, column)

    assert len(falling) > 1
    assert falling == sorted(falling, reverse=True)
    assert rising == falling[::-1] == sorted(falling)
    assert page.locator("#kernel-table th[aria-sort=ascending]").count() == 1


def test_filtering_keeps_the_rows_with_all_words(visit: Any):
    page = visit("torch", DESKTOP).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    label = page.locator("#trust .filter").first

    label.locator("input").fill("throughput per")

    texts = page.eval_on_selector_all(
        "#trust .grid:has(.filter) tbody tr:not([hidden])", "rows => rows.map((row) => row.textContent.toLowerCase())"
    )
    assert texts
    assert all("throughput" in text and "per" in text for text in texts)


def test_the_switch_changes_the_theme_and_stacking_by_role_shows_roles(visit: Any):
    page = visit("torch", DESKTOP).page
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)

    page.click("#theme")
    page.wait_for_selector("#memory-chart[data-ready]")
    page.click("[data-stack=role]")

    assert page.evaluate(colour) != light
    until(page, "document.querySelector('#memory-chart .legend').textContent.includes('feature map')")


def test_a_definition_shows_when_its_word_has_the_focus(visit: Any):
    page = visit("torch", PHONE).page
    word = page.locator(".card .term").first

    word.focus()

    tip = word.locator(".tip")
    assert tip.is_visible()
    assert tip.bounding_box()["x"] >= 0
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_script_in_a_name_does_not_run(visit: Any):
    found = visit("hostile", DESKTOP)
    found.draw_all()

    assert found.page.evaluate("document.title") != "owned"
    assert found.page.locator("img").count() == 0
    assert SCRIPT in found.page.text_content("main")
    assert found.complaints == []


def test_the_policy_stops_a_script_that_was_not_escaped(visit: Any, files: dict[str, Path]):
    """The mistake is planted: were a name not escaped, its script would still not run."""
    broken = files["torch"].with_name("planted.html")
    broken.write_text(files["torch"].read_text().replace("</h1>", f"{SCRIPT}</h1>", 1))
    files["planted"] = broken

    found = visit("planted", DESKTOP)

    assert found.page.evaluate("document.title") != "owned"
    assert found.complaints  # that it was stopped
    del files["planted"]
