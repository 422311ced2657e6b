"""Folders of text: a public corpus is taken as published or not at all."""

import dataclasses
import hashlib

import pytest

from thinrnn.lab.data import corpora
from thinrnn.lab.recipes.language_model import corpus as texts
from thinrnn.lab.recipes.language_model.corpus import find_texts, texts_in
from thinrnn.lab.run import InputError

CONTENTS = {
    "train": "the cat sat\nthe dog <unk>\n" * 5,
    "valid": "the cat\n",
    "test": "a dog\nsat\n",
}
FACTS = texts.Facts({"train": 40, "valid": 3, "test": 5}, words=6, fingerprint="1234")


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A folder with a small text that is published under the name ptb."""
    folder = tmp_path / "ptb"
    folder.mkdir()
    files = []
    for part, content in CONTENTS.items():
        name = f"ptb.{part}.txt"
        (folder / name).write_text(content)
        sha256 = hashlib.sha256(content.encode()).hexdigest()
        files.append(corpora.PublicFile(name, "", len(content), sha256))
    small = corpora.Corpus("ptb", "Penn Treebank", tuple(files))
    monkeypatch.setitem(corpora.CORPORA, "ptb", small)
    monkeypatch.setitem(texts.FACTS, "ptb", FACTS)
    return folder


def test_a_corpus_as_published_is_taken(corpus):
    expected = {part: str(corpus / f"ptb.{part}.txt") for part in CONTENTS}
    assert texts_in(corpus, "ptb") == expected


@pytest.mark.parametrize("change", [b"", b"the cat\r\n", b"the bat\n"])
def test_another_file_is_refused_with_its_hash(corpus, change):
    (corpus / "ptb.valid.txt").write_bytes(change)
    expected = (
        r"ptb\.valid\.txt is not the published file of the Penn Treebank: it has \d bytes with "
        r"sha256 \w{12}\.\.\., not 8 with \w{12}\.\.\.; remove it and run 'thinrnn data ptb "
    )
    with pytest.raises(InputError, match=expected):
        texts_in(corpus, "ptb")


def test_a_missing_file_or_folder_is_reported(corpus):
    (corpus / "ptb.test.txt").unlink()
    with pytest.raises(InputError, match=r"has no ptb\.test\.txt: 'thinrnn data ptb .*' downloads"):
        texts_in(corpus, "ptb")
    with pytest.raises(InputError, match="nowhere is not a folder: 'thinrnn data ptb"):
        texts_in(corpus / "nowhere", "ptb")


def test_tokens_and_words_are_counted_by_our_own_reader(corpus, monkeypatch):
    tokens = {**FACTS.tokens, "test": 6}
    monkeypatch.setitem(texts.FACTS, "ptb", dataclasses.replace(FACTS, tokens=tokens))
    with pytest.raises(InputError, match=r"ptb\.test\.txt has 5 tokens, not 6"):
        texts_in(corpus, "ptb")
    monkeypatch.setitem(texts.FACTS, "ptb", dataclasses.replace(FACTS, words=7))
    with pytest.raises(InputError, match=r"ptb\.train\.txt has 6 words, not 7"):
        texts_in(corpus, "ptb")


def test_other_texts_are_found_by_their_names(tmp_path):
    for name in ("my-train.txt", "my-valid.txt"):
        (tmp_path / name).write_text("a b\n")
    paths = {part: str(tmp_path / f"my-{part}.txt") for part in ("train", "valid")}
    assert texts_in(tmp_path) == paths
    assert list(find_texts(tmp_path, ("valid", "test"))) == ["valid"]
    (tmp_path / "my-valid.txt").unlink()
    with pytest.raises(InputError, match=r"has no \*valid\*\.txt: give --valid FILE"):
        texts_in(tmp_path)
    (tmp_path / "train2.txt").write_text("a b\n")
    with pytest.raises(InputError, match=r"several texts for train \(my-train.txt, train2.txt\)"):
        texts_in(tmp_path)


def test_the_published_facts_are_the_papers():
    facts = texts.FACTS["ptb"]
    assert list(facts.tokens.values()) == [929_589, 73_760, 82_430] and facts.words == 10_000
    assert [file.name for file in corpora.PTB.files] == [f"ptb.{p}.txt" for p in facts.tokens]
    assert all(len(file.sha256) == 64 for file in corpora.PTB.files)
