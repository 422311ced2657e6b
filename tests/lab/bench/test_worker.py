"""A worker that does not answer, or is gone, is named and ended."""

import subprocess
import sys

import pytest

from thinrnn.lab.bench.worker import BenchError, Worker


def worker(monkeypatch, program, **options):
    """A worker process that runs another program than its own."""
    real = subprocess.Popen
    monkeypatch.setattr(
        "thinrnn.lab.bench.worker.subprocess.Popen",
        lambda _, **kwargs: real([sys.executable, "-c", program], **kwargs),
    )
    return Worker(1, **options)


def test_silence_is_an_error_with_its_duration(monkeypatch):
    message = r"no answer to 'load' within 0\.2 s.*too busy"
    with (
        worker(monkeypatch, "import time; time.sleep(60)", patience=0.2) as silent,
        pytest.raises(BenchError, match=message),
    ):
        silent.call("load")
    assert silent.process.poll() is not None


def test_the_end_of_a_process_is_an_error_with_its_last_words(monkeypatch):
    with (
        worker(monkeypatch, "raise SystemExit('no such kernel')") as gone,
        pytest.raises(BenchError, match="ended with 1: no such kernel"),
    ):
        gone.call("load")


def test_what_a_process_has_started_ends_with_it(monkeypatch):
    program = (
        "import subprocess, sys, time\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('{}', flush=True); time.sleep(60)"
    )
    with worker(monkeypatch, program) as parent:
        assert parent.call("load") == {}
    # the pipe, which both had, is closed: no process is left
    assert parent.answers.get(timeout=20) == ""


def test_onnx_runtime_is_measured_without_torch():
    program = "import sys, thinrnn.lab.bench.worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
