"""What other parts of torch do to a gated model and its call."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from interop.net import Tagger, X, gated, learned
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import thinrnn
from thinrnn.errors import GateError, NoRecurrentLayerError


def doubled(model: nn.Module) -> dict[str, Tensor]:
    return {n: p * 2 if "weight" in n else p for n, p in model.named_parameters()}


@pytest.mark.parametrize("training", [False, True])
def test_functional_call_uses_the_given_weights_and_the_gates(training: bool) -> None:
    model, other = gated().train(training), gated().train(training)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(doubled(model)[name])
    torch.manual_seed(1)
    before = model(X)
    torch.manual_seed(1)
    found = torch.func.functional_call(model, doubled(model), (X,))
    torch.manual_seed(1)
    torch.testing.assert_close(found, other(X))
    torch.manual_seed(1)
    assert torch.equal(model(X), before)  # the model has its own weights again


@pytest.mark.parametrize("training", [False, True])
def test_gradients_by_torch_func_are_those_of_backward(training: bool) -> None:
    model = gated().train(training)

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, parameters, (X,)).square().sum()

    torch.manual_seed(1)
    found = torch.func.grad(loss)({n: p.detach() for n, p in model.named_parameters()})
    torch.manual_seed(1)
    model(X).square().sum().backward()
    for name, gradient in learned(model).items():
        torch.testing.assert_close(found[name], gradient, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_compiled(backend: str, training: bool, in_place: bool) -> None:
    torch.compiler.reset()
    model = gated().train(training)
    compiled: Any = copy.deepcopy(model)
    gates = thinrnn.gates(compiled)
    if in_place:
        compiled.compile(backend=backend)
    else:
        compiled = torch.compile(compiled, backend=backend)
    for log_alpha in (3.0, -9.0, 0.0):  # gates move after it was compiled
        for known in (thinrnn.gates(model), gates):
            known["rnn.l0"].log_alpha = log_alpha
        results = []
        for called in (model, compiled):
            called.zero_grad()
            torch.manual_seed(1)
            result = called(X)
            result.square().sum().backward()
            results.append((result, [g for _, g in sorted(learned(called).items())]))
        torch.testing.assert_close(results[1], results[0])


def test_a_compiled_model_shrinks() -> None:
    torch.compiler.reset()
    model = gated().eval()
    compiled = torch.compile(model, backend="eager")
    expected = compiled(X)
    assert thinrnn.shrink_(model) > 0
    torch.testing.assert_close(compiled(X), expected)
    small = thinrnn.compact(model)
    torch.testing.assert_close(torch.compile(small, backend="eager")(X), expected)


def test_exported_programs_have_the_gates() -> None:
    model = gated().eval()
    program = torch.export.export(model, (X,))
    torch.testing.assert_close(program.module()(X), model(X))


@pytest.mark.parametrize("how", ["pickle", "torch.save", "deepcopy"])
def test_copies_have_gates_of_their_own(how: str) -> None:
    model = gated()
    if how == "deepcopy":
        twin = copy.deepcopy(model)
    elif how == "pickle":
        twin = pickle.loads(pickle.dumps(model))
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        twin = torch.load(file, weights_only=False)
    results = []
    for one in (model, twin):
        torch.manual_seed(1)
        result = one(X)
        result.square().sum().backward()
        results.append((result, learned(one)))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    thinrnn.gates(twin)["rnn.l0"].log_alpha = torch.tensor([-9.0] * 7 + [9.0])
    assert thinrnn.gates(model)["rnn.l0"].keep.sum() > 1
    thinrnn.shrink_(twin)
    assert thinrnn.verify(model.eval(), thinrnn.compact(model), X) < 1e-5
    assert thinrnn.verify(twin.eval(), thinrnn.compact(twin), X) < 1e-5


def test_averaged_models_have_averaged_gates() -> None:
    model = gated()
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    before = thinrnn.gates(model)["rnn.l0"].log_alpha.detach().clone()
    thinrnn.gates(model)["rnn.l0"].log_alpha = before + 1
    average.update_parameters(model)
    found = thinrnn.gates(average.module)["rnn.l0"].log_alpha
    torch.testing.assert_close(found.detach(), before + 0.5)
    assert thinrnn.verify(average.module, thinrnn.compact(average.module), X) < 1e-5


def test_replicas_of_data_parallel_are_refused() -> None:
    model = gated()
    replica = model._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
    with pytest.raises(GateError, match=r"replica.*DistributedDataParallel"):
        replica(X)
    with pytest.raises(GateError, match=r"replica.*deepcopy"):
        copy.copy(model)(X)
    model(X)


@pytest.mark.parametrize("change", [parametrizations.weight_norm, prune.random_unstructured])
def test_a_weight_that_something_else_computes_is_refused(change: Any) -> None:
    model, options = gated(), {"amount": 0.5} if change is prune.random_unstructured else {}
    change(model.head, "weight", **options)
    with pytest.raises(GateError, match=r"'head.weight'.*parametrization or a mask.*detach_"):
        model(X)
    thinrnn.detach_(model)(X)
    plain = Tagger()
    change(plain.rnn, "weight_hh_l0", **options)
    with pytest.raises(NoRecurrentLayerError, match=r"'rnn' cannot: .*weight"):
        thinrnn.find_groups(plain, X)


def test_a_parametrized_layer_stays_whole_beside_gates() -> None:
    model = Tagger()
    parametrizations.spectral_norm(model.head, "weight")
    thinrnn.attach_(model, thinrnn.find_groups(model, X)).eval()
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.linspace(-4, 3, gate.size)
    small = thinrnn.compact(model)
    assert small.rnn.cells["l0"].hidden_size == 6
    assert thinrnn.verify(model, small, X) < 1e-5
