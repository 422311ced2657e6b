import io
import sys
import types

import pytest

from thinrnn.lab.run import RunFolder
from thinrnn.lab.run import watch as watch_module
from thinrnn.lab.run.progress import Plain, Silent

EPOCH = {
    "event": "epoch",
    "phase": "gated",
    "epoch": 1,
    "step": 9,
    "valid_loss": 4.5,
    "kept": {"rnn.l0": 7},
    "values": {"rnn.l0": [1.0]},
    "target": None,
}


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", {"recipe": "language_model", "settings": {}})


def test_tensorboard_is_told_numbers_where_it_is_installed(run, monkeypatch):
    told, closed = {}, []

    class SummaryWriter:
        def __init__(self, folder):
            assert folder == str(run.path / "tensorboard")

        def add_scalar(self, name, value, step):
            told[name] = (value, step)

        def close(self):
            closed.append(True)

    fake = types.SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    watch = watch_module.Watch(run, Silent())
    watch(EPOCH)
    watch.close()
    assert told == {"gated/valid_loss": (4.5, 9), "gated/kept/rnn.l0": (7, 9)}
    assert closed


def test_without_tensorboard_nothing_is_missed(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    watch = watch_module.Watch(run, Silent())
    watch(EPOCH)
    watch.close()


def test_the_report_is_rewritten_at_epoch_ends_but_not_all_the_time(run, monkeypatch):
    written = []
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(watch_module.Watch, "write_report", lambda self: written.append(1))
    watch = watch_module.Watch(run, Silent(), tensorboard=False)
    watch({**EPOCH, "event": "step"})
    watch(EPOCH)
    assert written == []  # three seconds are too few
    watch(EPOCH)
    assert written == [1]


def test_a_report_that_fails_is_said_once_and_does_not_stop_the_training(run, monkeypatch):
    def fails(self):
        raise ValueError("no ink")

    said = io.StringIO()
    monkeypatch.setattr(watch_module.Watch, "write_report", fails)
    watch = watch_module.Watch(run, Plain(said), tensorboard=False)
    watch.written -= 100
    watch(EPOCH)
    watch(EPOCH)
    assert said.getvalue() == "the report could not be written, training goes on: no ink\n"
