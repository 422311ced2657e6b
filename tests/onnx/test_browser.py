"""The browser example in a real browser: a prompt goes in, the small model goes on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from browser import Browser
from browser_pages import MARKS, PAGES, open_browser, served, wait_for

from thinrnn import quantize_onnx
from thinrnn.lab.recipes.language_model.data import Splitting, Vocabulary
from thinrnn.lab.recipes.language_model.export import export_model
from thinrnn.lab.recipes.language_model.load import save_model
from thinrnn.lab.recipes.language_model.model import LanguageModel
from thinrnn.onnx._passes import by_step

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)

pytestmark = MARKS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page with models beside it, served from this machine."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("index.html", "generate.js", "style.css"):
        shutil.copy(PAGES / name, folder)
    (folder / "node_modules").symlink_to(PAGES / "node_modules")
    torch.manual_seed(0)
    words = ("<unk>", "<eos>", *(f"w{i}" for i in range(40)))
    arguments = {"vocabulary": len(words), "embedding": 16, "hidden": (24, 24)}
    model = LanguageModel(**arguments)  # type: ignore[arg-type]
    save_model(model, folder / "saved", arguments, Vocabulary(words, Splitting()))
    file = folder / "model" / "model.onnx"
    export_model(folder / "saved", file, streaming=True)
    quantize_onnx(file, file.with_name("int8.onnx"))
    arguments |= {"hidden": (24, 16), "tied": True, "rare": 30, "rare_size": 8}
    model = LanguageModel(**arguments)  # type: ignore[arg-type]
    save_model(model, folder / "rare", arguments, Vocabulary(words, Splitting()))
    rare = export_model(folder / "rare", file.with_name("rare.onnx"), streaming=True).path
    with patch.object(by_step, "WIDE", 1):  # as models of many words are written
        quantize_onnx(rare, file.with_name("rare8.onnx"))
    with served(folder) as address:
        yield address


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with open_browser(tmp_path) as browser:
        yield browser


@pytest.mark.parametrize("file", ["model.onnx", "int8.onnx", "rare.onnx", "rare8.onnx"])
def test_page_continues_a_prompt(browser: Browser, address: str, file: str) -> None:
    browser.call("Page.navigate", url=f"{address}/index.html?model=model/{file}")
    wait_for(browser, "42 words, ready")
    browser.run("document.getElementById('prompt').value = 'w1 w2 w3'")
    browser.run("document.getElementById('form').requestSubmit()")
    assert "ms each" in wait_for(browser, "60 tokens")
    text = browser.run("document.getElementById('text').textContent")
    assert text.startswith("w1 w2 w3") and len(text.split()) > 50 and "<unk>" not in text
    assert browser.complaints() == []
    assert all(url.startswith(address) for url in browser.requests())
