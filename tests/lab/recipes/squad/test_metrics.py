import pytest

from thinrnn.lab.recipes.squad.metrics import best, em_and_f1, exact, f1, normalised


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The Cat", "cat"),
        ("an  apple\tand a pear", "apple and pear"),
        ("theatre", "theatre"),
        ("U.S.", "us"),
        ("'Twas, well-known!", "twas wellknown"),
        ("the", ""),
        ("naïve café", "naïve café"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes
    ],
)
def test_normalisation_is_the_official_one(text, plain):
    assert normalised(text) == plain


@pytest.mark.parametrize(
    ("given", "wanted", "em", "overlap"),
    [
        ("the Denver Broncos.", "Denver Broncos", 1, 1),
        ("Denver", "Denver Broncos", 0, 2 / 3),
        ("Denver Denver", "Denver Broncos", 0, 0.5),  # a word counts as often as both have it
        ("", "Denver", 0, 0),
        ("", "the", 1, 0),  # both empty: a match, but no word in common
        ("Carolina", "Denver", 0, 0),
    ],
)
def test_scores_of_single_answers(given, wanted, em, overlap):
    assert exact(given, wanted) == em
    assert f1(given, wanted) == pytest.approx(overlap)


def test_the_best_of_several_references_counts():
    references = ["in the year 1990", "1990", "nineteen ninety"]
    assert best(exact, "1990", references) == 1
    assert best(f1, "year 1990", references) == pytest.approx(0.8)


def test_scores_of_a_set_are_per_cent():
    em, overlap = em_and_f1(["a cat", "", "red dog"], [["cat", "dog"], ["x"], ["dog", "bird"]])
    assert em == pytest.approx(100 / 3)
    assert overlap == pytest.approx(100 * (1 + 0 + 2 / 3) / 3)
