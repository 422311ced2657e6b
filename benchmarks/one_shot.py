"""When is training worth it? One-shot pruning of a trained model against gates that learn.

    thinrnn train demo --set phases=dense --out runs/dense
    thinrnn train demo --set phases=gated --set target_params=none --set target_macs=0.5 \\
        --set teacher=runs/dense/dense --out runs/gated-50        # one run for each size
    python -m benchmarks.one_shot runs/dense --gated runs/gated-*

It takes the run of any recipe: `ptb-dense` and `squad-dense` work as well. For each size, each
score, with and without refitting, the model is measured as pruned and after one epoch of training.
"taylor" uses the loss of the training, the other scores no labels.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.record import parser, write_record
from thinrnn._calibration.prune import Calibration
from thinrnn._model.copying import copy_module
from thinrnn._model.tree import map_tensors
from thinrnn.lab import recipes
from thinrnn.lab.recipes.optimizer import make_optimizer
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.progress import Silent

SCORES = ("magnitude", "activation", "taylor", "reconstruct")
LR_PART = 0.2  # of the run's learning rate, at the beginning of the epoch


class OneShot:
    """A trained model of a run, and what prunes, trains and measures it."""

    def __init__(self, run: RunFolder, calls: int) -> None:
        self.recipe = recipes.recipe(run.config["recipe"])
        self.settings = self.recipe.settings(**run.config["settings"])
        progress = Silent()
        self.data = self.recipe.load_data(self.settings, progress)
        device = torch.device("cpu")
        self.batches = self.recipe.batches(self.settings, self.data, "dense", device, run, progress)
        self.epoch, _ = self.recipe.steps(self.settings, self.data, "dense")
        self.model, plan, self.calls = self.recipe.calibrate(
            run.path / "dense", None, config=run.config, calls=calls, progress=progress
        )
        self.calibration = Calibration(self.model, self.calls, plan=plan)

    def measure(self, model: nn.Module) -> float:
        """Return the headline metric."""
        return self.recipe.evaluate(self.settings, model, self.data)[0].value

    def loss(self, output: Any, call: Any) -> Tensor:
        """Return a loss of calibration calls: that of the outputs' own best guess where unlabelled.

        Language models predict the next token of the call; readers the span that they found.
        """
        logits = output[0] if isinstance(output, tuple) else output
        if logits.dim() == 3:  # (T, B, V)
            return nn.functional.cross_entropy(logits[:-1].flatten(0, 1), call[1:].flatten())
        start, end = output
        spans = ((side, side.argmax(-1).detach()) for side in (start, end))
        return sum(nn.functional.cross_entropy(side, best) for side, best in spans)

    def train_(self, model: nn.Module, steps: int) -> nn.Module:
        """Train a model for some steps at a falling rate, as the run did, without gates."""
        optimizer = make_optimizer(self.settings, model)
        state: Any = None
        model.train()
        for step in range(steps):
            falling = 0.5 * (1 + math.cos(math.pi * step / steps))
            optimizer.set_lr(LR_PART * self.settings.lr * falling)
            optimizer.zero_grad(set_to_none=True)
            loss, state = self.recipe.step(self.settings, model, self.batches.batch(step), state)
            loss.backward()
            if self.settings.clip:
                nn.utils.clip_grad_norm_(optimizer.weights, self.settings.clip)
            optimizer.step()
            state = map_tensors(state, Tensor.detach)
        return model.eval()


def main() -> None:
    arguments = parser(__doc__, "../calibration/one-shot-cpu.json")
    arguments.add_argument("run", type=Path, help="a run folder with a dense model")
    arguments.add_argument("--gated", type=Path, nargs="*", default=[], help="runs with gates")
    arguments.add_argument("--macs", type=float, nargs="+", default=[0.75, 0.5, 0.25, 0.1])
    arguments.add_argument("--scores", nargs="+", default=SCORES, choices=SCORES)
    arguments.add_argument("--calls", type=int, default=20, help="calibration batches")
    arguments.add_argument("--steps", type=int, help="of training; default: one epoch")
    options = arguments.parse_args()
    torch.manual_seed(0)
    run = RunFolder(options.run)
    shot = OneShot(run, options.calls)
    metric, better = next(iter(shot.recipe.metrics.items()))
    dense = shot.measure(shot.model)
    full = shot.recipe.sizes(shot.model)["macs"]
    print(f"dense  {metric} {dense:.2f}", flush=True)
    steps = options.steps or shot.epoch
    rows = []
    trained = shot.measure(shot.train_(copy_module(shot.model), steps))
    for part in options.macs:
        for score in options.scores:
            for refitted in (False, True):
                small = shot.calibration.prune(
                    macs=part, score=score, loss=shot.loss, refitted=refitted
                )
                row = {"macs": part, "score": score, "refitted": refitted}
                row |= {"real_macs": shot.recipe.sizes(small)["macs"] / full}
                row |= {"pruned": shot.measure(small)}
                row |= {"trained": shot.measure(shot.train_(small, steps))}
                rows.append(row)
                print(
                    f"{part:.0%} {score:<12}{'refitted' if refitted else 'dropped':<9}"
                    f"{row['pruned']:9.2f}  after {steps} steps {row['trained']:9.2f}",
                    flush=True,
                )
    gated = []
    for folder in options.gated:
        summary = RunFolder(folder).summary("small")
        if summary is None:
            print(f"{folder} has no small model yet, so it is left out")
            continue
        gated.append({"real_macs": summary["macs"] / full, "trained": summary[metric]})
    found = {"dense": dense, "dense_trained": trained, "one_shot": rows, "gated": gated}
    draw(found, metric, better == "lower", options.out.with_suffix(".svg"))
    write_record(
        "one-shot pruning against learned gates",
        options,
        metric=metric,
        training_steps=steps,
        calibration_calls=len(shot.calls),
        model={"preset": run.config["preset"], "macs": full, "recipe": run.config["recipe"]},
        **found,
    )


def draw(found: dict[str, Any], metric: str, is_lower: bool, path: Path) -> None:
    """Draw the metric over the mult-adds: as pruned on the left, after training on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = found["one_shot"]
    for axes, key, title in ((left, "pruned", "as pruned"), (right, "trained", "after training")):
        for score in dict.fromkeys(row["score"] for row in rows):
            colour = None
            for refitted in (True, False):
                line = [r for r in rows if r["score"] == score and r["refitted"] == refitted]
                x, y = [100 * r["real_macs"] for r in line], [r[key] for r in line]
                name = f"{score}, refitted" if refitted else f"{score}, dropped"
                (drawn,) = axes.plot(x, y, "o-" if refitted else "x:", color=colour, label=name)
                colour = drawn.get_color()
        if key == "trained" and found["gated"]:
            line = sorted(found["gated"], key=lambda row: -row["real_macs"])
            x, y = [100 * r["real_macs"] for r in line], [r["trained"] for r in line]
            axes.plot(x, y, "ks-", label="gates that learn")
        axes.axhline(found["dense"], color="grey", linewidth=1)
        axes.set(xlabel="mult-adds, % of the dense model", ylabel=metric.replace("_", " "))
        axes.set_title(title)
        if is_lower:
            axes.set_yscale("log")
        axes.set_xlim(102, 0)
        axes.grid(alpha=0.3, which="both")
    right.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
