"""Presets and published runs agree: settings, shapes, and what is shown about them."""

import re

import pytest

from thinrnn.lab import recipes
from thinrnn.lab.recipes.settings import as_json
from tools.results.runs import Results, millions, scores_of


@pytest.fixture(scope="module")
def results(pytestconfig):
    return Results.read(pytestconfig.rootpath / "results")


def expected(run):
    """What `thinrnn list` shows about a preset: scores and weights of its main model.

    Teachers are named, since the preset alone trains one of its own.
    """
    model = next(run["models"][k] for k in ("small", "dense", "control") if k in run["models"])
    form = "EM {:.2f}, F1 {:.2f}" if "em" in model else "{:.2f} / {:.2f}"
    teachers = run["settings"].get("teacher") or []
    alone = isinstance(teachers, str) or len(teachers) == 1  # a text in older files
    given = f", given {'a teacher' if alone else f'{len(teachers)} teachers'}" if teachers else ""
    return f"{form.format(*scores_of(model))}, {millions(model['weights'])} weights{given}"


def test_presets_show_what_their_runs_reached(results):
    for name, preset in recipes.presets().items():
        if name in results.runs:
            assert preset.expected == expected(results.runs[name])
        elif name.startswith("ptb-"):
            assert preset.expected == ""


# What may differ between a published run and its preset: where it ran, what it was given.
GIVEN = {"train", "valid", "test", "teacher", "phases", "seed"}
GIVEN |= {"checkpoint_seconds", "tensorboard", "bench_seconds"}
# What does not matter to a dense model; ptb-teacher was run as the dense phase of ptb-thin.
GATES = {"gate_lr", "small_dropout", "target_time"}


def test_published_runs_have_the_settings_of_their_presets(results):
    checked = 0
    for name, preset in recipes.presets().items():
        if name not in results.runs or not name.startswith("ptb-"):
            continue
        today = as_json(preset.settings())
        then = results.runs[name]["settings"]
        # a setting that is newer than the run must be at its default
        default = as_json(type(preset.settings())())
        free = GIVEN | GATES if today["phases"] == ["dense"] else GIVEN
        other = {k for k in today if then.get(k, default[k]) != today[k]} - free
        assert not other, f"{name}: {sorted(other)}"
        checked += 1
    assert checked >= 18


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
