"""How fast the language-model recipe trains on the CPU.

    python -m benchmarks.throughput

Two ratios: a step of the recipe over a step of a bare PyTorch loop that trains the same dense model
on the same text, and a whole pruned run over the dense run of the same number of epochs. Steps of
the recipe and of the bare loop alternate, so that a noisy machine cannot favour one.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.record import parser, write_record
from thinrnn._model.tree import map_tensors
from thinrnn.lab import driver
from thinrnn.lab.device.arithmetic import arithmetic
from thinrnn.lab.recipes import preset
from thinrnn.lab.recipes.language_model.corpus import Text, load_text
from thinrnn.lab.recipes.language_model.data import streams
from thinrnn.lab.recipes.language_model.recipe import RECIPE
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.windows import TextWindows
from thinrnn.lab.recipes.phase import Phase
from thinrnn.lab.recipes.settings import as_json, changed
from thinrnn.lab.run.progress import shown_on

CPU = torch.device("cpu")


class BareLoop:
    """What a user would write: model, torch's optimizer, clipping, state carried along."""

    def __init__(
        self, settings: LanguageModelSettings, text: Text, device: torch.device = CPU
    ) -> None:
        self.model = RECIPE.build(settings, text).to(device)
        self.data = streams(text.train, settings.batch).long().to(device)
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
        self.optimizer = kind(self.model.parameters(), lr=settings.lr)
        self.settings = settings
        self.place = 0
        self.state: Any = None
        self.total = 0.0

    def take_step(self) -> None:
        x = self.data[self.place : self.place + self.settings.bptt]
        y = self.data[self.place + 1 : self.place + 1 + self.settings.bptt]
        self.optimizer.zero_grad()
        with arithmetic(self.settings.precision, x.device):
            logits, state = self.model(x, self.state)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        self.state = map_tensors(state, torch.Tensor.detach)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        self.total += loss.item()
        self.place += self.settings.bptt


def compare_steps(
    settings: LanguageModelSettings, text: Text, steps: int, device: torch.device = CPU
) -> dict[str, float]:
    """Return milliseconds per step of the recipe and of the bare loop, medians."""
    phase = Phase(RECIPE, settings, "dense", text, device)
    phase.batches = TextWindows(streams(text.train, settings.batch).to(device), settings.bptt)
    bare = BareLoop(settings, text, device)
    runners: dict[str, Phase | BareLoop] = {"recipe": phase, "bare": bare}
    times: dict[str, list[float]] = {name: [] for name in runners}
    for step in range(min(steps, phase.epoch_steps - 1)):
        for name in sorted(runners, reverse=step % 2 == 1):
            began = time.perf_counter()
            runners[name].take_step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times[name].append(1000 * (time.perf_counter() - began))
    medians = {name: statistics.median(values[5:]) for name, values in times.items()}
    return {**medians, "ratio": medians["recipe"] / medians["bare"]}


def whole_runs(settings: LanguageModelSettings) -> dict[str, float]:
    """Return seconds of a dense run and of a pruned one, from the text to the saved model."""
    seconds = {}
    for name, phase in (("dense", "dense"), ("pruned", "gated")):
        chosen = changed(settings, [f"phases={phase}", "bench_seconds=0"])
        with tempfile.TemporaryDirectory() as folder, shown_on(sys.stdout) as progress:
            began = time.perf_counter()
            driver.start(RECIPE, chosen, Path(folder) / "run", preset=None, progress=progress)
            seconds[name] = time.perf_counter() - began
    return {**seconds, "ratio": seconds["pruned"] / seconds["dense"]}


def main() -> None:
    arguments = parser(__doc__, "throughput-cpu.json")
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = arguments.parse_args()
    fixed = ["device=cpu", "tensorboard=no", "distill=0"]  # no time for a teacher
    settings = changed(preset("demo").settings(), [*fixed, *options.set])
    if settings.threads:
        torch.set_num_threads(settings.threads)
    text = load_text(settings)
    step = compare_steps(
        settings, text, min(options.steps, len(text.train) // settings.batch // settings.bptt)
    )
    print("step: recipe {recipe:.1f} ms, bare loop {bare:.1f} ms, {ratio:.3f}".format(**step))
    run = whole_runs(settings)
    print("run: dense {dense:.1f} s, pruned {pruned:.1f} s, {ratio:.3f}".format(**run))
    what = "training throughput of the language-model recipe on the CPU"
    recipe = as_json(settings)
    write_record(what, options, step_milliseconds=step, run_seconds=run, recipe=recipe)


if __name__ == "__main__":
    main()
