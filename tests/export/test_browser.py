"""The browser example in a real browser: a prompt goes in, the small model goes on."""

import functools
import http.server
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from report import browser as report_browser

from thinrnn import quantize_onnx
from thinrnn.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.recipes.language_model.export import export_model
from thinrnn.recipes.language_model.load import save_model
from thinrnn.recipes.language_model.model import LanguageModel

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)

PAGE = Path(__file__).parents[2] / "examples" / "browser"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (PAGE / "node_modules").exists(), reason="needs npm install in examples/browser"
    ),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page with two models beside it, served from this machine."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("index.html", "generate.js"):
        shutil.copy(PAGE / name, folder)
    (folder / "node_modules").symlink_to(PAGE / "node_modules")
    torch.manual_seed(0)
    words = ("<unk>", "<eos>", *(f"w{i}" for i in range(40)))
    arguments = {"vocabulary": len(words), "embedding": 16, "hidden": (24, 24)}
    model = LanguageModel(**arguments)  # type: ignore[arg-type]
    save_model(model, folder / "saved", arguments, Vocabulary(words, Splitting()))
    file = folder / "model" / "model.onnx"
    export_model(folder / "saved", file, streaming=True)
    quantize_onnx(file, file.with_name("int8.onnx"))
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[report_browser.Browser]:
    here = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    flags = [here if "host-resolver" in flag else flag for flag in report_browser.FLAGS]
    monkeypatch.setattr(report_browser, "FLAGS", flags)
    browser = report_browser.Browser(tmp_path)
    yield browser
    browser.close()


def wait_for(browser: report_browser.Browser, words: str) -> str:
    """Return what the page says of itself, once it says it."""
    said = ""
    for _ in range(300):
        said = browser.run("document.getElementById('status')?.textContent") or ""
        if words in said:
            return said
        time.sleep(0.1)
    raise AssertionError(f"the page says '{said}': {browser.complaints()}")


@pytest.mark.parametrize("file", ["model.onnx", "int8.onnx"])
def test_page_continues_a_prompt(browser: report_browser.Browser, address: str, file: str) -> None:
    browser.call("Page.navigate", url=f"{address}?model=model/{file}")
    wait_for(browser, "42 words, ready")
    browser.run("document.getElementById('prompt').value = 'w1 w2 w3'")
    browser.run("document.getElementById('form').requestSubmit()")
    assert "ms each" in wait_for(browser, "60 tokens")
    text = browser.run("document.getElementById('text').textContent")
    assert text.startswith("w1 w2 w3") and len(text.split()) > 50 and "<unk>" not in text
    assert browser.complaints() == []
    assert all(url.startswith(address.rpartition("/")[0]) for url in browser.requests())
