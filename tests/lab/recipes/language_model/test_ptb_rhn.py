"""The presets of recurrent highway networks, against the paper's numbers."""

import pytest
import torch

import thinrnn
from thinrnn.lab import driver, recipes
from thinrnn.lab.recipes.language_model import ptb_rhn
from thinrnn.lab.recipes.language_model.model import Dropouts, LanguageModel
from thinrnn.lab.recipes.language_model.recipe import RECIPE, build_model, dropouts
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.recipes.settings import as_json
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.progress import Silent

PRESETS = ptb_rhn.PRESETS


def test_all_rows_of_the_table_and_points_of_the_figure_have_a_preset():
    names = ["dense", "iss", "iss-weak", "iss-strong", "iss-authors", "paper", "plain", "scratch"]
    names += [f"curve-{k}" for k in (1, 2, 3, 4)]
    assert set(PRESETS) == {f"ptb-rhn-{name}" for name in names}
    assert PRESETS.items() <= recipes.presets().items()


@pytest.mark.parametrize("name", PRESETS)
def test_settings_survive_the_run_folder(name):
    settings = PRESETS[name].settings()
    assert type(settings)(**as_json(settings)) == settings
    assert PRESETS[name].corpus == "ptb" and not settings.train


@pytest.mark.parametrize(
    ("width", "millions"), [(830, 23.5), (726, 18.9), (517, 11.1), (403, 7.6), (389, 7.2)]
)
def test_parameters_are_those_of_the_papers(width, millions):
    assert ptb_rhn.parameters(width) / 1e6 == pytest.approx(millions, abs=0.06)


def test_parameters_are_those_of_the_model(monkeypatch):
    monkeypatch.setattr(ptb_rhn, "WORDS", 11)
    settings = ptb_rhn.dense().replaced(**{"embedding": 6, "hidden": (6,)})
    model = build_model(settings, 11)
    assert thinrnn.count(model).params == ptb_rhn.parameters(6)


def test_the_dense_model_is_the_papers():
    settings = ptb_rhn.dense()
    assert (settings.embedding, settings.hidden, settings.depth) == (830, (830,), 10)
    assert settings.tied and settings.locked


def test_plain_neuron_selection_drops_what_the_paper_drops():
    settings = ptb_rhn.plain()
    assert dropouts(settings).word == dropouts(settings).recurrent == pytest.approx(0.1875)
    assert dropouts(settings).input == dropouts(settings).output == pytest.approx(0.5625)
    assert settings.target_params <= 7_240_000


def differences(one, other):
    """Return the settings in which they differ, dropouts apart."""
    one, other = as_json(one), as_json(other)
    return {key for key, value in one.items() if value != other[key] and "dropout" not in key}


def test_points_of_the_figure_differ_in_their_width_alone():
    points = [PRESETS[f"ptb-rhn-curve-{k}"].settings() for k in (1, 2, 3, 4)]
    assert all(differences(points[0], point) == {"target_params"} for point in points[1:])
    assert differences(points[0], ptb_rhn.paper(726)) == {"epochs", "written"}


@pytest.mark.parametrize("name", ["iss", "iss-weak", "iss-strong"])
def test_iss_gets_what_a_point_of_the_figure_gets(name):
    settings = PRESETS[f"ptb-rhn-{name}"].settings()
    own = {"target_params", "lasso", "optimizer", "lr", "phases"}
    assert differences(settings, ptb_rhn.curve(389)) == own


def test_the_control_differs_in_its_width_alone():
    assert differences(ptb_rhn.plain(), ptb_rhn.scratch()) == {"embedding", "hidden", "phases"}
    assert ptb_rhn.parameters(ptb_rhn.scratch().embedding) <= ptb_rhn.plain().target_params


@pytest.mark.extended
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_trains_to_the_end(name, tiny, tmp_path):
    """The same settings with other sizes and texts."""
    settings = PRESETS[name].settings()
    small = as_json(tiny(epochs=1))
    taken = ("train", "valid", "test", "epochs", "batch", "device", "threads", "tensorboard")
    changes = {key: small[key] for key in (*taken, "bench_batch", "bench_steps", "bench_seconds")}
    changes |= {"embedding": 12, "hidden": (12,), "depth": 3, "lr": 1.0}
    if settings.target_params is not None:
        changes["target_params"] = 0.6
    settings = settings.replaced(**changes)
    finished = driver.start(RECIPE, settings, tmp_path / "run", preset=None, progress=Silent())
    kinds = {"gated": "small"}
    assert list(finished.summaries()) == [kinds.get(p, p) for p in settings.phases]
    if settings.phases[-2:] == ("gated", "control"):
        small, control = (finished.summary(kind) for kind in ("small", "control"))
        (width,) = small["neurons"].values()
        assert width < 12 and small["params"] == control["params"]


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(tiny, tmp_path, monkeypatch):
    settings = tiny(
        cell="rhn",
        depth=2,
        embedding=12,
        hidden=(12,),
        tied=True,
        locked=True,
        recurrent_dropout=0.2,
        word_dropout=0.2,
        phases=("gated",),
    )
    whole = driver.start(RECIPE, settings, tmp_path / "whole", preset=None, progress=Silent())

    take_step, steps = Phase.take_step, []

    def stopping(self):
        take_step(self)
        steps.append(1)
        if len(steps) == 22:
            raise KeyboardInterrupt

    monkeypatch.setattr(Phase, "take_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        driver.start(RECIPE, settings, tmp_path / "stopped", preset=None, progress=Silent())
    resumed = driver.resume(tmp_path / "stopped", [], progress=Silent())
    for key in ("valid_perplexity", "test_perplexity", "params"):
        assert resumed.summary("small")[key] == whole.summary("small")[key]


def test_words_are_dropped_sequence_by_sequence():
    torch.manual_seed(0)
    model = LanguageModel(50, cell="rhn", depth=1, embedding=4, hidden=(4,), locked=True)
    model.set_dropouts(Dropouts(word=0.5))
    tokens = torch.randint(50, (30, 40))
    mask = model.word_mask(tokens, torch.ones(()))[..., 0]
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    for sequence, values in zip(tokens.T, mask.T, strict=True):
        for word in sequence.unique():
            assert values[sequence == word].unique().numel() == 1
    dropped = [mask[tokens == word] for word in range(50)]
    assert all(0 < (values == 0).sum() < len(values) for values in dropped)


def test_the_state_of_the_dropout_reaches_the_layers_and_scales_with_the_others():
    model = LanguageModel(
        9, cell="rhn", depth=2, embedding=4, hidden=(4,), dropouts=Dropouts(recurrent=0.4, word=0.2)
    )
    assert model.rnn[0].dropout == 0.4
    model.set_dropouts(model.dropouts.scaled(0.5))
    assert model.rnn[0].dropout == 0.2 and model.dropouts.word == 0.1


def test_transform_biases_survive_the_initialisation():
    model = LanguageModel(
        9, cell="rhn", depth=2, embedding=4, hidden=(4,), init_range=0.04, rnn_init=0.04
    )
    for layer in model.highways:
        assert layer.bias_d1.tolist() == [0.0] * 4 + [-2.0] * 4
        assert layer.weight_hh_d1.abs().max() <= 0.04


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recurrent_dropout": 0.1}, "recurrent_dropout is for cell=rhn"),
        ({"cell": "rhn", "weight_dropout": 0.1}, "weight_dropout is not for cell=rhn"),
    ],
)
def test_a_dropout_that_the_cell_does_not_have_is_refused(tiny, changes, message):
    with pytest.raises(InputError, match=message):
        tiny(**changes)
