"""The report in a real browser: it opens, shows every chart, answers the pointer, stays offline."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser

from thinrnn.lab.report import write_report

MakeRun = Callable[..., Path]
pytestmark = pytest.mark.browser

VISIBLE = """
[...document.querySelectorAll("[data-chart]")].flatMap(chart => {
  const svg = chart.querySelector("svg"), box = svg.getBoundingClientRect();
  const ink = svg.querySelectorAll("path.line, circle.dot, rect.bar, .mark, rect.ink").length;
  return box.width > 20 && box.height > 20 && ink ? [chart.dataset.chart] : [];
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def report(make_run: MakeRun) -> Path:
    small = {"weights": 190_000, "test_perplexity": 84.9, "milliseconds": 1.9}
    return write_report([make_run("a"), make_run("b", summaries={"small": small})])


def settled(browser: Browser, expression: str) -> object:
    """Returns the value once it is truthy; pictures are decoded in the background."""
    for _ in range(100):
        value = browser.run(expression)
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"never true: {expression}")


def hover(browser: Browser, chart: str, across: float, down: float) -> str:
    x, y = browser.run(f"""(() => {{
      const svg = [...document.querySelectorAll("[data-chart={chart}] svg")]
        .find(svg => svg.getBoundingClientRect().width);
      svg.scrollIntoView({{block: "center"}});
      const box = svg.getBoundingClientRect();
      return [box.x + {across} * box.width, box.y + {down} * box.height];
    }})()""")
    browser.move_to(1, 1)
    browser.move_to(x, y)
    tip = "document.querySelector('.tip')"
    return str(settled(browser, f"{tip}.hidden ? '' : {tip}.innerText.replaceAll('\\u00a0', ' ')"))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_and_shows_every_chart(
    browser: Browser, report: Path, width: int, dark: bool
) -> None:
    browser.open(report, width=width, dark=dark)
    shown = browser.run(VISIBLE)
    assert sorted(shown) == sorted(
        ["kept", "perplexity", "penalty", "params", "tradeoff-weights", "tradeoff-time"]
        + 3 * ["heat"]
        + 6 * ["matrix"]
        + 4 * ["bars"]
    )
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark
    assert browser.complaints() == []


def test_it_asks_the_network_for_nothing(browser: Browser, report: Path) -> None:
    browser.open(report)
    for chart in ("kept", "heat", "matrix", "bars", "tradeoff-weights"):
        hover(browser, chart, 0.4, 0.5)
    outside = [url for url in browser.requests() if not url.startswith("data:")]
    assert outside == [report.resolve().as_uri()]
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: Browser, make_run: MakeRun, width: int) -> None:
    long = "a_very_long_name_without_any_place_to_break_it" * 2
    groups = {long: 20, "字" * 30: 20, "lstm.l1": 20}
    config = {"settings": {long: long}, "command": f"thinrnn train lm --train {long}/{long}"}
    folders = [make_run(name, epochs=3, groups=groups, config=config) for name in (long, "other")]
    browser.open(write_report(folders), width=width)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_hovering_reads_the_values(browser: Browser, report: Path) -> None:
    browser.open(report)
    kept = hover(browser, "kept", 0.03, 0.5)
    assert kept.split() == ["epoch", "0", "embedding", "200", "lstm.l0", "200", "lstm.l1", "200"]
    assert "control" in hover(browser, "perplexity", 0.4, 0.5)
    assert hover(browser, "bars", 0.4, 0.1).split() == ["dense", "weights", "1,920,000"]
    assert "test perplexity" in hover(browser, "tradeoff-weights", 0.5, 0.5)
    assert "8 of 8 kept" in hover(browser, "matrix", 0.1, 0.5)  # every row of an embedding stays


def test_the_heat_map_is_read_from_its_own_pixels(browser: Browser, report: Path) -> None:
    browser.open(report)
    open_all_along = hover(browser, "heat", 0.99, 0.01)
    assert open_all_along.startswith("embedding, neuron") and open_all_along.endswith("1.00")
    assert "epoch 20" in open_all_along
    assert hover(browser, "heat", 0.99, 0.8).endswith("0.00")


def test_the_arrow_keys_walk_along_a_chart(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.run("document.querySelector('[data-chart=kept] svg').focus()")
    for _ in range(2):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert "epoch 2" in str(settled(browser, "document.querySelector('.tip').innerText"))
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert browser.run("document.querySelector('.tip').hidden")


def test_a_run_in_progress_loads_itself_again(browser: Browser, make_run: MakeRun) -> None:
    browser.open(write_report([make_run(finished=False, epochs=7)]))
    assert "still running: epoch 7" in browser.run("document.body.innerText")
    assert browser.run("document.querySelector('meta[http-equiv=refresh]').content") == "10"
    assert browser.complaints() == []


def test_names_in_markup_do_not_run(browser: Browser, make_run: MakeRun) -> None:
    nasty = '"><img src=x onerror=alert(1)></script><script>document.title="hacked"</script>'
    browser.open(write_report([make_run("run", epochs=3, groups={nasty: 10, "lstm.l0": 10})]))
    assert nasty in hover(browser, "kept", 0.5, 0.5)
    assert browser.run("document.title") == "run · thinrnn"
    command = "thinrnn train lm --train corpus.txt --preset demo --out runs/run"
    assert browser.run("document.querySelector('pre').textContent") == command
    assert browser.complaints() == []
