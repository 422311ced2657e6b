"""Several sizes from one training, against a training of its own for each, of the same length.

    python -m benchmarks.several_sizes                          the demo's text, on the CPU
    python -m benchmarks.several_sizes --data data/ptb --device cuda --workers 4 \\
        --width 450 --batch 64 --dropout 0.4 --lr 2e-3 --budgets 20000 \\
        --out results/sizes/several-sizes-ptb.json

    dense ── to 0.5, finish ── to 0.25, finish ── to 0.1, finish     one training, three models
    dense ── to 0.5, finish ──────────────────────────────────╴      a training for one size
    dense ── to 0.1, finish ──────────────────────────────────╴      and for another

All trainings of a budget take the same number of steps, --budgets, on batches of one size, and
begin with the same dense model, which has --dense of them. Of the rest, --closing is spent on
closing gates; in the other part, the finish, the learning rate comes down to 0. The training with
several sizes shares this out equally among them; a training of its own has it all for one size.
Perplexities are those of the last weights; no validation data are used in between.

A record is written after each training. The same command goes on where it was stopped.
"""

import argparse
import hashlib
import itertools
import json
import multiprocessing
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record
from thinrnn._files import write_safely
from thinrnn._gates.attach import is_attached
from thinrnn._model.tree import map_tensors
from thinrnn.lab.recipes.language_model import presets
from thinrnn.lab.recipes.language_model.corpus import Text, load_text, texts_in
from thinrnn.lab.recipes.language_model.data import streams
from thinrnn.lab.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.lab.recipes.language_model.model import Dropouts, LanguageModel, find_plan
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run.files import write_json

WARM_UP = 0.05  # of the dense training: the learning rate rises
CLIP = 1.0
SHRINKS = 100  # how many steps pass before closed neurons are removed
SEVERAL = "all"  # the name of the training that gives all sizes


class Training:
    """A model, its optimizer, and its place in the text."""

    def __init__(
        self, options: argparse.Namespace, text: Text, model: nn.Module, gate_lr: float = 0.0
    ) -> None:
        self.options, self.model = options, model.train()
        self.text = streams(text.train, options.batch).to(options.device)
        groups: Any = [{"params": list(model.parameters())}]
        if is_attached(model):
            groups = thinrnn.param_groups(model, lr=options.lr, gate_lr=gate_lr)
        self.optimizer = torch.optim.Adam(groups, lr=options.lr)
        self.place, self.state = 0, None

    def step(self, rate: float) -> None:
        """Train on the next window with a part of the learning rate."""
        if self.place + 1 >= len(self.text):
            self.place, self.state = 0, None
        window = self.text[self.place : self.place + self.options.bptt + 1].long()
        self.place += self.options.bptt
        out, state = self.model(window[:-1], self.state)
        self.state = map_tensors(state, Tensor.detach)
        weights, *_ = self.optimizer.param_groups
        weights["lr"] = self.options.lr * rate
        self.optimizer.zero_grad()
        F.cross_entropy(out.flatten(0, 1), window[1:].flatten()).backward()
        nn.utils.clip_grad_norm_(weights["params"], CLIP)
        self.optimizer.step()

    def shrink(self) -> None:
        """Remove closed neurons; the state has the old width."""
        thinrnn.shrink_(self.model, self.optimizer)
        self.state = None


def untrained(options: argparse.Namespace, text: Text) -> LanguageModel:
    """Return the dense model."""
    return LanguageModel(
        len(text.vocabulary),
        embedding=options.width,
        hidden=(options.width, options.width),
        tied=True,
        dropouts=Dropouts(input=options.dropout, layer=options.dropout, output=options.dropout),
        init_range=0.1,
    ).to(options.device)


def train_dense(options: argparse.Namespace, seed: int, budget: int, file: Path) -> None:
    """Train the model that all trainings of a budget begin with."""
    text = begin(options, seed)
    model = untrained(options, text)
    training = Training(options, text, model)
    steps = round(options.dense * budget)
    for step in range(steps):
        training.step(min(1.0, (step + 1) / (WARM_UP * steps)))
    write_safely(file, lambda temporary: save_model(model, str(temporary)))


def prune(
    options: argparse.Namespace, seed: int, budget: int, file: Path, sizes: list[float]
) -> dict[str, dict[str, Any]]:
    """Prune the dense model to one size or to several; return what became of each."""
    text = begin(options, seed)
    model = untrained(options, text)
    load_model(model, file)
    thinrnn.attach_(model, find_plan(model))
    each = (budget - round(options.dense * budget)) // len(sizes)
    steps = round(options.closing * each)
    target = thinrnn.Target(model, params=sizes, steps=steps, finish=each - steps)
    training = Training(options, text, model, gate_lr=20 / steps)
    found = {}
    for step in range(1, target.calls + 1):
        training.step(target.rate)
        target.step()
        if step % SHRINKS == 0:
            training.shrink()
        if target.reached:
            small = thinrnn.compact(model)
            found[str(target.reached)] = {
                "params": thinrnn.count(small).params,
                **perplexities(options, text, small),
            }
    return found


def perplexities(options: argparse.Namespace, text: Text, model: nn.Module) -> dict[str, float]:
    """Return the perplexities of a model."""
    start = text.vocabulary.number("<eos>")
    model.eval()
    return {
        f"{part}_perplexity": round(
            perplexity(mean_loss(model, tokens, batch=options.batch, start=start)), 3
        )
        for part, tokens in (("valid", text.valid), ("test", text.test))
        if tokens is not None
    }


def begin(options: argparse.Namespace, seed: int) -> Text:
    """Make a process ready, and return the text."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(seed)
    return read_text(options)


def read_text(options: argparse.Namespace) -> Text:
    """Return the text of the demo, or that of a folder."""
    settings: LanguageModelSettings = presets.demo()
    if options.data is not None:
        settings = presets.lm().replaced(**texts_in(options.data))
    return load_text(settings)


def compared(done: dict[str, dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each size whose two models are there, and how much worse the one is."""
    rows = []
    for seed, budget in itertools.product(options.seeds, options.budgets):
        for size in map(str, options.sizes):
            one = done.get(f"{seed} {budget} {SEVERAL}", {}).get(size)
            own = done.get(f"{seed} {budget} {size}", {}).get(size)
            if not (one and own):
                continue
            worse = {part: round(one[part] / own[part] - 1, 4) for part in own if part != "params"}
            about = {"seed": seed, "steps": budget, "size": size}
            rows.append({**about, "one_run": one, "own_run": own, "worse": worse})
    return rows


def main() -> None:
    arguments = parser(__doc__, "several-sizes-demo.json")
    arguments.set_defaults(out=Path("results/sizes/several-sizes-demo.json"))
    arguments.add_argument("--data", type=Path, help="folder with *train*.txt, *valid*.txt ...")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--workers", type=int, default=1, help="trainings at a time")
    arguments.add_argument("--work", type=Path, default=Path("runs"), help="what is done so far")
    arguments.add_argument("--sizes", type=float, nargs="+", default=[0.5, 0.25, 0.1])
    arguments.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments.add_argument("--budgets", type=int, nargs="+", default=[8000], help="steps in all")
    arguments.add_argument("--dense", type=float, default=0.25, help="part of the steps")
    arguments.add_argument("--closing", type=float, default=0.35, help="part of the others")
    arguments.add_argument("--width", type=int, default=48, help="of embedding and both layers")
    arguments.add_argument("--batch", type=int, default=24)
    arguments.add_argument("--bptt", type=int, default=35)
    arguments.add_argument("--dropout", type=float, default=0.3)
    arguments.add_argument("--lr", type=float, default=4e-3)
    options = arguments.parse_args()
    text = read_text(options)
    trainings = {SEVERAL: options.sizes} | {str(size): [size] for size in options.sizes}
    free = ("seeds", "budgets", "workers", "work", "out")
    settings = {key: value for key, value in vars(options).items() if key not in free}
    mark = hashlib.sha256(repr([settings, text.facts()]).encode()).hexdigest()[:12]
    folder = options.work / f"several-sizes-{mark}"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "done.json"
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}

    def record() -> None:
        write_record(
            "several sizes from one training, and a training of the same length for each",
            options,
            device=options.device,
            text=text.facts(),
            models=compared(done, options),
        )

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
        waiting: dict[Future[Any], tuple[int, int, str]] = {}

        def submit_trainings(seed: int, budget: int) -> None:
            for name, sizes in trainings.items():
                if f"{seed} {budget} {name}" not in done:
                    file = folder / f"{seed}-{budget}.safetensors"
                    future = pool.submit(prune, options, seed, budget, file, sizes)
                    waiting[future] = (seed, budget, name)

        for budget, seed in itertools.product(options.budgets, options.seeds):
            file = folder / f"{seed}-{budget}.safetensors"
            if file.exists():
                submit_trainings(seed, budget)
            else:
                waiting[pool.submit(train_dense, options, seed, budget, file)] = (seed, budget, "")
        while waiting:
            over, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in over:
                seed, budget, name = waiting.pop(future)
                found = future.result()
                if not name:
                    submit_trainings(seed, budget)
                    continue
                done[f"{seed} {budget} {name}"] = found
                write_json(kept, done)
                print(f"seed {seed}, {budget} steps, {name}: {found}", flush=True)
                record()
    record()


if __name__ == "__main__":
    main()
