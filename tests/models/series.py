"""Time series and sensors."""

import torch
import torch.nn.functional as F
from models.case import case, floats, words
from torch import nn


@case(lambda: (floats(3, 6, 1), words(5, 3, 1), floats(3, 6, 4)))
class DeepAR(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.lstm = nn.LSTM(1 + 4 + 3, hidden, 2, dropout=0.1)
        self.relu = nn.ReLU()
        self.distribution_mu = nn.Linear(hidden * 2, 1)
        self.distribution_presigma = nn.Linear(hidden * 2, 1)
        self.distribution_sigma = nn.Softplus()

    def forward(self, z, idx, covariates):
        mus, sigmas = [], []
        hidden = cell = None
        series = self.embedding(idx).squeeze(1)
        for t in range(z.size(1)):
            step = torch.cat([z[:, t], covariates[:, t], series], -1).unsqueeze(0)
            state = None if hidden is None else (hidden, cell)
            _, (hidden, cell) = self.lstm(step, state)
            both = hidden.permute(1, 2, 0).contiguous().view(hidden.shape[1], -1)
            mus.append(self.distribution_mu(both).squeeze(-1))
            sigmas.append(self.distribution_sigma(self.distribution_presigma(both)).squeeze(-1))
        return torch.stack(mus, 1), torch.stack(sigmas, 1)


@case(lambda: floats(3, 8, 4))
class EncoderForecaster(nn.Module):
    """The forecaster feeds its own output back: GRU, linear, next input."""

    def __init__(self, features=4, hidden=9, horizon=3):
        super().__init__()
        self.horizon = horizon
        self.encoder = nn.GRU(features, hidden, batch_first=True)
        self.cell = nn.GRUCell(features, hidden)
        self.head = nn.Linear(hidden, features)

    def forward(self, x):
        _, h = self.encoder(x)
        h, step, out = h[0], x[:, -1], []
        for _ in range(self.horizon):
            h = self.cell(step, h)
            step = step + self.head(h)
            out.append(step)
        return torch.stack(out, 1)


class Chomp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_in, n_out, dilation):
        super().__init__()
        pad = 2 * dilation
        self.conv1 = nn.Conv1d(n_in, n_out, 3, padding=pad, dilation=dilation)
        self.conv2 = nn.Conv1d(n_out, n_out, 3, padding=pad, dilation=dilation)
        self.net = nn.Sequential(
            self.conv1, Chomp(pad), nn.ReLU(), nn.Dropout(0.1),
            self.conv2, Chomp(pad), nn.ReLU(), nn.Dropout(0.1),
        )  # fmt: skip
        self.downsample = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else None

    def forward(self, x):
        return F.relu(self.net(x) + (x if self.downsample is None else self.downsample(x)))


@case(lambda: floats(3, 4, 10))
class TCNGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.tcn = nn.Sequential(TemporalBlock(4, 6, 1), TemporalBlock(6, 6, 2))
        self.gru = nn.GRU(6, 8, batch_first=True)
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.gru(self.tcn(x).transpose(1, 2))[0][:, -1])


@case(lambda: floats(2, 12, 5))
class LSTNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.P, self.m, self.hidR, self.hidC, self.hidS, self.skip, self.hw = 12, 5, 7, 6, 3, 2, 4
        self.pt = (self.P - 3 + 1) // self.skip
        self.conv1 = nn.Conv2d(1, self.hidC, kernel_size=(3, self.m))
        self.GRU1 = nn.GRU(self.hidC, self.hidR)
        self.GRUskip = nn.GRU(self.hidC, self.hidS)
        self.linear1 = nn.Linear(self.hidR + self.skip * self.hidS, self.m)
        self.highway = nn.Linear(self.hw, 1)

    def forward(self, x):
        b = x.size(0)
        c = F.relu(self.conv1(x.view(-1, 1, self.P, self.m))).squeeze(3)
        r = self.GRU1(c.permute(2, 0, 1).contiguous())[1].squeeze(0)
        s = c[:, :, -self.pt * self.skip :].contiguous()
        s = s.view(b, self.hidC, self.pt, self.skip)
        s = s.permute(2, 0, 3, 1).contiguous().view(self.pt, b * self.skip, self.hidC)
        s = self.GRUskip(s)[1].view(b, self.skip * self.hidS)
        res = self.linear1(torch.cat((r, s), 1))
        z = x[:, -self.hw :, :].permute(0, 2, 1).contiguous().view(-1, self.hw)
        return torch.sigmoid(res + self.highway(z).view(-1, self.m))


@case(lambda: floats(2, 12, 5))
class LSTNetDynamic(LSTNet):
    """The same network with sizes taken from the tensors."""

    def forward(self, x):
        b = x.size(0)
        c = F.relu(self.conv1(x.unsqueeze(1))).squeeze(3)
        r = self.GRU1(c.permute(2, 0, 1))[1].squeeze(0)
        s = c[:, :, -self.pt * self.skip :]
        s = s.reshape(b, -1, self.pt, self.skip).permute(2, 0, 3, 1).flatten(1, 2)
        s = self.GRUskip(s)[1].reshape(b, -1)
        z = x[:, -self.hw :, :].transpose(1, 2)
        return torch.sigmoid(self.linear1(torch.cat((r, s), 1)) + self.highway(z).squeeze(-1))


@case(lambda: floats(3, 8, 4))
class MultiScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.grus = nn.ModuleList([nn.GRU(4, h, batch_first=True) for h in (5, 6, 7)])
        self.fc = nn.Linear(18, 2)

    def forward(self, x):
        last = []
        for scale, gru in zip((1, 2, 4), self.grus, strict=True):
            pooled = F.avg_pool1d(x.transpose(1, 2), scale).transpose(1, 2)
            last.append(gru(pooled)[0][:, -1])
        return self.fc(torch.cat(last, -1))


class BeatsBlock(nn.Module):
    def __init__(self, length, horizon):
        super().__init__()
        self.rnn = nn.GRU(1, 7, batch_first=True)
        self.fc = nn.Linear(7, 6)
        self.backcast = nn.Linear(6, length)
        self.forecast = nn.Linear(6, horizon)

    def forward(self, x):
        h = F.relu(self.fc(self.rnn(x.unsqueeze(-1))[1][0]))
        return self.backcast(h), self.forecast(h)


@case(lambda: floats(4, 8))
class RecurrentNBeats(nn.Module):
    def __init__(self, length=8, horizon=3):
        super().__init__()
        self.blocks = nn.ModuleList([BeatsBlock(length, horizon) for _ in range(2)])
        self.first = nn.Linear(length, 5)
        self.last = nn.Linear(5, horizon)

    def forward(self, x):
        total = self.last(F.relu(self.first(x)))
        for block in self.blocks:
            backcast, forecast = block(x)
            x = x - backcast
            total = total + forecast
        return total + self.last(F.relu(self.first(x)))


@case(lambda: floats(2, 6, 4))
class Clockwork(nn.Module):
    """Parts of the hidden state that run at their own rate, with fixed borders."""

    def __init__(self, hidden=9):
        super().__init__()
        self.hidden = hidden
        self.x2h = nn.Linear(4, hidden)
        self.h2h = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.hidden)
        for t in range(x.size(1)):
            new = torch.tanh(self.x2h(x[:, t]) + self.h2h(h))
            parts = []
            for i, period in enumerate((1, 2, 4)):
                block = slice(3 * i, 3 * i + 3)
                parts.append(new[:, block] if t % period == 0 else h[:, block])
            h = torch.cat(parts, -1)
        return self.out(h)


class LSTMByHand(nn.Module):
    def __init__(self, n, h):
        super().__init__()
        self.x2h = nn.Linear(n, 4 * h)
        self.h2h = nn.Linear(h, 4 * h)

    def forward(self, x, state):
        gates = self.x2h(x)
        if state is None:
            i, f, g, o = gates.chunk(4, -1)
            c = torch.sigmoid(i) * torch.tanh(g)
        else:
            i, f, g, o = (gates + self.h2h(state[0])).chunk(4, -1)
            c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


@case(lambda: floats(3, 5, 4))
class HandWrittenLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = LSTMByHand(4, 7)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        state, outs = None, []
        for t in range(x.size(1)):
            state = self.cell(x[:, t], state)
            outs.append(self.out(state[0]))
        return torch.stack(outs, 1)


@case(lambda: floats(3, 5, 6))
class MinimalGatedUnit(nn.Module):
    """A recurrence of linear layers that starts from zeros of its own size."""

    def __init__(self, n=6, h=7):
        super().__init__()
        self.h = h
        self.forget = nn.Linear(n + h, h)
        self.candidate = nn.Linear(n + h, h)
        self.out = nn.Linear(h, 2)

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.h)
        for t in range(x.size(1)):
            f = torch.sigmoid(self.forget(torch.cat([x[:, t], h], -1)))
            g = torch.tanh(self.candidate(torch.cat([x[:, t], f * h], -1)))
            h = (1 - f) * h + f * g
        return self.out(h)


@case(lambda: (floats(3, 6, 5), floats(3, 4)))
class HighwayFiLM(nn.Module):
    """Highway t*h + (1-t)*x, features modulated by static covariates, one gate for all of them."""

    def __init__(self, d=7):
        super().__init__()
        self.inp = nn.Linear(5, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.t = nn.Linear(d, d)
        self.film = nn.Linear(4, 2 * d)
        self.strength = nn.Linear(4, 1)
        self.out = nn.Linear(d, 2)

    def forward(self, x, static):
        x = self.inp(x)
        h, _ = self.rnn(x)
        t = torch.sigmoid(self.t(x))
        y = t * h + (1 - t) * x
        scale, shift = self.film(static).unsqueeze(1).chunk(2, -1)
        y = y * (1 + scale) + shift
        return self.out(y * torch.sigmoid(self.strength(static)).unsqueeze(1))


@case(lambda: floats(3, 6, 5))
class MaxOfTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.GRU(5, 7, batch_first=True)
        self.b = nn.LSTM(5, 7, batch_first=True)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        return self.out(torch.max(self.a(x)[0], self.b(x)[0]).max(1).values)


@case(lambda: floats(1, 1, 5))
class MaxOfTwoTiny(MaxOfTwo):
    """One sequence of one step: little to see each neuron by."""


@case(lambda: floats(1, 1, 5), steps=False)
class ReluGatedTiny(nn.Module):
    """Products of rectified factors: most of them are zero in the example."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 12, batch_first=True)
        self.a = nn.Linear(12, 10)
        self.b = nn.Linear(12, 10)
        self.out = nn.Linear(10, 2)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(F.relu(self.a(h) - 1) * F.relu(self.b(h) - 1))
