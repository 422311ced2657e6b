"""Whether the tool's own choices learn from any text, at any width, with every cell.

    python -m benchmarks.corpora CORPORA --ptb PTB
    python -m benchmarks.robustness run CORPORA PARTS --cuda 5 --cpu 6 --seconds 200
    python -m benchmarks.robustness collect PARTS

A run trains a dense model, prunes it, and trains the control from scratch, with rates, warm-up,
dropout and initial weights chosen by `choose.py`. The figure of each of the three models is its
test perplexity over that of a 5-gram model (`ngram.py`) of the same text and vocabulary. The grid
is a fraction of all combinations in which every level of every factor occurs. Each run writes a
file of its own as soon as it is over; runs that have one are not repeated.
"""

import argparse
import json
import multiprocessing
import statistics
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.ngram import KneserNey
from benchmarks.record import write_record
from benchmarks.throughput import compare_steps
from thinrnn.errors import ThinRNNError
from thinrnn.lab.recipes.finish import compact_and_verify, restored
from thinrnn.lab.recipes.gate_log import kept_in
from thinrnn.lab.recipes.language_model.choose import (
    Choices,
    choose_tokens,
    choose_training,
    choose_windows,
    layers,
)
from thinrnn.lab.recipes.language_model.corpus import Text, load_text
from thinrnn.lab.recipes.language_model.data import streams
from thinrnn.lab.recipes.language_model.model import first_ranges
from thinrnn.lab.recipes.language_model.presets import lm
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.windows import TextWindows
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.recipes.settings import as_json
from thinrnn.lab.run.environment import environment
from thinrnn.lab.run.files import write_json
from tools.results.paths import without_paths
from tools.results.robustness import is_narrow

CELLS = ("gru", "rnn", "rhn", "lstm")
WIDTHS = (64, 200, 650, 1500)
DEPTH = 5  # of recurrent highway networks
LEVELS = {"ptb-characters": "char", "source-code": "char"}  # else words
CUDA_EPOCHS = {
    "ptb": 12,
    "ptb-characters": 10,
    "python-documentation": 20,
    "docstrings": 12,
    "source-code": 10,
}
TARGET = 0.33  # of the parameters
OUT = Path("results/speed/robustness.json")


@dataclass(frozen=True)
class Run:
    """A point of the grid: a dense model, a small one and a control."""

    corpus: str
    cell: str
    width: int
    tied: bool
    seed: int
    device: str
    epochs: int

    @property
    def name(self) -> str:
        tied = "tied" if self.tied else "untied"
        parts = (self.device, self.corpus, self.cell, self.width, tied, f"seed{self.seed}")
        return "-".join(map(str, parts))


def cuda_grid() -> list[Run]:
    """Every corpus with every cell, all widths in turn; four of them with the other seed too."""
    found = []
    for i, (corpus, epochs) in enumerate(CUDA_EPOCHS.items()):
        for j, cell in enumerate(CELLS):
            width, tied, seed = WIDTHS[(i + j) % 4], (i + j // 2) % 2 == 0, (i + j) % 2
            found.append(Run(corpus, cell, width, tied, seed, "cuda", epochs))
    again = [run for run in found if run.corpus == "python-documentation"]
    return found + [Run(**{**asdict(run), "seed": 1 - run.seed}) for run in again]


def cpu_grid() -> list[Run]:
    """Narrow models mostly, on one thread: every level of every factor occurs."""
    rows = (
        ("python-documentation", "lstm", 200, True, 0, 15),
        ("python-documentation", "lstm", 200, True, 1, 15),
        ("python-documentation", "gru", 64, False, 0, 20),
        ("python-documentation", "rnn", 200, True, 0, 15),
        ("python-documentation", "rnn", 650, True, 1, 6),
        ("python-documentation", "gru", 650, True, 1, 6),
        ("python-documentation", "rnn", 1500, False, 0, 4),
        ("docstrings", "rhn", 64, True, 0, 12),
        ("docstrings", "gru", 200, True, 1, 10),
        ("docstrings", "rnn", 200, False, 1, 10),
        ("ptb", "lstm", 64, True, 0, 3),
        ("ptb-characters", "gru", 64, False, 1, 8),
        ("source-code", "lstm", 64, True, 1, 10),
    )
    return [Run(*row[:5], "cpu", row[5]) for row in rows]


def settings_of(run: Run, corpora: Path) -> LanguageModelSettings:
    """Return the settings that the tool chooses, given shape and number of passes."""
    files = {part: str(corpora / f"{run.corpus}.{part}.txt") for part in ("train", "valid", "test")}
    is_char = LEVELS.get(run.corpus) == "char"
    settings = lm().replaced(
        **files,
        level="char" if is_char else "word",
        cell=run.cell,
        depth=DEPTH,
        embedding=64 if is_char and not run.tied else run.width,
        tied=run.tied,
        seed=run.seed,
        device=run.device,
        epochs=run.epochs,
        target_params=TARGET,
        valid_batch=64,
        eval_batch=64,
        threads=1,
    )
    settings = settings.replaced(hidden=layers(settings, run.width))
    choices = choose_tokens(Choices(settings))
    tokens = len(load_text(choices.settings).train)
    choices = choose_windows(choices, tokens, torch.device(run.device))
    return choose_training(choices, tokens).settings


def measure(run: Run, corpora: Path) -> dict[str, Any]:
    """Train the three models of a run; return their perplexities, sizes and speeds."""
    torch.set_num_threads(1)
    began = time.monotonic()
    device, settings = torch.device(run.device), settings_of(run, corpora)
    ends = (settings.embedding, settings.hidden[-1], settings.tied)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    text = load_text(settings)
    assert text.test is not None
    ngram = KneserNey(text.train.numpy(), len(text.vocabulary)).perplexity(text.test.numpy())
    plan = RECIPE.find_plan(settings, RECIPE.build(settings, text))
    models: dict[str, dict[str, Any]] = {}
    for name in ("dense", "gated", "control"):
        phase = Phase(RECIPE, settings, name, text, device, plan=plan if name == "gated" else None)
        seconds = trained(phase)
        again = restored(phase, phase.best or {})
        model, difference = again.model, 0.0
        if name == "gated":
            model, difference = compact_and_verify(again)
            left = {group: len(kept) for group, kept in kept_in(again.model).items()}
            settings = RECIPE.resized(settings, left)
        found = {
            m.name: m.value for m in RECIPE.evaluate(settings, model.to(device), text, final=True)
        }
        models["small" if name == "gated" else name] = {
            "ratio": found["test_perplexity"] / ngram,
            **found,
            "weights": sum(p.numel() for p in model.parameters() if p.dim() > 1),
            "shape": [settings.embedding, *settings.hidden],
            "lr": settings.lr,
            "tokens_per_second": phase.step * settings.batch * settings.bptt / seconds,
            "difference": difference,
        }
    dense = settings_of(run, corpora)
    for name, shape in (("dense", dense), ("control", settings)):
        models[name]["step"] = compare_steps(shape, text, 25, device)
    return {
        **asdict(run),
        "five_gram_perplexity": ngram,
        "unigram_perplexity": text.unigram_perplexity(),
        "first_ranges": first_ranges("width", run.cell, *ends),
        "tokens": len(text.train),
        "vocabulary": len(text.vocabulary),
        "models": models,
        "settings": without_paths(as_json(dense)),
        "seconds": round(time.monotonic() - began, 1),
        "environment": environment(str(device)),
    }


def trained(phase: Phase[LanguageModelSettings, Text]) -> float:
    """Train a phase as `lab/train.py` does, without a run folder; return its seconds."""
    p = phase
    p.batches = TextWindows(streams(p.data.train, p.settings.batch).to(p.device), p.settings.bptt)
    seconds = 0.0
    while not p.is_over:
        p.model.train()
        began = time.monotonic()
        while not p.epoch_is_over:
            p.take_step()
        if not p.is_finite():  # waits for the device
            raise ThinRNNError(f"the loss of {p.name} is no longer a number.")
        seconds += time.monotonic() - began
        with p.optimizer.averaged():
            p.judge(p.recipe.evaluate(p.settings, p.model, p.data)[0].value)
        if p.pruning.is_on:
            p.shrink()
        p.begin_epoch()
    return seconds


def measure_into(run: Run, corpora: Path, parts: Path, deadline: float) -> str:
    """Write the file of a run, unless it is too late to begin; return a line about it."""
    if time.time() > deadline:
        return f"{run.name}: not begun, the time is over"
    try:
        found = measure(run, corpora)
    except (ThinRNNError, RuntimeError, OSError):
        return f"{run.name}: {traceback.format_exc()}"
    write_json(parts / f"{run.name}.json", found)
    ratios = "  ".join(f"{kind} {model['ratio']:.3f}" for kind, model in found["models"].items())
    return f"{run.name}: {ratios}  {found['seconds']:.0f} s"


def run_grid(options: argparse.Namespace) -> None:
    """Run what is not there yet, the widest first, in as many processes as given."""
    options.parts.mkdir(parents=True, exist_ok=True)
    deadline = time.time() + options.seconds
    context = multiprocessing.get_context("spawn")
    waiting: list[Future[str]] = []
    pools = []
    for grid, processes in ((cuda_grid(), options.cuda), (cpu_grid(), options.cpu)):
        if not processes:
            continue
        # a process for each run: one that fails on the GPU may leave its process unusable
        pool = ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1)
        pools.append(pool)
        for run in sorted(grid, key=lambda run: -run.width):
            there = (options.corpora / f"{run.corpus}.train.txt").exists()
            wanted = options.only in run.name and not (options.parts / f"{run.name}.json").exists()
            if wanted and there:
                task = (run, options.corpora, options.parts, deadline)
                waiting.append(pool.submit(measure_into, *task))
    for future in as_completed(waiting):
        print(future.result(), flush=True)
    for pool in pools:
        pool.shutdown()


def collect(options: argparse.Namespace) -> None:
    """Write one file with all runs, and print what the 5-gram model is better than."""
    runs = [json.loads(path.read_bytes()) for path in sorted(options.parts.glob("*.json"))]
    environments = {}
    for run in runs:
        found = run.pop("environment")
        run["machine"] = found.get("gpu", f"{found['processor']}, {found['cores']} cores")
        environments[run["machine"]] = found
    ratios = [model["ratio"] for run in runs for model in run["models"].values()]
    speeds = [1 / m["step"]["ratio"] for run in runs for m in run["models"].values() if "step" in m]
    above = [
        f"{run['corpus']} {run['cell']} {run['width']} {run['device']} {kind} {model['ratio']:.3f}"
        + ", narrower than the text allows" * is_narrow(run, model)
        for run in runs
        for kind, model in run["models"].items()
        if model["ratio"] > 1
    ]
    print(f"{len(runs)} runs, median ratio {statistics.median(ratios):.3f}")
    print(f"slowest step: {min(speeds):.2f} of the bare loop's speed")
    print("\n".join(above) or "no model is worse than the 5-gram model")
    what = "test perplexity of the tool's models over that of a 5-gram model"
    there = {path.stem for path in options.parts.glob("*.json")}
    missing = [run.name for run in (*cuda_grid(), *cpu_grid()) if run.name not in there]
    grid = {"runs": runs, "above_one": above, "missing": missing}
    write_record(what, options, machine=environments, **grid)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train what is not there yet")
    run.add_argument("corpora", type=Path, help="folder that benchmarks.corpora has written")
    run.add_argument("parts", type=Path, help="folder for one file per run")
    run.add_argument("--cuda", type=int, default=0, help="processes on the GPU")
    run.add_argument("--cpu", type=int, default=0, help="processes on the CPU, of one thread")
    run.add_argument("--seconds", type=float, default=1e9, help="begin no run after this time")
    run.add_argument("--only", default="", help="runs with this in their name")
    run.set_defaults(do=run_grid)
    gather = commands.add_parser("collect", help="write one file with all runs")
    gather.add_argument("parts", type=Path)
    gather.add_argument("--out", type=Path, default=OUT)
    gather.set_defaults(do=collect)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
