"""The space of a sweep: read, checked value by value, and refused in one line."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="needs the extra sweep")

from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.sweep.space import OneOf, Range, parse_space, read_table, suggest

SETTINGS = LanguageModelSettings(tied=True)


class Lowest:
    """A trial that takes the first of everything."""

    def suggest_float(self, name: str, low: float, high: float, **options: Any) -> float:
        return float(low)

    def suggest_int(self, name: str, low: int, high: int, **options: Any) -> int:
        return low

    def suggest_categorical(self, name: str, choices: list[str]) -> str:
        return choices[0]


def test_ranges_and_choices_become_settings() -> None:
    table = {
        "lr": {"low": 1e-3, "high": 1e-2, "log": True},
        "epochs": {"low": 5, "high": 20, "step": 5},
        "schedule": {"choices": ["cosine", "constant"]},
        "shape": {
            "choices": [
                {"embedding": 100, "hidden": [100, 100]},
                {"embedding": 50, "hidden": [50]},
            ]
        },
    }
    space = parse_space(table, SETTINGS)
    assert space["lr"] == Range(1e-3, 1e-2, log=True)
    assert isinstance(space["shape"], OneOf)
    values = suggest(Lowest(), space)
    assert values == {
        "lr": 1e-3,
        "epochs": 5,
        "schedule": "cosine",
        "embedding": 100,
        "hidden": [100, 100],
    }
    assert SETTINGS.replaced(**values).hidden == (100, 100)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({}, "empty"),
        ({"lr": 3}, r"write \[lr\]"),
        ({"lr": {}}, "neither low and high nor choices"),
        ({"lr": {"low": 1, "high": 2, "steps": 3}}, "steps"),
        ({"lr": {"low": 2, "high": 1}}, "low the smaller"),
        ({"lr": {"low": "a", "high": 1}}, "must be numbers"),
        ({"lr": {"low": True, "high": 2}}, "must be numbers"),
        ({"lr": {"low": 0, "high": 1, "log": True}}, "above 0"),
        ({"epochs": {"low": 1, "high": 9, "step": 90}}, "step"),
        ({"lr": {"choices": []}}, "two values"),
        ({"lr": {"choices": [0.1, 0.1]}}, "the same"),
        ({"lr": {"low": -1, "high": 1}}, r"\[lr\] of the space: lr is -1"),
        ({"learning": {"low": 0, "high": 1}}, "there is no setting 'learning'"),
        ({"hidden": {"choices": ["40", "50"]}}, "tied=true"),
        ({"valid": {"choices": ["a", "b"]}}, "the same in all trials"),
        ({"shape": {"choices": [{"phases": "gated"}, {"lr": 1}]}}, "the same in all trials"),
    ],
)
def test_what_is_no_space_is_refused(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_space(table, SETTINGS)


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("[lr")
    with pytest.raises(InputError, match="not valid TOML"):
        read_table(tmp_path / "space.toml")
    with pytest.raises(InputError, match="cannot read"):
        read_table(tmp_path / "nothing.toml")
