"""The whole road, as a user walks it: find, attach, train, shrink, compact, verify, save, load."""

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models.case import Case
from torch import Tensor, nn

import thinrnn
from thinrnn._model.isolation import fixed_randomness
from thinrnn._model.tree import call_arguments, map_tensors, tensors_in


def build(case: Case) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = case.build().to(case.dtype)
    example = map_tensors(
        case.example(), lambda t: t.to(case.dtype) if t.is_floating_point() else t
    )
    return model, example


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Return everything that find_groups must leave alone."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_state_dict_hooks")
    return {
        "state": {k: v.clone() for k, v in model.state_dict().items()},
        "modes": [m.training for m in model.modules()],
        "grads": [p.requires_grad for p in model.parameters()],
        "attributes": [sorted(m.__dict__) for m in model.modules()],
        "values": [
            {k: v for k, v in m.__dict__.items() if isinstance(v, (int, float, str, bool))}
            for m in model.modules()
        ],
        "hooks": [[list(getattr(m, h)) for h in hooks] for m in model.modules()],
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "default": torch.get_default_dtype(),
    }


def assert_same(before: Any, after: Any) -> None:
    if isinstance(before, Tensor):
        assert torch.equal(before, after)
    elif isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            assert_same(before[key], after[key])
    else:
        assert before == after


def set_gates(model: nn.Module, generator: torch.Generator) -> None:
    """Open, soft and closed gates at random, a different number of them in each group."""
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.randn(gate.size, generator=generator) * 3 - 0.5


def call(model: nn.Module, example: Any) -> list[Tensor]:
    args, kwargs = call_arguments(map_tensors(example, torch.clone))
    first = next(p.dtype for p in model.parameters() if p.is_floating_point())
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if first == torch.float64 else torch.float32)
    try:
        return list(tensors_in(model(*args, **kwargs)))
    finally:
        torch.set_default_dtype(before)


def loss_of(model: nn.Module, example: Any) -> Tensor:
    parts = [t for t in call(model, example) if t.requires_grad]
    return sum(t.clamp(-20, 20).double().pow(2).mean() for t in parts)


def walk(case: Case, model: nn.Module, example: Any, plan: thinrnn.Plan, folder: Path) -> None:
    """Attach, compare for five draws of gates, train, shrink, compact, verify, save and load."""
    thinrnn.attach_(model, plan)
    generator = torch.Generator().manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            set_gates(model, generator)
            small = thinrnn.compact(model)
            thinrnn.verify(model, small, example)
        if case.steps:
            train(model, example, generator)
        small = thinrnn.compact(model)
        thinrnn.verify(model, small, example)
    thinrnn.save(small, folder)
    fresh, _ = build(case)
    thinrnn.load_(fresh, folder)
    assert_same(dict(small.state_dict()), dict(fresh.state_dict()))
    if not case.keeps_state:
        with fixed_randomness():
            ours = call(small.eval(), example)
        with fixed_randomness():
            theirs = call(fresh.eval(), example)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def train(model: nn.Module, example: Any, generator: torch.Generator) -> None:
    model.train()
    gates = thinrnn.gates(model)
    for gate in gates.values():
        gate.log_alpha = torch.rand(gate.size, generator=generator) * 2 - 1
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-3, gate_lr=1e-2))
    reached: dict[str, bool] = dict.fromkeys(gates, False)
    for step in range(6):
        optimizer.zero_grad()
        loss = loss_of(model, example)
        assert torch.isfinite(loss)
        loss.backward()
        for name, gate in gates.items():
            grad = gate.log_alpha.grad
            reached[name] |= grad is not None and bool((grad != 0).any())
        optimizer.step()
        if step == 3:
            for gate in gates.values():
                closed = torch.randperm(gate.size, generator=generator)[: gate.size // 3]
                gate.log_alpha.data[closed] = -20.0
            thinrnn.shrink_(model, optimizer)
    assert all(reached.values()), [name for name, yes in reached.items() if not yes]
