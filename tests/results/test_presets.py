"""Presets and published runs agree: settings, shapes, and what is shown about them."""

import re

import pytest

from thinrnn.lab import recipes
from thinrnn.lab.recipes.settings import as_json
from tools.results.runs import Results, millions, scores_of


@pytest.fixture(scope="module")
def results(pytestconfig):
    return Results.read(pytestconfig.rootpath / "results")


# What may differ between a published run and its preset: where it ran, what it was given.
GIVEN = {"train", "valid", "test", "data", "cache", "teacher", "phases", "seed"}
GIVEN |= {"checkpoint_seconds", "tensorboard", "bench_seconds"}
# What does not matter to a dense model; ptb-teacher was run as the dense phase of ptb-thin.
GATES = {"gate_lr", "small_dropout", "target_time"}


def both(run, preset):
    """The settings of a published run and of its preset; newer ones were at their default."""
    today = as_json(preset.settings())
    known = {key: value for key, value in run["settings"].items() if key in today}
    return as_json(type(preset.settings())(**known)), today


def changes(run, preset):
    """The settings that the preset has changed since the run."""
    then, today = both(run, preset)
    free = GIVEN | GATES if today["phases"] == ["dense"] else GIVEN
    free = free if today["lasso"] else free | {"lasso_zero"}
    return {key for key in today if then[key] != today[key]} - free


def expected(run, preset):
    """What `thinrnn list` shows about a preset: scores and weights of its main model.

    Teachers are named, since the preset alone trains one of its own, and so are settings that the
    preset has changed since.
    """
    model = next(run["models"][k] for k in ("small", "dense", "control") if k in run["models"])
    form = "EM {:.2f}, F1 {:.2f}" if "em" in model else "{:.2f} / {:.2f}"
    teachers = run["settings"].get("teacher") or []
    alone = isinstance(teachers, str) or len(teachers) == 1  # a text in older files
    given = f", given {'a teacher' if alone else f'{len(teachers)} teachers'}" if teachers else ""
    then, _ = both(run, preset)
    changed = [f"{key}={then[key]}" for key in sorted(changes(run, preset))]
    given += f", with {', '.join(changed)}" if changed else ""
    return f"{form.format(*scores_of(model))}, {millions(model['weights'])} weights{given}"


def test_presets_show_what_their_runs_reached(results):
    for name, preset in recipes.presets().items():
        if name in results.runs:
            assert preset.expected == expected(results.runs[name], preset)
        elif name.startswith("ptb-"):
            assert preset.expected == ""


def test_controls_that_are_trained_alone_have_the_shape_of_the_pruned_run(results):
    pairs = {name: f"{name}-scratch" for name in ("ptb-paper", "ptb-thin")}
    for name, control in (pairs | {"ptb-rhn-plain": "ptb-rhn-scratch"}).items():
        settings = recipes.preset(control).settings()
        shape = (settings.embedding, *settings.hidden)
        if settings.tied:  # embedding and last layer are one group there
            shape = shape[:-1]
        sizes = results.figures(name).sizes.split("-")
        assert sorted(map(str, shape)) == sorted(sizes)


def test_every_preset_for_the_penn_treebank_is_on_the_page(pytestconfig):
    text = (pytestconfig.rootpath / "docs/how-to/reproduce-the-paper.md").read_text()
    series = re.findall(r"`(ptb-[a-z-]+)-1` to `-(\d)`", text)
    numbered = {f"{name}-{k}" for name, last in series for k in range(1, int(last) + 1)}
    named = set(re.findall(r"`(ptb-[a-z-]+)`", text))
    assert named | numbered == {name for name in recipes.presets() if name.startswith("ptb-")}
