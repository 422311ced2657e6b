"""A good run to attack, and the counts of what was tried."""

import contextlib
import io
import json
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LIMIT = 30  # seconds of one command on a processor
WAIT = 300  # seconds of one command by the clock: other work may keep the processors busy
MEMORY = 1 << 20  # kilobytes by which one command may raise the largest memory of the process
COUNTS: Counter[str] = Counter()
TINY = {
    **{"embedding": 6, "hidden": "7,7", "epochs": 1, "batch": 8, "bptt": 16, "lr": 0.01},
    **{"target_params": 0.5, "tensorboard": "no", "device": "cpu", "threads": 1},
    **{"bench_batch": 1, "bench_steps": 2, "bench_seconds": 0},
}


class TooLong(BaseException):
    """A command that does not end; no command catches this."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    kilobytes: int
    raised: BaseException | None

    def faults(self, codes: tuple[int, ...] = (0, 2)) -> list[str]:
        """Return what must not happen and did."""
        errors = [line for line in self.err.splitlines() if not line.startswith("note: ")]
        found = []
        if self.raised is not None:
            found.append(f"raised {type(self.raised).__name__}: {str(self.raised)[:200]}")
        elif self.code not in codes:
            found.append(f"code {self.code}: {self.err[-200:]}")
        if len(errors) > 1 or "Traceback" in self.err:
            found.append(f"{len(errors)} lines of errors")
        if self.code == 2 and len(errors) != 1:
            found.append("code 2 without its line")
        if self.seconds > LIMIT:
            found.append(f"took {self.seconds:.0f} s")
        if self.kilobytes > MEMORY:
            found.append(f"took {self.kilobytes >> 10:,} MiB")
        controls = {c for c in self.out + self.err if not c.isprintable() and c not in "\n\t"}
        if controls:
            found.append(f"prints {controls!a}")
        return found


def attempt(*arguments: Any) -> Outcome:
    """Run a command in this process, with a limit on its time."""
    from thinrnn.lab.cli import main

    def too_long(*_: Any) -> None:
        raise TooLong

    out, err = io.StringIO(), io.StringIO()
    before, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handlers = {n: signal.signal(n, too_long) for n in (signal.SIGALRM, signal.SIGPROF)}
    signal.alarm(WAIT)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    code, raised = 0, None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([str(argument) for argument in arguments])
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException as error:
        raised = error
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Outcome(
        code,
        out.getvalue(),
        err.getvalue(),
        time.process_time() - before,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory,
        raised,
    )


@pytest.fixture(scope="session")
def good_run(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a tiny language model."""
    folder = tmp_path_factory.mktemp("good") / "run"
    files = [part for n in ("train", "valid", "test") for part in (f"--{n}", texts / f"{n}.txt")]
    settings = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}")]
    ended = attempt("train", "lm", *files, "--out", folder, *settings)
    assert ended.code in (0, 1) and ended.raised is None, ended
    return folder


@pytest.fixture
def count() -> Callable[[str, int], None]:
    """Note how many cases of a kind were tried."""

    def add(what: str, cases: int) -> None:
        COUNTS[what] += cases

    return add


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts", type=Path, help="JSON file to write the attack's counts to")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long profile unless `-m` names it."""
    if "attack" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("attack")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--counts", default=None)
    if file is None:
        return
    import torch

    import thinrnn

    result = {
        "command": "make attack",
        "thinrnn": thinrnn.__version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "tests": session.testscollected,
        "failed": session.testsfailed,
        "cases": dict(sorted(COUNTS.items())),
        "total": sum(COUNTS.values()),
    }
    file.write_text(json.dumps(result, indent=1) + "\n")


def describe(faults: Iterator[str] | list[str]) -> str:
    """Return faults for an assertion, one a line."""
    return "\n".join(["", *faults])
