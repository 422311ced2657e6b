"""What everybody has written: tutorials, classifiers, taggers, tied language models."""

import torch
import torch.nn.functional as F
from models.case import case, floats, words
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@case(lambda: floats(4, 6, 5))
class Tutorial(nn.Module):
    def __init__(self, input_size=5, hidden_size=10, num_layers=2, num_classes=3):
        super().__init__()
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, batch_first=True)
        self.fc = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        h0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size).to(x.device)
        c0 = torch.zeros(self.num_layers, x.size(0), self.hidden_size).to(x.device)
        out, _ = self.lstm(x, (h0, c0))
        return self.fc(out[:, -1, :])


@case(lambda: (words(20, 4, 6), torch.tensor([6, 5, 3, 1])))
class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.rnn = nn.LSTM(8, 7, num_layers=2, bidirectional=True, dropout=0.5)
        self.fc = nn.Linear(14, 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, text, lengths):
        embedded = self.dropout(self.embedding(text.t()))
        packed = pack_padded_sequence(embedded, lengths.cpu())
        packed, (hidden, _) = self.rnn(packed)
        pad_packed_sequence(packed)
        hidden = self.dropout(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1))
        return self.fc(hidden)


@case(lambda: floats(4, 6, 5))
class CellLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LSTMCell(5, 8)
        self.second = nn.GRUCell(8, 7)
        self.out = nn.Linear(7, 2)

    def forward(self, x):
        h, c, g, outs = torch.zeros(x.shape[0], 8), torch.zeros(x.shape[0], 8), None, []
        for t in range(x.shape[1]):
            h, c = self.first(x[:, t], (h, c))
            g = self.second(torch.relu(h), g)
            outs.append(self.out(g))
        return torch.stack(outs, 1)


@case(lambda: floats(4, 6, 5))
class CharRNN(nn.Module):
    """The first recurrent network of the tutorials: one linear layer and a loop."""

    def __init__(self, hidden=9):
        super().__init__()
        self.hidden = hidden
        self.i2h = nn.Linear(5 + hidden, hidden)
        self.h2o = nn.Linear(hidden, 2)

    def forward(self, x):
        h = torch.zeros(x.size(0), self.hidden)
        for t in range(x.size(1)):
            h = torch.tanh(self.i2h(torch.cat([x[:, t], h], 1)))
        return self.h2o(h)


@case(lambda: (words(20, 6, 4), None))
class TiedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.rnn = nn.LSTM(8, 8, 2)
        self.bias = nn.Parameter(torch.zeros(20))

    def forward(self, x, hidden=None):
        out, hidden = self.rnn(self.embedding(x), hidden)
        return F.linear(out, self.embedding.weight, self.bias), hidden


@case(lambda: floats(4, 6, 5))
class SumOfDirections(nn.Module):
    """DeepSpeech's sum of two directions: `hidden` follows the size of both."""

    def __init__(self):
        super().__init__()
        self.hidden = 8
        self.inp = nn.Linear(5, 6)
        self.rnn = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        h, _ = self.rnn(self.inp(x))
        return self.out(h[:, :, : self.hidden] + h[:, :, self.hidden :])


@case(lambda: floats(4, 6, 5))
class GLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 10, batch_first=True)
        self.proj = nn.Linear(10, 14)
        self.out = nn.Linear(7, 3)

    def forward(self, x):
        return self.out(F.glu(self.proj(self.rnn(x)[0]), -1))


@case(lambda: floats(4, 6, 5))
class Flattened(nn.Module):
    """Every step of every neuron has its own column in the head."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 10, batch_first=True, bidirectional=True)
        self.out = nn.Linear(6 * 20, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0].reshape(x.size(0), -1))


@case(lambda: floats(4, 6, 5))
class Projected(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 10, num_layers=3, proj_size=4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


@case(lambda: floats(4, 6, 5))
class Encoder(nn.Module):
    """Everything comes back to the caller: only input features can go."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 10, 2, batch_first=True)

    def forward(self, x):
        return self.rnn(x)


@case(lambda: floats(4, 6, 5))
class AllStates(nn.Module):
    """The states of all layers side by side: they must keep one size."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 10, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(40, 3)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.out(h.permute(1, 0, 2).reshape(x.size(0), -1))


@case(lambda: floats(4, 6, 5))
class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 8, 2, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(self.attention(h, h, h, need_weights=False)[0])


@case(lambda: (words(20, 4, 6), words(20, 4, 3)))
class BiDAF(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.encoder = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.w = nn.Parameter(torch.randn(30))
        self.modeling = nn.LSTM(40, 5, batch_first=True, bidirectional=True)
        self.start = nn.Linear(50, 1, bias=False)

    def forward(self, context, query):
        h, _ = self.encoder(self.embedding(context))
        u, _ = self.encoder(self.embedding(query))
        hh = h.unsqueeze(2).expand(-1, -1, u.size(1), -1)
        uu = u.unsqueeze(1).expand(-1, h.size(1), -1, -1)
        similarity = torch.cat([hh, uu, hh * uu], -1) @ self.w
        to_query = torch.softmax(similarity, -1) @ u
        to_context = torch.softmax(similarity.max(-1)[0], -1).unsqueeze(1) @ h
        g = torch.cat([h, to_query, h * to_query, h * to_context.expand_as(h)], -1)
        m, _ = self.modeling(g)
        return self.start(torch.cat([g, m], -1)).squeeze(-1)
