"""The report in a real browser: every part is seen, nothing runs, nothing runs off the screen."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser

from thinrnn.lab.report import write_report

MakeRun = Callable[..., Path]
pytestmark = [pytest.mark.browser, pytest.mark.extended]

NASTY = '"><img src=x onerror=alert(1)></script><script>document.title="hacked"</script>'

# Drawings and pictures that have a size, and inside of a drawing something to see.
SEEN = """
[...document.querySelectorAll("svg, img")].filter(node => {
  const box = node.getBoundingClientRect();
  return box.width > 20 && box.height > 10
    && (node.tagName == "IMG" ? node.naturalWidth : node.querySelectorAll("path").length > 2);
}).length
"""

# Words of names (row and column titles, legends, captions) that go on in another line.
BROKEN_WORDS = """
[...document.querySelectorAll("h1, th, dt, .keys li, figcaption b, .facts b")].flatMap(node => {
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), found = [];
  for (let text; text = walker.nextNode();) {
    for (const word of text.data.matchAll(/\\w+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
      if (lines.size > 1) found.push(word[0]);
    }
  }
  return found;
})
"""

# Cells that reach beyond the right edge of the screen.
OFF_SCREEN = """
[...document.querySelectorAll("th, td, dt, dd, svg text, img")].filter(node =>
  node.getBoundingClientRect().width && node.getBoundingClientRect().right > innerWidth + 0.5
).map(node => node.textContent)
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def pages(make_run: MakeRun) -> list[Path]:
    """The report of a run, and that of two."""
    groups = {"embedding+rnn.l1": 200, "reader.modelling.lstm_reverse": 100, "rnn.l0": 60}
    small = {"weights": 190_000, "test_perplexity": 84.9, "milliseconds": 1.9}
    runs = [make_run("demo", groups=groups), make_run("thinner-demo", summaries={"small": small})]
    return [write_report(runs[:1]), write_report(runs, runs[1] / "both.html")]


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_and_shows_everything(
    browser: Browser, pages: list[Path], width: int, dark: bool
) -> None:
    for page, drawings in zip(pages, (4 + 3 + 6, 4), strict=True):
        browser.open(page, width=width, dark=dark)
        assert browser.run(SEEN) == drawings
        background = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is not dark
        assert browser.complaints() == []
        assert [url for url in browser.requests() if not url.startswith("data:")] == [
            page.resolve().as_uri()
        ]


@pytest.mark.parametrize("width", [360, 1200])
def test_all_columns_are_on_the_screen_and_words_do_not_break(
    browser: Browser, pages: list[Path], width: int
) -> None:
    for page in pages:
        browser.open(page, width=width)
        assert browser.run(OFF_SCREEN) == []
        assert browser.run(BROKEN_WORDS) == []


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: Browser, make_run: MakeRun, width: int) -> None:
    long = "a_very_long_name_without_any_place_to_break_it" * 2
    groups = {long: 20, "字" * 30: 20, "lstm.l1": 20}
    config = {"settings": {long: long}, "command": f"thinrnn train lm --train {long}/{long}"}
    folders = [make_run(name, epochs=3, groups=groups, config=config) for name in (long, "other")]
    for runs in (folders, folders[:1]):
        browser.open(write_report(runs), width=width)
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.run("document.documentElement.scrollWidth") <= width


def test_settings_stand_in_columns(browser: Browser, pages: list[Path]) -> None:
    browser.open(pages[0], width=1200)
    lefts = browser.run("""[...document.querySelectorAll(".settings table")].map(table =>
      [...new Set([...table.querySelectorAll("td")].map(td => td.getBoundingClientRect().left))])
    """)
    assert lefts and all(len(columns) <= 2 for columns in lefts)
    assert all(columns == lefts[0] for columns in lefts)


def test_drawings_follow_the_theme(browser: Browser, pages: list[Path]) -> None:
    found = []
    for dark in (False, True):
        browser.open(pages[0], dark=dark)
        found.append(
            browser.run("""["svg text", "svg path[style*='--small']"].map(which => {
              const style = getComputedStyle(document.querySelector(which));
              return [style.fill, style.stroke, style.fontFamily];
            })""")
        )
    light, dark_theme = found
    assert light[0][0] != dark_theme[0][0] and light[1][1] != dark_theme[1][1]
    assert light[0][2] == browser.run("getComputedStyle(document.body).fontFamily")


def test_a_run_in_progress_loads_itself_again(browser: Browser, make_run: MakeRun) -> None:
    browser.open(write_report([make_run(finished=False, epochs=7)]))
    assert browser.run("document.querySelector('meta[http-equiv=refresh]').content") == "10"
    assert browser.complaints() == []


def test_names_in_markup_do_not_run(browser: Browser, make_run: MakeRun) -> None:
    browser.open(write_report([make_run("run", epochs=3, groups={NASTY: 10, "lstm.l0": 10})]))
    assert NASTY in browser.run("document.querySelector('[data-chart=kept]').innerText")
    assert browser.run("document.title") == "run · thinrnn report"
    command = "thinrnn train lm --train corpus.txt --preset demo --out runs/run"
    assert browser.run("document.querySelector('pre').textContent") == command
    assert browser.complaints() == []
    # Even if markup slipped through, the policy of the page would not let it run.
    browser.run("""(() => {
      const script = document.createElement("script");
      script.textContent = "document.title = 'hacked'";
      document.body.append(script);
    })()""")
    assert browser.run("document.title") == "run · thinrnn report"
