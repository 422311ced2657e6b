"""The library on a CUDA device: same outputs, fused kernels under autocast, CUDA graphs."""

import pytest
import torch
from torch import Tensor, nn

import thinrnn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Model(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], tied: bool = False, **options: object) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.rnn = kind(24, 24, num_layers=2, **options)
        self.decoder = nn.Linear(24 * (1 + self.rnn.bidirectional), 50)
        if tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        output, _ = self.rnn(self.embedding(tokens))
        return self.decoder(output)


def gated(kind: type[nn.RNNBase], **options: object) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = Model(kind, **options).cuda()
    tokens = torch.randint(0, 50, (7, 3), device="cuda")
    thinrnn.attach_(model, thinrnn.find_groups(model, tokens))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.randn(gate.size, device="cuda") * 3
    return model, tokens


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"tied": True}])
def test_compact_gives_the_same_outputs_in_float64(kind, options):
    model, tokens = gated(kind, **options)
    model.double()
    assert thinrnn.verify(model, thinrnn.compact(model), tokens) < 1e-10


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}])
def test_cudnn_finds_the_gated_weights_in_one_piece(kind, options, recwarn):
    model, tokens = gated(kind, **options)
    model(tokens).sum().backward()
    assert not [w for w in recwarn.list if "contiguous chunk" in str(w.message)]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_gradients_under_autocast_are_those_of_float32(kind):
    model, tokens = gated(kind)
    gradients = []
    for enabled in (False, True):
        model.zero_grad()
        torch.manual_seed(1)
        torch.cuda.manual_seed(1)
        with torch.autocast("cuda", torch.bfloat16, enabled=enabled):
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        gradients.append({n: p.grad.float().clone() for n, p in model.named_parameters()})
    for name, exact in gradients[0].items():
        error = (gradients[1][name] - exact).norm() / exact.norm().clamp(min=1e-6)
        assert error < 0.05, name


def test_a_step_in_a_cuda_graph_draws_new_gates_each_time():
    model, tokens = gated(nn.LSTM)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.zeros(gate.size, device="cuda")
    optimizer = torch.optim.SGD(thinrnn.param_groups(model, lr=0.0))
    penalty = thinrnn.L0(model, weight=1e-6)
    total = torch.zeros((), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        (loss + penalty()).backward()
        optimizer.step()
        total.copy_(loss.detach())

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    losses = set()
    for _ in range(5):
        graph.replay()
        losses.add(float(total))
    assert len(losses) == 5


def test_shrinking_continues_the_training():
    model, tokens = gated(nn.LSTM)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-3, gate_lr=1e-2))
    target = thinrnn.Target(model, params=0.6, steps=20)
    for i in range(30):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.step()
        if i % 10 == 9:
            thinrnn.shrink_(model, optimizer)
    small = thinrnn.compact(model)
    assert thinrnn.verify(model, small, tokens) < 1e-4
    assert thinrnn.count(small).params <= target.limit["params"]
