"""No text can hurt: not a model trained on it, not the terminal, not the report in a browser."""

import gzip
import json
import shutil
import sys
import tracemalloc

import pytest
from attack.conftest import TINY, attempt, describe, limited
from attack.hostile import damages
from browser import Browser

from thinrnn.errors import ThinRNNError
from thinrnn.lab.data.corpora import digest
from thinrnn.lab.recipes.language_model.data import Splitting, read_pieces, split_tokens
from thinrnn.lab.recipes.squad.glove import read_glove
from thinrnn.lab.recipes.squad.reading import read_squad

pytestmark = pytest.mark.extended

MARKUP = "<script>document.title='hacked'</script><img src=x onerror=document.title='hacked'>"
NASTY = {
    "markup": f"\"'>{MARKUP}</svg></style>{{{{7*7}}}}{{% raw %}}&lt;&#60;<!--",
    "control codes": "\x1b[31m\x1b]0;hacked\x07\x08\x7f\x9b31m",
    "right to left": "\u202eabc\u2066\u2067\u2068\u2069\u200f",
    "surrogates in a row": "\U0001f600\ud7ff\ue000\ufffe",
    "combining marks": "a" + "\u0301" * 2000,
    "line ends of many kinds": "a\rb\x0bc\x0cd\x85e\u2028f\u2029g",
    "blanks of many kinds": "a\u00a0b\u3000c\u200bd",
    "words of the vocabulary": "<eos> <unk> <pad>",
    "null characters escaped": "\\0 \\x00 \\u0000 %s %n {} {0}",
}


def text_of(nasty):
    """Return a text that a tiny model can learn, with nasty words in it."""
    words = [nasty, *(f"w{n}" for n in range(12))]
    rows = (" ".join(words[(n * step) % 13] for n in range(8)) for step in range(1, 61))
    return "\n".join(rows) + "\n"


def train(folder, **more):
    files = [part for n in ("train", "valid") for part in (f"--{n}", folder / f"{n}.txt")]
    settings = [part for k, v in {**TINY, **more}.items() for part in ("--set", f"{k}={v}")]
    return attempt("train", "lm", *files, "--out", folder / "run", *settings)


@pytest.mark.parametrize("level", ["word", "char"])
def test_models_of_nasty_texts(tmp_path, many, count, level):
    found, tried = [], list(NASTY.items())[:: many(3, 1)]
    for number, (what, nasty) in enumerate(tried):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("train", "valid"):
            (folder / f"{name}.txt").write_text(text_of(nasty), encoding="utf-8", newline="")
        run, prompt = folder / "run", ["--prompt", nasty, "--tokens", 20]
        for ended in (
            train(folder, phases="dense", level=level),
            attempt("generate", run, "--kind", "dense", *prompt),
            attempt("generate", run, "--kind", "dense", "--json", *prompt),
            attempt("eval", run, "--kind", "dense"),
            attempt("report", run),
            attempt("list", folder),
        ):
            found += [f"{what}: {fault}" for fault in ended.faults((0, 1))]
    count("texts", len(tried))
    assert not found, describe(found)


def test_damaged_texts(texts, tmp_path, many, count):
    found, tried = [], list(damages())[:: many(3, 1)]
    for number, (what, damage) in enumerate(tried):
        folder = tmp_path / str(number)
        shutil.copytree(texts, folder)
        damage(folder / "train.txt")
        found += [
            f"{what}: {fault}"
            for fault in train(folder, phases="dense").faults((0, 1, 2))
            if what != "a terabyte" or "code 2 without" not in fault
        ]
        shutil.rmtree(folder)
    count("texts", len(tried))
    assert not found, describe(found)


SQUAD = """{"data": [{"paragraphs": [{"context": "A cat sat.", "qas": [{"id": "1",
"question": "Who sat?", "answers": [{"text": "A cat", "answer_start": 0}]}]}]}]}"""
VECTORS = "the 0.1 0.2\ncat 0.3 -0.4\n"
READ = {
    "squad": (SQUAD.encode(), read_squad),
    "glove": (VECTORS.encode(), lambda path: read_glove(path, {"cat"})),
    "corpus": (b"text", digest),
}


@pytest.mark.parametrize("kind", READ)
def test_damaged_data_of_readers_and_corpora(kind, tmp_path, count):
    content, read = READ[kind]
    changes = dict(damages()) | {
        "packed": lambda file: file.write_bytes(gzip.compress(content)),
        "packed and cut": lambda file: file.write_bytes(gzip.compress(content)[:-9]),
        "packed zeros": lambda file: file.write_bytes(gzip.compress(bytes(1 << 29), 1)),
        "lists in lists": lambda file: file.write_bytes(b'{"data": ' + b"[" * 10**5),
        "a long line": lambda file: file.write_bytes(b"x" * (1 << 22)),
    }
    found = []
    for number, (what, change) in enumerate(changes.items()):
        if (kind, what) == ("corpus", "a terabyte"):
            continue  # whose hash takes as long as reading it
        file = tmp_path / str(number)
        file.write_bytes(content)
        change(file)
        found += [f"{what}: {fault}" for fault in limited(refused, read, file).faults()]
    count("data", len(changes))
    assert not found, describe(found)


def refused(read, file):
    try:
        read(file)
    except ThinRNNError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


@pytest.mark.parametrize("level", ["word", "char"])
def test_one_line_of_many_megabytes_is_read_in_pieces(tmp_path, many, count, level):
    megabytes, file = many(4, 100) if level == "word" else 2, tmp_path / "long.txt"
    with file.open("w") as out:
        for _ in range(megabytes):
            out.write("x" * (1 << 20))
    tracemalloc.start()
    tokens = sum(1 for _ in split_tokens(read_pieces(file), Splitting(level)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    letters = megabytes << 20
    assert tokens == (letters + 1 if level == "char" else pytest.approx(megabytes / 2, abs=2))
    assert peak < 24 << 20
    count("texts", 1)


@pytest.mark.browser
@pytest.mark.extended
def test_nothing_executes_in_the_report(good_run, tmp_path, count):
    """Markup stands where a run folder may have any text: names, settings, commands, verdicts."""
    run, number = tmp_path / MARKUP.replace("/", "∕"), 0
    shutil.copytree(good_run, run)
    for name in ("config.json", "metrics.jsonl", "pattern.json", "small.json", "dense.json"):
        lines = (run / name).read_text().splitlines()
        texts = [json.loads(line) for line in (lines if name.endswith("l") else ["".join(lines)])]
        spoiled = []
        for text in texts:
            text, changed = spoilt(text)
            spoiled.append(json.dumps(text))
            number += changed
        (run / name).write_text("\n".join(spoiled) + "\n")
    ended = attempt("report", run, "--out", tmp_path / "report.html")
    assert not ended.faults((0,)), ended
    page = (tmp_path / "report.html").read_text()
    assert "hacked" in page
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(tmp_path / "report.html")
        assert browser.run("document.title") != "hacked"
        policy = browser.run("document.querySelector('meta[http-equiv]').content")
        assert policy.startswith("default-src 'none'") and "script" not in policy
        assert browser.run("document.querySelectorAll('script, iframe, object, embed').length") == 0
        handlers = "[...document.querySelectorAll('*')].flatMap(n => n.getAttributeNames())"
        assert browser.run(f"{handlers}.filter(name => name.startsWith('on')).length") == 0
        # even markup that got through could neither run nor load anything
        browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>')")
        browser.run(
            "document.body.append(Object.assign(document.createElement('script'), "
            "{textContent: \"document.title = 'hacked'\"}))"
        )
        assert browser.run("document.title") != "hacked"
        assert loaded(browser) == [(tmp_path / "report.html").resolve().as_uri()]
    finally:
        browser.close()
    count("markup in reports", number)


def loaded(browser):
    """Return the addresses that a page asked for and that its policy did not block."""
    told = [event.get("params", {}) for event in browser.events]
    blocked = {one["requestId"] for one in told if one.get("blockedReason") == "csp"}
    requests = [one for one in told if "request" in one and one.get("requestId") not in blocked]
    urls = [one["request"]["url"] for one in requests]
    return [url for url in urls if not url.startswith("data:")]


KEPT = {"recipe", "event", "phase", "phases", "device", "better", "sha256", "metrics"}


def spoilt(value, key=""):
    """Return JSON with markup in every text and in names of groups, and how many there are."""
    if isinstance(value, str):
        return (value, 0) if key in KEPT else (value + MARKUP, 1)
    if isinstance(value, list):
        parts = [spoilt(part, key) for part in value]
        return [part for part, _ in parts], sum(number for _, number in parts)
    if isinstance(value, dict) and key not in KEPT:
        named = key in ("kept", "sizes", "values", "neurons")
        parts = {k: spoilt(part, k) for k, part in value.items()}
        found = {k + MARKUP if named else k: part for k, (part, _) in parts.items()}
        return found, sum(number + named for _, number in parts.values())
    return value, 0
