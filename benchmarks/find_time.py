"""The time of find_groups on models with many layers, and how often it runs them.

    python -m benchmarks.find_time
    python -m benchmarks.find_time --source OTHER_CHECKOUT/src

With --source the same models are given to another checkout of thinrnn, in turn. Each time is the
least of a few, each in a process of its own.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Chain(nn.Module):
    """Fifty pairs of a linear layer and a GRU, one after the other."""

    def __init__(self, pairs: int = 50, size: int = 32) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(size, size) for _ in range(pairs))
        self.rnn = nn.ModuleList(nn.GRU(size, size, batch_first=True) for _ in range(pairs))
        self.out = nn.Linear(size, 4)

    def forward(self, x: Tensor) -> Tensor:
        for linear, rnn in zip(self.linear, self.rnn, strict=True):
            x = rnn(torch.relu(linear(x)))[0]
        return self.out(x)


class Residual(nn.Module):
    """Fifty blocks that add to their input: a GRU and a linear layer, all of one width."""

    def __init__(self, blocks: int = 50, size: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(8, size)
        self.rnn = nn.ModuleList(nn.GRU(size, 24, batch_first=True) for _ in range(blocks))
        self.linear = nn.ModuleList(nn.Linear(24, size) for _ in range(blocks))
        self.out = nn.Linear(size, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for rnn, linear in zip(self.rnn, self.linear, strict=True):
            x = x + linear(rnn(x)[0])
        return self.out(x)


class Normed(nn.Module):
    """Thirty blocks of convolution, batch norm and an LSTM, then a head: ninety layers."""

    def __init__(self, blocks: int = 30, size: int = 24) -> None:
        super().__init__()
        self.conv = nn.ModuleList(nn.Conv1d(size, size, 3, padding=1) for _ in range(blocks))
        self.norm = nn.ModuleList(nn.BatchNorm1d(size) for _ in range(blocks))
        self.rnn = nn.ModuleList(nn.LSTM(size, size, batch_first=True) for _ in range(blocks))
        self.out = nn.Linear(size, 4)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm, rnn in zip(self.conv, self.norm, self.rnn, strict=True):
            x = torch.relu(norm(conv(x.transpose(1, 2)))).transpose(1, 2)
            x = rnn(x)[0]
        return self.out(x)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "chain of 100 layers": (Chain, (2, 10, 32)),
    "residual, 100 layers": (Residual, (2, 10, 8)),
    "convolution, norm, LSTM, 90 layers": (Normed, (2, 10, 24)),
}


def look(name: str) -> dict[str, Any]:
    """Return the seconds of find_groups, and how often it calls the model."""
    import thinrnn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    build, shape = MODELS[name]
    model, x = build(), torch.randn(shape)
    calls = 0

    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return self.model(x)

    thinrnn.find_groups(nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 5)), torch.zeros(2, 3, 3))
    start = time.process_time()
    plan = thinrnn.find_groups(Counted(), x)
    seconds = time.process_time() - start
    return {"cpu_seconds": round(seconds, 2), "calls": calls, "groups": len(plan)}


def main() -> None:
    if sys.argv[1:2] == ["--one"]:  # also in checkouts that have no records
        print(json.dumps(look(sys.argv[2])))
        return
    from benchmarks.record import parser, write_record

    arguments = parser(__doc__, "find-time.json")
    arguments.add_argument("--source", type=Path, help="another checkout's src to compare with")
    arguments.add_argument("--rounds", type=int, default=3, help="of which the fastest counts")
    options = arguments.parse_args()
    sources = {"now": None} | ({} if options.source is None else {"before": options.source})
    found: dict[str, dict[str, Any]] = {}
    for name in MODELS:
        rounds = [
            {when: in_process(name, source) for when, source in sources.items()}
            for _ in range(options.rounds)
        ]
        found[name] = {
            when: min((one[when] for one in rounds), key=lambda one: one["cpu_seconds"])
            for when in sources
        }
        print(name, found[name], flush=True)
    options.source = None if options.source is None else commit_of(options.source)
    write_record("the CPU time of find_groups", options, models=found)


def in_process(name: str, source: Path | None) -> dict[str, Any]:
    """Look at one model in a process of its own."""
    path = {} if source is None else {"PYTHONPATH": str(source.resolve())}
    command = [sys.executable, "-m", "benchmarks.find_time", "--one", name]
    env = os.environ | path | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def commit_of(source: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(source), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
