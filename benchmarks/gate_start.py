"""Gates that begin ranked by `neuron_scores` against gates that begin alike, on a trained model.

    python -m benchmarks.gate_start               the text of the demo, a small LSTM, on a CPU
    python -m benchmarks.gate_start --data data/ptb --hidden 1500 1500

A dense language model is trained once. For each seed and each start, gates are attached to its
weights and a target closes them while the training goes on; the sizes are the same.
"""

import copy
import math
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record
from thinrnn._model.tree import map_tensors
from thinrnn.lab.recipes.language_model.calibrate import spread
from thinrnn.lab.recipes.language_model.corpus import Text, load_text, texts_in
from thinrnn.lab.recipes.language_model.data import EOS, streams
from thinrnn.lab.recipes.language_model.evaluate import mean_loss
from thinrnn.lab.recipes.language_model.model import LanguageModel, find_plan
from thinrnn.lab.recipes.language_model.presets import demo
from thinrnn.lab.recipes.language_model.recipe import TextWindows

STARTS = ("alike", "reconstruct")


def train(
    model: nn.Module,
    windows: TextWindows,
    steps: int,
    lr: float,
    gate_lr: float = 0.0,
    target: thinrnn.Target | None = None,
) -> None:
    """Train with Adam whose rate falls along a cosine."""
    groups: Any = model.parameters()
    if target is not None:
        groups = thinrnn.param_groups(model, lr=lr, gate_lr=gate_lr)
    optimizer = torch.optim.Adam(groups, lr=lr)
    first = [group["lr"] for group in optimizer.param_groups]
    state: Any = None
    model.train()
    for step in range(steps):
        factor = 0.5 * (1 + math.cos(math.pi * step / steps))
        for place, group in enumerate(optimizer.param_groups):
            # gates keep their rate: they have to move in the first half
            group["lr"] = first[place] * (factor if target is None or place == 0 else 1)
        x, y = windows.batch(step)[:2]
        if step % windows.epoch_steps == 0:
            state = None
        logits, state = model(x, state)
        state = map_tensors(state, Tensor.detach)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if target is not None:
            target.step()


def perplexity(model: nn.Module, text: Text) -> float:
    start = text.vocabulary.number(EOS)
    return math.exp(mean_loss(model, text.valid, batch=10, start=start))


def main() -> None:
    arguments = parser(__doc__, "../calibration/gate-start-cpu.json")
    arguments.add_argument("--data", type=Path, help="folder with texts; default: the demo's text")
    arguments.add_argument("--hidden", type=int, nargs="+", default=[100, 100])
    arguments.add_argument("--epochs", type=int, default=6, help="of the dense model")
    arguments.add_argument("--gated", type=int, nargs="+", default=[1, 4], help="epochs with gates")
    arguments.add_argument("--macs", type=float, nargs="+", default=[0.5, 0.25])
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--lr", type=float, default=5e-3)
    arguments.add_argument("--gate-lr", type=float, default=5e-2)
    options = arguments.parse_args()
    settings = demo()
    if options.data:
        settings = settings.replaced(**texts_in(options.data), lower=False, punctuation=False)
    text = load_text(settings)
    torch.manual_seed(0)
    dense = LanguageModel(
        len(text.vocabulary), embedding=options.hidden[0], hidden=tuple(options.hidden)
    )
    windows = TextWindows(streams(text.train, 24), 20)
    train(dense, windows, options.epochs * windows.epoch_steps, options.lr)
    found: dict[str, Any] = {"dense": perplexity(dense, text)}
    print("dense", f"{found['dense']:.2f}", flush=True)
    plan = find_plan(dense)
    scores = thinrnn.neuron_scores(dense, spread(text.train, 20), plan=plan)
    for epochs in options.gated:
        for macs in options.macs:
            for start in STARTS:
                reached = []
                for seed in range(options.seeds):
                    torch.manual_seed(seed)
                    model = thinrnn.attach_(copy.deepcopy(dense), plan)
                    steps = epochs * windows.epoch_steps
                    ranks = scores if start == "reconstruct" else None
                    target = thinrnn.Target(model, macs=macs, steps=steps // 2, start=ranks)
                    train(model, windows, steps, options.lr / 2, options.gate_lr, target)
                    reached.append(perplexity(thinrnn.compact(model), text))
                name = f"{epochs} epochs, {macs:.0%} of mult-adds, {start}"
                found[name] = {"mean": statistics.mean(reached), "seeds": reached}
                print(name, *(f"{one:.2f}" for one in reached), flush=True)
    write_record("how gates begin on a trained model", options, valid_perplexity=found)


if __name__ == "__main__":
    main()
