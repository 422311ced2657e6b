"""What it costs to prune through LayerNorms: loss before and after a short training.

    python -m benchmarks.through_norms

A small residual network with a LayerNorm in front of each LSTM learns the characters of Python's
language reference. Then neurons of the smallest weights are closed at once, with the mean and
variance of each norm over open neurons alone (what `through_norms=True` does, and the small model
with it), or over all neurons as before (which keeps the function of each norm, but no norm of a
small model computes it). For comparison, neurons that go through no norm are closed, which takes
more of them. All are trained on. In the last way, gates close during the training.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record
from thinrnn.lab.recipes.language_model.corpus import built_in_pieces

WINDOW, BATCH = 48, 16


def main() -> None:
    arguments = parser(__doc__, "../sizes/through-norms.json")
    arguments.add_argument("--width", type=int, default=96)
    arguments.add_argument("--steps", type=int, default=1200, help="of the dense model")
    arguments.add_argument("--more", type=int, default=300, help="of the pruned models")
    arguments.add_argument("--keep", type=float, nargs="+", default=[0.75, 0.5, 0.25])
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    bench = Bench(options.width, options.seed)
    dense = bench.model()
    bench.train_(dense, options.steps, rate=3e-3)
    start = {name: tensor.clone() for name, tensor in dense.state_dict().items()}
    plain = thinrnn.find_groups(dense, bench.example)
    whole = thinrnn.find_groups(dense, bench.example, through_norms=True)
    found = {
        "dense": bench.loss(dense),
        "dense_trained": bench.trained(start, options.more),
        "smallest": bench.smallest(start, plain),
        "smallest_through_norms": bench.smallest(start, whole),
        "cells": [],
    }
    print(found, flush=True)
    for keep in options.keep:
        for norms, plan in (("open", whole), ("all", whole), ("untouched", plain)):
            cell = bench.closed_at_once(start, plan, keep, norms, options.more)
            found["cells"].append(cell)
            print(cell, flush=True)
        found["cells"].append(bench.closed_slowly(start, whole, keep, options.more))
        print(found["cells"][-1], flush=True)
    write_record("pruning through norms", options, **found)


class Net(nn.Module):
    """A language model of characters: residual LSTMs, each behind a LayerNorm."""

    def __init__(self, characters: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.rnns = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.head = nn.Linear(width, characters)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embedding(tokens)
        for norm, rnn, up in zip(self.norms[:2], self.rnns, self.ups, strict=True):
            h = h + up(rnn(norm(h))[0])
        logits: Tensor = self.head(self.norms[2](h))
        return logits


class Bench:
    """The text, and models that learn it."""

    def __init__(self, width: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.width, self.seed = width, seed
        text = {part: "".join(built_in_pieces(part)) for part in ("train", "valid")}
        self.places = {c: i for i, c in enumerate(sorted(set(text["train"])))}
        self.train, self.valid = (
            torch.tensor([self.places.get(c, 0) for c in text[part]]) for part in ("train", "valid")
        )
        self.example = self.windows(self.train, torch.arange(2))

    def model(self) -> Net:
        return Net(len(self.places), self.width)

    def windows(self, text: Tensor, starts: Tensor) -> Tensor:
        return text[starts[:, None] + torch.arange(WINDOW)]

    def step(self, model: nn.Module, text: Tensor, starts: Tensor) -> Tensor:
        logits = model(self.windows(text, starts))
        return nn.functional.cross_entropy(logits.mT, self.windows(text, starts + 1))

    @torch.no_grad()
    def loss(self, model: nn.Module) -> float:
        """Return the loss per character of the held-out text."""
        starts = torch.arange(0, len(self.valid) - WINDOW - 1, WINDOW)
        model.eval()
        parts = [(self.step(model, self.valid, some), len(some)) for some in starts.split(256)]
        return round(float(sum(loss * n for loss, n in parts)) / len(starts), 4)

    def train_(
        self, model: nn.Module, steps: int, rate: float, target: thinrnn.Target | None = None
    ) -> None:
        """Train with a rate that falls to zero."""
        generator = torch.Generator().manual_seed(self.seed)
        groups = [{"params": model.parameters()}]
        if target is not None:
            groups = thinrnn.param_groups(model, lr=rate, gate_lr=0.1)
        optimizer = torch.optim.Adam(groups, lr=rate)
        rates = [group["lr"] for group in optimizer.param_groups]
        model.train()
        for step in range(steps):
            for group, first in zip(optimizer.param_groups[:1], rates, strict=False):
                group["lr"] = first * (1 + math.cos(math.pi * step / steps)) / 2
            starts = torch.randint(len(self.train) - WINDOW - 1, (BATCH,), generator=generator)
            self.step(model, self.train, starts).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if target is not None:
                target.step()

    def begun(self, start: dict[str, Tensor]) -> Net:
        torch.manual_seed(self.seed)
        model = self.model()
        model.load_state_dict(start)
        return model

    def trained(self, start: dict[str, Tensor], steps: int) -> float:
        model = self.begun(start)
        self.train_(model, steps, rate=1e-3)
        return self.loss(model)

    def smallest(self, start: dict[str, Tensor], plan: thinrnn.Plan) -> float:
        """Return the part of the parameters that stays when each group keeps one neuron."""
        model = self.begun(start)
        thinrnn.attach_(model, plan)
        for gate in thinrnn.gates(model).values():
            gate.log_alpha = torch.tensor([9.0] + [-9.0] * (gate.size - 1))
        small = thinrnn.compact(model)
        return thinrnn.count(small).params / thinrnn.count(self.model()).params

    def closed_at_once(
        self, start: dict[str, Tensor], plan: thinrnn.Plan, keep: float, norms: str, steps: int
    ) -> dict[str, str | float]:
        """Close the neurons of the smallest weights, and train on what is left."""
        model = self.begun(start)
        thinrnn.magnitude_(model, plan, params=keep)
        if norms != "all":
            model = thinrnn.compact(model)
        else:
            values = {name: gate.log_alpha.detach() for name, gate in thinrnn.gates(model).items()}
            thinrnn.detach_(model)
            groups = tuple(replace(group, norms=()) for group in plan.groups)
            thinrnn.attach_(model, replace(plan, groups=groups), gate=thinrnn.Fixed())
            for name, gate in thinrnn.gates(model).items():
                gate.log_alpha = values[name]
                gate.log_alpha.requires_grad_(False)
        before = self.loss(model)
        self.train_(model, steps, rate=1e-3)
        return {
            "keep": keep, "closed": "at once", "norms_over": norms,
            "before": before, "trained": self.loss(model),
        }  # fmt: skip

    def closed_slowly(
        self, start: dict[str, Tensor], plan: thinrnn.Plan, keep: float, steps: int
    ) -> dict[str, str | float]:
        """Let gates close during the training."""
        model = self.begun(start)
        thinrnn.attach_(model, plan)
        target = thinrnn.Target(model, params=keep, steps=steps // 2)
        self.train_(model, steps, rate=1e-3, target=target)
        small = thinrnn.compact(model, target=target)
        return {
            "keep": keep, "closed": "in training", "norms_over": "open",
            "trained": self.loss(small),
        }  # fmt: skip


if __name__ == "__main__":
    main()
