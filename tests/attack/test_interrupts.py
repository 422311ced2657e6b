"""Ctrl-C, SIGTERM and SIGKILL at random moments: one line, no abort, and the run goes on."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from attack import short_run
from attack.conftest import SEED, describe, note_end
from attack.short_run import result

STOPPED = ("checkpoint written; go on with", "stopped; go on with", "thinrnn: stopped", "gave up")
PROGRAM = """
import sys
from thinrnn.lab.cli import main
print("begun", flush=True)
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def whole(texts, tmp_path_factory):
    """What an undisturbed run ends in, and how long it takes."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    began = time.monotonic()
    ended = short_run.train(texts, folder)
    assert ended.code in (0, 1), ended
    return result(folder), time.monotonic() - began


def disturb(send, wait, dice, lasts, signals):
    """Send signals at random moments; return how many were sent before the process ended."""
    pauses = [dice.uniform(0, lasts), *(dice.choice([0.001, 0.02, 0.2]) for _ in signals[1:])]
    for sent, (pause, one) in enumerate(zip(pauses, signals, strict=True)):
        until = time.monotonic() + pause
        while time.monotonic() < until:
            if wait() is not None:
                return sent
            time.sleep(0.002)
        send(one)
    return len(signals)


def faults(code, log, signals):
    """Return what must not happen and did."""
    out, err = ((log.with_name(f"{log.name}.{s}")).read_text() for s in ("out", "err"))
    errors = [line for line in err.splitlines() if not line.startswith("note: ")]
    found = []
    if -code in (signal.SIGKILL, signal.SIGTERM) and -code in signals:
        return []  # SIGTERM before the training begins means what it always does
    if code not in (0, 1, 130):
        found.append(f"code {code}: {err[-300:]}")
    if "Traceback" in err or len(errors) > 1:
        found.append(f"{len(errors)} lines of errors: {err[-300:]}")
    if code == 130 and not any(words in out + err for words in STOPPED):
        found.append(f"stopped without a word: {out[-200:]} {err[-200:]}")
    if "gave up" in out and len(signals) < 3:
        found.append(f"gave up after {len(signals)} signals")
    return found


@pytest.mark.extended
def test_interrupted_trainings_end_in_the_same_weights(whole, texts, tmp_path, many, count):
    """Each is a process of its own, made from this one, which has imported torch."""
    wanted, lasts = whole
    dice, found, number = random.Random(SEED), [], many(6, 120)
    folder, log, interrupts = tmp_path / "run", tmp_path / "log", 0
    kinds = [[signal.SIGINT] * n for n in (1, 2, 3)]
    kinds += [[signal.SIGTERM], [signal.SIGINT, signal.SIGTERM], [signal.SIGKILL]]
    for case in range(number):
        signals = kinds[case % len(kinds)]
        child = short_run.fork(lambda: short_run.train_here(texts, folder), log)
        left: list[int] = []

        def wait(child=child, left=left):
            if not left:
                pid, status = os.waitpid(child, os.WNOHANG)
                left.extend([os.waitstatus_to_exitcode(status)] if pid else [])
            return left[0] if left else None

        interrupts += disturb(
            lambda one, child=child: os.kill(child, one), wait, dice, lasts, signals
        )
        code = left[0] if left else short_run.ended(child)
        note_end(code)
        found += [f"case {case}, {signals}: {fault}" for fault in faults(code, log, signals)]
        again = short_run.train(texts, folder)
        found += [f"case {case}, then: {fault}" for fault in again.faults((0, 1))]
        if not found and result(folder) != wanted:
            found.append(f"case {case}: other weights")
        shutil.rmtree(folder, ignore_errors=True)
    count("interrupted trainings", number)
    count("interrupts", interrupts)
    assert not found, describe(found)


@pytest.mark.extended
def test_interrupts_of_whole_programs(texts, tmp_path, many, count):
    """From the first moment on: Python starts, packages are imported, a model trains."""
    dice, found, number, interrupts = random.Random(SEED), [], many(3, 30), 0
    lasts = 4.0
    for case in range(number):
        folder, log = tmp_path / f"run-{case}", tmp_path / "log"
        with open(f"{log}.out", "w") as out, open(f"{log}.err", "w") as err:
            command = [sys.executable, "-c", PROGRAM, *short_run.arguments(texts, folder)]
            began = time.monotonic()
            program = subprocess.Popen([*map(str, command)], stdout=out, stderr=err)
            # before thinrnn has begun, Ctrl-C is Python's own affair
            while not log.with_name("log.out").stat().st_size and program.poll() is None:
                time.sleep(0.002)
            signals = [signal.SIGINT] * (1 + case % 2)
            interrupts += disturb(program.send_signal, program.poll, dice, lasts, signals)
            code = program.wait(120)
        lasts = max(lasts, time.monotonic() - began) if code in (0, 1) else lasts
        note_end(code)
        found += [f"case {case}, {signals}: {fault}" for fault in faults(code, log, signals)]
    count("interrupted programs", number)
    count("interrupts", interrupts)
    assert not found, describe(found)
