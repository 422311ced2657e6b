"""Text that the teacher writes: what is drawn, how it is kept, and what a run makes of it."""

import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from thinrnn.errors import RunError
from thinrnn.lab.driver import resume, start
from thinrnn.lab.recipes.language_model.corpus import load_text
from thinrnn.lab.recipes.language_model.data import streams
from thinrnn.lab.recipes.language_model.load import load_model
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.language_model.teacher import calibrated, prepare_lesson, soft_targets
from thinrnn.lab.recipes.language_model.written import FILE, draw, in_shares, write
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.metrics import read_metrics
from thinrnn.lab.run.progress import Silent


@pytest.fixture(scope="module")
def dense(texts, tmp_path_factory):
    """The folder of a dense model that can write."""
    from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings

    settings = LanguageModelSettings(
        train=str(texts / "train.txt"),
        valid=str(texts / "valid.txt"),
        embedding=10,
        hidden=(12, 12),
        epochs=2,
        batch=8,
        phases=("dense",),
        device="cpu",
        tensorboard=False,
        bench_seconds=0.0,
    )
    folder = tmp_path_factory.mktemp("teacher") / "run"
    return start(RECIPE, settings, folder, preset=None, progress=Silent()).path / "dense"


@pytest.fixture
def taught(tiny, dense):
    """Settings of a run with a teacher that writes two texts."""

    def make(**changes):
        values = {
            "teacher": (str(dense),),
            "phases": ("gated", "control"),
            "distill": 0.5,
            "written": 2,
            "epochs": 6,
        }
        return tiny(**{**values, **changes})

    return make


def run(settings, folder):
    return start(RECIPE, settings, folder, preset=None, progress=Silent())


def weights(folder):
    return {
        name: (folder / name / "model.safetensors").read_bytes() for name in ("model", "control")
    }


def break_off(monkeypatch, settings, folder, phase, step):
    """Begin a run that breaks off there."""
    stop_at(monkeypatch, phase, step)
    with pytest.raises(KeyboardInterrupt):
        run(settings, folder)
    monkeypatch.undo()


def stop_at(monkeypatch, phase, step):
    """Let training break off without warning at a step of a phase."""
    real = Phase.take_step

    def take_step(self):
        if (self.name, self.step) == (phase, step):
            raise KeyboardInterrupt
        real(self)

    monkeypatch.setattr(Phase, "take_step", take_step)


class Pairs(nn.Module):
    """A teacher for which the next word depends on the last one, and whether it was an odd step."""

    def __init__(self, words):
        super().__init__()
        torch.manual_seed(5)
        self.logits = nn.Parameter(torch.randn(2, words, words))

    def forward(self, tokens, state=None):
        steps = torch.zeros(1, dtype=torch.long) if state is None else state
        return self.logits[steps % 2, tokens], steps + 1


def test_words_follow_one_another_as_often_as_the_teacher_expects(tiny):
    words, teacher = 5, Pairs(5)
    real = torch.zeros(4000, 3, dtype=torch.int32)
    found = write(teacher, real, tiny(distill=0.5, written=4)).transpose(0, 1).long()
    assert found.unique().tolist() == list(range(words))
    for odd in (0, 1):  # row i is drawn in step i, of the word in row i - 1
        after = found[:, 2 - odd :: 2]
        before = found[:, 1 - odd :: 2][:, : after.shape[1]]
        counts = torch.zeros(words, words)
        counts.index_put_(
            (before.flatten(), after.flatten()), torch.ones(after.numel()), accumulate=True
        )
        expected = teacher.logits[odd].softmax(-1)
        torch.testing.assert_close(
            counts / counts.sum(1, keepdim=True), expected, atol=0.03, rtol=0
        )


def test_a_word_that_cannot_be_is_never_drawn():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    numbers = torch.tensor([0.0, 0.25, 0.5, 0.75, 1 - 2**-24, 1.0])
    found = draw(logits.expand(6, 5), numbers)
    assert found[:5].tolist() == [1, 1, 3, 3, 3]
    assert found[5] < 5


def test_a_seed_gives_the_same_text_and_all_streams_differ(taught, dense):
    settings = taught(written=3)
    text, teacher = load_text(settings), load_model(dense).model
    real = streams(text.train, settings.batch)
    found = write(teacher, real, settings)
    assert found.shape == (len(real), 3, settings.batch) and found.dtype == real.dtype
    assert torch.equal(found, write(teacher, real, settings))
    assert not torch.equal(found, write(teacher, real, taught(written=3, seed=1)))
    assert found.flatten(1).unique(dim=1).shape[1] == 3 * settings.batch


def test_each_text_continues_the_last_words_of_the_real_one(tiny):
    teacher = Pairs(6)
    with torch.no_grad():  # after each word the next one, for certain
        teacher.logits.fill_(-torch.inf)
        for word in range(6):
            teacher.logits[:, word, (word + 1) % 6] = 0
    real = torch.tensor([[9, 9], [9, 9], [1, 4]], dtype=torch.int32)
    found = write(teacher, real, tiny(distill=0.5, written=2))
    assert found.tolist() == [2 * [[2, 5]], 2 * [[3, 0]], 2 * [[4, 1]]]


@pytest.mark.parametrize(("words", "kind"), [(9, torch.int16), (40_000, torch.int32)])
def test_soft_targets_are_stored_in_as_few_bytes_as_the_vocabulary_allows(words, kind):
    class Last(nn.Module):
        def forward(self, tokens, state=None):
            return torch.arange(float(words)).expand(*tokens.shape, words), state

    soft = soft_targets(Last(), torch.zeros(3, 2, dtype=torch.int32))
    assert soft.words.dtype == kind
    assert soft.between(0, 2)[0][:, :, 0].tolist() == [[words - 1] * 2] * 2


def test_every_window_has_its_share_of_the_real_text():
    real, written = torch.zeros(1, 6, 4, dtype=torch.int32), torch.arange(1, 73).view(3, 6, 4).int()
    both = in_shares(torch.cat([real, written]).transpose(0, 1))
    for stream in range(4):  # the same words in the same order, from another place on
        column = torch.cat([real, written])[:, :, stream].flatten()
        assert torch.equal(both[:, stream].roll(6 * stream), column)
    assert (both == 0).sum(1).tolist() == [1] * 24


def test_what_the_teacher_predicts_for_a_place_goes_where_its_word_goes(taught, dense, tmp_path):
    settings = taught()
    text = load_text(settings)
    made = RunFolder.create(tmp_path / "run", {"settings": {}, "recipe": "language_model"})
    real = streams(text.train, settings.batch)
    data, soft = prepare_lesson(settings, text, real, made, Silent())
    assert len(data) == len(soft.words) == len(soft.shares) == 3 * len(real)
    teacher = calibrated(load_model(dense).model, text, batch=settings.eval_batch)
    predicted = soft_targets(teacher, real)
    first = data[: len(real), :1]  # the first stream begins with the real text
    assert torch.equal(first, real[:, :1])
    assert torch.equal(soft.words[: len(real), :1], predicted.words[:, :1])
    torch.testing.assert_close(soft.shares[: len(real), :1], predicted.shares[:, :1])


def test_a_run_learns_as_long_from_the_longer_text_and_leaves_no_copy_of_it(taught, tmp_path):
    settings = taught(phases=("dense", "gated", "control"), teacher=())
    finished = run(settings, tmp_path / "run")
    rows = len(streams(load_text(settings).train, settings.batch))
    steps = {"dense": math.ceil((rows - 1) / 16), "gated": math.ceil((3 * rows - 1) / 16)}
    steps["control"] = steps["gated"]
    events = read_metrics(finished.path / "metrics.jsonl")
    found = [(e["phase"], e["step"]) for e in events if e["event"] == "epoch"]
    passes = {"dense": 6, "gated": 2, "control": 2}
    assert found == [(p, n * (epoch + 1)) for p, n in steps.items() for epoch in range(passes[p])]
    assert not (finished.path / FILE).exists()


def test_the_size_is_reached_at_its_part_of_the_longer_training(taught, begin):
    settings = taught(target_time=0.5)
    text = load_text(settings)
    rows = len(streams(text.train, settings.batch))
    assert begin(settings, "gated").pruning.target.steps == math.ceil(
        (3 * rows - 1) / 16
    )  # half of two passes


def test_written_text_changes_what_is_learned(taught, tmp_path):
    alone = run(taught(written=0), tmp_path / "alone")
    more = run(taught(), tmp_path / "more")
    assert weights(alone.path) != weights(more.path)


@pytest.mark.parametrize(("phase", "step"), [("gated", 0), ("gated", 30), ("control", 7)])
def test_a_run_that_is_broken_off_ends_in_the_same_weights(
    taught, tmp_path, monkeypatch, phase, step
):
    settings = taught()
    wanted = weights(run(settings, tmp_path / "whole").path)
    break_off(monkeypatch, settings, tmp_path / "run", phase, step)
    assert (tmp_path / "run" / FILE).exists()
    again = resume(tmp_path / "run", [], progress=Silent())
    assert weights(again.path) == wanted
    assert not (again.path / FILE).exists()


def test_a_control_that_another_process_begins_has_the_same_weights(taught, tmp_path, monkeypatch):
    settings, folder = taught(), tmp_path / "run"
    wanted = weights(run(settings, tmp_path / "whole").path)
    break_off(monkeypatch, settings, folder, "control", 0)
    shutil.rmtree(folder / "checkpoints" / "control-000001")  # killed just before this
    assert weights(resume(folder, [], progress=Silent()).path) == wanted


def test_a_resumed_run_reads_what_was_written(taught, tmp_path, monkeypatch):
    settings, folder = taught(), tmp_path / "run"
    wanted = weights(run(settings, tmp_path / "whole").path)
    break_off(monkeypatch, settings, folder, "gated", 0)
    tokens = load_file(folder / FILE)["tokens"]
    assert tokens.dtype == torch.int32
    save_file({"tokens": tokens.flip(0)}, folder / FILE)
    assert weights(resume(folder, [], progress=Silent()).path) != wanted


@pytest.mark.parametrize("broken", ["torn", "short"])
def test_a_damaged_text_is_named(taught, tmp_path, monkeypatch, broken):
    folder = tmp_path / "run"
    break_off(monkeypatch, taught(), folder, "gated", 0)
    if broken == "torn":
        (folder / FILE).write_bytes(b"torn")
    else:
        save_file({"tokens": torch.zeros(3, 2, 8, dtype=torch.int32)}, folder / FILE)
    with pytest.raises(RunError, match=rf"{FILE} .*remove it"):
        resume(folder, [], progress=Silent())
    (folder / FILE).unlink()
    resume(folder, [], progress=Silent())


def test_written_text_needs_a_teacher(tiny):
    with pytest.raises(InputError, match="written needs a teacher: set distill"):
        tiny(written=2)


@pytest.mark.gpu
def test_graphs_write_what_plain_steps_write(taught, dense):
    settings = taught(device="cuda", precision="float32")
    real = streams(load_text(settings).train, settings.batch)
    teacher = load_model(dense).model.cuda()
    found = write(teacher, real.cuda(), settings)
    plain = write(teacher, real.cuda(), taught(cuda_graphs=False, precision="float32"))
    # a sum rounded in another way may end in another word, and all that follows it differs
    assert (found == plain).float().mean() > 0.9
    assert (found.cpu() == write(teacher.cpu(), real, settings)).float().mean() > 0.9
