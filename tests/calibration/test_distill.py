"""distill: the small model learns what the original one computes."""

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn.errors import CalibrationError


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 12)
        self.gru = nn.GRU(12, 16, dropout=0.3, num_layers=2)
        self.last = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.last(self.gru(self.first(x))[0])
        return output


def pruned() -> tuple[nn.Module, nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    model = Regressor()
    calls = [torch.randn(20, 8, 4) for _ in range(5)]
    return model, thinrnn.prune(model, calls, params=0.3), calls


def error(small: nn.Module, model: nn.Module, calls: list[Tensor]) -> float:
    model.eval()
    with torch.no_grad():
        return float(sum((small(c) - model(c)).square().mean() for c in calls))


@pytest.mark.parametrize("progress", [False, True])
def test_the_small_model_gets_nearer(progress: bool) -> None:
    model, small, calls = pruned()
    before = {name: value.clone() for name, value in small.state_dict().items()}
    taught = thinrnn.distill(small, model, calls, steps=60, lr=3e-3, progress=progress)
    assert error(taught, model, calls) < 0.7 * error(small, model, calls)
    assert not taught.training
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())


def test_any_optimizer_and_no_finite_loss() -> None:
    model, small, calls = pruned()

    def sgd(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-4)  # type: ignore[arg-type]

    taught = thinrnn.distill(small, model, calls, steps=20, optimizer=sgd, progress=False)
    assert error(taught, model, calls) < error(small, model, calls)
    with torch.no_grad():
        next(small.parameters()).fill_(torch.nan)
    with pytest.raises(CalibrationError, match="step 1"):
        thinrnn.distill(small, model, calls, steps=2, progress=False)
    with pytest.raises(CalibrationError):
        thinrnn.distill(small, model, [], progress=False)


def test_the_rate_rises_and_falls() -> None:
    model, small, calls = pruned()
    rates: list[float] = []

    class SGD(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            rates.append(self.param_groups[0]["lr"])
            super().step()

    thinrnn.distill(
        small, model, calls, steps=50, optimizer=lambda p: SGD(p, lr=1e-4), progress=False
    )
    top = rates.index(max(rates))
    assert 5 <= top <= 10 and 8e-5 < rates[top] <= 1e-4
    assert rates[0] < 2e-5 and rates[-1] < 1e-5
    assert rates[:top] == sorted(rates[:top]) and rates[top:] == sorted(rates[top:], reverse=True)


def test_distributions_are_found_by_their_sum() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 6, 5)
    as_logits = thinrnn.distillation_loss(x, y, outputs="logits")
    logs = thinrnn.distillation_loss(x.log_softmax(-1), y.log_softmax(-1))
    shares = thinrnn.distillation_loss(x.softmax(-1), y.softmax(-1))
    torch.testing.assert_close(logs, as_logits)
    torch.testing.assert_close(shares, as_logits)
    entropy = -(y.softmax(-1) * y.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(thinrnn.distillation_loss(y, y, outputs="logits"), entropy)


def test_probabilities_of_their_own_are_those_of_two_classes() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 6, 5)
    for temperature in (1, 3):
        pairs = [torch.stack([z, torch.zeros_like(z)], -1) for z in (x, y)]
        expected = thinrnn.distillation_loss(*pairs, outputs="logits", temperature=temperature)
        found = thinrnn.distillation_loss(
            x.sigmoid(), y.sigmoid(), outputs="binary", temperature=temperature
        )
        torch.testing.assert_close(found, expected)


def test_a_temperature_softens_both_distributions() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 6, 5)
    soft = thinrnn.distillation_loss(x, y, outputs="logits", temperature=4)
    torch.testing.assert_close(soft, 16 * thinrnn.distillation_loss(x / 4, y / 4, outputs="logits"))
    shares = thinrnn.distillation_loss(x.softmax(-1), y.softmax(-1), temperature=4)
    torch.testing.assert_close(shares, soft)
    with pytest.raises(CalibrationError, match="temperature"):
        thinrnn.distillation_loss(x, y, temperature=0)


def test_outputs_of_other_shapes_are_left_out() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    alone = thinrnn.distillation_loss(x, y)
    torch.testing.assert_close(thinrnn.distillation_loss((x, x[:1]), (y, y)), alone)
    with pytest.raises(CalibrationError):
        thinrnn.distillation_loss(x[:1], y)
