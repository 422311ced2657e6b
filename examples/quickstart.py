"""Prune a two-layer LSTM language model on real text, end to end, in about a minute.

The text is the language reference that comes with Python (`pydoc_data.topics`). A model trains for
two epochs. Then one copy stays dense, and another is pruned to a quarter of its parameters, for the
same number of epochs. The table at the end compares the two.

    python examples/quickstart.py
    python examples/quickstart.py --quick    # tiny, a few seconds, to see that it runs
"""

import copy
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pydoc_data.topics import topics
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam, Optimizer

import thinrnn

BATCH, STEPS = 20, 35
QUICK = "--quick" in sys.argv
WIDTH, SHARED, EPOCHS = (32, 1, 3) if QUICK else (192, 2, 8)


class LanguageModel(nn.Module):
    """An ordinary model, written without pruning in mind."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.3)
        self.decoder = nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(0.3)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, x, state=None):
        hidden, state = self.lstm(self.dropout(self.embedding(x)), state)
        return self.decoder(self.dropout(hidden)), state


def main() -> None:
    torch.manual_seed(0)
    train, valid, vocabulary = read_text()
    print(f"{train.numel():,} tokens to train on, {vocabulary:,} different ones")
    dense = LanguageModel(vocabulary, WIDTH)
    optimizer = Adam(dense.parameters(), lr=1e-2)
    fit("both", dense, optimizer, train, valid, range(SHARED))
    model = copy.deepcopy(dense)
    fit("dense", dense, optimizer, train, valid, range(SHARED, EPOCHS))

    example = train[:STEPS]
    plan = thinrnn.find_groups(model, example)
    print(f"\n{plan}\n")
    thinrnn.attach_(model, plan)
    steps = (EPOCHS - SHARED) * math.ceil(len(train) / STEPS)
    target = thinrnn.Target(model, params=0.25, steps=steps // 2)
    optimizer = Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.1))
    fit("pruned", model, optimizer, train, valid, range(SHARED, EPOCHS), target)
    small = thinrnn.compact(model)
    difference = thinrnn.verify(model, small, example)

    print(f"\n{small}\n")
    print_table(dense, model, small, valid)
    print(f"\nThe small model's outputs differ from the gated model's by at most {difference:.1e}.")


def fit(
    name: str,
    model: nn.Module,
    optimizer: Optimizer,
    train: Tensor,
    valid: Tensor,
    epochs: range,
    target: thinrnn.Target | None = None,
) -> None:
    """Train; with a target also remove, after each epoch, the neurons that it has closed."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for epoch in epochs:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1, 2 * (EPOCHS - epoch - 0.5) / EPOCHS)
        began, total, state = time.perf_counter(), 0.0, None
        model.train()
        for x, y in batches(train):
            logits, state = model(x, state)
            state = tuple(part.detach() for part in state)
            loss = cross_entropy(logits.flatten(0, 1), y.flatten())
            total += loss.item() * y.numel()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            if target is not None:
                target.step()
        line = f"{name:<6}  epoch {epoch + 1}  perplexity: train {perplexity(total, train):6.1f}"
        line += f"  valid {evaluate(model, valid):6.1f}"
        if target is not None:
            thinrnn.shrink_(model, optimizer)
            left = [str(len(neurons)) for neurons in thinrnn.kept_neurons(model).values()]
            line += f"  neurons left: {', '.join(left)}"
        print(f"{line}  ({time.perf_counter() - began:.1f} s)", flush=True)


@torch.no_grad()
def evaluate(model: nn.Module, text: Tensor) -> float:
    """Return the perplexity of a model."""
    model.eval()
    total, state = 0.0, None
    for x, y in batches(text):
        logits, state = model(x, state)
        total += cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
    return perplexity(total, text)


def perplexity(total: float, text: Tensor) -> float:
    return math.exp(total / text[1:].numel())


def read_text() -> tuple[Tensor, Tensor, int]:
    """Return training and validation tokens, (time, batch) each, and the size of the vocabulary.

    Every tenth topic is for validation. Topics quote one another, so what validation has is left
    out of training.
    """
    names = sorted(topics)
    valid = [part for name in names[::10] for part in topics[name].split("\n\n")]
    held_out = set(valid)
    others = [part for i in range(len(names)) if i % 10 for part in topics[names[i]].split("\n\n")]
    train = [part for part in others if part not in held_out]
    if QUICK:
        train, valid = train[:200], valid[:50]
    counts = Counter(tokens(train))
    frequent = sorted(token for token, times in counts.items() if times >= 3)
    numbers = {token: i for i, token in enumerate(["<unk>", *frequent])}
    return fold(train, numbers), fold(valid, numbers), len(numbers)


def tokens(paragraphs: list[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        for match in re.finditer(r"\w+|([^\w\s])\1*", paragraph.lower()):
            yield match.group()
        yield "<end>"


def fold(paragraphs: list[str], numbers: dict[str, int]) -> Tensor:
    ids = torch.tensor([numbers.get(token, 0) for token in tokens(paragraphs)])
    length = len(ids) // BATCH
    return ids[: length * BATCH].view(BATCH, length).t().contiguous()


def batches(text: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(text) - 1, STEPS):
        y = text[start + 1 : start + 1 + STEPS]
        yield text[start : start + len(y)], y


def print_table(dense: nn.Module, gated: nn.Module, small: nn.Module, valid: Tensor) -> None:
    """Print what was gained and what it cost."""
    rows = [("", "dense", "small", "")]
    for name, gate in thinrnn.gates(gated).items():
        rows.append((f"neurons in {name}", f"{gate.full_size}", f"{int(gate.keep.sum())}", ""))
    before, after = thinrnn.count(dense), thinrnn.count(small)
    for what in ("weights", "macs"):
        old, new = getattr(before, what), getattr(after, what)
        name = "mult-adds per step" if what == "macs" else what
        rows.append((name, f"{old:,}", f"{new:,}", f"{old / new:.1f} times fewer"))
    old, new = evaluate(dense, valid), evaluate(small, valid)
    rows.append(("valid perplexity", f"{old:.1f}", f"{new:.1f}", f"{new / old - 1:+.1%}"))
    old, new = milliseconds(dense, small, valid[:STEPS, :10])
    rows.append(("ms per call", f"{old:.2f}", f"{new:.2f}", f"{old / new:.1f} times the speed"))
    for name, *cells in rows:
        print(f"{name:<22}" + "".join(f"{cell:>20}" for cell in cells))


@torch.inference_mode()
def milliseconds(dense: nn.Module, small: nn.Module, x: Tensor) -> list[float]:
    """Return the median time of a call of each on one thread, in turns, so noise meets both."""
    times: list[list[float]] = [[], []]
    torch.set_num_threads(1)
    for _ in range(10 if QUICK else 60):
        for model, own in zip((dense, small), times, strict=True):
            began = time.perf_counter()
            model(x)
            own.append(1000 * (time.perf_counter() - began))
    return [median(own[3:]) for own in times]  # the first calls warm up


if __name__ == "__main__":
    main()
