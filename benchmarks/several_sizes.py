"""Several sizes from one training, against a training of its own for each, of the same length.

    python -m benchmarks.several_sizes                          the demo's text, on the CPU
    python -m benchmarks.several_sizes --data data/ptb --device cuda --workers 4 \\
        --width 400 --batch 64 --bptt 35 --dropout 0.5 --lr 3e-3 --dense 6000 --gated 3000 \\
        --finish 1500 --out results/sizes/several-sizes-ptb.json

    dense ── gates ──┬────────┬────────╮             one training, a model at each size
                     ╰ finish ╰ finish ╰ finish
    dense ── gates ── finish as long as all three    a training for one size

All begin with the same trained dense model, and all take the same number of steps: --dense,
--gated, and --finish for each size. The learning rate comes down to a part of it (--low) while the
dense model is trained, stays there while gates close, and comes down to 0 in the finish.
Perplexities are those of the last weights.
"""

import argparse
import copy
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record
from thinrnn._gates.attach import is_attached
from thinrnn._model.tree import map_tensors
from thinrnn.lab.recipes.language_model import presets
from thinrnn.lab.recipes.language_model.corpus import Text, load_text, texts_in
from thinrnn.lab.recipes.language_model.data import streams
from thinrnn.lab.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.lab.recipes.language_model.model import Dropouts, LanguageModel, find_plan
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings

WARM_UP = 100  # steps in which the learning rate rises
CLIP = 1.0
SEVERAL = "all"  # the name of the training that gives all sizes


class Training:
    """A model, its optimizer, and its place in the text."""

    def __init__(self, options: argparse.Namespace, text: Text, model: nn.Module) -> None:
        self.options, self.model = options, model.train()
        self.text = streams(text.train, options.batch).to(options.device)
        groups: Any = [{"params": list(model.parameters())}]
        if is_attached(model):
            groups = thinrnn.param_groups(model, lr=options.lr, gate_lr=20 / options.gated)
        self.optimizer = torch.optim.Adam(groups, lr=options.lr)
        self.place, self.state = 0, None

    def step(self, factor: float) -> None:
        """Train on the next window with a part of the learning rate."""
        window = self.text[self.place : self.place + self.options.bptt + 1].long()
        out, state = self.model(window[:-1], self.state)
        self.state = map_tensors(state, Tensor.detach)
        self.place += self.options.bptt
        if self.place + 1 >= len(self.text):
            self.begin()
        weights, *_ = self.optimizer.param_groups
        weights["lr"] = self.options.lr * factor
        self.optimizer.zero_grad()
        F.cross_entropy(out.flatten(0, 1), window[1:].flatten()).backward()
        nn.utils.clip_grad_norm_(weights["params"], CLIP)
        self.optimizer.step()

    def begin(self) -> None:
        """Go back to the beginning of the text."""
        self.place, self.state = 0, None

    def finish(self, steps: int) -> None:
        """Take the learning rate down to 0."""
        for step in range(steps):
            self.step(self.options.low * (1 - step / steps))


def dense_model(options: argparse.Namespace, text: Text, seed: int) -> LanguageModel:
    """Return the model that all trainings begin with."""
    torch.manual_seed(seed)
    model = LanguageModel(
        len(text.vocabulary),
        embedding=options.width,
        hidden=(options.width, options.width),
        tied=True,
        dropouts=Dropouts(input=options.dropout, layer=options.dropout, output=options.dropout),
        init_range=0.1,
    ).to(options.device)
    training = Training(options, text, model)
    for step in range(options.dense):
        falling = 1 - (1 - options.low) * step / options.dense
        training.step(min(falling, (step + 1) / WARM_UP))
    return model


def prune(
    options: argparse.Namespace, text: Text, dense: LanguageModel, sizes: list[float]
) -> dict[str, dict[str, Any]]:
    """Prune a model to one size or to several; return what became of each."""
    model = copy.deepcopy(dense)
    thinrnn.attach_(model, find_plan(model))
    target = thinrnn.Target(model, params=sizes, steps=options.gated)
    training = Training(options, text, model)
    small: dict[str, nn.Module] = {}
    found = {}
    while not target.is_settled:
        training.step(options.low)
        target.step()
        if target.reached:
            small[str(target.reached)] = thinrnn.compact(model)
    for size, one in small.items():
        Training(options, text, one).finish(len(options.sizes) * options.finish // len(sizes))
        start = text.vocabulary.number("<eos>")
        loss = {
            part: mean_loss(one, tokens, batch=options.batch, start=start)
            for part, tokens in (("valid", text.valid), ("test", text.test))
            if tokens is not None
        }
        found[size] = {
            "params": thinrnn.count(one).params,
            **{f"{part}_perplexity": round(perplexity(one), 3) for part, one in loss.items()},
        }
    return found


def run(options: argparse.Namespace, sizes: list[float], seed: int, state: Any) -> Any:
    """Do one training, in a process of its own."""
    torch.set_num_threads(1)
    text = load_text(settings(options))
    dense = dense_model(argparse.Namespace(**vars(options) | {"dense": 0}), text, seed)
    dense.load_state_dict(state)
    torch.manual_seed(seed)
    return prune(options, text, dense, sizes)


def settings(options: argparse.Namespace) -> LanguageModelSettings:
    """Return which text it is."""
    if options.data is None:
        return presets.demo()
    return presets.lm().replaced(**texts_in(options.data))


def main() -> None:
    arguments = parser(__doc__, "several-sizes-demo.json")
    arguments.set_defaults(out=Path("results/sizes/several-sizes-demo.json"))
    arguments.add_argument("--data", type=Path, help="folder with *train*.txt, *valid*.txt ...")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--workers", type=int, default=1, help="trainings at a time")
    arguments.add_argument("--sizes", type=float, nargs="+", default=[0.5, 0.25, 0.1])
    arguments.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments.add_argument("--width", type=int, default=64, help="of embedding and both layers")
    arguments.add_argument("--batch", type=int, default=24)
    arguments.add_argument("--bptt", type=int, default=20)
    arguments.add_argument("--dropout", type=float, default=0.3)
    arguments.add_argument("--lr", type=float, default=4e-3)
    arguments.add_argument("--low", type=float, default=0.25, help="part of the learning rate")
    arguments.add_argument("--dense", type=int, default=4000, help="steps")
    arguments.add_argument("--gated", type=int, default=800, help="steps of the target")
    arguments.add_argument("--finish", type=int, default=500, help="steps for each size")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    text = load_text(settings(options))
    began = time.monotonic()
    rows = []
    for seed in options.seeds:
        dense = dense_model(options, text, seed)
        state = {name: tensor.cpu() for name, tensor in dense.state_dict().items()}
        jobs = {SEVERAL: options.sizes} | {str(size): [size] for size in options.sizes}
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
            futures = {n: pool.submit(run, options, s, seed, state) for n, s in jobs.items()}
            found = {name: future.result() for name, future in futures.items()}
        for size in map(str, options.sizes):
            one, own = found[SEVERAL][size], found[size][size]
            worse = {
                part: round(one[part] / own[part] - 1, 4) for part in own if "perplexity" in part
            }
            rows.append(
                {"seed": seed, "size": size, "one_run": one, "own_run": own, "worse": worse}
            )
            print(f"seed {seed}, size {size}: {one} own run {own} worse {worse}", flush=True)
    steps = options.dense + options.gated + len(options.sizes) * options.finish
    write_record(
        "several sizes from one training, and a training of the same length for each",
        options,
        device=options.device,
        text=text.facts(),
        steps_of_each_training=steps,
        seconds=round(time.monotonic() - began, 1),
        models=rows,
    )


if __name__ == "__main__":
    main()
