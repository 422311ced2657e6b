"""Recurrent highway networks on a CUDA device: the fused kernels against the equations."""

import functools

import pytest
import torch
from rhn_cases import case, outputs_and_gradients
from torch import Tensor, nn

import thinrnn
from thinrnn.nn import rhn
from thinrnn.nn._rhn import fused as rhn_fused

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDTHS = [1, 7, 16, 37, 130, 389]
DRAWS = {1: 31, 7: 5}  # by width; others once


def on_gpu(leaves: list[Tensor], mask: Tensor | None) -> tuple[list[Tensor], Tensor | None]:
    moved = [leaf.detach().cuda().requires_grad_() for leaf in leaves]
    return moved, None if mask is None else mask.cuda()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_outputs_and_all_gradients_are_those_of_the_reference(width, dropped, dtype):
    leaves, mask = on_gpu(*case(5, 3, 9, width, 4, dropped, dtype))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        expected = outputs_and_gradients(rhn.highway, leaves, mask)
        found = outputs_and_gradients(rhn_fused.highway, leaves, mask)
    finally:
        torch.set_float32_matmul_precision(before)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kernels", ["pointwise", "polling"])
@pytest.mark.parametrize("width", [*WIDTHS, 830])
@pytest.mark.parametrize("batch", [1, 20, 33, 64])
def test_bf16_is_as_near_to_the_equations_as_the_reference_in_bf16(width, batch, kernels):
    """The error of a few numbers is a lottery in bf16, so narrow networks are drawn many times."""
    fused = functools.partial(rhn_fused.highway, kernels=kernels)
    errors = []  # of each draw: fused and reference, a row for each tensor
    for seed in range(DRAWS.get(width, 1)):
        leaves, mask = on_gpu(*case(5, batch, 9, width, 4, True, torch.float32, seed))
        expected = outputs_and_gradients(rhn.highway, leaves, mask)
        with torch.autocast("cuda", torch.bfloat16):
            slow = outputs_and_gradients(rhn.highway, leaves, mask)
            fast = outputs_and_gradients(fused, leaves, mask)
        assert [a.dtype for a in fast] == [b.dtype for b in slow]
        errors.append(torch.tensor([errors_of(fast, expected), errors_of(slow, expected)]))
    ours, theirs = torch.stack(errors).median(0).values
    assert (ours < (2 * theirs).clamp(min=0.01)).all(), (ours, theirs)


def errors_of(found: list[Tensor], expected: list[Tensor]) -> list[float]:
    pairs = zip(found, expected, strict=True)
    return [float((a - exact).norm() / exact.norm().clamp(min=1e-6)) for a, exact in pairs]


def assert_near_the_library_products(kernels, leaves: list[Tensor], mask: Tensor | None) -> None:
    """Outputs and gradients in bf16 are those of products by torch's library, or nearly so."""
    with torch.autocast("cuda", torch.bfloat16):
        found = [
            outputs_and_gradients(functools.partial(rhn_fused.highway, kernels=way), leaves, mask)
            for way in ("pointwise", kernels)
        ]
    for a, b in zip(*found, strict=True):
        assert (a - b).norm() / a.norm().clamp(min=1e-6) < 0.05


@pytest.mark.parametrize("width", [389, 830])
@pytest.mark.parametrize("batch", [20, 64])
def test_many_steps_agree_with_the_library_products(width, batch):
    """Long enough for programs to run apart, were they not to wait for one another."""
    leaves, mask = on_gpu(*case(35, batch, width, width, 10, True, torch.float32))
    for _ in range(3):
        assert_near_the_library_products("polling", leaves, mask)


@pytest.mark.parametrize(
    ("neurons", "rows", "batch"),
    [(16, (32, 16), 20), (32, (16, 32), 20), (8, (64, 64), 64), (16, (32, 32), 64)],
)
def test_other_sizes_agree_with_the_library_products(neurons, rows, batch):
    from thinrnn.nn._rhn.persistent import Polling

    leaves, mask = on_gpu(*case(35, batch, 830, 830, 10, True, torch.float32))
    assert_near_the_library_products(Polling(neurons, rows), leaves, mask)


@pytest.mark.parametrize("batch", [20, 64])
def test_the_papers_networks_are_one_kernel_on_a_large_gpu(batch):
    from thinrnn.nn._rhn.persistent import Polling

    if torch.cuda.get_device_properties(0).multi_processor_count < 108:
        pytest.skip("needs a large GPU")
    for width in (416, 832):
        from_x = torch.empty(35, batch, 2 * width, device="cuda", dtype=torch.bfloat16)
        assert isinstance(rhn_fused.choose(from_x), Polling)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 26)
        self.rnn = thinrnn.RHN(26, 26, depth=3, dropout=0.2)
        self.decoder = nn.Linear(26, 50)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, state = self.rnn(self.embedding(tokens), state)
        return self.decoder(output), state


def gated() -> tuple[Model, Tensor]:
    torch.manual_seed(0)
    model = Model().cuda()
    tokens = torch.randint(0, 50, (7, 3), device="cuda")
    thinrnn.attach_(model, thinrnn.find_groups(model, tokens))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.randn(gate.size, device="cuda") * 3
    return model, tokens


def test_compact_gives_the_same_outputs_in_float64():
    model, tokens = gated()
    model.double()
    assert thinrnn.verify(model, thinrnn.compact(model), tokens) < 1e-10


@pytest.mark.parametrize("kernels", ["pointwise", "polling"])
def test_a_step_in_a_cuda_graph_is_the_step_without(kernels, monkeypatch):
    monkeypatch.setattr(rhn_fused, "WANTED", kernels)
    losses = []
    for graphed in (False, True):
        model, tokens = gated()
        model.rnn.dropout = 0.0
        for gate in thinrnn.gates(model).values():
            gate.log_alpha = torch.full((gate.size,), 1e4, device="cuda")
        optimizer = torch.optim.SGD(thinrnn.param_groups(model, lr=0.1, gate_lr=0.0))
        total = torch.zeros((), device="cuda")

        def step(model=model, tokens=tokens, optimizer=optimizer, total=total) -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                logits, _ = model(tokens)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            total.copy_(loss.detach())

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        run = step
        if graphed:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):  # captured, not run
                step()
            run = graph.replay
        found = []
        for _ in range(5):
            run()
            found.append(float(total))
        losses.append(found)
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
    assert losses[0][-1] < losses[0][0]
