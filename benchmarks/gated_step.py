"""Time of a training step with gates against the same step without, in one run.

    python benchmarks/gated_step.py                      on the CPU: batch 10, 30 steps
    python benchmarks/gated_step.py --device cuda        in one CUDA graph: batch 20, 35 steps, bf16

The model is the paper's: two LSTM layers of 1500 between an embedding of 1500 and 10,000 words.
Dense and gated steps alternate, so that a noisy machine cannot favour one; medians are compared.
"""

import argparse
import json
import platform
import shlex
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from steps import in_graph, milliseconds
from torch import Tensor, nn

import thinrnn


class LanguageModel(nn.Module):
    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, num_layers=2)
        self.decoder = nn.Linear(size, words)

    def forward(self, tokens: Tensor) -> Tensor:
        output, _ = self.lstm(self.embedding(tokens))
        return self.decoder(output)


def make_step(model: nn.Module, tokens: Tensor, penalty: Callable[[], Tensor] | None) -> Callable:
    """Return one training step: forward, backward, clipping, SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    bf16 = tokens.is_cuda

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            logits = model(tokens)
            loss = criterion(logits.flatten(0, 1), tokens.flatten())
        if penalty is not None:
            loss = loss + penalty()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25, foreach=True)
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    device = options.device
    batch, steps = (10, 30) if device == "cpu" else (20, 35)
    repeats = options.repeats or (15 if device == "cpu" else 200)
    torch.manual_seed(0)
    tokens = torch.randint(0, options.words, (steps, batch))

    models = [LanguageModel(options.words, options.size) for _ in range(2)]
    plan = thinrnn.find_groups(models[1], tokens[:3, :2])
    thinrnn.attach_(models[1], plan)
    tokens = tokens.to(device)
    dense, gated = (model.to(device) for model in models)
    penalty = thinrnn.L0(gated, weight=8.6e-8)
    steps_to_time = {
        "dense": make_step(dense, tokens, None),
        "gated": make_step(gated, tokens, penalty),
    }
    if device == "cuda":
        steps_to_time = {name: in_graph(step) for name, step in steps_to_time.items()}
    times: dict[str, list[float]] = {name: [] for name in steps_to_time}
    for turn in range(repeats + 3):
        for name, step in steps_to_time.items():
            taken = milliseconds(step, device)
            if turn >= 3:
                times[name].append(taken)

    medians = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "what": "training step with gates against the same step without",
        "command": shlex.join(["python", *sys.argv]),
        "model": {"words": options.words, "size": options.size, "layers": 2},
        "batch": batch,
        "steps": steps,
        "repeats": repeats,
        "milliseconds": {n: {"median": m, "min": min(times[n])} for n, m in medians.items()},
        "ratio": medians["gated"] / medians["dense"],
        "ratio_of_minima": min(times["gated"]) / min(times["dense"]),
        "environment": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "thinrnn": thinrnn.__version__,
            "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
            "threads": torch.get_num_threads(),
        },
    }
    out = options.out or Path(f"results/speed/gated-step-{device}.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"dense {medians['dense']:.2f} ms, gated {medians['gated']:.2f} ms, "
        f"ratio {result['ratio']:.3f} (of minima {result['ratio_of_minima']:.3f}); wrote {out}"
    )


if __name__ == "__main__":
    main()
