"""A good run to attack, and the counts of what was tried."""

import contextlib
import io
import json
import os
import resource
import signal
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

T = TypeVar("T")

LIMIT = 30  # seconds of one command on a processor
WAIT = 300  # seconds of one command by the clock: other work may keep the processors busy
MEMORY = 1 << 20  # kilobytes by which one command may raise the largest memory of the process
SEED = 0  # of every choice
COUNTS: Counter[tuple[str, str]] = Counter()  # of cases, by part of the attack and kind
ABORTS: Counter[str] = Counter()  # processes that ended by SIGABRT, SIGSEGV and the like, by part
FAILED: Counter[str] = Counter()  # tests, by part
SECONDS: defaultdict[str, float] = defaultdict(float)  # by part
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
TINY = {
    "minutes": "none",
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
        controls = {c for c in set(self.out + self.err) if rules_a_terminal(c)}
        if controls:
            found.append(f"prints {controls!a}")
        return found


def rules_a_terminal(character: str) -> bool:
    """Whether a character is a control code, half of one, or turns the order of text."""
    is_code = unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
    return is_code or character in TURNS


def attempt(*arguments: Any) -> Outcome:
    """Run a command in this process, with a limit on its time."""
    from thinrnn.lab.cli import main

    return limited(main, [str(argument) for argument in arguments])


def limited(function: Callable[..., Any], *arguments: Any) -> Outcome:
    """Call a function that may print and exit, with a limit on its time."""

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
            function(*arguments)
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


def apart(try_one: Callable[[T], list[str]], cases: list[T]) -> list[str]:
    """Try cases in a process of their own, and return their faults; one that aborts is a fault."""
    found: list[str] = []
    begun = 0
    while begun < len(cases):
        heard, says = os.pipe()
        child = os.fork()
        if child == 0:
            with open(says, "w") as out:
                for case in cases[begun:]:
                    try:
                        faults = try_one(case)
                    except BaseException as error:
                        faults = [f"{case!a:.200}: {error!a:.300}"]
                    print(json.dumps(faults), file=out, flush=True)
            os._exit(0)
        os.close(says)
        with open(heard) as lines:
            for line in lines:
                found += json.loads(line)
                begun += 1
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            note_end(status)
            found.append(f"{cases[begun]!a:.200}: the process ended with {status}")
            begun += 1
    return found


def note_end(status: int) -> None:
    """Count processes that a signal of their own ended: what C code does where memory is torn."""
    if -status in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
        ABORTS[part_of(os.environ["PYTEST_CURRENT_TEST"])] += 1


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: a forked process has no others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def good_run(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a tiny language model."""
    folder = tmp_path_factory.mktemp("good") / "run"
    files = [part for n in ("train", "valid", "test") for part in (f"--{n}", texts / f"{n}.txt")]
    settings = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}")]
    ended = attempt("train", "lm", *files, "--out", folder, *settings)
    assert ended.code in (0, 1) and ended.raised is None, ended
    return folder


@pytest.fixture(scope="session")
def many(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`many(short, long)`: how many cases the profile of this session tries."""
    is_long = request.config.getoption("--long", default=False)
    return lambda short, long: long if is_long else short


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Note how many cases of a kind were tried."""

    def add(what: str, cases: int) -> None:
        COUNTS[part_of(request.node.nodeid), what] += cases

    return add


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="try many more cases of each kind")
    parser.addoption("--counts", type=Path, help="JSON file to write the attack's counts to")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was tried; parts of the attack that did not run now keep their entries."""
    file = session.config.getoption("--counts", default=None)
    if file is None:
        return
    from thinrnn.lab.run.environment import environment

    is_long = bool(session.config.getoption("--long"))
    tried: dict[str, Counter[str]] = {}
    for (part, what), cases in sorted(COUNTS.items()):
        tried.setdefault(part, Counter())[what] += cases
    parts = json.loads(file.read_text())["parts"] if file.exists() else {}
    for part, cases in tried.items():
        parts[part] = {
            "command": command_of(part, is_long),
            "profile": "long" if is_long else "short",
            "seed": SEED,
            "cases": dict(cases),
            "failed tests": FAILED[part],
            "aborts": ABORTS[part],
            "minutes": round(SECONDS[part] / 60, 1),
            "environment": environment(),
        }
    result = {
        "command": "make attack",
        "total": sum(sum(part["cases"].values()) for part in parts.values()),
        "aborts": sum(part["aborts"] for part in parts.values()),
        "failed tests": sum(part["failed tests"] for part in parts.values()),
        "parts": dict(sorted(parts.items())),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")


def command_of(part: str, is_long: bool) -> str:
    if is_long:
        return f"make attack PART={part}"
    return f"pytest tests/attack/test_{part}.py --counts results/trust.json"


def part_of(path: str) -> str:
    """Return the part of the attack that a test file is: tests/attack/test_PART.py."""
    return Path(path.partition("::")[0]).stem.removeprefix("test_")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    part = part_of(report.nodeid)
    SECONDS[part] += report.duration
    FAILED[part] += report.failed


def describe(faults: Iterator[str] | list[str]) -> str:
    """Return faults for an assertion, one a line."""
    return "\n".join(["", *faults])
