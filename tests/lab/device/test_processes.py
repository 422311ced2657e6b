"""Several processes train the run that one process trains."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from thinrnn.lab.device.processes import Processes
from thinrnn.lab.run.checkpoint import Checkpoints
from thinrnn.lab.run.errors import InputError

pytest.importorskip("accelerate", reason="several processes are started by accelerate")
has_gloo = distributed.is_available() and distributed.is_gloo_available()
pytestmark = pytest.mark.skipif(not has_gloo, reason="this build of torch has no gloo")

SETTINGS = {
    "minutes": "none",
    "phases": "gated",
    "hidden": "8,8",
    "embedding": "8",
    "epochs": "3",
    "batch": "8",
    "bptt": "10",
    "dropout": "0",
    "optimizer": "sgd",
    "lr": "1",
    "target_params": "0.5",
    "device": "cpu",
    "tensorboard": "false",
    "bench_seconds": "0",
    "log_every": "5",
    "checkpoint_steps": "10",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and the run of one process on it."""
    made = tmp_path_factory.mktemp("runs")
    draw = random.Random(0)
    for name, lines in (("train", 300), ("valid", 20)):
        words = ([f"w{draw.randrange(30)}" for _ in range(7)] for _ in range(lines))
        (made / f"{name}.txt").write_text("".join(" ".join(line) + "\n" for line in words))
    begun(made, 1, "one").wait(timeout=300)
    return made


def begun(folder: Path, count: int, out: str, *, resumed: bool = False) -> subprocess.Popen[str]:
    """Start the training in so many processes."""
    new = ["lm", "--train", "train.txt", "--valid", "valid.txt", "--out", out]
    new += [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone"]
    launched = launcher if count > 1 else []
    command = ["-m", "thinrnn.lab.cli", "train", *(["--resume", out] if resumed else new)]
    return subprocess.Popen(
        [sys.executable, *launched, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ends(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=300)
    return process.returncode, out, errors


def training(run: Path) -> dict[str, Any]:
    """Return the last checkpoint of a run."""
    state, notes = Checkpoints(run / "checkpoints").latest("gated")
    assert state is not None and not notes
    return state["training"]


def assert_same_run(one: Path, other: Path) -> None:
    found, expected = training(other), training(one)
    assert expected["counters"]["step"] >= 50
    assert found["counters"]["step"] == expected["counters"]["step"]
    assert found["model"]["kept"] == expected["model"]["kept"]
    for name, tensor in expected["model"]["tensors"].items():
        torch.testing.assert_close(found["model"]["tensors"][name], tensor, atol=1e-6, rtol=0)
    small = [json.loads((run / "small.json").read_text()) for run in (one, other)]
    assert small[0]["neurons"] == small[1]["neurons"]


def process_of_rank(rank: int, launcher: int) -> int:
    """Return the process that torchrun has started as this rank."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == launcher and f"RANK={rank}".encode() in environment:
            return int(path.name)
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.extended
def test_two_processes_train_what_one_does(folder: Path) -> None:
    code, out, errors = ends(begun(folder, 2, "two"))
    assert code == 0, errors
    assert out.count("wrote two/report.html") == 1
    assert_same_run(folder / "one", folder / "two")


@pytest.mark.extended
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
def test_a_killed_process_stops_the_other_and_one_process_goes_on(folder: Path) -> None:
    process = begun(folder, 2, "killed")
    deadline = time.monotonic() + 120
    while len(Checkpoints(folder / "killed" / "checkpoints").of("gated")) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process_of_rank(1, process.pid), signal.SIGKILL)
    code, _, errors = ends(process)
    assert code != 0
    said = [line for line in errors.splitlines() if line.startswith("thinrnn: ")]
    assert len(said) == 1 and "thinrnn train --resume killed" in said[0]
    assert not (folder / "killed" / "small.json").exists()
    code, _, errors = ends(begun(folder, 1, "killed", resumed=True))
    assert code == 0, errors
    assert_same_run(folder / "one", folder / "killed")


def test_a_batch_that_cannot_be_shared_equally() -> None:
    three = Processes()
    three.count = 3
    with pytest.raises(InputError, match="set batch=21"):
        three.check(20)
    three.check(21)


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_are_the_whole_once(dim: int) -> None:
    whole, parts = torch.arange(24).view(4, 6), []
    for rank in range(2):
        process = Processes()
        process.rank, process.count = rank, 2
        parts.append(process.part(whole, dim))
    assert torch.equal(torch.cat(parts, dim), whole)
