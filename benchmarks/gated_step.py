"""Time of a training step with gates against the same step without, in one run.

    python -m benchmarks.gated_step                      on the CPU: batch 10, 30 steps
    python -m benchmarks.gated_step --device cuda        in one CUDA graph: batch 20, 35 steps, bf16

The model is the paper's: two LSTM layers of 1500 between an embedding of 1500 and 10,000 words.
Dense and gated steps alternate, so that a noisy machine cannot favour one; medians are compared.
"""

import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

import thinrnn
from benchmarks.record import RESULTS, parser, write_record
from benchmarks.steps import in_graph, milliseconds
from thinrnn.lab.recipes.language_model.model import LanguageModel

WARM = 3


def make_step(
    model: nn.Module, tokens: Tensor, penalty: Callable[[], Tensor] | None
) -> Callable[[], None]:
    """Return one training step: forward, backward, clipping, SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    bf16 = tokens.is_cuda

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            logits, _ = model(tokens)
            loss = criterion(logits.flatten(0, 1), tokens.flatten())
        if penalty is not None:
            loss = loss + penalty()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25, foreach=True)
        optimizer.step()

    return step


def main() -> None:
    options = parser(__doc__, "gated-step-DEVICE.json")
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--words", type=int, default=10_000)
    options.add_argument("--size", type=int, default=1500)
    options.add_argument("--repeats", type=int, help="default: 15 on the CPU, 200 on a GPU")
    chosen = options.parse_args()
    device = chosen.device
    if chosen.out.stem.endswith("DEVICE"):
        chosen.out = RESULTS / f"gated-step-{device}.json"
    batch, steps = (10, 30) if device == "cpu" else (20, 35)
    repeats = chosen.repeats or (15 if device == "cpu" else 200)
    torch.manual_seed(0)
    tokens = torch.randint(0, chosen.words, (steps, batch))

    size = chosen.size
    dense, gated = (
        LanguageModel(chosen.words, embedding=size, hidden=(size, size)) for _ in range(2)
    )
    thinrnn.attach_(gated, thinrnn.find_groups(gated, tokens[:3, :2]))
    tokens = tokens.to(device)
    dense, gated = dense.to(device), gated.to(device)
    timed = {
        "dense": make_step(dense, tokens, None),
        "gated": make_step(gated, tokens, thinrnn.L0(gated, weight=8.6e-8)),
    }
    if device == "cuda":
        timed = {name: in_graph(step) for name, step in timed.items()}
    times: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(repeats + WARM):
        for name, step in timed.items():
            taken = milliseconds(step, device)
            if turn >= WARM:
                times[name].append(taken)

    found = {n: {"median": statistics.median(t), "min": min(t)} for n, t in times.items()}
    ratio = found["gated"]["median"] / found["dense"]["median"]
    print(f"dense {found['dense']['median']:.2f} ms, gated {found['gated']['median']:.2f} ms")
    print(f"ratio {ratio:.3f}")
    what = "training step with gates against the same step without"
    shape = {"batch": batch, "steps": steps, "repeats": repeats}
    write_record(what, chosen, device=device, step=shape, milliseconds=found, ratio=ratio)


if __name__ == "__main__":
    main()
