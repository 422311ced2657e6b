import itertools
import math

import pytest
import torch

from thinrnn.lab.recipes.language_model import data
from thinrnn.lab.recipes.language_model.corpus import Text, encode_text, load_text
from thinrnn.lab.recipes.language_model.data import (
    Splitting,
    Vocabulary,
    make_vocabulary,
    read_pieces,
    scoring_streams,
    split_tokens,
    streams,
)
from thinrnn.lab.recipes.language_model.presets import demo
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.settings import changed
from thinrnn.lab.run import InputError


def tokens(text, **splitting):
    return list(split_tokens([text], Splitting(**splitting)))


def test_the_unigram_model_counts_each_token_of_training_and_one_more():
    splitting = Splitting()
    vocabulary = Vocabulary(("<eos>", "<unk>", "a", "b"), splitting)
    text = Text(vocabulary, torch.tensor([2, 2, 2, 3, 0]), torch.tensor([2, 3, 1]), None)
    probabilities = [4 / 9, 2 / 9, 1 / 9]
    assert text.unigram_perplexity() == pytest.approx(math.prod(probabilities) ** (-1 / 3))


def test_words_end_with_eos_at_each_line():
    expected = ["a", "b", "<eos>", "<eos>", "c", "<eos>"]
    assert tokens("a  b\n\n c\n") == expected
    assert tokens("a  b\n\n c") == expected


def test_characters_keep_blanks():
    assert tokens("a b\nc", level="char") == ["a", " ", "b", "<eos>", "c", "<eos>"]


def test_words_can_be_split_from_punctuation_and_lowered():
    assert tokens('Say "No".', lower=True, punctuation=True) == [
        "say",
        '"',
        "no",
        '"',
        ".",
        "<eos>",
    ]


@pytest.mark.parametrize("splitting", [{}, {"level": "char"}, {"punctuation": True}])
def test_it_does_not_matter_where_a_file_is_cut_into_pieces(splitting):
    text = "one two\n\nthree, four\r\nfive"
    text = text.replace("\r", "")
    for size in range(1, len(text) + 1):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert list(split_tokens(pieces, Splitting(**splitting))) == tokens(text, **splitting)


def test_a_file_is_read_in_pieces_with_any_line_ends_and_byte_order_mark(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "PIECE", 3)
    file = tmp_path / "a.txt"
    file.write_bytes("\ufeffgrün blau\r\nrot".encode())
    assert list(split_tokens(read_pieces(file), Splitting())) == [
        *("grün", "blau", "<eos>", "rot", "<eos>")
    ]


def test_a_line_without_any_blank_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(data, "PIECE", 4)
    found = list(split_tokens(["abcd"] * 100, Splitting()))
    assert "".join(found[:-1]) == "abcd" * 100
    assert max(map(len, found)) <= 8


def test_the_vocabulary_is_ordered_by_count_and_holds_eos_and_unk_once():
    words = ["b", "b", "a", "a", "c", "<unk>", "<eos>", "<eos>"]
    vocabulary = make_vocabulary(words, Splitting())
    assert vocabulary.tokens == ("<eos>", "<unk>", "a", "b", "c")
    assert vocabulary.encode(["c", "<eos>", "?"]).tolist() == [4, 0, 1]
    assert make_vocabulary(words, Splitting(), largest=4).tokens[2:] == ("a", "b")
    assert make_vocabulary(words, Splitting(), min_count=2).tokens[2:] == ("a", "b")


def write(folder, **contents):
    values = []
    for name, content in contents.items():
        file = folder / f"{name}.txt"
        if content is not None:
            file.write_bytes(content)
        values.append(f"{name}={file}")
    return changed(LanguageModelSettings(), values)


GOOD = b"the cat sat on the mat\n" * 20


@pytest.mark.parametrize(
    ("train", "valid", "message"),
    [
        (b"", GOOD, r"train\.txt is empty: give a file with text in it"),
        (GOOD, b"", r"valid\.txt is empty"),
        (None, GOOD, r"train\.txt does not exist: check the path"),
        (b"\x00\x01\x02ELF", GOOD, r"train\.txt is a binary file \(it has zero bytes\)"),
        (b"\xff\xd8\xff\xe0", GOOD, r"train\.txt is not UTF-8 text .*iconv"),
        (b"word " * 50, GOOD, r"one word only \('word'\): there is nothing to learn"),
        (b"\n\n\n", GOOD, r"has no words: there is nothing to learn"),
        (GOOD, None, r"valid\.txt does not exist"),
    ],
)
def test_a_bad_text_is_reported_in_one_line(tmp_path, train, valid, message):
    with pytest.raises(InputError, match=message) as caught:
        load_text(write(tmp_path, train=train, valid=valid))
    assert "\n" not in str(caught.value)


def test_missing_texts_are_named(tmp_path):
    with pytest.raises(InputError, match="no training text: give --data FILE"):
        load_text(LanguageModelSettings())
    with pytest.raises(InputError, match="no validation text: give --valid FILE"):
        load_text(write(tmp_path, train=GOOD).replaced(test=str(tmp_path / "train.txt")))
    with pytest.raises(InputError, match="is a folder"):
        load_text(changed(LanguageModelSettings(), [f"train={tmp_path}", f"valid={tmp_path}"]))


def test_unknown_words_of_validation_become_unk(tmp_path):
    text = load_text(write(tmp_path, train=GOOD, valid=b"the dog sat\n"))
    assert [text.vocabulary.tokens[i] for i in text.valid] == ["the", "<unk>", "sat", "<eos>"]
    assert text.test is None


def test_the_built_in_corpus_is_the_same_each_time_and_its_parts_do_not_overlap():
    text = load_text(demo())
    assert text.fingerprint() == load_text(demo()).fingerprint()
    assert len(text.train) > 60_000 and len(text.valid) > 3_000 and len(text.test) > 3_000
    eos = text.vocabulary.number("<eos>")

    def paragraphs(part):
        ends = [-1, *(part == eos).nonzero().flatten().tolist()]
        cut = [tuple(part[a + 1 : b].tolist()) for a, b in itertools.pairwise(ends)]
        return {p for p in cut if len(p) > 30}

    assert not paragraphs(text.train) & paragraphs(text.valid)
    assert not paragraphs(text.train) & paragraphs(text.test)


def test_streams_stand_side_by_side():
    assert streams(torch.arange(11), 2).tolist() == [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]
    with pytest.raises(InputError, match=r"has 3 tokens, too few for batch=2.*--set batch=1"):
        streams(torch.arange(3), 2)


def test_every_token_is_scored_exactly_once():
    inputs, targets = scoring_streams(torch.arange(1, 8), 3, start=0)
    assert targets.t().flatten().tolist() == [1, 2, 3, 4, 5, 6, 7, -1, -1]
    assert inputs.t().flatten().tolist()[:7] == [0, 1, 2, 3, 4, 5, 6]


def test_a_prompt_is_split_like_the_text():
    vocabulary = make_vocabulary(["x", "y", "z"], Splitting())
    assert (
        encode_text("x y\nz", vocabulary).tolist()
        == vocabulary.encode(["x", "y", "<eos>", "z"]).tolist()
    )
    assert encode_text("", vocabulary).tolist() == []
