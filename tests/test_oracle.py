import oracle as reference
import pytest
import torch
from hypothesis import given
from rnn_grid import Case, assert_same, cases
from torch import Tensor, nn


@given(cases())
def test_open_network_equals_torch(case: Case) -> None:
    module, x, hx = case.module(), case.input(), case.hx()
    assert_same(reference.network(module, x, hx), module(x, hx))


@given(cases())
def test_gates_of_one_change_nothing(case: Case) -> None:
    module, x, hx = case.module(), case.input(), case.hx()
    gates = {name: torch.ones(size, dtype=torch.float64) for name, size in groups(case).items()}
    assert_same(reference.network(module, x, hx, gates), module(x, hx))


@given(cases())
def test_gates_equal_scaled_columns(case: Case) -> None:
    module, x, hx = case.module(), case.input(), case.hx()
    torch.manual_seed(case.seed)
    gates = {name: torch.rand(size, dtype=torch.float64) for name, size in groups(case).items()}
    expected = reference.network(module, x, hx, gates)

    directions = ["", "_reverse"] if case.bidirectional else [""]
    read = gates["input"]
    with torch.no_grad():
        for layer in range(case.layers):
            names = [f"l{layer}{direction}" for direction in directions]
            for name in names:
                getattr(module, f"weight_ih_{name}").mul_(read)
                getattr(module, f"weight_hh_{name}").mul_(gates[name])
                if case.kind == "projected LSTM":
                    getattr(module, f"weight_hr_{name}").mul_(gates[f"{name}_cell"])
            read = torch.cat([gates[name] for name in names])
    assert_same(module(x, hx), expected)


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_closed_neuron_is_not_read_but_keeps_its_state(make: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    module = make(4, 5, num_layers=2, dtype=torch.float64)
    x = torch.randn(6, 2, 4, dtype=torch.float64)
    closed = torch.tensor([1, 1, 0, 1, 1], dtype=torch.float64)

    output, state = reference.network(module, x, None, {"l0": closed})
    assert (hidden(state)[0, :, 2] != 0).all()

    with torch.no_grad():  # whatever the closed neuron computes must not matter to the others
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            getattr(module, name)[2::5] += 1
    other, state_of_other = reference.network(module, x, None, {"l0": closed})
    torch.testing.assert_close(other, output, rtol=0, atol=0)
    assert (hidden(state_of_other)[0, :, 2] != hidden(state)[0, :, 2]).all()


def test_lstm_by_hand() -> None:
    one = torch.ones(1, 1)
    W, U = torch.full((4, 1), 0.5), torch.full((4, 1), 0.25)
    output, h, c = reference.lstm(
        one[None],
        one,
        one,
        W,
        U,
        torch.tensor([0.0, 1.0, 2.0, 3.0]),
        z=torch.tensor([2.0]),
        s=torch.tensor([4.0]),
    )
    i, f, g, o = (torch.tensor(2.0 + bias) for bias in range(4))  # 0.5 * 2 * 1 + 0.25 * 4 * 1
    expected_c = f.sigmoid() * 1 + i.sigmoid() * g.tanh()
    expected_h = o.sigmoid() * expected_c.tanh()
    torch.testing.assert_close(c.squeeze(), expected_c)
    torch.testing.assert_close(h.squeeze(), expected_h)
    torch.testing.assert_close(output.squeeze(), expected_h)


def groups(case: Case) -> dict[str, int]:
    directions = ["", "_reverse"] if case.bidirectional else [""]
    names = [f"l{layer}{direction}" for layer in range(case.layers) for direction in directions]
    if case.kind != "projected LSTM":
        return {"input": 4} | {name: 5 for name in names}
    return {"input": 4} | {name: 3 for name in names} | {f"{name}_cell": 5 for name in names}


def hidden(state: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    return state if isinstance(state, Tensor) else state[0]
