"""Ctrl-C and SIGTERM while a model trains: what each of them does."""

import io
import multiprocessing
import os
import signal
import time

import pytest

from thinrnn.lab.run.progress import Plain
from thinrnn.lab.run.stop import StopRequest, ended_by_interrupt


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    assert condition()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_a_request_and_the_second_is_answered(number):
    out = io.StringIO()
    before = signal.getsignal(number)
    with StopRequest(Plain(out)) as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        wait_for(lambda: stop.requested)
        assert out.getvalue() == ""
        os.kill(os.getpid(), number)
        wait_for(lambda: out.getvalue() == "stopping, again to give up\n")
    assert signal.getsignal(number) is before


def hang(lines, out):
    """What a child does: something that looks at no request."""
    with open(out, "w") as file, StopRequest(Plain(file)):
        lines.send("ready")
        time.sleep(60)


def test_the_third_ends_a_process_that_does_not_answer(tmp_path):
    processes = multiprocessing.get_context("forkserver")
    here, there = processes.Pipe()
    child = processes.Process(target=hang, args=(there, tmp_path / "out"))
    child.start()
    assert here.recv() == "ready"
    for said in ("", "stopping, again to give up\n"):
        os.kill(child.pid, signal.SIGINT)
        wait_for(lambda said=said: (tmp_path / "out").read_text() == said)
        time.sleep(0.1)  # two signals at once are one
    os.kill(child.pid, signal.SIGINT)
    child.join(30)
    assert child.exitcode == 130
    assert "gave up" in (tmp_path / "out").read_text()


def test_other_signals_are_not_requests():
    out = io.StringIO()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    with StopRequest(Plain(out)) as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.01)
        assert not stop.requested and out.getvalue() == ""
    signal.signal(signal.SIGUSR1, before)


def test_an_import_that_ctrl_c_broke_off_counts_as_stopped():
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stopped:
            raise ImportError("numpy could not be imported") from stopped
    except ImportError as error:
        assert ended_by_interrupt(error)
    assert not ended_by_interrupt(ImportError("numpy is missing"))
