"""A process that does not answer, or is gone, is named and ended."""

import subprocess
import sys

import pytest

from thinrnn.lab.bench.child import BenchError, Child


def child(monkeypatch, program, **options):
    """A child that runs another program than the worker."""
    real = subprocess.Popen
    monkeypatch.setattr(
        "thinrnn.lab.bench.child.subprocess.Popen",
        lambda _, **kwargs: real([sys.executable, "-c", program], **kwargs),
    )
    return Child(1, **options)


def test_silence_is_an_error_that_says_how_long_it_was(monkeypatch):
    message = r"no answer to 'load' within 0\.2 s.*too busy"
    with (
        child(monkeypatch, "import time; time.sleep(60)", patience=0.2) as silent,
        pytest.raises(BenchError, match=message),
    ):
        silent.ask("load")
    assert silent.process.poll() is not None


def test_the_end_of_a_process_is_an_error_with_its_last_words(monkeypatch):
    with (
        child(monkeypatch, "raise SystemExit('no such kernel')") as gone,
        pytest.raises(BenchError, match="ended with 1: no such kernel"),
    ):
        gone.ask("load")


def test_what_a_process_has_started_ends_with_it(monkeypatch):
    program = (
        "import subprocess, sys, time\n"
        "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('{}', flush=True); time.sleep(60)"
    )
    with child(monkeypatch, program) as parent:
        assert parent.ask("load") == {}
    # the pipe, which both had, is closed: nobody is left
    assert parent.answers.get(timeout=20) == ""
