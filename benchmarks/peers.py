"""Twenty small recurrent models through each pruning tool that is installed: what happens.

    python -m benchmarks.peers
    python -m benchmarks.peers --tinynn CHECKOUT      also TinyNeuralNetwork, from a checkout

Half of the neurons of each model are made dead: what reads them is zero, and what makes them is
small. A tool that removes half of the neurons by magnitude can so return the same outputs. A tool
that only removes parameters around the recurrent matrices goes around them.
"""

import logging
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record
from thinrnn.plan import named_tensors

Make = Callable[[], nn.Module]
Prune = Callable[[nn.Module, Tensor, thinrnn.Plan], nn.Module]
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


def torch_pruning(roots: list[type[nn.Module]] | None) -> Prune:
    """Torch-Pruning: its pruner by magnitude, for channels of the given types of layers."""

    def prune(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
        import torch_pruning as tp

        last = [m for name, m in model.named_modules() if name in ("head", "decoder")]
        types = {} if roots is None else {"root_module_types": roots}
        pruner = tp.pruner.BasePruner(
            model,
            x,
            importance=tp.importance.MagnitudeImportance(p=2),
            pruning_ratio=0.5,
            ignored_layers=[m for m in last if isinstance(m, nn.Linear)],
            **types,
        )
        pruner.step()
        return model

    return prune


def torch_ao(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
    """torch.ao.pruning: its structured pruner for LSTMs, on all matrices of `nn.LSTM`."""
    from torch.ao.pruning._experimental.pruner import LSTMSaliencyPruner

    names = [
        f"{name}.{parameter}"
        for name, module in model.named_modules()
        for parameter, _ in module.named_parameters(recurse=False)
        if isinstance(module, nn.LSTM) and parameter.startswith("weight")
    ]
    if not names:
        raise Unsupported("it has no pruner for this layer")
    pruner = LSTMSaliencyPruner({"sparsity_level": 0.5})
    pruner.prepare(model, [{"tensor_fqn": name} for name in names])
    pruner.enable_mask_update = True
    pruner.step()
    pruned: nn.Module = pruner.prune()
    return pruned


def torch_masks(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
    """torch.nn.utils.prune: masks of rows, made permanent."""
    from torch.nn.utils.prune import ln_structured, remove

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if "hh" in name and parameter.dim() == 2:
                ln_structured(module, name, amount=0.5, n=2, dim=0)
                remove(module, name)
    return model


def nni(types: list[str]) -> Prune:
    """NNI: its pruner by L1 norm for these types of layers, then its model speedup."""

    def prune(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
        from nni.compression.pruning import L1NormPruner
        from nni.compression.speedup import ModelSpeedup

        layers = {"op_types": types, "exclude_op_names": ["head", "decoder"], "sparse_ratio": 0.5}
        try:
            pruner = L1NormPruner(model, [layers])
        except AssertionError as error:
            raise Unsupported(str(error)) from error
        _, masks = pruner.compress()
        pruner.unwrap_model()
        ModelSpeedup(model, x, masks).speedup_model()
        return model

    return prune


def tinynn(model: nn.Module, x: Tensor, plan: thinrnn.Plan) -> nn.Module:
    """TinyNeuralNetwork: its one-shot pruner by magnitude."""
    from tinynn.prune.oneshot_pruner import OneShotChannelPruner

    pruner = OneShotChannelPruner(model, x, {"sparsity": 0.5, "metrics": "l2_norm"})
    pruner.prune()
    pruner.apply_mask()
    return model


class Unsupported(Exception):
    """A tool says itself that it does not take a layer."""


# Each tool may be called in a few ways, of which the best counts.
TOOLS: dict[str, list[Prune]] = {
    "thinrnn": [thin],
    "Torch-Pruning": [
        torch_pruning(None),
        torch_pruning([nn.LSTM]),
        torch_pruning([nn.Linear]),
        torch_pruning([nn.Linear, nn.LSTM]),
    ],
    "torch.ao.pruning": [torch_ao],
    "torch.nn.utils.prune": [torch_masks],
    "NNI": [nni(["LSTM", "GRU", "RNN"]), nni(["Linear"])],
    "TinyNeuralNetwork": [tinynn],
}
PACKAGES = {"Torch-Pruning": "torch_pruning", "NNI": "nni", "TinyNeuralNetwork": "tinynn"}
OUTCOMES = ("shrunk", "around", "unchanged", "refused", "wrong", "crashed")  # best first


def best(name: str, ways: list[Prune]) -> dict[str, Any]:
    """Return the best that a tool does with a model, in any of the ways to call it."""
    found = (outcome(name, prune) for prune in ways)
    return min(found, key=lambda one: OUTCOMES.index(one["outcome"]))


def outcome(name: str, prune: Prune) -> dict[str, Any]:
    """Return what a call of a tool does with a model."""
    model, x, plan = prepared(name)
    before, wanted = sizes(model), model(x).detach()
    try:
        small = prune(model, x, plan).eval()
        after = sizes(small)
        found = small(x).detach()
    except Unsupported as error:
        return {"outcome": "refused", "why": str(error)[:200]}
    except Exception as error:
        return {"outcome": "crashed", "why": f"{type(error).__name__}: {error}"[:200]}
    if after[0] >= before[0]:
        return {"outcome": "unchanged"}
    if found.shape != wanted.shape:
        return {"outcome": "wrong", "why": f"returns {tuple(found.shape)}"}
    error = float((found - wanted).abs().max() / (1 + wanted.abs().max()))
    share = round(1 - after[0] / before[0], 3)
    is_thin = after[1] < before[1]
    same = "shrunk" if is_thin else "around"
    return {"outcome": same if error <= SAME else "wrong", "error": error, "removed": share}


def sizes(model: nn.Module) -> tuple[int, int]:
    """Return how many parameters a model has, and how many are in recurrent matrices."""
    named = list(model.named_parameters())
    return sum(p.numel() for _, p in named), sum(p.numel() for n, p in named if "hh" in n)


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
    logging.disable()  # NNI reports each of its steps
    if options.tinynn is not None:
        sys.path.insert(0, str(options.tinynn))
        options.tinynn = options.tinynn.name
    tools = {tool: ways for tool, ways in TOOLS.items() if find_spec(PACKAGES.get(tool, "torch"))}
    found = {}
    for name in MODELS:
        found[name] = {tool: best(name, ways) for tool, ways in tools.items()}
        print(name, {tool: one["outcome"] for tool, one in found[name].items()}, flush=True)
    packages = {"torch-pruning", "nni"} & {one.metadata["Name"] for one in distributions()}
    tried = {package: version(package) for package in sorted(packages)}
    what = "small recurrent models through pruning tools"
    write_record(what, options, tools=tried, models=found)


if __name__ == "__main__":
    main()
