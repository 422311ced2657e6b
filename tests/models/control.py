"""Reinforcement learning, control, recommendation, knowledge tracing, graphs."""

import torch
import torch.nn.functional as F
from models.case import case, floats, words
from torch import nn


@case(lambda: (floats(3, 6), (floats(3, 9), floats(3, 9))))
class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)
        self.lstm = nn.LSTMCell(8, 9)
        self.actor = nn.Linear(9, 4)
        self.critic = nn.Linear(9, 1)

    def forward(self, obs, state):
        h, c = self.lstm(F.elu(self.fc(obs)), state)
        return self.actor(h), self.critic(h), (h, c)


@case(lambda: (floats(2, 3, 1, 12, 12), None))
class DRQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 4, stride=2)
        self.conv2 = nn.Conv2d(4, 5, 3, stride=2)
        self.lstm = nn.LSTM(5 * 2 * 2, 8, batch_first=True)
        self.advantage = nn.Linear(8, 3)
        self.value = nn.Linear(8, 1)

    def forward(self, frames, hidden=None):
        b, t = frames.shape[:2]
        x = F.relu(self.conv1(frames.flatten(0, 1)))
        x = F.relu(self.conv2(x))
        x = x.view(b, t, -1)
        x, hidden = self.lstm(x, hidden)
        a, v = self.advantage(x), self.value(x)
        return v + a - a.mean(-1, keepdim=True), hidden


@case(lambda: (floats(3, 5, 4), floats(3, 5, 2)))
class WorldModel(nn.Module):
    """A mixture density head: means, deviations and weights of several Gaussians."""

    def __init__(self, latent=4, hidden=9, gaussians=3):
        super().__init__()
        self.latent, self.gaussians = latent, gaussians
        self.rnn = nn.LSTM(latent + 2, hidden, batch_first=True)
        self.mdn = nn.Linear(hidden, gaussians * (2 * latent + 1))
        self.done = nn.Linear(hidden, 1)

    def forward(self, z, action):
        out, _ = self.rnn(torch.cat([z, action], -1))
        stride = self.gaussians * self.latent
        params = self.mdn(out)
        mu = params[..., :stride].view(*out.shape[:2], self.gaussians, self.latent)
        sigma = params[..., stride : 2 * stride].view_as(mu).exp()
        log_pi = F.log_softmax(params[..., 2 * stride :], -1)
        return mu, sigma, log_pi, torch.sigmoid(self.done(out))


@case(lambda: (words(12, 4), None))
class GRU4Rec(nn.Module):
    def __init__(self, items=12, hidden=8, layers=2):
        super().__init__()
        self.items, self.hidden_size, self.num_layers = items, hidden, layers
        self.onehot_buffer = None
        self.gru = nn.GRU(items, hidden, layers)
        self.h2o = nn.Linear(hidden, items)

    def forward(self, input, hidden):
        if hidden is None:
            hidden = torch.zeros(self.num_layers, input.size(0), self.hidden_size)
        onehot = torch.zeros(input.size(0), self.items)
        onehot.scatter_(1, input.view(-1, 1), 1)
        output, hidden = self.gru(onehot.unsqueeze(0), hidden)
        return torch.tanh(self.h2o(output.view(-1, output.size(-1)))), hidden


@case(lambda: (words(5, 3, 6), words(2, 3, 6) * 0, words(5, 3, 6)))
class DKT(nn.Module):
    def __init__(self, skills=5):
        super().__init__()
        self.skills = skills
        self.interaction = nn.Embedding(2 * skills, 7)
        self.lstm = nn.LSTM(7, 8, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(8, skills)

    def forward(self, q, r, nxt):
        h, _ = self.lstm(self.interaction(q + self.skills * r))
        y = torch.sigmoid(self.out(self.drop(h)))
        return (y * F.one_hot(nxt, self.skills)).sum(-1)


@case(lambda: (floats(6, 4), (torch.rand(6, 6) > 0.5).float()))
class MessagePassing(nn.Module):
    def __init__(self, hidden=7, steps=3):
        super().__init__()
        self.steps = steps
        self.encode = nn.Linear(4, hidden)
        self.message = nn.Linear(hidden, 6)
        self.cell = nn.GRUCell(6, hidden)
        self.readout = nn.Linear(2 * hidden, 3)

    def forward(self, nodes, adjacency):
        h0 = torch.tanh(self.encode(nodes))
        h = h0
        for _ in range(self.steps):
            h = self.cell(adjacency @ F.relu(self.message(h)), h)
        return self.readout(torch.cat([h, h0], -1)).mean(0)


@case(lambda: floats(2, 5, 4, 3))
class TrajectoryNodes(nn.Module):
    """An RNN over a flattened batch of nodes, then attention among the nodes by einsum."""

    def __init__(self, hidden=8):
        super().__init__()
        self.embed = nn.Linear(3, 6)
        self.rnn = nn.GRU(6, hidden, batch_first=True)
        self.q = nn.Linear(hidden, 5)
        self.k = nn.Linear(hidden, 5)
        self.out = nn.Linear(2 * hidden, 2)

    def forward(self, tracks):
        b, t, n, f = tracks.shape
        flat = tracks.permute(0, 2, 1, 3).reshape(b * n, t, f)
        h = self.rnn(F.relu(self.embed(flat)))[1].squeeze(0).view(b, n, -1)
        scores = torch.einsum("bid,bjd->bij", self.q(h), self.k(h)) / 5**0.5
        social = torch.einsum("bij,bjd->bid", scores.softmax(-1), h)
        return self.out(torch.cat([h, social], -1))


@case(lambda: floats(4, 6, 5))
class AdaptiveComputation(nn.Module):
    """How often the cell thinks depends on what it thinks."""

    def __init__(self, hidden=8):
        super().__init__()
        self.cell = nn.GRUCell(6, hidden)
        self.halt = nn.Linear(hidden, 1)
        self.out = nn.Linear(hidden, 3)

    def forward(self, x):
        state = None
        for t in range(x.size(1)):
            total, n = x.new_zeros(x.size(0), 1), 0
            while total.min() < 0.99 and n < 5:
                flag = x.new_full((x.size(0), 1), float(n == 0))
                state = self.cell(torch.cat([x[:, t], flag], -1), state)
                total = total + torch.sigmoid(self.halt(state))
                n += 1
        return self.out(state)


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


@case(lambda: floats(3, 4, 5))
class MixtureOfExperts(nn.Module):
    """Rows are sent to experts by the sign of a router: their numbers follow the values."""

    def __init__(self, dim=6):
        super().__init__()
        self.rnn = nn.GRU(5, dim, batch_first=True)
        self.router = nn.Linear(dim, 2)
        self.experts = nn.ModuleList([Expert(dim), Expert(dim)])
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        h, _ = self.rnn(x)
        flat = h.reshape(-1, h.size(-1))
        choice = self.router(flat).argmax(-1)
        result = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows = (choice == i).nonzero().flatten()
            if len(rows):
                result = result.index_copy(0, rows, expert(flat[rows]))
        return self.out(result).view(x.size(0), x.size(1), -1)
