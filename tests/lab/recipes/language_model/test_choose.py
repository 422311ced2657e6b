"""What is left open is chosen from text, device and time; what is given stays."""

import math

import pytest
import torch

from thinrnn.lab import recipes
from thinrnn.lab.recipes.language_model import choose as choosing
from thinrnn.lab.recipes.language_model.choose import Choices, choose, choose_tokens, usual_lr
from thinrnn.lab.recipes.language_model.corpus import load_text
from thinrnn.lab.recipes.language_model.held_out import held_out
from thinrnn.lab.recipes.language_model.model import LanguageModel
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.settings import changed

CPU = torch.device("cpu")


@pytest.fixture
def lm(tmp_path):
    """The preset on a text of so many words."""

    def make(words=60_000, text="the cat sat on the mat, and the dog sat by it\n", **values):
        path = tmp_path / "text.txt"
        path.write_text(text * (words // len(text.split())))
        return recipes.preset("lm").settings().replaced(train=str(path), **values)

    return make


@pytest.fixture
def speed(monkeypatch):
    """Set the seconds of a pass of a width."""

    def at(seconds):
        def pass_seconds(recipe, settings, text, device):
            return seconds(max(settings.hidden))

        monkeypatch.setattr(choosing, "pass_seconds", pass_seconds)

    return at


def test_everything_is_chosen_with_a_reason(lm, speed):
    speed(lambda width: width / 10)
    settings, made = choose(RECIPE, lm(minutes=5.0), CPU)
    chosen = {choice.name: choice.value for choice in made}
    assert chosen["level"] == "word" and chosen["punctuation"] is True
    assert settings.tied and settings.hidden == (settings.embedding,) * 2
    assert settings.lr == pytest.approx(0.07 / math.sqrt(settings.embedding), rel=0.05)
    assert settings.init_bias == "frequency" and settings.init_range == "width"
    assert all(getattr(settings, name) == value for name, value in chosen.items())
    assert all(choice.reason for choice in made)


def test_what_is_given_stays(lm, speed):
    speed(lambda width: 1.0)
    given = ["cell=gru", "hidden=30,20", "lr=0.5", "epochs=3", "punctuation=no", "min_count=1"]
    settings, made = choose(RECIPE, changed(lm(), given), CPU)
    assert (settings.hidden, settings.lr, settings.epochs) == ((30, 20), 0.5, 3)
    assert settings.embedding == 20 and settings.lr_width == 0
    assert {"cell", "hidden", "lr", "epochs"}.isdisjoint(choice.name for choice in made)
    assert choose(RECIPE, settings, CPU) == (settings, ())  # a run that goes on chooses nothing


def test_without_a_time_nothing_is_chosen():
    settings = recipes.preset("demo").settings()
    assert choose(RECIPE, settings, CPU) == (settings, ())


def test_a_slow_machine_gets_a_narrower_model(lm, speed):
    speed(lambda width: width / 10)
    fast, _ = choose(RECIPE, lm(minutes=10), CPU)
    speed(lambda width: width)
    slow, _ = choose(RECIPE, lm(minutes=10), CPU)
    assert max(slow.hidden) < max(fast.hidden) and slow.epochs >= 1


def test_few_words_or_long_ones_are_read_by_characters(lm):
    assert choose_tokens(Choices(lm(words=2000))).settings.level == "char"
    assert (
        choose_tokens(Choices(lm(text="吾輩は猫である名前はまだ無い。\n"))).settings.level == "char"
    )
    assert choose_tokens(Choices(lm(text="a <unk> b c d e\n"))).settings.min_count == 1


def test_other_optimizers_and_cells_have_their_own_rates(lm, speed):
    speed(lambda width: 1.0)
    rates = {}
    for optimizer in ("adam", "sgd", "nt-asgd"):
        for cell in ("lstm", "rnn"):
            values = [f"cell={cell}", f"optimizer={optimizer}"]
            rates[optimizer, cell] = choose(RECIPE, changed(lm(), values), CPU)[0].lr
    assert rates["sgd", "lstm"] == rates["nt-asgd", "lstm"] == 20.0
    assert all(rates[optimizer, "rnn"] < rates[optimizer, "lstm"] for optimizer in ("adam", "sgd"))


def test_a_narrower_control_has_the_rate_of_its_width(tiny):
    settings = tiny(lr=0.01, lr_width=12)
    assert RECIPE.resized(settings, {"rnn.l0": 3, "rnn.l1": 3}).lr == pytest.approx(0.02)
    assert RECIPE.resized(tiny(lr=0.01), {"rnn.l0": 3, "rnn.l1": 3}).lr == 0.01


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_starts_as_the_unigram_model(tiny, tied):
    settings = tiny(tied=tied, embedding=12, init_bias="frequency", init_range="width")
    text = load_text(settings)
    model = RECIPE.build(settings, text)
    found = {m.name: m.value for m in RECIPE.evaluate(settings, model, text)}
    assert found["valid_perplexity"] == pytest.approx(text.unigram_perplexity(), rel=0.1)


def test_rare_words_start_at_their_frequencies_too(tiny):
    settings = tiny(tied=True, embedding=12, rare=4, rare_size=3, init_bias="frequency")
    text = load_text(settings)
    model = RECIPE.build(settings, text)
    biases = torch.cat([model.decoder.bias, model.rare_decoder.bias])
    assert biases.exp().sum().item() == pytest.approx(1, rel=1e-5)


def test_one_text_is_cut_into_three():
    text = "".join(f"line {i}\n" for i in range(2000))
    parts = held_out(text)
    lines = [line for part in parts.values() for line in part.splitlines()]
    assert sorted(lines) == sorted(text.splitlines())
    assert all(0.04 < len(parts[part]) / len(text) < 0.06 for part in ("valid", "test"))
    assert sum(map(len, held_out("x" * 5000).values())) == 5000


def test_wide_layers_without_a_cell_state_have_a_lower_rate():
    for cell in ("gru", "rnn"):
        assert usual_lr("adam", cell, 1500) < usual_lr("adam", "lstm", 1500) / 2
    assert usual_lr("adam", "gru", 64) == usual_lr("adam", "lstm", 64)


@pytest.mark.parametrize("cell", ["lstm", "rnn"])
def test_output_weights_begin_by_their_own_width(cell):
    model = LanguageModel(50, cell=cell, embedding=4, hidden=(400,), init_range="width")
    spread = float(model.decoder.weight.detach().std())
    assert spread == pytest.approx(400 ** (-0.5 if cell == "rnn" else -0.25), rel=0.05)
    assert float(model.embedding.weight.detach().std()) == pytest.approx(4**-0.25, rel=0.2)
