import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinrnn.lab.recipes.squad.tokens import ELSEWHERE, EMPTY, INSIDE, MOVED, place, split


def words(text):
    return [text[a:b] for a, b in split(text)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Well-known, isn't it?", ["Well", "-", "known", ",", "isn", "'", "t", "it", "?"]),
        ("1,000.5 km², 1990s", ["1,000.5", "km²", ",", "1990", "s"]),
        ("the U.S. and E.U.", ["the", "U.S.", "and", "E.U."]),
        ("a_b\u00a0c\n  d", ["a", "_", "b", "c", "d"]),
        ("", []),
    ],
)
def test_text_is_split(text, tokens):
    assert words(text) == tokens


@given(st.text())
def test_no_character_but_white_space_is_lost(text):
    spans = split(text)
    inside = {i for a, b in spans for i in range(a, b)}
    assert all(text[i].isspace() for i in set(range(len(text))) - inside)
    assert all(a < b for a, b in spans) and spans == sorted(spans)


TEXT = "Anna owns 12 hats; Bert owns hats."


@pytest.mark.parametrize(
    ("answer", "start", "tokens", "note"),
    [
        ("12 hats", 10, ["12", "hats"], ""),
        (" 12 hats ", 9, None, ELSEWHERE),
        (" 12 ", 9, ["12"], ""),
        ("2 hat", 11, ["12", "hats"], INSIDE),
        ("Bert", 3, ["Bert"], MOVED),
        ("hats", 3, None, ELSEWHERE),  # twice there: which one is meant?
        ("Bert", -15, ["Bert"], MOVED),
        (" ", 4, None, EMPTY),
        ("", 4, None, EMPTY),
    ],
)
def test_answers_become_tokens_or_a_reason(answer, start, tokens, note):
    found = place(TEXT, split(TEXT), answer, start)
    assert found.note == note
    assert (found.first >= 0) == (tokens is not None)
    if tokens is not None:
        assert words(TEXT)[found.first : found.last + 1] == tokens


def test_places_are_characters_not_bytes():
    text = "Σωκράτης 𝔘𝔫𝔦 é met Zoë."
    found = place(text, split(text), "Zoë", text.index("Zoë"))
    assert found.note == "" and words(text)[found.first] == "Zoë"
