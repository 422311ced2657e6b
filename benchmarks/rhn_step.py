"""Time of a training step of a recurrent highway network, computed in several ways, in one run.

    python benchmarks/rhn_step.py --device cuda                 the paper's model, bf16
    python benchmarks/rhn_step.py --width 40 --depth 3 --words 200 --repeats 3        on the CPU

A step is everything: embedding, dropout, recurrence, output layer over all words, loss, backward,
clipping, SGD. Ways of computing the recurrence alternate, so that a noisy machine cannot favour
one; medians are compared, with each other and with what the bytes and operations allow.
"""

import argparse
import functools
import json
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from steps import in_graph, milliseconds
from torch import Tensor, nn

import thinrnn
from thinrnn import rhn, rhn_fused
from thinrnn.recipes.language_model.model import Dropouts, LanguageModel

REFERENCE = rhn.highway
FUSED = rhn_fused.highway
# An H200: tensor operations in bf16, main memory, second-level cache (measured elsewhere)
PEAKS = {"operations": 989e12, "memory": 4.8e12, "cache": 5.5e12}


def one_step(
    from_x: Tensor, s: Tensor, U: list[Tensor], b: list[Tensor], mask: Tensor | None
) -> Tensor:
    """All small steps of one time step, as the reference has them."""
    for d in range(len(U)):
        a = F.linear(s if mask is None else s * mask, U[d], b[d])
        a = a + from_x if d == 0 else a
        h, t = a.chunk(2, -1)
        s = (torch.tanh(h) - s) * torch.sigmoid(t) + s
    return s


def make_compiled() -> Callable:
    """The reference with each time step compiled; compiling all at once takes many minutes."""
    step = torch.compile(one_step)

    def highway(x: Tensor, s: Tensor, W: Tensor, U: list, b: list, mask: Tensor | None) -> Tensor:
        outputs = []
        for from_x_t in F.linear(x, W).unbind():
            s = step(from_x_t, s, U, b, mask)
            outputs.append(s)
        return torch.stack(outputs)

    return highway


def four_warps() -> Callable:
    """The persistent kernels with half as many warps: fewer wait for one another."""

    def highway(*arguments: Any) -> Tensor:
        from thinrnn.rhn_persistent_triton import Whole

        return FUSED(*arguments, kernels=Whole(0, warps=4))

    return highway


def ways(device: str, compiled: bool) -> dict[str, tuple[Callable, bool]]:
    """Return the ways by name: a function, and whether its step is one CUDA graph."""
    found = {"reference": (REFERENCE, False)}
    if device == "cpu":
        found["fused"] = (FUSED, False)
    else:
        found["reference, graph"] = (REFERENCE, True)
        for name in ("pointwise", "step", "persistent"):
            found[f"fused {name}, graph"] = (functools.partial(FUSED, kernels=name), True)
        found["fused pointwise"] = (functools.partial(FUSED, kernels="pointwise"), False)
        found["fused persistent, 4 warps, graph"] = (four_warps(), True)
    if compiled:
        found["compiled"] = (make_compiled(), False)
        if device == "cuda":
            found["compiled, graph"] = (found["compiled"][0], True)
    return found


def make_step(options: argparse.Namespace, highway: Callable) -> Callable:
    """Return one training step whose recurrence is computed in the given way."""
    torch.manual_seed(0)
    model = LanguageModel(
        options.words,
        cell="rhn",
        depth=options.depth,
        embedding=options.width,
        hidden=(options.width,),
        tied=True,
        locked=True,
        dropouts=Dropouts(word=0.25, input=0.75, output=0.75, recurrent=0.25),
        init_range=0.04,
        rnn_init=0.04,
    ).to(options.device)
    tokens = torch.randint(0, options.words, (options.steps, options.batch), device=options.device)
    penalty = None
    if options.gated:
        thinrnn.attach_(model, thinrnn.find_groups(model, tokens[:3, :2]))
        penalty = thinrnn.L0(model, weight={"rnn.0.weight_hh_d0": 6e-7})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    is_bf16 = options.device == "cuda"

    def step() -> None:
        rhn.highway = rhn_fused.highway = highway
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, torch.bfloat16, enabled=is_bf16, cache_enabled=False):
            logits, _ = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        if penalty is not None:
            loss = loss + penalty()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10 / 35, foreach=True)
        optimizer.step()

    return step


def counts(options: argparse.Namespace) -> dict[str, float]:
    """Return operations and bytes of a step, bf16 in the products, and what they take at best."""
    n, tokens = options.width, options.steps * options.batch
    recurrent, inputs, output = 2 * n * n * options.depth, 2 * n * n, options.words * n
    parameters = recurrent + inputs + output + 2 * n * options.depth + options.words
    small_steps = options.steps * options.depth
    # one product forward, two backward: for what it read and for the weights
    operations = 2 * 3 * tokens * (recurrent + inputs + output)
    # every small step reads its matrix again, in both directions
    cache = 2 * options.steps * recurrent * 2
    # parameters: cast to bf16, gradient written, clipped, applied; logits: forward and backward
    memory = parameters * (4 + 2 + 4 + 8 + 12) + tokens * options.words * 2 * 6
    # s, what is read of it, h and t, their gradients: written once, read once
    memory += small_steps * options.batch * n * (4 + 2 + 4 + 4) * 2
    found = {
        "parameters": parameters,
        "operations": operations,
        "cache_bytes": cache,
        "memory_bytes": memory,
        "dependent_small_steps": 2 * small_steps,
    }
    floors = {
        "operations": 1000 * operations / PEAKS["operations"],
        "cache": 1000 * cache / PEAKS["cache"],
        "memory": 1000 * memory / PEAKS["memory"],
    }
    return found | {"floor_milliseconds_on_h200": floors}


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the times of every way that runs here, in milliseconds."""
    steps: dict[str, Callable] = {}
    for name, (highway, graphed) in ways(options.device, options.compiled).items():
        step = make_step(options, highway)
        try:
            steps[name] = in_graph(step) if graphed else step
        except Exception as error:
            print(f"{name} does not run here: {type(error).__name__}: {error}")
            continue
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.repeats + 3):
        for name, step in steps.items():
            if "graph" not in name and turn >= options.slow_repeats + 3:
                continue
            taken = milliseconds(step, options.device)
            if turn >= 3:
                times[name].append(taken)
    rhn.highway, rhn_fused.highway = REFERENCE, FUSED
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=830)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--steps", type=int, default=35)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--slow-repeats", type=int, default=15, help="of what is no CUDA graph")
    parser.add_argument("--gated", action="store_true", help="with gates and the paper's penalty")
    parser.add_argument("--compiled", action="store_true", help="also torch.compile")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")
    times = measure(options)
    medians = {name: statistics.median(values) for name, values in times.items()}
    asked = {k: v for k, v in vars(options).items() if k not in ("out", "device")}
    result = {
        "what": "training step of a recurrent highway network, in several ways",
        "command": f"python benchmarks/rhn_step.py --device {options.device}",
        "options": asked,
        "milliseconds": {n: {"median": m, "min": min(times[n])} for n, m in medians.items()},
        "times_faster_than_the_reference": {
            name: medians["reference"] / median for name, median in medians.items()
        },
        "counts": counts(options),
        "environment": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "thinrnn": thinrnn.__version__,
            "device": (
                torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
            ),
            "threads": torch.get_num_threads(),
        },
    }
    out = options.out or Path(f"results/rhn-step-{options.device}.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    for name, median in medians.items():
        faster = medians["reference"] / median
        print(f"{name:34} {median:9.3f} ms  {faster:6.2f} times as fast as the reference")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
