"""How code is put together: subclasses, wrappers, caches, casts, odd arguments and results."""

import threading
import warnings
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from models.case import case, floats, words
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.checkpoint import checkpoint


class OutputOnly(nn.LSTM):
    """The usual trick for nn.Sequential."""

    def forward(self, x):
        return super().forward(x)[0]


@case(lambda: floats(3, 6, 5))
class SubclassedLSTM(nn.Sequential):
    def __init__(self):
        super().__init__(
            OutputOnly(5, 8, batch_first=True), nn.ReLU(), OutputOnly(8, 7, 2, batch_first=True),
            nn.Linear(7, 3),
        )  # fmt: skip


class MaskedLinear(nn.Linear):
    def __init__(self, n, m):
        super().__init__(n, m)
        self.register_buffer("mask", (torch.rand(m, n) > 0.3).float())

    def forward(self, x):
        return F.linear(x, self.weight * self.mask, self.bias)


@case(lambda: floats(3, 6, 5))
class SubclassedLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, 2, batch_first=True)
        self.masked = MaskedLinear(8, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(F.relu(self.masked(self.rnn(x)[0])))


class WeightDrop(nn.Module):
    """The wrapper of the AWD-LSTM paper: the recurrent matrix is no parameter of the LSTM."""

    def __init__(self, module, name):
        super().__init__()
        self.module, self.name = module, name
        w = getattr(module, name)
        del module._parameters[name]
        module.register_parameter(name + "_raw", nn.Parameter(w.data))
        self._set()

    def _set(self):
        raw = getattr(self.module, self.name + "_raw")
        setattr(self.module, self.name, F.dropout(raw, 0.5, training=self.training))

    def forward(self, *args):
        self._set()
        return self.module(*args)


@case(lambda: floats(3, 6, 5))
class WeightDropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 6)
        self.rnn = WeightDrop(nn.LSTM(6, 8, batch_first=True), "weight_hh_l0")
        self.top = nn.GRU(8, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        return self.out(self.top(self.rnn(self.inp(x))[0])[0])


@case(lambda: floats(3, 6, 5))
class WeightNormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 8, batch_first=True)
        nn.utils.parametrizations.weight_norm(self.rnn, "weight_hh_l0")
        self.fc = nn.utils.parametrizations.weight_norm(nn.Linear(8, 6))
        self.top = nn.GRU(6, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        return self.out(self.top(torch.relu(self.fc(self.rnn(x)[0])))[0])


@case(lambda: floats(3, 6, 5))
class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 6)
        self.rnns = nn.ModuleList([nn.GRU(6, 6, batch_first=True) for _ in range(2)])
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        x = self.inp(x)
        for rnn in self.rnns:
            x = x + checkpoint(lambda y, r=rnn: r(y)[0], x, use_reentrant=False)
        return self.out(x)


@case(lambda: floats(3, 6, 5), dtype=torch.float32)
class CastsToFloat(nn.Module):
    """Casts to float32 by hand, before, between and after layers."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 8, batch_first=True)
        self.score = nn.Linear(8, 1)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        h0 = torch.zeros(1, x.size(0), 8, dtype=torch.float32, device=x.device)
        h, _ = self.rnn(x.float(), (h0, h0.clone()))
        weights = F.softmax(self.score(h).to(torch.float32), dim=1).type_as(h)
        pooled = (weights * h.to(dtype=torch.float32)).sum(1)
        return self.out(pooled.type(torch.FloatTensor)).float(), weights.half()


@case(lambda: floats(3, 6, 5), dtype=torch.bfloat16)
class BFloat16(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 6)
        self.rnn = nn.GRU(6, 8, 2, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.rnn(torch.tanh(self.inp(x)))[0])


@case(lambda: floats(3, 6, 5), dtype=torch.float32)
class AutocastInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 6)
        self.rnn = nn.LSTM(6, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.relu(self.inp(x))
        h, _ = self.rnn(x.float())
        return self.out(h)


class Memory:
    """A plain object that a model keeps between calls."""

    def __init__(self):
        self.seen, self.last = [], None


@case(lambda: floats(3, 6, 5), keeps_state=True)
class KeepsThings(nn.Module):
    """Caches of all kinds, a lock, generators, a tensor with a history, lists that grow."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, batch_first=True)
        self.out = nn.Linear(8, 2)
        self.lock = threading.Lock()
        self.counter = (i for i in range(10**6))
        self.rng = np.random.default_rng(3)
        self.generator = torch.Generator().manual_seed(3)
        self.memory, self.states, self.calls = Memory(), [None], 0
        self.scale = torch.ones(1)
        self.cached = (self.out.weight * 2).sum()

    def forward(self, x):
        with self.lock:
            self.calls += 1
        if not self.training:
            x = x + 0.01 * self.rng.standard_normal()
            x = x + 0.01 * torch.randn((), generator=self.generator, dtype=torch.float32)
        h, self.states[0] = self.rnn(x, self.states[0])
        self.states[0] = self.states[0].detach()
        self.memory.seen.append(h)
        self.memory.last = h.detach()
        self.cached = h.sum()
        return self.out(h) * self.scale + 0.1 * len(self.memory.seen)


class Result:
    """No dataclass, no tuple: a plain object."""

    def __init__(self, logits, features):
        self.logits, self.features = logits, features


@case(lambda: floats(3, 6, 5))
class PlainObjectResult(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower = nn.GRU(5, 8, batch_first=True)
        self.upper = nn.GRU(8, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        h, _ = self.lower(x)
        features, _ = self.upper(h)
        return Result(self.out(features), features)


class ModelOutput(OrderedDict):
    """Attribute access to a dict, None entries left out."""

    def __getattr__(self, name):
        return self[name]


@case(lambda: (SimpleNamespace(x=floats(3, 6, 5), mask=torch.ones(3, 6)),))
class BatchObject(nn.Module):
    """One argument that is an object; a mask with zeros in it; a mapping with None comes back."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, batch):
        h, _ = self.rnn(batch.x)
        pooled = (h * batch.mask.unsqueeze(-1)).sum(1) / batch.mask.sum(1, keepdim=True)
        return ModelOutput(logits=self.out(pooled), hidden=None, length=int(batch.mask.sum()))


@case(lambda: (pack_sequence([floats(5, 4), floats(3, 4), floats(2, 4)]),))
class PackedArgument(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 7, 2, bidirectional=True)
        self.out = nn.Linear(14, 2)

    def forward(self, packed):
        out, (h, _) = self.rnn(packed)
        return self.out(out.data), self.out(torch.cat([h[-2], h[-1]], 1))


@case(lambda: floats(6, 5))
class Unbatched(nn.Module):
    def __init__(self):
        super().__init__()
        self.h0 = nn.Parameter(torch.randn(2, 8))
        self.rnn = nn.GRU(5, 8, 2)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.rnn(x, self.h0)[0])


@case(lambda: (words(12, 2, 5), words(12, 2, 4)))
class SharedModules(nn.Module):
    """One encoder under two names, a head used twice, layers that are never called."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.left = nn.LSTM(6, 7, batch_first=True, bidirectional=True)
        self.right = self.left
        self.shared = nn.Linear(14, 5)
        self.unused = nn.Linear(14, 9)
        self.unused_rnn = nn.GRU(14, 9)
        self.aliases = [self.embed, self.left]
        self.out = nn.Linear(10, 2)

    def forward(self, a, b):
        a = torch.tanh(self.shared(self.left(self.embed(a))[0].mean(1)))
        b = torch.tanh(self.shared(self.right(self.embed(b))[0].mean(1)))
        return self.out(torch.cat([a, b], -1))


@case(lambda: (floats(3, 6, 5), floats(3, 4, 5)))
class OneRNNTwice(nn.Module):
    """The same RNN on two inputs, the second started by the first, one read, one summed."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 6)
        self.rnn = nn.LSTM(6, 8, 2, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, a, b):
        first, state = self.rnn(self.inp(a))
        second, _ = self.rnn(self.inp(b), state)
        return self.out(first.mean(1) + second.mean(1))


@case(lambda: floats(3, 6, 5))
class AuxiliaryHead(nn.Module):
    """A head that only training uses."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, 2, batch_first=True)
        self.out = nn.Linear(8, 2)
        self.auxiliary = nn.Linear(8, 3)

    def forward(self, x):
        h, _ = self.rnn(x)
        if self.training:
            return self.out(h), self.auxiliary(h)
        return self.out(h)


@case(lambda: floats(3, 6, 5))
class DropoutByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, batch_first=True)
        self.top = nn.GRU(8, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        h, _ = self.rnn(x)
        if self.training:
            h = h * (torch.rand_like(h) > 0.2) / 0.8
            keep = torch.bernoulli(torch.full((h.size(0), 1, h.size(2)), 0.7))
            h = h * keep
        return self.out(self.top(h)[0])


@case(lambda: floats(3, 6, 5))
class InPlace(nn.Module):
    """In-place writes into results of layers and into preallocated buffers."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 7)
        self.cell = nn.GRUCell(7, 7)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        x = self.a(x)
        x.relu_()
        h = torch.zeros_like(x[:, 0])
        store = torch.zeros_like(x)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            store[:, t] = h
            store[:, t] += x[:, t]
        return self.out(store)


@case(lambda: floats(3, 6, 5))
class Hooked(nn.Module):
    """Hooks that change results and inputs, and old weight normalisation."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, batch_first=True)
        self.mid = nn.Linear(8, 7)
        self.out = nn.Linear(7, 2)
        self.mid.register_forward_hook(lambda module, args, result: torch.relu(result))
        self.out.register_forward_pre_hook(lambda module, args: (args[0] * 0.5,))

    def forward(self, x):
        return self.out(self.mid(self.rnn(x)[0]))


@case(lambda: floats(3, 6, 5))
class WrappedInSequential(nn.Module):
    """Wrappers that hide tuples, a lambda module, a residual wrapper, a dict of heads."""

    class Lambda(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, *args):
            return self.f(*args)

    class Residual(nn.Module):
        def __init__(self, *layers):
            super().__init__()
            self.body = nn.Sequential(*layers)

        def forward(self, x):
            return x + self.body(x)

    def __init__(self):
        super().__init__()
        first = self.Lambda(lambda pair: pair[0])
        self.net = nn.Sequential(
            nn.Linear(5, 6),
            self.Residual(nn.LSTM(6, 8, batch_first=True), first, nn.Tanh(), nn.Linear(8, 6)),
            self.Residual(nn.GRU(6, 6, batch_first=True), first),
        )
        self.heads = nn.ModuleDict({"mean": nn.Linear(6, 2), "log_std": nn.Linear(6, 2)})

    def forward(self, x):
        x = self.net(x)
        return {name: head(x) for name, head in self.heads.items()}


@case(lambda: floats(2, 4, 5))
class ManyModules(nn.Module):
    """A deep residual stack: runtime must follow the number of layers, not its square."""

    def __init__(self, depth=12, d=6):
        super().__init__()
        self.inp = nn.Linear(5, d)
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(depth)])
        self.rnns = nn.ModuleList([nn.GRU(d, d + 1, batch_first=True) for _ in range(depth)])
        self.projections = nn.ModuleList([nn.Linear(d + 1, d) for _ in range(depth)])
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        x = self.inp(x)
        for norm, rnn, projection in zip(self.norms, self.rnns, self.projections, strict=True):
            x = x + projection(rnn(norm(x))[0])
        return self.out(x)


@case(lambda: (floats(3, 6, 5), None))
class Wrapper(nn.Module):
    """Passes everything on, as DataParallel does; a state comes back."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(5, 8, 2, batch_first=True)
            self.out = nn.Linear(8, 2)

        def forward(self, x, state=None):
            self.rnn.flatten_parameters()
            h, state = self.rnn(x, hx=state)
            return self.out(h), state

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


@case(lambda: ([floats(5, 4), floats(3, 4), floats(2, 4)],))
class ListOfSequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, sequences):
        _, h = self.rnn(pack_sequence(sequences))
        return self.out(h[-1])


@case(lambda: floats(2, 64))
class Spectrogram(nn.Module):
    """Raw audio, a window in a buffer, complex numbers in between; a distribution comes back."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))
        self.rnn = nn.GRU(9, 8, batch_first=True)
        self.mean = nn.Linear(8, 2)
        self.spread = nn.Linear(8, 2)

    def forward(self, audio):
        spectrum = torch.stft(audio, 16, 8, window=self.window, return_complex=True)
        h, _ = self.rnn(torch.log1p(spectrum.abs()).transpose(1, 2))
        return torch.distributions.Normal(self.mean(h), F.softplus(self.spread(h)))


@case(lambda: floats(3, 6, 5), steps=False)
class ReturnsNumbers(nn.Module):
    """What is returned is no tensor: a float, an array, a list of floats."""

    def __init__(self):
        super().__init__()
        self.a = nn.GRU(5, 8, batch_first=True)
        self.b = nn.GRU(8, 7, batch_first=True)
        self.c = nn.GRU(7, 6, batch_first=True)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        a, _ = self.a(x)
        b, _ = self.b(a)
        c, _ = self.c(b)
        return self.out(c).tolist(), float(b.detach().mean()), c.detach().numpy().sum()


@case(lambda: floats(3, 6, 8))
class RepeatedGRU(nn.Module):
    """One GRU on the input, then on its own output, then with a residual."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        x = self.rnn(x)[0]
        x = self.rnn(x)[0]
        return self.out(x + self.rnn(x)[0])


@case(lambda: floats(3, 6, 5))
class AsksTheLayer(nn.Module):
    """Sizes are read from the RNN, and states are viewed as torch's documentation says."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 8, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        rnn = self.rnn
        zeros = x.new_zeros(2 * rnn.num_layers, x.size(0), rnn.hidden_size)
        _, (h, _) = rnn(x, (zeros, zeros))
        h = h.view(rnn.num_layers, 2, x.size(0), rnn.hidden_size)
        return self.out(torch.cat([h[-1, 0], h[-1, 1]], -1))


@case(lambda: floats(3, 6, 5))
class OldWeightNorm(nn.Module):
    def __init__(self):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.conv = nn.utils.weight_norm(nn.Conv1d(5, 6, 3, padding=1))
        self.rnn = nn.GRU(6, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.rnn(torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))[0])


class ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return -grad


@case(lambda: (words(20, 3, 6), torch.tensor([0, 3, 5])))
class OddFunctions(nn.Module):
    """A custom autograd function, an embedding bag, instance normalisation."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 4)
        self.embed = nn.Embedding(20, 6)
        self.norm = nn.InstanceNorm1d(6, affine=True)
        self.rnn = nn.GRU(6, 8, batch_first=True)
        self.out = nn.Linear(12, 2)
        self.domain = nn.Linear(8, 2)

    def forward(self, tokens, offsets):
        x = F.mish(self.norm(self.embed(tokens).transpose(1, 2))).transpose(1, 2)
        h = self.rnn(x)[0][:, -1]
        bag = self.bag(tokens[0], offsets)
        return self.out(torch.cat([h, bag], -1)), self.domain(ReverseGradient.apply(h))


@case(lambda: floats(3, 6, 5))
class ReturnsItself(nn.Module):
    """The result holds a module and itself; the model keeps its last result."""

    class Result:
        def __init__(self, model, logits):
            self.model, self.logits, self.me = model, logits, self

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        self.last = self.Result(self, self.out(self.rnn(x)[0]))
        return self.last


@case(lambda: floats(3, 6, 5))
class TrainingAttention(nn.Module):
    """Training pools the sequence by a raw query, for a loss of its own."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, batch_first=True)
        self.out = nn.Linear(8, 2)
        self.query = nn.Parameter(torch.randn(8))
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.extra = nn.Linear(8, 3)

    def forward(self, x):
        h, _ = self.rnn(x)
        if not self.training:
            return self.out(h)
        weights = torch.softmax(h @ self.query, 1).unsqueeze(-1)
        return self.out(h), self.extra((weights * h * self.scale).sum(1))


@case(lambda: floats(3, 6, 5))
class TrainingMasks(nn.Module):
    """Training multiplies by rows of a table of dropout masks; layers' last states are stacked."""

    def __init__(self):
        super().__init__()
        self.hidden_size = 8
        self.embed = nn.Linear(5, 8)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(8, 16)
        self.register_buffer("masks", torch.rand(30, 8).round() / 0.5)
        self.register_buffer("start", torch.zeros(1, 8))
        self.out = nn.Linear(8, 2)

    def cell(self, layer, h, x):
        z, n = layer(h + x).chunk(2, -1)
        mask = self.masks[: len(x)] if self.training else 1.0
        return z.sigmoid() * h + (1 - z.sigmoid()) * torch.relu(n) * mask

    def forward(self, x):
        start = self.start.broadcast_to(len(x), self.start.shape[1])
        h, g = start, start
        for step in self.embed(x).unbind(1):
            h = self.cell(self.first, h, step)
            g = self.cell(self.second, g, h)
        return self.out(torch.stack([h, g]).sum(0))
