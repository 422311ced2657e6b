"""Twenty small recurrent models through each pruning tool: shrunk, unchanged, crashed or wrong.

    python -m benchmarks.peers
    python -m benchmarks.peers --tinynn CHECKOUT      also TinyNeuralNetwork, from a checkout

Half of the neurons of each model are made dead: what reads them is zero, and what makes them is
small. A tool that removes half of the neurons by magnitude can so return the same outputs. Outputs
that differ are wrong.
"""

import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record
from thinrnn.plan import named_tensors

Make = Callable[[], nn.Module]
SAME = 1e-4  # relative to the outputs, in float32


class Net(nn.Module):
    """An embedding or features, a recurrent layer, and a head on all steps or on the last one."""

    def __init__(
        self, rnn: nn.Module, width: int, *, words: bool = False, last: bool = False
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6) if words else nn.Linear(6, 6)
        self.rnn, self.last = rnn, last
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(self.embed(x))
        return self.head(out[:, -1] if self.last else out)


class State(Net):
    """The head reads the last state."""

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.rnn(self.embed(x))
        return self.head((state[0] if isinstance(state, tuple) else state)[-1])


class Given(Net):
    """The caller gives a first state."""

    def forward(self, x: Tensor) -> Tensor:
        zeros = x.new_zeros(1, x.shape[0], self.rnn.hidden_size)  # type: ignore[arg-type]
        return self.head(self.rnn(self.embed(x), (zeros, zeros))[0])


class Cells(nn.Module):
    """A loop over a cell."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        state, outs = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outs.append(state[0] if isinstance(state, tuple) else state)
        return self.head(torch.stack(outs, 1))


class Between(Net):
    """A module between the recurrent layer and the head."""

    def __init__(self, between: nn.Module, swap: bool = False) -> None:
        super().__init__(nn.GRU(6, 8, batch_first=True), 8)
        self.between, self.swap = between, swap

    def forward(self, x: Tensor) -> Tensor:
        h = self.rnn(self.embed(x))[0]
        h = self.between(h.transpose(1, 2)).transpose(1, 2) if self.swap else self.between(h)
        return self.head(h)


class Tied(nn.Module):
    """The embedding is the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True)
        self.decoder = nn.Linear(8, 20)
        self.decoder.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.rnn(self.embed(x))[0])


class Packed(Net):
    """Sequences of different lengths."""

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.tensor([7, 5])
        pack = nn.utils.rnn.pack_padded_sequence(self.embed(x), lengths, batch_first=True)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.rnn(pack)[0], batch_first=True)[0])


class Translator(nn.Module):
    """An encoder gives its state to a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(6, 8, batch_first=True)
        self.decoder = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.encoder(x)
        return self.head(self.decoder(x.flip(1), state)[0])


def rnn(kind: type[nn.RNNBase], layers: int = 1, **more: Any) -> nn.RNNBase:
    return kind(6, 8, layers, batch_first=True, **more)


MODELS: dict[str, Make] = {
    "LSTM": lambda: Net(rnn(nn.LSTM), 8),
    "GRU": lambda: Net(rnn(nn.GRU), 8),
    "RNN": lambda: Net(rnn(nn.RNN), 8),
    "LSTM, two layers": lambda: Net(rnn(nn.LSTM, 2), 8),
    "GRU, two layers": lambda: Net(rnn(nn.GRU, 2), 8),
    "LSTM, both directions": lambda: Net(rnn(nn.LSTM, bidirectional=True), 16),
    "GRU, both directions": lambda: Net(rnn(nn.GRU, bidirectional=True), 16),
    "LSTM with projection": lambda: Net(rnn(nn.LSTM, proj_size=4), 4),
    "LSTM on words": lambda: Net(rnn(nn.LSTM), 8, words=True),
    "LSTM, last step": lambda: Net(rnn(nn.LSTM), 8, last=True),
    "LSTM, last state": lambda: State(rnn(nn.LSTM), 8),
    "GRU, last state": lambda: State(rnn(nn.GRU), 8),
    "LSTM, given state": lambda: Given(rnn(nn.LSTM), 8),
    "packed sequences": lambda: Packed(rnn(nn.LSTM), 8),
    "LSTMCell in a loop": lambda: Cells(nn.LSTMCell(6, 8)),
    "GRUCell in a loop": lambda: Cells(nn.GRUCell(6, 8)),
    "batch norm after a GRU": lambda: Between(nn.BatchNorm1d(8), swap=True),
    "layer norm after a GRU": lambda: Between(nn.LayerNorm(8)),
    "tied embedding": Tied,
    "encoder and decoder": Translator,
}
WORDS = ("LSTM on words", "tied embedding")


def thin(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
    """thinrnn: the neurons of smallest magnitude."""
    thinrnn.attach_(model, plan)
    for gate, group in zip(thinrnn.gates(model).values(), plan, strict=True):
        made = next(s for s in group.slices if s.role == "produce")
        rows, neurons = made.index()
        weight = named_tensors(model)[made.parameter].detach().movedim(made.dim, 0)
        norms = torch.zeros(group.size).index_add_(0, neurons, weight[rows].flatten(1).norm(dim=1))
        closed = norms.argsort()[: group.size // 2]
        gate.log_alpha = torch.full((group.size,), 9.0).index_fill_(0, closed, -9.0)
    return thinrnn.compact(model)


def torch_pruning(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
    """Torch-Pruning: its pruner by magnitude, half of the channels of every layer but the last."""
    import torch_pruning as tp

    last = [m for name, m in model.named_modules() if name in ("head", "decoder")]
    pruner = tp.pruner.BasePruner(
        model,
        x,
        importance=tp.importance.MagnitudeImportance(p=2),
        pruning_ratio=0.5,
        ignored_layers=[m for m in last if isinstance(m, nn.Linear)],
    )
    pruner.step()
    return model


def torch_ao(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
    """torch.ao.pruning: its structured pruner for LSTMs, on the matrices of recurrent layers."""
    from torch.ao.pruning._experimental.pruner import LSTMSaliencyPruner

    names = [
        n for n, p in model.named_parameters() if (p.dim() == 2 and "rnn." in n) or "coder." in n
    ]
    pruner = LSTMSaliencyPruner({"sparsity_level": 0.5})
    pruner.prepare(model, [{"tensor_fqn": name} for name in names if "weight" in name])
    pruner.enable_mask_update = True
    pruner.step()
    pruned: nn.Module = pruner.prune()
    return pruned


def tinynn(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
    """TinyNeuralNetwork: its one-shot pruner by magnitude."""
    from tinynn.prune.oneshot_pruner import OneShotChannelPruner

    pruner = OneShotChannelPruner(model, x, {"sparsity": 0.5, "metrics": "l2_norm"})
    pruner.prune()
    pruner.apply_mask()
    return model


TOOLS = {"thinrnn": thin, "Torch-Pruning": torch_pruning, "torch.ao.pruning": torch_ao}


def outcome(name: str, tool: Callable[..., nn.Module]) -> dict[str, Any]:
    """Return what a tool does with a model."""
    model, x, plan = prepared(name)
    before, wanted = sum(p.numel() for p in model.parameters()), model(x).detach()
    try:
        small = tool(model, x, plan).eval()
        after = sum(p.numel() for p in small.parameters())
        if after >= before:
            return {"outcome": "unchanged"}
        found = small(x).detach()
    except Exception as error:
        return {"outcome": "crashed", "why": f"{type(error).__name__}: {error}"[:200]}
    if found.shape != wanted.shape:
        return {"outcome": "wrong", "why": f"returns {tuple(found.shape)}"}
    error = float((found - wanted).abs().max() / (1 + wanted.abs().max()))
    share = round(1 - after / before, 3)
    return {"outcome": "shrunk" if error <= SAME else "wrong", "error": error, "removed": share}


def prepared(name: str) -> tuple[nn.Module, Tensor, thinrnn.Plan]:
    """Return a model half of whose neurons are dead, its input, and the plan with these neurons."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    x = torch.randint(20, (2, 7)) if name in WORDS else torch.randn(2, 7, 6)
    plan = thinrnn.find_groups(model, x)
    plan = thinrnn.Plan(tuple(g for g in plan if not g.is_input), plan.refused, plan.outside)
    tensors = named_tensors(model)
    with torch.no_grad():
        for group in plan:
            dead = torch.randperm(group.size) < group.size // 2
            for role, factor in (("produce", 1e-3), ("read", 0.0)):
                for s in (s for s in group.slices if s.role == role):
                    positions, neurons = s.index()
                    gone = positions[dead[neurons]]
                    tensors[s.parameter].movedim(s.dim, 0)[gone] *= factor
    return model, x, plan


def main() -> None:
    arguments = parser(__doc__, "../peers.json")
    arguments.add_argument("--tinynn", type=Path, help="a checkout of TinyNeuralNetwork")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    tools: dict[str, Callable[..., nn.Module]] = dict(TOOLS)
    if options.tinynn is not None:
        sys.path.insert(0, str(options.tinynn))
        tools["TinyNeuralNetwork"] = tinynn
        options.tinynn = options.tinynn.name
    found = {}
    for name in MODELS:
        found[name] = {tool: outcome(name, use) for tool, use in tools.items()}
        print(name, {tool: one["outcome"] for tool, one in found[name].items()}, flush=True)
    tried = {"torch-pruning": version("torch-pruning")}
    what = "small recurrent models through pruning tools"
    write_record(what, options, tools=tried, models=found)


if __name__ == "__main__":
    main()
