"""Web pages served from this machine, to a browser that reaches no other one."""

import contextlib
import functools
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser as report_browser
import pytest
from browser import Browser

PAGES = Path(__file__).parents[1] / "examples" / "browser"
MARKS = [
    pytest.mark.extended,
    pytest.mark.browser,
    pytest.mark.extended,
    pytest.mark.skipif(
        not (PAGES / "node_modules").exists(), reason="needs npm install in examples/browser"
    ),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder."""
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    here = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    flags = [here if "host-resolver" in flag else flag for flag in report_browser.FLAGS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_browser, "FLAGS", flags)
        browser = Browser(profile)
    yield browser
    browser.close()


def wait_for(browser: Browser, words: str) -> str:
    """Return what the page shows of itself, once it says it."""
    printed = ""
    for _ in range(300):
        printed = browser.run("document.getElementById('status')?.textContent") or ""
        if words in printed:
            return printed
        time.sleep(0.1)
    raise AssertionError(f"the page shows '{printed}': {browser.complaints()}")
