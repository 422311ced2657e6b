"""A trained model as a teacher, and as the place to start from."""

import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from thinrnn.errors import FolderError
from thinrnn.lab.driver import resume, start
from thinrnn.lab.recipes.language_model import teacher
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.progress import Silent


@pytest.fixture
def dense(tiny, tmp_path):
    """A run with a dense model alone."""
    return start(
        RECIPE, tiny(phases=("dense",)), tmp_path / "dense", preset=None, progress=Silent()
    )


def run(settings, folder):
    return start(RECIPE, settings, folder, preset=None, progress=Silent())


def with_folder(settings, folder):
    """Put a folder where a question mark stands."""

    def put(value):
        if isinstance(value, tuple):
            return tuple(map(put, value))
        return folder if value == "?" else value

    return {key: put(value) for key, value in settings.items()}


def test_a_teacher_that_is_left_out_is_the_runs_own_dense_model(tiny, dense, tmp_path):
    own = run(tiny(distill=0.5), tmp_path / "own")
    given = run(
        tiny(distill=0.5, phases=("gated", "control"), teacher=(str(dense.path / "dense"),)),
        tmp_path / "given",
    )
    alone = run(tiny(phases=("gated",)), tmp_path / "alone")
    for kind in ("small", "control"):
        theirs = given.summary(kind)["valid_perplexity"]
        assert own.summary(kind)["valid_perplexity"] == pytest.approx(theirs)
    assert own.summary("small")["valid_perplexity"] != alone.summary("small")["valid_perplexity"]


def test_the_loss_with_a_teacher_is_the_cross_entropy_with_both():
    torch.manual_seed(0)
    logits, taught = torch.randn(5, 2, 9), torch.randn(5, 2, 9)
    y = torch.randint(9, (5, 2))
    top = F.softmax(taught, -1).topk(9)
    found = teacher.distilled_loss(logits, y, (top.indices, top.values), 0.3)
    hard = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    soft = F.cross_entropy(logits.flatten(0, 1), F.softmax(taught, -1).flatten(0, 1))
    torch.testing.assert_close(found, 0.7 * hard + 0.3 * soft)


def test_the_mean_over_what_the_teacher_writes_is_the_cross_entropy_with_all_its_words():
    torch.manual_seed(0)
    logits, taught = torch.randn(1, 1, 9), F.softmax(torch.randn(1, 1, 9), -1)
    top = taught.topk(3)
    losses = [
        teacher.distilled_loss(logits, torch.tensor([[word]]), (top.indices, top.values), 0.8)
        for word in range(9)
    ]
    found = (torch.stack(losses) * taught.flatten()).sum()
    torch.testing.assert_close(found, F.cross_entropy(logits[0], taught[0]))


@pytest.mark.parametrize(
    "whose",
    [
        {"phases": ("dense", "gated"), "start_from": "dense"},
        {"phases": ("dense", "gated"), "start_from": "teacher"},
        {"phases": ("gated",), "start_from": "?"},
        {"phases": ("gated",), "start_from": "teacher", "teacher": ("?",)},
        {"phases": ("gated",), "start_from": "teacher", "teacher": ("?", "other")},
    ],
)
def test_a_gated_model_may_start_with_the_weights_of_a_dense_one(tiny, dense, tmp_path, whose):
    still = {"target_params": None, "l0": 1e-12, "gate_mean": 5.0, "gate_lr": 1e-9}
    there = str(dense.path / "dense")
    whose = with_folder(whose, there)
    settings = tiny(**whose, **still)
    started = run(settings, tmp_path / "run")
    lines = started.path.joinpath("metrics.jsonl").read_text().splitlines()
    gated = [line for line in lines if '"gated"' in line and '"epoch"' in line]
    first = json.loads(gated[0])["loss"]
    assert first < math.log(dense.summary("dense")["valid_perplexity"]) + 0.1
    assert started.config["settings"]["start_from"] == settings.start_from


def test_a_run_that_started_from_a_dense_model_is_resumed(tiny, dense, tmp_path):
    settings = tiny(phases=("gated",), start_from=str(dense.path / "dense"))
    whole = run(settings, tmp_path / "whole")
    again = run(settings, tmp_path / "again")
    again.path.joinpath("small.json").unlink()
    resume(again.path, [], progress=Silent())
    assert again.summary("small")["valid_perplexity"] == whole.summary("small")["valid_perplexity"]


def test_a_teacher_that_is_gone_is_reported_before_a_run_continues(tiny, dense, tmp_path):
    gone = tmp_path / "gone"
    shutil.copytree(dense.path / "dense", gone)
    settings = tiny(distill=0.5, phases=("dense", "gated"), teacher=(str(gone),))
    begun = run(settings, tmp_path / "run")
    shutil.rmtree(gone)
    resume(begun.path, [], progress=Silent())  # nothing is left to learn
    for name in ("dense.json", "small.json"):
        begun.path.joinpath(name).unlink()
    with pytest.raises(FolderError, match="gone"):
        resume(begun.path, [], progress=Silent())
    assert begun.summary("dense") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedding": 11}, r"another shape \(size mismatch for .*\)"),
        ({"cell": "gru"}, "another shape"),
        ({"max_vocabulary": 5}, "another vocabulary"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(tiny, dense, tmp_path, changes, message):
    settings = tiny(phases=("gated",), start_from=str(dense.path / "dense"), **changes)
    with pytest.raises(InputError, match=message):
        run(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changes", [{"distill": 0.5, "teacher": ("?",)}, {"start_from": "?"}])
def test_a_folder_that_is_not_there_is_reported_before_a_run_begins(tiny, tmp_path, changes):
    nothing = str(tmp_path / "nothing")
    changes = with_folder(changes, nothing) | {"phases": ("gated",)}
    with pytest.raises(FolderError, match="nothing is not a model of 'thinrnn train'"):
        run(tiny(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_folder_of_a_run_is_refused_with_what_to_name_instead(tiny, dense, tmp_path):
    settings = tiny(phases=("gated",), distill=0.5, teacher=(str(dense.path),))
    with pytest.raises(FolderError, match="Its models are in dense: name one of these"):
        run(settings, tmp_path / "run")


@pytest.mark.parametrize("whose", ["dense", "teacher"])
def test_to_start_from_the_dense_model_it_has_to_be_trained(tiny, whose):
    with pytest.raises(InputError, match=f"start_from={whose} needs dense: add it to phases"):
        tiny(phases=("gated",), start_from=whose)


class Sure(nn.Module):
    """Knows how often each word occurs, and exaggerates."""

    def __init__(self, shares, factor):
        super().__init__()
        self.logits = nn.Parameter(factor * shares.log())

    def forward(self, tokens, state=None):
        return self.logits.expand(*tokens.shape, -1), state


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.25])
def test_an_overconfident_teacher_gets_a_higher_temperature(factor):
    torch.manual_seed(0)
    shares = torch.tensor([0.4, 0.3, 0.2, 0.06, 0.04])
    valid = torch.multinomial(shares, 20_000, replacement=True)
    text = SimpleNamespace(valid=valid, vocabulary=SimpleNamespace(number=lambda token: 0))
    found = teacher.calibrated(Sure(shares, factor), text, batch=10)
    assert found.temperature == pytest.approx(factor, abs=0.051)
    logits, _ = found(torch.zeros(2, 3, dtype=torch.long))
    torch.testing.assert_close(logits[0, 0].softmax(-1), shares, atol=0.02, rtol=0)


class Predicts(nn.Module):
    """Expects the words with given shares, and counts the tokens that it has read."""

    def __init__(self, *shares):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(shares).log() + 3.0)

    def forward(self, tokens, state=None):
        read = (0 if state is None else state) + tokens.numel()
        return self.logits.expand(*tokens.shape, -1), read


def test_teachers_together_say_the_mean_of_their_probabilities():
    both = teacher.Ensemble([Predicts(0.8, 0.1, 0.1), Predicts(0.2, 0.3, 0.5)])
    log_p, state = both(torch.zeros(4, 2, dtype=torch.long))
    log_p, state = both(torch.zeros(1, 2, dtype=torch.long), state)
    assert log_p.shape == (1, 2, 3) and state == (10, 10)
    torch.testing.assert_close(log_p[0, 0].exp(), torch.tensor([0.5, 0.2, 0.3]))


class Listening(Silent):
    def __init__(self):
        self.lines = []

    def line(self, text):
        self.lines.append(text)


def test_a_run_shows_the_temperature_of_each_teacher(tiny, dense, tmp_path):
    folder, shown = str(dense.path / "dense"), Listening()
    settings = tiny(distill=0.5, teacher=("dense", folder), phases=("dense", "gated"))
    start(RECIPE, settings, tmp_path / "run", preset=None, progress=shown)
    for name in ("teacher dense", f"teacher {folder}", "ensemble of teachers"):
        assert [line for line in shown.lines if line.startswith(f"{name}: temperature")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": ("dense",)}, "teacher needs a share of the loss"),
        ({"teacher": ("dense", ""), "distill": 0.5}, "a comma with no folder beside it"),
    ],
)
def test_a_teacher_without_effect_is_refused(tiny, changes, message):
    with pytest.raises(InputError, match=message):
        tiny(**changes)


def test_a_run_learns_from_its_own_dense_model_and_another(tiny, tmp_path):
    shares = {"distill": 0.8, "phases": ("dense", "gated")}
    other = run(tiny(phases=("dense",), seed=3, cell="gru"), tmp_path / "other")
    another = str(other.path / "dense")
    perplexities = set()
    for teachers in (("dense",), (another,), ("dense", another)):
        found = run(tiny(teacher=teachers, **shares), tmp_path / f"run{len(perplexities)}")
        assert found.config["settings"]["teacher"] == list(teachers)
        perplexities.add(found.summary("small")["valid_perplexity"])
    assert len(perplexities) == 3


def test_the_dense_model_can_teach_with_others_if_it_is_trained(tiny):
    with pytest.raises(InputError, match="distill needs a teacher: add dense to phases"):
        tiny(phases=("gated",), distill=0.5, teacher=("dense", "other"))
