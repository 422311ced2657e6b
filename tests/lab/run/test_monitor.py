import io
import sys
import types

import pytest

from thinrnn.lab.run import RunFolder
from thinrnn.lab.run import monitor as monitor_module
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


def nothing():
    pass


def test_tensorboard_gets_the_numbers(run, monkeypatch):
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
    monitor = monitor_module.Monitor(run, Silent(), nothing)
    monitor(EPOCH)
    monitor.close()
    assert told == {"gated/valid_loss": (4.5, 9), "gated/kept/rnn.l0": (7, 9)}
    assert closed


def test_training_works_without_tensorboard(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monitor = monitor_module.Monitor(run, Silent(), nothing)
    monitor(EPOCH)
    monitor.close()


def test_the_report_is_rewritten_at_epoch_ends_but_not_all_the_time(run, monkeypatch):
    written = []
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(monitor_module.time, "monotonic", lambda: next(clock))
    monitor = monitor_module.Monitor(run, Silent(), lambda: written.append(1), tensorboard=False)
    monitor({**EPOCH, "event": "step"})
    monitor(EPOCH)
    assert written == []  # three seconds are too few
    monitor(EPOCH)
    assert written == [1]


def test_a_report_that_fails_is_reported_once_and_does_not_stop_the_training(run):
    def fails():
        raise ValueError("no ink")

    out = io.StringIO()
    monitor = monitor_module.Monitor(run, Plain(out), fails, tensorboard=False)
    monitor.written -= 100
    monitor(EPOCH)
    monitor(EPOCH)
    monitor.write_report()
    assert out.getvalue().count("no ink") == 1
