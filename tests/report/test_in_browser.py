"""The page in a real browser: what is drawn, what a click and a hover do, and that nothing leaves the page.

`scripts/install_browser.sh` installs what this needs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from lengthwise.analysis.records import ANALYSIS
from lengthwise.cli.report import write_report
from tests.helpers.analysed import analysis
from tests.report.conftest import LAYERS, LENGTHS, METHODS, TASKS, config, record, records, sharpness, write_run
from tests.report.test_page import nasty_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,900""".split()

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here; scripts/install_browser.sh installs them"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def full_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_report([write_run(folder / "run", config(), records(), sharpness())], folder / "report.html")


@pytest.fixture
def opened(browser: webdriver.Chrome, full_page: Path) -> webdriver.Chrome:
    open_page(browser, full_page)
    return browser


def open_page(browser: webdriver.Chrome, page: Path) -> None:
    """A fresh view of it, with the logs of earlier pages thrown away."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())


def assert_quiet(browser: webdriver.Chrome, page: Path) -> None:
    """No error in the console, and no request but for the file itself."""
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]


def all_of(inside: webdriver.Chrome | WebElement, selector: str) -> list[WebElement]:
    return inside.find_elements(By.CSS_SELECTOR, selector)


def texts(inside: webdriver.Chrome | WebElement, selector: str) -> list[str]:
    return [element.text for element in all_of(inside, selector)]


def hover(browser: webdriver.Chrome, element: WebElement) -> str:
    """The tip that shows when the pointer stands on an element."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    ActionChains(browser, duration=20).move_to_element(element).perform()
    tip = browser.find_element(By.ID, "tip")
    return tip.text if tip.is_displayed() else ""


def legend(browser: webdriver.Chrome, method: str) -> WebElement:
    return next(button for button in all_of(browser, ".legend button") if button.get_attribute("data-method") == method)


def shown(browser: webdriver.Chrome, selector: str) -> list[str | None]:
    """Methods of the elements that take up space on the page."""
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].filter((element) => element.getClientRects().length)"
        ".map((element) => element.dataset.method)",
        selector,
    )


def test_a_chart_a_task_with_a_curve_a_method_and_an_interval_a_point(opened: webdriver.Chrome, full_page: Path):
    figures = all_of(opened, "figure.score")
    assert texts(opened, "figure.score h3") == list(TASKS)
    for figure in figures:
        curves = all_of(figure, ".curve")
        assert [curve.get_attribute("data-method") for curve in curves] == list(METHODS)
        for curve in curves:
            assert len(all_of(curve, ".marker")) == len(LENGTHS)
            assert len(all_of(curve, ".interval")) == len(LENGTHS)
            assert all_of(curve, ".line")[0].is_displayed()
        assert texts(figure, ".axis.x text") == ["256", "512", "1k", "2k", "4k", "8k", "16k", "length in tokens"]
        assert texts(figure, ".axis.y text") == ["0", "25", "50", "75", "100 %"]
        assert texts(figure, ".trained-label") == ["training length"]
        dashed, tick = all_of(figure, ".trained")[0], all_of(figure, ".axis.x text")[1]
        assert float(dashed.get_attribute("x1")) == pytest.approx(float(tick.get_attribute("x")))
    assert_quiet(opened, full_page)


def test_points_stand_where_their_scores_are(opened: webdriver.Chrome):
    curve = all_of(opened, "figure.score")[0].find_element(By.CSS_SELECTOR, ".curve.none")
    heights = [marker.rect["y"] for marker in all_of(curve, ".marker")]
    assert heights[0] == min(heights), "100 % at the shortest length"
    assert heights[-1] == max(heights), "0 % at the longest"
    bars = [bar.rect for bar in all_of(curve, ".interval")]
    assert all(bar["height"] > 10 for bar in bars)


def test_every_figure_is_drawn(opened: webdriver.Chrome):
    assert len(all_of(opened, "figure.depth")) == len(TASKS) * len(METHODS)
    columns = set(texts(opened, "figure.depth .axis.x text"))
    assert columns == {"256", "512", "1k", "2k", "4k", "8k", "15,000"}
    for heat_map in all_of(opened, "figure.depth"):
        assert 5 <= len(all_of(heat_map, ".cell")) <= 5 * len(LENGTHS)
    model, layer = all_of(opened, "figure.temperature")
    assert [len(all_of(chart, ".curve:not(.law)")) for chart in (model, layer)] == [1, LAYERS]
    assert all(len(all_of(chart, ".curve.law .line")) == 1 for chart in (model, layer))
    panels = all_of(opened, "figure.panel")
    assert len(panels) == len(TASKS) * 2 * LAYERS
    measured = [spec for spec in METHODS if spec != "truncate"]
    assert shown(opened, "figure.panel .curve") == measured * len(panels)
    assert len(all_of(opened, "table.cells tbody tr")) == len(TASKS) * len(LENGTHS)
    assert "lengthwise evaluate embedded --method none" in texts(opened, ".provenance pre")[0]


def test_colour_follows_the_score_in_a_heat_map(opened: webdriver.Chrome):
    fills = opened.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('figure.depth .cell')].map("
        "(cell) => [cell.textContent.trim(), getComputedStyle(cell.querySelector('rect')).fill]))"
    )
    assert len(fills) > 3
    assert len(set(fills.values())) == len(fills)


def test_a_click_on_the_legend_takes_a_method_away_and_brings_it_back(opened: webdriver.Chrome, full_page: Path):
    button = legend(opened, "log")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    left = [spec for spec in METHODS if spec != "log"]
    assert shown(opened, "figure.score .curve") == left * len(TASKS)
    assert shown(opened, "figure.depth") == left * len(TASKS)
    button.click()
    assert shown(opened, "figure.score .curve") == list(METHODS) * len(TASKS)
    assert_quiet(opened, full_page)


def test_a_double_click_shows_a_method_alone_and_then_all_again(opened: webdriver.Chrome):
    button = legend(opened, "@out/pmax.json")
    ActionChains(opened, duration=20).double_click(button).perform()
    assert shown(opened, "figure.score .curve") == ["@out/pmax.json"] * len(TASKS)
    assert shown(opened, "figure.temperature") == ["@out/pmax.json"]
    ActionChains(opened, duration=20).double_click(button).perform()
    assert shown(opened, "figure.score .curve") == list(METHODS) * len(TASKS)


def test_pointing_at_a_length_tells_every_shown_method_with_interval_and_n(opened: webdriver.Chrome, full_page: Path):
    right = sum(record("none", "passkey", 1024, k)["score"] for k in range(24))
    assert right == 19, "the numbers below are those of 19 right answers out of 24"
    point = all_of(opened, "figure.score .curve.none .marker")[LENGTHS.index(1024)]
    lines = hover(opened, point).splitlines()
    assert lines[0] == "1,024 tokens"
    assert lines[1] == "none 79 % (60 to 91), n = 24"
    assert len(lines) == 1 + len(METHODS)
    legend(opened, "truncate").click()
    assert "truncate" not in hover(opened, point)
    ActionChains(opened).move_to_element(opened.find_element(By.TAG_NAME, "h1")).perform()
    assert not opened.find_element(By.ID, "tip").is_displayed()
    assert_quiet(opened, full_page)


def test_arrow_keys_walk_through_the_lengths(opened: webdriver.Chrome):
    chart = opened.find_element(By.CSS_SELECTOR, "figure.score svg.chart")
    opened.execute_script("arguments[0].focus()", chart)
    ActionChains(opened).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    assert opened.find_element(By.ID, "tip").text.startswith("1,024 tokens")


def test_pointing_at_a_cell_of_a_heat_map_tells_depth_and_samples(opened: webdriver.Chrome):
    cell = all_of(opened, "figure.depth .cell")[0]
    found = [record("none", "passkey", 256, k) for k in range(24)]
    n = sum(1 for line in found if line["depth"] < 0.2)
    assert hover(opened, cell).splitlines() == ["256 tokens, depth 0 to 20 %", f"100 % of {n} samples"]


@pytest.mark.parametrize("width", [1280, 400])
def test_no_sideways_scrolling(opened: webdriver.Chrome, width: int):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert opened.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        ends = "return [...document.querySelectorAll('svg.chart')].map((chart) => chart.getBoundingClientRect().right)"
        assert max(opened.execute_script(ends)) <= width
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_head_of_the_lengths_is_one_whole_word_on_a_narrow_screen(
    browser: webdriver.Chrome, make_run: Callable[..., Path], tmp_path: Path
):
    # Short lengths: below a longer one the column is wide enough for its head
    open_page(browser, write_report([make_run(config(), records(lengths=[512, 4096]))], tmp_path / "report.html"))
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    lines = """return [...document.querySelectorAll('table.cells thead th:first-child')].map((head) => {
        const letters = document.createRange();
        letters.selectNodeContents(head);
        return [head.textContent, letters.getClientRects().length];
    })"""
    try:
        assert browser.execute_script(lines) == [["length", 1]] * len(TASKS)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def screen(browser: webdriver.Chrome, scheme: str) -> Iterator[None]:
    """A light or dark screen, once the page has taken notice: a busy browser may answer before it has."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    noticed = f"return matchMedia('(prefers-color-scheme: {scheme})').matches"
    WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(noticed))
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_ink_of_a_cell_follows_the_screen(opened: webdriver.Chrome):
    script = """return [...document.querySelectorAll('figure.depth .cell')].map((cell) =>
        [cell.classList.contains(arguments[0]), getComputedStyle(cell.querySelector('text')).fill])"""
    for scheme, white in (("light", "white-by-day"), ("dark", "white-by-night")):
        with screen(opened, scheme):
            cells = opened.execute_script(script, white)
        assert {ink for is_white, ink in cells if is_white} == {"rgb(255, 255, 255)"}
        assert {ink for is_white, ink in cells if not is_white} == {"rgb(0, 0, 0)"}


def test_a_dark_screen_gets_a_dark_page(opened: webdriver.Chrome):
    body = opened.find_element(By.TAG_NAME, "body")
    backgrounds = []
    for scheme in ("light", "dark"):
        with screen(opened, scheme):
            backgrounds.append(body.value_of_css_property("background-color"))
    assert backgrounds == ["rgba(253, 253, 251, 1)", "rgba(20, 23, 26, 1)"]


def test_markup_in_records_does_nothing(browser: webdriver.Chrome, make_run: Callable[..., Path], tmp_path: Path):
    page = write_report([nasty_run(make_run)], tmp_path / "report.html")
    open_page(browser, page)
    tip = hover(browser, all_of(browser, "figure.score .marker")[0])
    for button in all_of(browser, ".legend button"):
        button.click()
    assert "<img src=x" in tip
    assert browser.execute_script("return window.taken") is None
    assert_quiet(browser, page)


def test_one_sample_is_enough_for_a_page(browser: webdriver.Chrome, make_run: Callable[..., Path], tmp_path: Path):
    page = write_report([make_run(config(["none"]), records(["none"], ["line"], [512], samples=1))], tmp_path / "report.html")
    open_page(browser, page)
    tip = hover(browser, browser.find_element(By.CSS_SELECTOR, "figure.score .marker"))
    assert tip.splitlines() == ["512 tokens", "none 100 % (21 to 100), n = 1"]
    assert len(texts(browser, ".absent")) == 2
    assert_quiet(browser, page)


def test_an_analysis_is_drawn_can_be_pointed_at_and_asks_for_nothing(browser: webdriver.Chrome, tmp_path: Path):
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / ANALYSIS).write_text(json.dumps(analysis().to_json()))
    page = write_report([tmp_path / "analysis"], tmp_path / "report.html")
    open_page(browser, page)
    charts = all_of(browser, "svg.chart")
    # Three statistics, two layers, three lengths, one chart of temperatures, three heads with a bias
    assert len(charts) == 3 + 2 + 3 + 1 + 3
    assert all(chart.is_displayed() and chart.rect["height"] > 100 for chart in charts)
    marks = all_of(browser, "svg.chart[aria-label*='Propositions'] .curve.c0 .marker")
    assert "tau = 0.850" in hover(browser, marks[-2])
    assert all_of(browser, ".keys .swatch")[0].is_displayed()
    assert_quiet(browser, page)
