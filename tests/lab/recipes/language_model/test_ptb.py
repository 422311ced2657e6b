"""The presets for the Penn Treebank, against the paper's numbers."""

import pytest

from thinrnn.lab import driver, recipes
from thinrnn.lab.recipes.language_model import ptb
from thinrnn.lab.recipes.language_model.recipe import RECIPE, build_model
from thinrnn.lab.recipes.settings import as_json
from thinrnn.lab.run.progress import Silent

PRESETS = ptb.PRESETS


def test_all_rows_of_the_tables_have_a_preset():
    assert set(PRESETS) == {
        *("ptb-dense-sgd", "ptb-dense-ntasgd", "ptb-iss", "ptb-paper", "ptb-paper-scratch"),
        *(f"ptb-ablation-{k}" for k in (1, 2, 3, 4, 5)),
        *("ptb-gru", "ptb-rnn", "ptb-teacher", "ptb-thin", "ptb-thin-scratch", "ptb-tiny"),
    }
    assert PRESETS.items() <= recipes.presets().items()


@pytest.mark.parametrize("name", PRESETS)
def test_settings_survive_the_run_folder(name):
    settings = PRESETS[name].settings()
    assert type(settings)(**as_json(settings)) == settings
    assert PRESETS[name].corpus == "ptb" and not settings.train


def weights(settings, embedding, hidden):
    """Count as the paper does: no biases."""
    size, cells = 10_000 * embedding, {"lstm": 4, "gru": 3, "rnn": 1}
    for inputs, n in zip((embedding, *hidden), hidden, strict=False):
        size += cells[settings.cell] * n * (inputs + n)
    return size + (0 if settings.tied else 10_000 * hidden[-1])


def test_the_large_models_are_the_papers():
    for name in ("dense-sgd", "dense-ntasgd", "iss", "paper", "ablation-1", "gru", "rnn"):
        settings = PRESETS[f"ptb-{name}"].settings()
        assert (settings.embedding, settings.hidden, settings.tied) == (1500, (1500, 1500), False)
    assert weights(ptb.paper(), 1500, (1500, 1500)) == 66_000_000


@pytest.mark.parametrize("name", ["paper", "gru", "rnn", "thin", "tiny"])
def test_a_target_leaves_at_most_the_weights_that_are_promised(name):
    settings = PRESETS[f"ptb-{name}"].settings()
    limit = 2_500_000 if name == "tiny" else 6_160_000
    # at least the biases of the output layer, which the target counts and the paper does not
    assert settings.target_params - 10_000 <= limit


@pytest.mark.parametrize("name", ["paper-scratch", "thin-scratch"])
def test_a_control_has_the_size_and_the_schedule_of_what_it_controls(name):
    control = PRESETS[f"ptb-{name}"].settings()
    pruned = PRESETS[f"ptb-{name.removesuffix('-scratch')}"].settings()
    assert weights(control, control.embedding, control.hidden) == pytest.approx(6.16e6, rel=0.02)
    assert control.phases == ("control",)
    theirs = as_json(pruned)
    different = {k for k, v in as_json(control).items() if v != theirs[k]}
    own = {"distill", "written", "start_from", "small_dropout"}  # what a teacher needs, or replaces
    assert different <= {"embedding", "hidden", "phases"} | own


def test_penalties_of_the_ablation_are_the_papers():
    rows = [PRESETS[f"ptb-ablation-{k}"].settings() for k in (1, 2, 3, 4, 5)]
    for multiple, settings in enumerate(rows, start=1):
        first, *others = settings.l0.values()
        assert first == pytest.approx(multiple * 8.606e-8, rel=1e-4)
        assert others == pytest.approx([8.606e-8] * 3, rel=1e-4)
        assert settings.gate_mean == 1.0


def test_penalties_name_matrices_that_the_model_has():
    settings = ptb.ablation(1).replaced(**{"embedding": 4, "hidden": (5, 5)})
    model = build_model(settings, 10)
    assert settings.l0.keys() <= dict(model.named_parameters()).keys()


def test_plain_sgd_is_the_papers():
    settings = ptb.dense_sgd()
    rates = [settings.lr_at(step=0, steps=1, epoch=epoch) for epoch in (0, 13, 14, 15)]
    assert rates == pytest.approx([35, 35, 35 / 1.15, 35 / 1.15**2])


@pytest.mark.extended
@pytest.mark.parametrize(
    "name",
    ["dense-sgd", "iss", "paper", "ablation-3", "gru", "rnn", "teacher", "thin", "thin-scratch"],
)
def test_a_preset_trains_to_the_end(name, tiny, tmp_path):
    """The same settings with other sizes and texts."""
    settings = PRESETS[f"ptb-{name}"].settings()
    small = as_json(tiny(epochs=1))
    taken = ("train", "valid", "test", "epochs", "batch", "device", "threads", "tensorboard")
    changes = {key: small[key] for key in (*taken, "bench_batch", "bench_steps", "bench_seconds")}
    changes |= {"embedding": 10, "hidden": (12,) * (len(settings.hidden) - 1) + (10,)}
    if not settings.tied and len(set(settings.hidden)) == 1:
        changes["hidden"] = (12, 12)
    if settings.target_params is not None:
        changes["target_params"] = 0.6
    if settings.rare:
        changes |= {"rare": 9, "rare_size": 5}
    settings = settings.replaced(**changes)
    finished = driver.start(RECIPE, settings, tmp_path / "run", preset=None, progress=Silent())
    kinds = {"gated": "small"}
    assert list(finished.summaries()) == [kinds.get(p, p) for p in settings.phases]


def test_the_general_presets_are_the_ones_for_any_text():
    assert list(recipes.presets(all=False)) == ["lm", "char", "demo"]
    assert set(recipes.presets(all=False)) < set(recipes.presets())
