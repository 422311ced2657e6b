import copy
import pickle
from typing import Any

import oracle as reference
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rnn_grid import Case, assert_same, cases, tensors
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from thinrnn.errors import StateError, ThinRNNError
from thinrnn.nn.rnn_cell import make_cell
from thinrnn.nn.rnn_stack import RNNStack, reversed_index
from thinrnn.nn.states import States

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


@given(cases())
def test_from_rnn_equals_torch(case: Case) -> None:
    rnn, x, hx = case.module(), case.input(), case.hx()
    stack = RNNStack.from_rnn(rnn)
    expected = rnn(x, hx)
    gradients = parameter_gradients(rnn, expected)
    result = stack(x, hx)
    assert type(result[0]) is type(expected[0])
    assert_same(result, expected)
    assert_same(parameter_gradients(rnn, result), gradients)


@given(cases(given_state=True))
def test_states_as_lists_equal_states_as_tensors(case: Case) -> None:
    rnn, x, hx = case.module(), case.input(), case.hx()
    lists = (list(hx[0]), tuple(hx[1])) if "LSTM" in case.kind else list(hx)
    assert_same(RNNStack.from_rnn(rnn)(x, lists), rnn(x, hx))


@given(cases(), st.data())
def test_unequal_sizes_equal_the_reference(case: Case, data: st.DataObject) -> None:
    stack = data.draw(unequal_stacks(case))
    x = case.input()
    cells = stack.cells.values()
    hx: Any = None
    if case.given_state:
        hx = case.states([cell.proj_size or cell.hidden_size for cell in cells])
        if stack.mode == "LSTM":
            hx = (hx, case.states([cell.hidden_size for cell in cells]))
    expected = reference.network(stack, x, hx)
    gradients = parameter_gradients(stack, expected)
    result = stack(x, hx)
    assert_same(result, expected)
    assert_same(parameter_gradients(stack, result), gradients)


@given(cases(layout="padded", bidirectional=False), st.data())
def test_state_carried_over_two_calls_equals_one_long_call(case: Case, data: Any) -> None:
    stack = data.draw(unequal_stacks(case))
    time = 1 if case.batch_first else 0
    x = torch.cat([case.input(), case.input()], time)
    whole, last = stack(x)
    first, state = stack(x.narrow(time, 0, 1))
    rest, state = stack(x.narrow(time, 1, x.size(time) - 1), state)
    assert_same((torch.cat([first, rest], time), state), (whole, last))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_reversed_index_reverses_every_sequence(lengths: list[int]) -> None:
    sequences = [torch.arange(10 * n, 10 * n + length) for n, length in enumerate(lengths)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    mirrored = pack_sequence([sequence.flip(0) for sequence in sequences], enforce_sorted=False)
    assert packed.data[reversed_index(packed.batch_sizes)].tolist() == mirrored.data.tolist()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_dropout_in_training(dropout: float, batch_first: bool) -> None:
    options: dict[str, Any] = {"bidirectional": True, "batch_first": batch_first}
    rnn = nn.LSTM(4, 5, num_layers=3, dropout=dropout, dtype=torch.float64, **options)
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    assert_same(RNNStack.from_rnn(rnn)(x), rnn(x))


def test_dropout_is_between_layers_and_in_training_only() -> None:
    torch.manual_seed(0)
    rnn = nn.GRU(4, 50, num_layers=2, dropout=0.5)
    stack, x = RNNStack.from_rnn(rnn), torch.randn(6, 3, 4)
    one, other = stack(x), stack(x)
    assert not torch.equal(one[0], other[0])
    assert torch.equal(one[1][0], other[1][0])  # the first layer itself sees no dropout
    assert (one[0] != 0).all()  # nor does the output of the last
    assert_same(stack.eval()(x), stack(x))


def test_from_rnn_keeps_parameters_and_flags() -> None:
    rnn = nn.LSTM(4, 5, num_layers=2, bidirectional=True, proj_size=3, dropout=0.1).double().eval()
    rnn.weight_hh_l1_reverse.requires_grad_(False)
    random = torch.get_rng_state()
    stack = RNNStack.from_rnn(rnn)
    assert torch.equal(random, torch.get_rng_state())
    names = RNNStack.parameter_names(rnn)
    assert names["bias_ih_l1_reverse"] == "l1_reverse.bias_ih_l0"
    assert set(names) == set(dict(rnn.named_parameters()))
    assert [*names.values()] == [name for name, _ in stack.named_parameters()]
    for old, new in names.items():
        assert stack.get_parameter(new) is rnn.get_parameter(old)
    assert not any(module.training for module in stack.modules())
    assert all(cell.dropout == 0 for cell in stack.cells.values())


def test_attributes_read_like_those_of_torch() -> None:
    rnn = nn.LSTM(4, 5, 2, bias=False, batch_first=True, dropout=0.2, bidirectional=True)
    stack = RNNStack.from_rnn(rnn)
    names = ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout")
    for name in (*names, "bidirectional", "proj_size"):
        assert getattr(stack, name) == getattr(rnn, name), name

    unequal = gru_stack()
    assert unequal.hidden_size == (12, 7, 9)
    assert unequal.proj_size == 0
    assert "GRU(40 -> 12 | 7 | 9), batch_first=True" in repr(unequal)


def test_repr_shows_directions_and_projections() -> None:
    cells = {"l0": nn.LSTM(4, 6, proj_size=2), "l0_reverse": nn.LSTM(4, 5, proj_size=3)}
    stack = RNNStack(cells, batch_first=False, dropout=0.0)
    assert "LSTM(4 -> 6 proj 2+5 proj 3)" in repr(stack)


def test_h_and_c_are_stacked_or_listed_separately() -> None:
    cells = {"l0": nn.LSTM(4, 6, proj_size=3), "l1": nn.LSTM(3, 5, proj_size=3)}
    _, (h_n, c_n) = RNNStack(cells, batch_first=False, dropout=0.0)(torch.zeros(2, 1, 4))
    assert h_n.shape == (2, 1, 3)
    assert [tuple(c.shape) for c in c_n] == [(1, 6), (1, 5)]


def test_states_are_read_like_a_tensor() -> None:
    _, h_n = gru_stack()(torch.randn(3, 5, 40))
    assert isinstance(h_n, States)
    assert torch.equal(h_n[-1, :, :], h_n[2])
    assert torch.equal(h_n[1, 2], h_n[1][2])
    assert torch.equal(h_n[0, ..., -1], h_n[0][:, -1])
    assert [tuple(h.shape) for h in h_n[-2:]] == [(3, 7), (3, 9)]
    assert [tuple(h.shape) for h in h_n[:, 1]] == [(12,), (7,), (9,)]
    assert [tuple(h.shape) for h in h_n[..., :5]] == [(3, 5)] * 3
    assert isinstance(h_n[-2:], States) and isinstance(h_n[:, :2], States)
    assert h_n[0].requires_grad and not any(h.requires_grad for h in h_n.detach())
    with pytest.raises(AttributeError, match=r"h_n\[-1\]\.transpose"):
        h_n.transpose(0, 1)


@pytest.mark.parametrize(("cells", "proj"), [(3, 3), (2, 3)])
@given(cases(kind="projected LSTM", layers=1))
def test_projection_as_wide_as_the_cell(cells: int, proj: int, case: Case) -> None:
    rnn = case.module()
    stack = RNNStack.from_rnn(rnn)
    for name, parameter in stack.named_parameters():  # cut to `cells` cells, as pruning does
        if "weight_hr" in name:
            parameter.data = parameter.data[:proj, :cells]
        else:
            parameter.data = parameter.data.unflatten(0, (4, 5))[:, :cells].flatten(0, 1)
    for cell in stack.cells.values():
        cell.hidden_size, cell.proj_size = cells, proj
    hx, x = None, case.input()
    if case.given_state:
        hx = tuple(case.states([n] * len(stack.cells)) for n in (proj, cells))
    expected = reference.network(stack, x, hx)
    gradients = parameter_gradients(stack, expected)
    result = stack(x, hx)
    assert_same(result, expected)
    assert_same(parameter_gradients(stack, result), gradients)
    assert_same(copy.deepcopy(stack)(x, hx), expected)
    new = {name: parameter + 1 for name, parameter in stack.named_parameters()}
    called = torch.func.functional_call(stack, new, (x, hx))
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter += 1
    assert_same(called, reference.network(stack, x, hx))


def test_wide_projection_runs_on_weights_set_for_one_call() -> None:
    shapes = {"weight_ih_l0": (8, 4), "weight_hh_l0": (8, 3), "weight_hr_l0": (3, 2)}
    parameters = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    stack = RNNStack(
        {"l0": make_cell("LSTM", parameters, batch_first=False)}, batch_first=False, dropout=0.0
    )
    x = torch.randn(5, 2, 4)
    stack.l0._flat_weights = [2 * parameter for parameter in parameters.values()]
    result = stack(x)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter *= 2
    assert_same(result, reference.network(stack, x), tolerance=1e-5)


STATE_ERRORS = {
    "too few": lambda h: h[:-1],
    "wrong size": lambda h: [h[1], h[0], h[2]],
    "wrong batch": lambda h: h[:, :1],
    "a tensor": lambda h: h[0].expand(3, -1, -1),
    "a tensor without layers": lambda h: h[0],
    "no batch": lambda h: h[:, 0],
    "not tensors": lambda h: [1.0, 2.0, 3.0],
    "a number": lambda h: 0,
    "a scalar": lambda h: torch.tensor(0.0),
}


@pytest.mark.parametrize("what", STATE_ERRORS)
def test_wrong_states_are_refused(what: str) -> None:
    stack, x = gru_stack(), torch.zeros(3, 5, 40)
    _, h_n = stack(x)
    with pytest.raises(StateError, match=r"h_0 must be .*\(3, 12\), \(3, 7\), \(3, 9\); got a"):
        stack(x, STATE_ERRORS[what](h_n))


def test_wrong_lstm_states_are_refused() -> None:
    stack, x = RNNStack.from_rnn(nn.LSTM(4, 5)), torch.zeros(3, 2, 4)
    h, c = stack(x)[1]
    with pytest.raises(StateError, match=r"pair \(h_0, c_0\); got a tensor of shape \(1, 2, 5\)"):
        stack(x, h)
    with pytest.raises(StateError, match=r"c_0 must be a tensor of shape \(1, 2, 5\) or"):
        stack(x, (h, c[:, :1]))
    with pytest.raises(StateError, match=r"got a tensor of shape \(1, 2, 5\)"):
        stack(x[:, 0], (h, c))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({}, "got cells called nothing"),
        ({"l0": nn.GRU(4, 5), "l2": nn.GRU(5, 5)}, "l0, l2"),
        ({"l0": nn.GRU(4, 5), "l0_reverse": nn.GRU(4, 5), "l1": nn.GRU(10, 5)}, "l0_reverse"),
        ({"l0": nn.GRU(4, 5), "l1": nn.GRU(4, 5)}, "l1 reads 4 features.*input_size=5"),
        ({"l0": nn.GRU(4, 5), "l0_reverse": nn.GRU(3, 5)}, "l0_reverse reads 3 features"),
        ({"l0": nn.GRU(4, 5), "l1": nn.LSTM(5, 5)}, "l1 is a LSTM"),
        ({"l0": nn.GRU(4, 5, batch_first=True)}, "batch_first=False"),
        ({"l0": nn.GRU(4, 5, num_layers=2)}, "one layer and one direction"),
    ],
)
def test_wrong_cells_are_refused(cells: dict[str, nn.RNNBase], message: str) -> None:
    with pytest.raises(ThinRNNError, match=message):
        RNNStack(cells, batch_first=False, dropout=0.0)


def test_input_of_wrong_dimensions_is_refused() -> None:
    with pytest.raises(ThinRNNError, match=r"\(2, 3, 4, 40\).*\(batch, time, features\)"):
        gru_stack()(torch.zeros(2, 3, 4, 40))


def test_copies_casts_and_reloads() -> None:
    stack, x = gru_stack(), torch.randn(3, 5, 40)
    expected = stack(x)
    assert_same(copy.deepcopy(stack)(x), expected)
    assert_same(copy.deepcopy(expected[1].detach()), expected[1])
    assert_same(pickle.loads(pickle.dumps(expected[1].detach())), expected[1])
    fresh = gru_stack()
    fresh.load_state_dict(stack.state_dict())
    assert_same(fresh(x), expected)
    fresh.flatten_parameters()
    double = fresh.double()(x.double())
    assert double[0].dtype == torch.float64
    torch.testing.assert_close(double[0].float(), expected[0])


def test_autocast() -> None:
    rnn, x = nn.LSTM(4, 5, num_layers=2, bidirectional=True), torch.randn(6, 3, 4)
    hx = (torch.randn(4, 3, 5), torch.randn(4, 3, 5))
    stack = RNNStack.from_rnn(rnn)
    for given_state in (None, hx):
        with torch.autocast("cpu", torch.bfloat16):
            result, expected = stack(x, given_state), rnn(x, given_state)
        assert [t.dtype for t in tensors(result)] == [t.dtype for t in tensors(expected)]
        assert_same(result, expected, tolerance=0.05)


def test_export_with_states() -> None:
    stack = gru_stack().eval()
    x = torch.randn(3, 5, 40)
    h_0 = stack(x)[1].detach()
    program = torch.export.export(stack, (x, h_0))
    result = program.module()(x, h_0)
    assert isinstance(result[1], States)
    assert_same(result, stack(x, h_0), tolerance=1e-6)


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_first", [False, True])
def test_scripted_stack_equals_the_stack(cls: type[nn.RNNBase], batch_first: bool) -> None:
    sizes = {"l0": (8, 4), "l0_reverse": (8, 3), "l1": (7, 5), "l1_reverse": (7, 2)}
    cells = {name: cls(*size, batch_first=batch_first) for name, size in sizes.items()}
    model = nn.Sequential(RNNStack(cells, batch_first=batch_first, dropout=0.5)).eval()
    names = list(model.state_dict())
    for x in (torch.randn(3, 4, 8), torch.randn(3, 8)):
        expected, hx = model(x)
        again = model[0](x, hx)
        scripted = torch.jit.script(model)
        output, states = scripted(x)
        assert_same(output, expected)
        assert_same(tuple(scripted[0](x, states)), (again[0], again[1]))
        assert list(scripted.state_dict()) == names
    assert_same(model(x)[0], expected)  # the model itself may still be called


def test_scripted_projections() -> None:
    stack = RNNStack.from_rnn(nn.LSTM(6, 5, 2, proj_size=3)).eval()
    x = torch.randn(4, 2, 6)
    assert_same(torch.jit.script(stack)(x)[0], stack(x)[0])
    stack = RNNStack.from_rnn(nn.LSTM(6, 5, proj_size=3))
    stack.l0.proj_size = 5
    with pytest.raises(ThinRNNError, match=r"projects 5 neurons to 5.*torch\.jit\.script"):
        torch.jit.script(stack)


def test_hooks_on_cells_run_in_every_call() -> None:
    stack, x = gru_stack(), torch.randn(3, 5, 40)
    expected = stack(x)[0]
    seen: list[str] = []
    stack.l1.register_forward_hook(lambda *_: seen.append("l1"))
    assert_same(stack(x)[0], expected)
    assert seen == ["l1"]


@given(cases(kind="LSTM", layout="padded", bidirectional=False))
def test_single_steps_equal_one_long_call(case: Case) -> None:
    stack, x = RNNStack.from_rnn(case.module()), case.input()
    time = 1 if case.batch_first else 0
    hx, outputs = None, []
    for step in x.split(1, time):
        output, hx = stack(step, hx)
        outputs.append(output)
    assert_same((torch.cat(outputs, time), hx), stack(x))


def parameter_gradients(module: nn.Module, result: Any) -> list[Tensor]:
    """Gradients of a sum in which every number of the result has its own weight."""
    parts = [part for part in tensors(result) if part.is_floating_point()]
    loss = sum((part * torch.arange(part.numel()).view(part.shape).cos()).sum() for part in parts)
    return list(torch.autograd.grad(loss, list(module.parameters())))


def gru_stack() -> RNNStack:
    sizes = {"l0": (40, 12), "l1": (12, 7), "l2": (7, 9)}
    cells = {name: nn.GRU(*size, batch_first=True) for name, size in sizes.items()}
    return RNNStack(cells, batch_first=True, dropout=0.0)


@st.composite
def unequal_stacks(draw: st.DrawFn, case: Case) -> RNNStack:
    """A stack of the case's kind with a size of its own for every layer and direction."""
    mode = case.module().mode
    cells, width = {}, 4
    for layer in range(case.layers):
        names = [f"l{layer}", f"l{layer}_reverse"][: 2 if case.bidirectional else 1]
        outputs = 0
        for name in names:
            n = r = draw(st.integers(1, 6))
            shapes: dict[str, tuple[int, ...]] = {}
            if case.kind == "projected LSTM":
                r = draw(st.integers(1, 6))
                shapes["weight_hr_l0"] = (r, n)
            rows = GATES[mode] * n
            shapes |= {"weight_ih_l0": (rows, width), "weight_hh_l0": (rows, r)}
            if case.bias:
                shapes |= {"bias_ih_l0": (rows,), "bias_hh_l0": (rows,)}
            cells[name] = make_cell(
                mode,
                {k: nn.Parameter(torch.randn(s, dtype=torch.float64)) for k, s in shapes.items()},
                batch_first=case.batch_first,
            )
            outputs += r
        width = outputs
    return RNNStack(cells, batch_first=case.batch_first, dropout=0.0)


def test_a_step_of_a_cell_with_a_projection_is_what_the_cell_computes() -> None:
    cell = nn.LSTM(4, 5, proj_size=2).eval()
    stack = RNNStack({"l0": cell}, batch_first=False, dropout=0.0).eval()
    x = torch.randn(1, 3, 4)
    torch.testing.assert_close(stack(x)[0], cell(x)[0])
