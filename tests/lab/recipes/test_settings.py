from typing import Annotated, Literal

import pytest
from pydantic import Field

from thinrnn.lab.recipes.settings import (
    TrainingSettings,
    as_json,
    changed,
    described,
    from_toml,
)
from thinrnn.lab.run import InputError


class Example(TrainingSettings):
    phases: tuple[str, ...] = ("dense",)
    lr: float = Field(1.0, gt=0, description="learning rate")
    epochs: int = Field(3, ge=1, le=10, description="passes")
    cell: Literal["lstm", "gru"] = Field("lstm", description="layer")
    tied: bool = Field(False, description="tie")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((2, 2), description="sizes")
    patience: int | None = Field(None, description="epochs")


def test_texts_become_the_types_of_their_fields():
    texts = [
        "lr=2e-1",
        "epochs=4",
        "cell=gru",
        "tied=yes",
        "hidden=5, 6,7",
        "patience=9",
        "l0=1e-7",
    ]
    assert changed(Example(), texts) == Example(
        lr=0.2, epochs=4, cell="gru", tied=True, hidden=(5, 6, 7), patience=9, l0=1e-7
    )
    assert changed(Example(patience=4), ["patience=none"]).patience is None
    assert changed(Example(), ['l0={"rnn.*": 2e-7}']).l0 == {"rnn.*": 2e-7}
    assert changed(Example(), ["hidden=8"]).hidden == (8,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "'lr' is not key=value: write --set lr=VALUE."),
        ("lrr=1", "there is no setting 'lrr': did you mean 'lr'?"),
        ("zzzz=1", "there is no setting 'zzzz': 'thinrnn list --settings' shows all."),
        ("lr=fast", "lr is 'fast', but must be a valid number."),
        ("lr=0", "lr is '0', but must be greater than 0."),
        ("lr=nan", "lr is 'nan', but must be a finite number."),
        ("epochs=1.5", "epochs is '1.5', but must be a valid integer"),
        ("epochs=99", "epochs is '99', but must be less than or equal to 10."),
        ("hidden=3,x", "hidden is 'x', but must be a valid integer."),
        ("hidden=3,0", "hidden is '0', but must be greater than or equal to 1."),
        ("cell=tree", "cell is 'tree', but must be 'lstm' or 'gru'."),
        ("tied=maybe", "tied is 'maybe', but must be a valid boolean"),
        ("l0=[1]", "l0 is [1], but must be a valid number"),
    ],
)
def test_a_wrong_setting_is_reported_in_one_line(text, message):
    with pytest.raises(InputError) as caught:
        changed(Example(), [text])
    assert str(caught.value).startswith(message)


def test_toml_takes_the_same_settings(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('lr = 3\nhidden = [4, 5]\ntied = true\n[l0]\n"rnn.*" = 1e-8\n')
    expected = Example(lr=3.0, hidden=(4, 5), tied=True, l0={"rnn.*": 1e-8})
    assert from_toml(Example(), file) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*: No such file"),
        (b"lr = ", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"epochs = true", "epochs is True, but must not be true or false"),
        (b"cell = 3", "cell is 3, but must be a valid string|but must be 'lstm' or 'gru'"),
    ],
)
def test_a_wrong_toml_file_is_reported_in_one_line(tmp_path, content, message):
    file = tmp_path / "a.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        from_toml(Example(), file)


def test_settings_survive_json_and_can_be_listed():
    settings = Example(hidden=(4,), l0={"a": 1.0})
    assert Example(**as_json(settings)) == settings
    assert ("hidden", "4", "sizes") in described(settings)
