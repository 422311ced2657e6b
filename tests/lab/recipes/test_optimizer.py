import pytest
import torch
from torch import nn

from thinrnn.lab.recipes.optimizer import WeightsAndGates


def parameters(*shapes):
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]


def run(optimizer, params, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    seen = []
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, dtype=p.dtype, generator=generator)
        optimizer.step()
        seen.append([p.detach().clone() for p in params])
    return seen


def ours(params, gates=(), **options):
    defaults = {"rule": "sgd", "lr": 0.1, "gate_lr": 0.02}
    return WeightsAndGates(params, list(gates), **{**defaults, **options})


def close(a, b):
    return all(torch.allclose(x, y, rtol=1e-6, atol=1e-7) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_sgd_does_what_torch_does(decay):
    mine, theirs = parameters((3, 2), (4,)), parameters((3, 2), (4,))
    run(ours(mine, weight_decay=decay), mine, 5)
    run(torch.optim.SGD(theirs, lr=0.1, weight_decay=decay), theirs, 5)
    assert close(mine, theirs)


def test_adam_does_what_torch_does_for_weights_and_for_gates():
    mine, theirs = parameters((3, 2), (4,)), parameters((3, 2), (4,))
    run(ours(mine[:1], mine[1:], rule="adam"), mine, 7)
    groups = [{"params": theirs[:1], "lr": 0.1}, {"params": theirs[1:], "lr": 0.02}]
    run(torch.optim.Adam(groups), theirs, 7)
    assert close(mine, theirs)


@pytest.mark.parametrize("rule", ["sgd", "adam"])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_one_pass_over_the_memory_gives_what_several_give(rule, decay):
    """The fused kernels are chosen on a GPU; torch has them for the CPU too."""
    several, one = parameters((3, 2), (4,), (5,)), parameters((3, 2), (4,), (5,))
    for params, is_fused in ((several, False), (one, True)):
        optimizer = ours(params[:2], params[2:], rule=rule, weight_decay=decay)
        optimizer.is_fused = is_fused
        run(optimizer, params, 3)
        optimizer.start_averaging()
        run(optimizer, params, 4, seed=2)
        with optimizer.averaged():
            averages = [p.detach().clone() for p in params]
        params += averages
    assert close(several, one)


def test_averages_are_the_means_of_the_weights_since_averaging_began():
    params = parameters((3,))
    optimizer = ours(params)
    run(optimizer, params, 3)
    optimizer.start_averaging()
    seen = run(optimizer, params, 4, seed=2)
    mean = torch.stack([weights[0] for weights in seen]).mean(0)
    raw = params[0].detach().clone()
    with optimizer.averaged():
        assert torch.allclose(params[0], mean)
    assert torch.equal(params[0], raw)


def test_the_learning_rate_follows_set_lr_and_gates_keep_theirs():
    weights, gates = parameters((1,)), parameters((1,))
    optimizer = ours(weights, gates)
    optimizer.set_lr(0.0)
    before = weights[0].detach().clone(), gates[0].detach().clone()
    run(optimizer, weights + gates, 1)
    assert torch.equal(weights[0], before[0])
    assert not torch.equal(gates[0], before[1])


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_a_snapshot_continues_bit_for_bit(rule):
    def make():
        params = parameters((3, 2), (4,))
        optimizer = ours(params[:1], params[1:], rule=rule)
        optimizer.start_averaging()
        return params, optimizer

    first, optimizer = make()
    run(optimizer, first, 3)
    saved = optimizer.snapshot({p: str(i) for i, p in enumerate(first)})
    second, again = make()
    for new, old in zip(second, first, strict=True):
        new.data.copy_(old)
    again.restore_(
        {
            **saved,
            "state": {n: {k: v.clone() for k, v in s.items()} for n, s in saved["state"].items()},
            "steps": saved["steps"].clone(),
            "averaged_steps": saved["averaged_steps"].clone(),
        },
        {p: str(i) for i, p in enumerate(second)},
    )
    run(optimizer, first, 3, seed=5)
    run(again, second, 3, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with optimizer.averaged(), again.averaged():
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_gates_without_a_rate_of_their_own_are_stepped_like_the_weights(rule):
    apart, together = parameters((3, 2), (4,)), parameters((3, 2), (4,))
    kinds = ((apart, ours(apart[:1], apart[1:], rule=rule, gate_lr=None)),)
    kinds += ((together, ours(together, rule=rule)),)
    for params, optimizer in kinds:
        run(optimizer, params, 3)
        optimizer.set_lr(0.03)
        optimizer.start_averaging()
        run(optimizer, params, 4, seed=2)
        assert {id(p) for p in optimizer.weights} == {id(p) for p in params}  # what is clipped
        with optimizer.averaged():
            params += [p.detach().clone() for p in params]
    assert close(apart, together)


def test_weight_decay_is_never_for_gates():
    gates = parameters((4,))
    start = gates[0].detach().clone()
    optimizer = ours(parameters((3,)), gates, gate_lr=None, weight_decay=0.5)
    gates[0].grad = torch.zeros_like(gates[0])
    optimizer.step()
    assert torch.equal(gates[0], start)
