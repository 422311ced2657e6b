"""The reader as a web page: it answers what `thinrnn ask` answers."""

import importlib.util
import json
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy
import pytest
import torch
from browser import Browser
from browser_pages import MARKS, PAGES, open_browser, served, wait_for

from thinrnn.lab.recipes.squad.answering import answer
from thinrnn.lab.recipes.squad.load import save_model
from thinrnn.lab.recipes.squad.model import BiDAF, best_spans
from thinrnn.lab.recipes.squad.tokens import split
from thinrnn.lab.recipes.squad.vocabulary import SquadVocabulary

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)

pytestmark = MARKS

SIZE = 6  # numbers of a word's vector
TRAINED = ("zorn", "harbour", "ohne")
WORDS = (
    "the of a in was by and is who what where how many did it , . ? ! ' - – ( ) % $ “ ” 1871 "
    "3.5 12,000 s u.s. e.g. keeper lamp tower oil stairs ship diary town harbour straße café "
    "i̇stanbul οδος 東京 東 2 x _"
)
KNOWN = WORDS.split()
NEVER = ["mother-in-law", "'s", "Tower", "don't", "1.", "...", "<unk>"]  # as tokens
RARE = ["seldom", "hardly"]

QUOTES = "“It’s a ‘test’,” she said -- \"isn't it?\"\nMother-in-law's U.S. trip: £3.50, 12,000.5%!"
OTHERS = (
    "İstanbul'da ΟΔΟΣ café café naïve 東京タワー 👩\u200d🚀🇩🇪 x²½Ⅷ ٣٤ _a_b__ e.g. A.B C.D.E.\r\n"
    "\ttab\u00a0nbsp\u2009thin\u0085next\x1cfile\u200bzero\ufeffmark"
)
NUMBERS = "1,000,000.00 1990s 3.14.15 5,a .5 5. 10-12 1/2 +49(0)30 v2.0 H2O 2nd 1871–1964"
PORT = (
    "The lighthouse of Port Ellery was built in 1871 by two brothers. For sixty years its lamp "
    "burned oil, which the keeper carried up 212 stairs.\n\nIn 1931 the lamp was replaced. The "
    "last keeper, Marta Lind, stayed in the tower and kept a diary of every ship.\n"
)
TEXTS = (
    PORT,
    "\n\n".join([PORT, NUMBERS, QUOTES] * 4),
    OTHERS,
    QUOTES,
    "Zorn ohne 👩\u200d🚀",
    "x",
)
QUESTIONS = ("Who kept a diary?", "what did the KEEPER carry, up the 212 stairs?", "Zorn—?", "東")


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reader_page", PAGES / "reader.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader with random weights, so large that its answers depend on the question."""
    characters = tuple("etaoinshrdluETAOINS.,'“東👩 0123456789ß")
    vocabulary = SquadVocabulary(words=TRAINED, characters=characters)
    arguments = {
        "rows": vocabulary.rows,
        "characters": vocabulary.character_rows,
        "vector": SIZE,
        "character": 4,
        "filters": 6,
        "hidden": 8,
        "six": (5, 4, 6, 3, 4, 5),
    }
    torch.manual_seed(2)
    reader = BiDAF(**arguments)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, p in reader.named_parameters():
            if name.startswith(("start.", "end.")):
                p.mul_(30)
            elif name != "words.weight":
                p.mul_(8 if name.startswith("attention.") else 3)
    folder = tmp_path_factory.mktemp("model")
    save_model(reader.half().float(), folder, arguments, vocabulary)
    return folder


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dice = random.Random(0)
    file = tmp_path_factory.mktemp("glove") / "glove.txt"
    with file.open("w", encoding="utf-8") as lines:
        for word in [*NEVER, *KNOWN, *RARE]:
            print(word, *(dice.randint(-128, 128) / 64 for _ in range(SIZE)), file=lines)
    return file


@pytest.fixture(scope="module")
def folder(
    program: ModuleType, model: Path, glove: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("page")
    program.make_page(model, glove, folder, len(KNOWN))
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as address:
        yield address


@pytest.fixture(scope="module")
def any_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(address: str, any_page: Browser) -> Browser:
    """A browser with the page, opened anew and ready."""
    any_page.events.clear()
    any_page.call("Page.navigate", url=f"{address}/index.html")
    wait_for(any_page, "words, ready")
    return any_page


def set_text(browser: Browser, name: str, text: str) -> None:
    browser.run(
        f"((field) => {{ field.value = {json.dumps(text)}; "
        f"field.dispatchEvent(new Event('input')) }})(document.getElementById('{name}'))"
    )


def press(browser: Browser, key: str, modifiers: int = 0) -> None:
    event = {"key": key, "code": key, "windowsVirtualKeyCode": 13, "modifiers": modifiers}
    browser.call("Input.dispatchKeyEvent", type="keyDown", text="\r", **event)
    browser.call("Input.dispatchKeyEvent", type="keyUp", **event)


def text_of(browser: Browser, selector: str) -> str | None:
    found = browser.run(f"document.querySelector('{selector}')?.textContent")
    assert found is None or isinstance(found, str)
    return found


def units(text: str, place: int) -> int:
    """Return a place in a text as JavaScript counts it."""
    return len(text[:place].encode("utf-16-le")) // 2


def test_tokens_are_those_of_the_recipe(browser: Browser) -> None:
    # Letters that Unicode has got since this Python was made are no letters to it.
    some = [chr(c) for c in [*range(0x3000), *range(0x3000, 0x20000, 41)]]
    some = [c for c in some if unicodedata.category(c) not in ("Cn", "Cs")]
    texts = [*TEXTS, *QUESTIONS, NUMBERS, "", " \n", "".join(f"a{c}1 {c}{c}.\n" for c in some)]
    code = f"import('./reading.js').then(({{split}}) => {json.dumps(texts)}.map(split))"
    for text, found in zip(texts, browser.run(code), strict=True):
        raw = text.encode("utf-16-le", "surrogatepass")
        tokens = [raw[2 * a : 2 * b].decode("utf-16-le") for a, b in found]
        assert tokens == [text[a:b] for a, b in split(text)]
        if len(text) < 10_000:
            assert found == [[units(text, a), units(text, b)] for a, b in split(text)]
    written = [chr(c) for c in range(0x10000) if unicodedata.category(chr(c)) in ("Lu", "Lt")]
    lower = browser.run(f"{json.dumps(written)}.map((word) => word.toLowerCase())")
    assert lower == [word.lower() for word in written]


def test_spans_are_those_of_the_recipe(browser: Browser) -> None:
    dice = torch.Generator().manual_seed(0)
    lengths = set()
    for tokens in (1, 29, 30, 31, 60):
        start, end = 4 * torch.randn(2, 200, tokens, generator=dice)
        both = json.dumps([*zip(start.tolist(), end.tolist(), strict=True)])
        code = f"import('./reading.js').then(({{bestSpan}}) => {both}.map((x) => bestSpan(...x)))"
        found = [(one["first"], one["last"]) for one in browser.run(code)]
        first, last = best_spans(start, end, 30)  # thinrnn ask gives no longer answers
        assert found == [*zip(first.tolist(), last.tolist(), strict=True)]
        lengths |= {b - a + 1 for a, b in found}
    assert lengths == set(range(1, 31))


def test_answers_are_those_of_ask(browser: Browser, model: Path, glove: Path) -> None:
    cases = [(text, question) for text in TEXTS for question in QUESTIONS]
    code = f"""import('./reading.js').then(async ({{openReader}}) => {{
      const [reader, found] = [await openReader(), []];
      for (const [text, question] of {json.dumps(cases)})
        found.push(await reader.answer(text, question));
      return found;
    }})"""
    different = set()
    for (text, question), found in zip(cases, browser.run(code), strict=True):
        expected = answer(model, text, question, glove)
        assert (found["start"], found["end"]) == (
            units(text, expected.start),
            units(text, expected.end),
        ), (text, question)
        assert found["probability"] == pytest.approx(expected.probability, rel=1e-3)
        different.add((text, expected.text))
    assert len(different) > 2 * len(TEXTS)


def test_page_marks_the_answer_in_the_text(
    browser: Browser, address: str, model: Path, glove: Path
) -> None:
    text = f"{OTHERS}\n\n{PORT}".replace("\r\n", "\n")  # as a text field gives it
    set_text(browser, "context", text)
    for question in QUESTIONS[:2]:
        set_text(browser, "question", question)
        browser.run("document.getElementById('question').focus()")
        press(browser, "Enter")
        expected = answer(model, text, question, glove)
        printed = wait_for(browser, "tokens in")
        assert printed.startswith(
            f"probability {expected.probability:.2f}, {len(split(text))} tokens"
        )
        assert_marked(browser, text, expected.start, expected.end)
        browser.run("document.getElementById('status').textContent = ''")
    browser.run("document.getElementById('context').focus()")
    press(browser, "Enter", modifiers=2)
    wait_for(browser, "tokens in")
    assert_marked(browser, text, expected.start, expected.end)
    set_text(browser, "context", f"More. {text}")
    assert text_of(browser, "mark") is None and text_of(browser, "#answer") == ""
    assert browser.complaints() == []
    assert all(url.startswith((address, "data:")) for url in browser.requests())


def assert_marked(browser: Browser, text: str, start: int, end: int) -> None:
    assert text_of(browser, "#answer") == text_of(browser, "mark") == text[start:end]
    parts = browser.run("[...document.getElementById('shown').childNodes].map(x => x.textContent)")
    assert parts == [text[:start], text[start:end], f"{text[end:]}\n"]


@pytest.mark.parametrize(
    ("field", "message"),
    [("question", "the question has no words"), ("context", "the text has no words")],
)
def test_page_names_what_is_missing(browser: Browser, field: str, message: str) -> None:
    set_text(browser, field, " \n")
    browser.run("document.getElementById('form').requestSubmit()")
    wait_for(browser, message)
    assert text_of(browser, "#answer") == "" and browser.complaints() == []


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("words.json", "words.json is missing (404): run reader.py again"),
        ("vectors.bin", "vectors.bin is missing"),
        ("reader.onnx", "reader.onnx is missing"),
        ("node_modules", "the reader cannot start"),
        ("reading.js", "the page cannot load its program"),
    ],
)
def test_page_names_the_missing_file(
    any_page: Browser, address: str, folder: Path, file: str, message: str
) -> None:
    (folder / file).rename(folder / "away")
    try:
        any_page.call("Network.clearBrowserCache")
        any_page.call("Page.navigate", url=f"{address}/index.html")
        wait_for(any_page, message)
        assert any_page.run("document.querySelector('button').disabled")
    finally:
        (folder / "away").rename(folder / file)


def test_folder_holds_the_frequent_words_that_can_be_looked_up(folder: Path, glove: Path) -> None:
    words = json.loads((folder / "words.json").read_text(encoding="utf-8"))["words"]
    own = ["<unk>", *TRAINED]
    assert words == [*own, *(word for word in KNOWN if word not in own)]
    vectors = numpy.fromfile(folder / "vectors.bin", "<f2").reshape(len(words), SIZE)
    lines = (line.split() for line in glove.read_text(encoding="utf-8").splitlines())
    given = {word: [float(number) for number in numbers] for word, *numbers in lines}
    for word, vector in zip(words[len(own) :], vectors[len(own) :], strict=True):
        assert vector.tolist() == given[word]


def test_program_names_what_is_wrong(
    program: ModuleType, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "glove.txt"
    other.write_text("the 1 2\n")
    arguments = ["reader.py", str(model), "--glove", str(other), "--to", str(tmp_path / "page")]
    for extra, message in (
        ([], "has vectors of 2 numbers, but the model was trained with 6"),
        (["--words", "0"], "--words is 0: give 1 or more"),
        (["--glove", str(tmp_path / "none")], "none': No such file"),
    ):
        monkeypatch.setattr("sys.argv", [*arguments, *extra])
        with pytest.raises(SystemExit, match=message):
            program.main()
    monkeypatch.setattr(program, "RUNTIME", "node_modules/nothing")
    with pytest.raises(SystemExit, match="run npm install"):
        program.main()
    assert not (tmp_path / "page").exists()
