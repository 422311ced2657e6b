"""What code does to channels between two layers: what keeps them apart, and what does not."""

import torch
import torch.nn.functional as F
from models.case import case, floats
from torch import nn


class Between(nn.Module):
    """A GRU, something in the middle, a linear layer."""

    width = 8

    def __init__(self, hidden=8, **options):
        super().__init__()
        self.rnn = nn.GRU(5, hidden, batch_first=True, **options)
        self.fc = nn.Linear(self.width, 3)

    def middle(self, h):
        raise NotImplementedError

    def forward(self, x):
        return self.fc(self.middle(self.rnn(x)[0]))


@case(lambda: floats(3, 6, 5))
class LayerNormAfter(Between):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def middle(self, h):
        return self.norm(h)


@case(lambda: floats(3, 6, 5))
class SoftmaxChannels(Between):
    def middle(self, h):
        return h.softmax(-1)


@case(lambda: floats(3, 6, 5))
class Normalize(Between):
    def middle(self, h):
        return F.normalize(h, dim=-1)


@case(lambda: floats(3, 6, 5))
class CumsumChannels(Between):
    def middle(self, h):
        return h.cumsum(-1)


@case(lambda: floats(3, 6, 5))
class CumsumTime(Between):
    def middle(self, h):
        return h.cumsum(1)


@case(lambda: floats(3, 6, 5))
class ChannelShuffle(Between):
    def middle(self, h):
        return h.unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)


@case(lambda: floats(3, 6, 5))
class Reversed(Between):
    """A permutation that follows any size: neuron j is feature n - 1 - j."""

    def middle(self, h):
        return h.flip(-1)


@case(lambda: floats(3, 6, 5))
class ConcatTwice(Between):
    width = 24

    def middle(self, h):
        return torch.cat([h, h.tanh(), F.relu(-h)], -1)


@case(lambda: floats(3, 6, 5))
class ShiftedSum(Between):
    """Each feature reads two neighbours: all neurons hang together."""

    def middle(self, h):
        return h + h.roll(1, -1)


@case(lambda: floats(3, 6, 5))
class OuterProduct(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.GRU(5, 4, batch_first=True)
        self.b = nn.GRU(5, 3, batch_first=True)
        self.fc = nn.Linear(12, 2)

    def forward(self, x):
        a, b = self.a(x)[0], self.b(x)[0]
        return self.fc((a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2))


@case(lambda: floats(3, 6, 5))
class SlicesToReaders(nn.Module):
    """Fixed borders inside the hidden state: the first half for one head, the rest for another."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 8, batch_first=True)
        self.a = nn.Linear(4, 2)
        self.b = nn.Linear(4, 2)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.a(h[..., :4]), self.b(h[..., 4:])


@case(lambda: floats(3, 6, 5))
class ChunksToReaders(SlicesToReaders):
    """The same by chunk, which follows the size: neurons j and j + n/2 are still apart."""

    def forward(self, x):
        h, _ = self.rnn(x)
        first, second = h.chunk(2, -1)
        return self.a(first), self.b(second)


@case(lambda: floats(2, 6, 5))
class HeadsByView(nn.Module):
    """Multi-head attention by hand, with its sizes in the code."""

    def __init__(self, dim=8, heads=2):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.rnn = nn.GRU(5, dim, batch_first=True)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        h, _ = self.rnn(x)
        b, t, _ = h.shape
        q, k, v = self.qkv(h).view(b, t, 3, self.heads, self.d).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-2, -1) / self.d**0.5).softmax(-1)
        return self.out(F.gelu(self.proj((a @ v).transpose(1, 2).reshape(b, t, -1))))


@case(lambda: floats(3, 6, 5))
class PerChannelParameters(Between):
    """Scale, shift and mask of one number per channel, and a raw vector that reads them all."""

    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(8))
        self.beta = nn.Parameter(torch.zeros(8))
        self.register_buffer("mask", torch.rand(8) + 0.5)
        self.v = nn.Parameter(torch.randn(8))

    def middle(self, h):
        h = (h * self.gamma + self.beta) * self.mask
        weights = torch.softmax(torch.tanh(h) @ self.v, 1)
        return h * weights.unsqueeze(-1)


@case(lambda: floats(3, 6, 5))
class SqueezeExcite(Between):
    """Channels scaled by a function of all channels, through a bottleneck."""

    def __init__(self):
        super().__init__()
        self.down = nn.Linear(8, 4)
        self.up = nn.Linear(4, 8)

    def middle(self, h):
        return h * torch.sigmoid(self.up(F.relu(self.down(h.mean(1))))).unsqueeze(1)


@case(lambda: floats(3, 6, 5))
class Maxout(Between):
    width = 4

    def middle(self, h):
        return h.unflatten(-1, (2, -1)).amax(-2)


@case(lambda: floats(3, 6, 5))
class FiveGates(nn.Module):
    """A hand-written cell with five gates in one matrix."""

    def __init__(self, h=6):
        super().__init__()
        self.cell = nn.Linear(5 + h, 5 * h)
        self.first = nn.Linear(5, h)
        self.out = nn.Linear(h, 2)

    def forward(self, x):
        h = torch.tanh(self.first(x[:, 0]))
        c = h
        for t in range(x.size(1)):
            i, f, g, o, s = self.cell(torch.cat([x[:, t], h], -1)).chunk(5, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh() + s.sigmoid() * h
        return self.out(h)


@case(lambda: floats(3, 6, 5))
class StackedLast(nn.Module):
    """Two GRUs whose last states are stacked and flattened: they must keep one size."""

    def __init__(self):
        super().__init__()
        self.a = nn.GRU(5, 7, batch_first=True)
        self.b = nn.GRU(5, 7, batch_first=True)
        self.fc = nn.Linear(14, 2)

    def forward(self, x):
        last = torch.stack([self.a(x)[1][-1], self.b(x.flip(1))[1][-1]], 1)
        return self.fc(last.flatten(1))


@case(lambda: floats(3, 6, 5))
class MeanOverChannels(Between):
    """The sequence is centred by its own mean over channels."""

    def middle(self, h):
        return h - h.mean(-1, keepdim=True)


@case(lambda: floats(3, 6, 5))
class SizeInFormula(Between):
    """The code divides by the number of channels: cutting some would change the scale."""

    def middle(self, h):
        return h / h.size(-1) ** 0.5


@case(lambda: floats(3, 6, 5))
class RandomInEval(Between):
    """Noise that is also added in eval, one number per channel."""

    def middle(self, h):
        return h + 0.1 * torch.randn_like(h)


@case(lambda: floats(3, 6, 5))
class ScalarWeights(nn.Module):
    """ReZero: branches that start at zero; a learned mix of two branches."""

    def __init__(self, d=7):
        super().__init__()
        self.inp = nn.Linear(5, d)
        self.rnns = nn.ModuleList([nn.GRU(d, d, batch_first=True) for _ in range(2)])
        self.alpha = nn.Parameter(torch.zeros(2))
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        x = self.inp(x)
        for a, rnn in zip(self.alpha, self.rnns, strict=True):
            x = x + a * rnn(x)[0]
        return self.out(x)


@case(lambda: floats(3, 6, 5))
class Bilinear(nn.Module):
    """Torch's own module that thinrnn does not know sits in the middle."""

    def __init__(self):
        super().__init__()
        self.a = nn.GRU(5, 6, batch_first=True)
        self.b = nn.GRU(6, 7, batch_first=True)
        self.bilinear = nn.Bilinear(6, 7, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        a, _ = self.a(x)
        b, _ = self.b(a)
        return self.out(torch.relu(self.bilinear(a, b)))


@case(lambda: floats(3, 6, 5))
class InterleavedGLU(Between):
    """Neighbours 2j and 2j + 1 make feature j."""

    width = 6

    def __init__(self):
        super().__init__(12)

    def middle(self, h):
        value, gate = h.unflatten(-1, (-1, 2)).unbind(-1)
        return value * torch.sigmoid(gate)


@case(lambda: floats(3, 6, 5))
class QueryByHand(Between):
    """A raw query that reads by a product and a sum, while the sequence goes on to be pooled."""

    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, 8))
        self.bias = nn.Parameter(torch.zeros(1))

    def middle(self, h):
        scores = (torch.tanh(h) * self.query).sum(-1) + self.bias
        return (h * scores.softmax(1).unsqueeze(-1)).sum(1)


@case(lambda: floats(3, 1, 5))
class QueryOneStep(QueryByHand):
    """One step only: the softmax over it is constant, so no value shows that the query reads."""


@case(lambda: floats(3, 6, 5))
class FunctionalNorm(Between):
    def middle(self, h):
        return F.layer_norm(h, h.shape[-1:])


@case(lambda: floats(3, 6, 5))
class FirstNeuronGates(Between):
    """One neuron, by its number, acts on all the others."""

    def middle(self, h):
        return h * torch.sigmoid(h[..., :1])


@case(lambda: floats(3, 6, 5))
class EverySecond(Between):
    width = 4

    def middle(self, h):
        return h[..., ::2]


@case(lambda: (floats(3, 6, 5), torch.zeros(3, 1, 1)), steps=False)
class SwitchedOff(nn.Module):
    """The example switches one branch off: its values show nothing."""

    def __init__(self):
        super().__init__()
        self.a = nn.GRU(5, 7, batch_first=True)
        self.b = nn.GRU(5, 7, batch_first=True)
        self.c = nn.GRU(5, 6, batch_first=True)
        self.out = nn.Linear(13, 2)

    def forward(self, x, switch):
        both = self.a(x)[0] + switch * self.b(x)[0]
        return self.out(torch.cat([both, switch * self.c(x)[0]], -1))


@case(lambda: floats(3, 6, 5), steps=False)
class DeadHead(nn.Module):
    """The head is dead on the example, so that outputs do not show a wrong cut."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 8, batch_first=True)
        self.hidden = nn.Linear(8, 6)
        self.out = nn.Linear(6, 2)
        self.hidden.bias.data.fill_(-50.0)

    def forward(self, x):
        h, _ = self.rnn(x)
        h = h / h.size(-1)
        return self.out(torch.relu(self.hidden(h)))


@case(lambda: floats(3, 6, 8))
class ResidualOnTheInput(nn.Module):
    """Neurons are added to features of the caller, which keep their number."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.top = nn.GRU(8, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        x = x + self.rnn(x)[0]
        return self.out(self.top(x)[0])


@case(lambda: floats(2, 3, 24))
class WaveUNet(nn.Module):
    """A recurrent network between strided and transposed convolutions, with a skip connection."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(3, 8, 4, stride=2, padding=1)
        self.deeper = nn.Conv1d(8, 10, 4, stride=2, padding=1)
        self.rnn = nn.LSTM(10, 7, batch_first=True, bidirectional=True)
        self.mix = nn.Linear(14, 9)
        self.up = nn.ConvTranspose1d(9, 8, 4, stride=2, padding=1)
        self.out = nn.ConvTranspose1d(8, 2, 4, stride=2, padding=1)

    def forward(self, x):
        skip = torch.relu(self.down(x))
        h = torch.relu(self.deeper(skip)).transpose(1, 2)
        h = self.mix(self.rnn(h)[0]).transpose(1, 2)
        return self.out(torch.relu(self.up(h)) + skip)
