"""One way of computing a training step of a recurrent highway network, timed on request.

`benchmarks/rhn_step.py` starts this program once for each way. It prepares the step, prints a line,
then answers every number on its standard input with that many times in milliseconds, "profile" with
what the kernels of a step take, and "loss" with the loss of one more step.
"""

import contextlib
import functools
import json
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinrnn
from benchmarks.steps import in_graph, milliseconds
from thinrnn.lab.device.padded import Padded
from thinrnn.lab.recipes.language_model.model import Dropouts, LanguageModel
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.optimizer import make_optimizer
from thinrnn.nn import rhn
from thinrnn.nn._rhn import fused as rhn_fused

WARM = 3
PROFILED = 5


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


def make_compiled() -> Callable[..., Any]:
    """The reference with each time step compiled; compiling all at once takes many minutes."""
    step = torch.compile(one_step)

    def highway(
        x: Tensor, s: Tensor, W: Tensor, U: list[Tensor], b: list[Tensor], mask: Tensor | None
    ) -> Tensor:
        outputs = []
        for from_x_t in F.linear(x, W).unbind():
            s = step(from_x_t, s, U, b, mask)
            outputs.append(s)
        return torch.stack(outputs)

    return highway


def make_highway(name: str) -> Callable[..., Any]:
    """Return the function that computes the recurrence in the way of this name."""
    if name == "reference":
        return rhn.highway
    if name == "compiled":
        return make_compiled()
    if name == "fused":
        return rhn_fused.highway
    if name in ("pointwise", "polling"):
        return functools.partial(rhn_fused.highway, kernels=name)
    kind, _, given = name.partition(":")
    if kind != "polling":
        raise ValueError(f"no way is called {name}")
    from thinrnn.nn._rhn.persistent import Polling

    return functools.partial(rhn_fused.highway, kernels=Polling(**sizes(given)))


def sizes(text: str) -> dict[str, Any]:
    """Return what is written as in "rows=32/16,neurons=8"."""
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        numbers = tuple(int(number) for number in value.split("/"))
        found[key] = numbers if len(numbers) > 1 else numbers[0]
    return found


def make_step(options: Namespace, highway: Callable[..., Any]) -> Callable[[], Tensor]:
    """Return one training step whose recurrence is computed in the given way."""
    rhn.highway = rhn_fused.highway = highway
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
    is_bf16 = options.device == "cuda"
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    padded: Callable[..., Any] = contextlib.nullcontext
    if options.as_trained:
        padded, optimizer = (
            Padded,
            make_optimizer(LanguageModelSettings(optimizer="sgd", lr=1e-3), model),
        )

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        bf16 = torch.autocast(options.device, torch.bfloat16, enabled=is_bf16, cache_enabled=False)
        with bf16, padded():
            logits, _ = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        if penalty is not None:
            loss = loss + penalty()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10 / 35, foreach=True)
        optimizer.step()
        return loss.detach()

    return step


def kernels_of(run: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return what the kernels of a step take on the GPU, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            run()
        torch.cuda.synchronize()
    times, calls = Counter[str](), Counter[str]()
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name] += event.time_range.elapsed_us()
            calls[event.name] += 1
    return [
        {"kernel": name, "microseconds": time / PROFILED, "calls": calls[name] / PROFILED}
        for name, time in times.most_common()
    ]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    way, options = sys.argv[1], Namespace(**json.loads(sys.argv[2]))
    name, _, graphed = way.partition(" ")
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")
    step = make_step(options, make_highway(name))
    first_loss = float(step())
    run: Callable[..., Any] = in_graph(step) if graphed else step
    for _ in range(WARM):
        milliseconds(run, options.device)
    about = {
        "loss": first_loss,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else None,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(about), file=answers, flush=True)
    for request in sys.stdin:
        answer: Any
        if request.strip() == "profile":
            answer = kernels_of(run)
        elif request.strip() == "loss":
            answer = [float(step())]
        else:
            answer = [milliseconds(run, options.device) for _ in range(int(request))]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
