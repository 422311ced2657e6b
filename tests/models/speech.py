"""Speech and audio, as people write it."""

import itertools

import torch
import torch.nn.functional as F
from models.case import case, floats, words
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@case(lambda: (floats(3, 12, 8), torch.tensor([12, 9, 4])))
class ConvBiLSTMCTC(nn.Module):
    def __init__(self, n_mels=8, hidden=7, n_tokens=6):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(n_mels, 10, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(10, 9, 3, padding=1),
            nn.ReLU(),
        )
        self.rnn = nn.LSTM(
            9, hidden, num_layers=3, bidirectional=True, batch_first=True, dropout=0.2
        )
        self.head = nn.Linear(hidden * 2, n_tokens)

    def forward(self, mels, lengths):
        x = self.conv(mels.transpose(1, 2)).transpose(1, 2)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return F.log_softmax(self.head(x), dim=-1)


class BatchRNN(nn.Module):
    def __init__(self, input_size, hidden_size, batch_norm=True):
        super().__init__()
        self.hidden_size = hidden_size
        self.batch_norm = nn.BatchNorm1d(input_size) if batch_norm else None
        self.rnn = nn.GRU(input_size, hidden_size, bidirectional=True)

    def forward(self, x):
        if self.batch_norm is not None:
            t, n = x.size(0), x.size(1)
            x = self.batch_norm(x.reshape(t * n, -1)).view(t, n, -1)
        x, _ = self.rnn(x)
        return x.view(x.size(0), x.size(1), 2, -1).sum(2).view(x.size(0), x.size(1), -1)


@case(lambda: floats(2, 1, 12, 10))
class DeepSpeech2(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 4, (5, 3), stride=(2, 2), padding=(2, 1)),
            nn.BatchNorm2d(4),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(4, 5, (3, 3), stride=(2, 1), padding=(1, 1)),
            nn.BatchNorm2d(5),
            nn.Hardtanh(0, 20, inplace=True),
        )
        self.rnns = nn.Sequential(BatchRNN(15, 8, batch_norm=False), BatchRNN(8, 8), BatchRNN(8, 8))
        self.fc = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 6, bias=False))

    def forward(self, x):
        x = self.conv(x)
        b, c, d, t = x.size()
        x = x.view(b, c * d, t).permute(2, 0, 1).contiguous()
        x = self.rnns(x)
        t, n = x.size(0), x.size(1)
        x = self.fc(x.view(t * n, -1)).view(t, n, -1)
        return x.transpose(0, 1)


class PyramidBLSTM(nn.Module):
    def __init__(self, input_dim, hidden):
        super().__init__()
        self.rnn = nn.LSTM(input_dim * 2, hidden, bidirectional=True, batch_first=True)

    def forward(self, x):
        b, t, h = x.size()
        x = x.contiguous().view(b, t // 2, h * 2)
        return self.rnn(x)[0]


@case(lambda: (floats(2, 8, 6), words(9, 2, 4)))
class ListenAttendSpell(nn.Module):
    def __init__(self, hidden=5, vocab=9):
        super().__init__()
        self.listener = nn.Sequential(PyramidBLSTM(6, hidden), PyramidBLSTM(2 * hidden, hidden))
        self.embed = nn.Embedding(vocab, 6)
        self.speller = nn.LSTMCell(6 + 2 * hidden, 8)
        self.phi = nn.Linear(8, 7)
        self.psi = nn.Linear(2 * hidden, 7)
        self.out = nn.Linear(8 + 2 * hidden, vocab)

    def forward(self, mel, targets):
        memory = self.listener(mel)
        keys = torch.tanh(self.psi(memory))
        context = memory[:, 0]
        state, outputs = None, []
        for step in range(targets.size(1)):
            word = self.embed(targets[:, step])
            state = self.speller(torch.cat([word, context], -1), state)
            query = torch.tanh(self.phi(state[0]))
            energy = torch.bmm(keys, query.unsqueeze(2)).squeeze(2)
            weights = F.softmax(energy, -1)
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            outputs.append(self.out(torch.cat([state[0], context], -1)))
        return torch.stack(outputs, 1)


@case(lambda: (floats(2, 6, 7), words(8, 2, 3)))
class Transducer(nn.Module):
    def __init__(self, vocab=8):
        super().__init__()
        self.encoder = nn.LSTM(7, 9, num_layers=2, batch_first=True)
        self.embed = nn.Embedding(vocab, 6)
        self.predictor = nn.GRU(6, 8, batch_first=True)
        self.enc_proj = nn.Linear(9, 10)
        self.pred_proj = nn.Linear(8, 10)
        self.joint = nn.Linear(10, vocab)

    def forward(self, x, y):
        enc = self.enc_proj(self.encoder(x)[0])
        pred = self.pred_proj(self.predictor(self.embed(y))[0])
        joint = torch.tanh(enc.unsqueeze(2) + pred.unsqueeze(1))
        return self.joint(joint).log_softmax(-1)


class Prenet(nn.Module):
    def __init__(self, in_dim, sizes):
        super().__init__()
        sizes = [in_dim, *sizes]
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(sizes)
        )

    def forward(self, x):
        for linear in self.layers:
            x = F.dropout(F.relu(linear(x)), p=0.5, training=True)
        return x


@case(lambda: (words(12, 2, 5), floats(2, 4, 6)))
class TacotronDecoder(nn.Module):
    """The prenet drops out in eval too, as in the paper."""

    def __init__(self, n_mels=6, rnn_dim=9, enc_dim=8):
        super().__init__()
        self.rnn_dim, self.n_mels = rnn_dim, n_mels
        self.embedding = nn.Embedding(12, 7)
        self.encoder = nn.LSTM(7, enc_dim // 2, batch_first=True, bidirectional=True)
        self.prenet = Prenet(n_mels, [8, 8])
        self.attention_rnn = nn.LSTMCell(8 + enc_dim, rnn_dim)
        self.query_layer = nn.Linear(rnn_dim, 7, bias=False)
        self.memory_layer = nn.Linear(enc_dim, 7, bias=False)
        self.location_conv = nn.Conv1d(2, 5, 3, padding=1, bias=False)
        self.location_dense = nn.Linear(5, 7, bias=False)
        self.v = nn.Linear(7, 1, bias=False)
        self.decoder_rnn = nn.LSTMCell(rnn_dim + enc_dim, rnn_dim)
        self.projection = nn.Linear(rnn_dim + enc_dim, n_mels)
        self.gate = nn.Linear(rnn_dim + enc_dim, 1)

    def forward(self, text, mels):
        memory, _ = self.encoder(self.embedding(text))
        processed = self.memory_layer(memory)
        b, t = text.shape
        h1 = memory.new_zeros(b, self.rnn_dim)
        c1 = memory.new_zeros(b, self.rnn_dim)
        h2 = memory.new_zeros(b, self.rnn_dim)
        c2 = memory.new_zeros(b, self.rnn_dim)
        context = memory.new_zeros(b, memory.size(2))
        weights = memory.new_zeros(b, t)
        cumulative = memory.new_zeros(b, t)
        frames = torch.cat([mels.new_zeros(b, 1, self.n_mels), mels[:, :-1]], 1)
        frames = self.prenet(frames)
        outputs, gates, alignments = [], [], []
        for i in range(frames.size(1)):
            h1, c1 = self.attention_rnn(torch.cat((frames[:, i], context), -1), (h1, c1))
            location = torch.stack([weights, cumulative], 1)
            location = self.location_dense(self.location_conv(location).transpose(1, 2))
            energies = self.v(torch.tanh(self.query_layer(h1).unsqueeze(1) + location + processed))
            weights = F.softmax(energies.squeeze(-1), dim=1)
            cumulative = cumulative + weights
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            h2, c2 = self.decoder_rnn(torch.cat((h1, context), -1), (h2, c2))
            both = torch.cat((h2, context), dim=1)
            outputs.append(self.projection(both))
            gates.append(self.gate(both))
            alignments.append(weights)
        return torch.stack(outputs, 1), torch.stack(gates, 1), torch.stack(alignments, 1)


class DPRNNBlock(nn.Module):
    def __init__(self, n, hidden):
        super().__init__()
        self.intra = nn.LSTM(n, hidden, batch_first=True, bidirectional=True)
        self.intra_proj = nn.Linear(hidden * 2, n)
        self.intra_norm = nn.GroupNorm(1, n)
        self.inter = nn.LSTM(n, hidden, batch_first=True)
        self.inter_proj = nn.Linear(hidden, n)
        self.inter_norm = nn.GroupNorm(1, n)

    def forward(self, x):
        b, n, k, s = x.shape
        y = x.permute(0, 3, 2, 1).contiguous().view(b * s, k, n)
        y = self.intra_proj(self.intra(y)[0])
        y = y.view(b, s, k, n).permute(0, 3, 2, 1)
        x = x + self.intra_norm(y)
        y = x.permute(0, 2, 3, 1).contiguous().view(b * k, s, n)
        y = self.inter_proj(self.inter(y)[0])
        y = y.view(b, k, s, n).permute(0, 3, 1, 2)
        return x + self.inter_norm(y)


@case(lambda: floats(2, 1, 24))
class DualPathSeparation(nn.Module):
    def __init__(self, n=8, hidden=6, speakers=2):
        super().__init__()
        self.speakers = speakers
        self.encoder = nn.Conv1d(1, n, 4, stride=2, bias=False)
        self.blocks = nn.Sequential(DPRNNBlock(n, hidden), DPRNNBlock(n, hidden))
        self.prelu = nn.PReLU()
        self.mask = nn.Conv2d(n, n * speakers, 1)
        self.decoder = nn.ConvTranspose1d(n, 1, 4, stride=2, bias=False)

    def forward(self, mix):
        w = F.relu(self.encoder(mix))
        b, n, t = w.shape
        k = 4
        pad = (k - t % k) % k
        chunks = F.pad(w, (0, pad)).view(b, n, -1, k).transpose(2, 3)
        masks = self.mask(self.prelu(self.blocks(chunks)))
        masks = torch.sigmoid(masks.transpose(2, 3).reshape(b * self.speakers, n, -1)[..., :t])
        w = w.repeat_interleave(self.speakers, 0) * masks
        return self.decoder(w).view(b, self.speakers, -1)


@case(lambda: floats(2, 6, 9))
class MaskSeparation(nn.Module):
    """Source separation as in Open-Unmix: scale and shift raw bins, skip connection, ReLU mask."""

    def __init__(self, bins=9, hidden=8):
        super().__init__()
        self.input_mean = nn.Parameter(torch.randn(bins))
        self.input_scale = nn.Parameter(torch.rand(bins) + 0.5)
        self.output_scale = nn.Parameter(torch.ones(bins))
        self.output_mean = nn.Parameter(torch.ones(bins))
        self.fc1 = nn.Linear(bins, hidden, bias=False)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.lstm = nn.LSTM(
            hidden, hidden // 2, 3, bidirectional=True, batch_first=True, dropout=0.4
        )
        self.fc2 = nn.Linear(hidden * 2, hidden, bias=False)
        self.bn2 = nn.BatchNorm1d(hidden)
        self.fc3 = nn.Linear(hidden, bins, bias=False)
        self.bn3 = nn.BatchNorm1d(bins)

    def forward(self, x):
        b, t, f = x.shape
        mix = x.detach().clone()
        x = (x + self.input_mean) * self.input_scale
        x = self.bn1(self.fc1(x.reshape(-1, f)))
        x = torch.tanh(x.reshape(b, t, -1))
        x = torch.cat([x, self.lstm(x)[0]], -1)
        x = F.relu(self.bn2(self.fc2(x.reshape(b * t, -1))))
        x = self.bn3(self.fc3(x)).reshape(b, t, f)
        return F.relu(x * self.output_scale + self.output_mean) * mix


@case(lambda: (floats(2, 7), floats(2, 7, 3)))
class WaveRNN(nn.Module):
    def __init__(self, rnn=9, fc=8, aux=4):
        super().__init__()
        self.aux = aux
        self.upsample = nn.Conv1d(3, 4 * aux, 1)
        self.I = nn.Linear(1 + 3 + aux, rnn)
        self.rnn1 = nn.GRU(rnn, rnn, batch_first=True)
        self.rnn2 = nn.GRU(rnn + aux, rnn, batch_first=True)
        self.fc1 = nn.Linear(rnn + aux, fc)
        self.fc2 = nn.Linear(fc + aux, fc)
        self.fc3 = nn.Linear(fc, 5)

    def forward(self, x, mels):
        aux = self.upsample(mels.transpose(1, 2)).transpose(1, 2)
        a1, a2, a3, a4 = aux.split(self.aux, dim=2)
        x = self.I(torch.cat([x.unsqueeze(-1), mels, a1], dim=2))
        x = x + self.rnn1(x)[0]
        x = x + self.rnn2(torch.cat([x, a2], dim=2))[0]
        x = F.relu(self.fc1(torch.cat([x, a3], dim=2)))
        x = F.relu(self.fc2(torch.cat([x, a4], dim=2)))
        return F.log_softmax(self.fc3(x), -1)


@case(lambda: floats(6, 2, 5))
class Unmixing(nn.Module):
    """OpenUnmix: the batch is folded for the norm, and unfolded with the hidden size."""

    def __init__(self, bins=5, hidden_size=8):
        super().__init__()
        self.bins, self.hidden_size = bins, hidden_size
        self.fc1 = nn.Linear(bins, hidden_size, bias=False)
        self.bn1 = nn.BatchNorm1d(hidden_size)
        self.lstm = nn.LSTM(hidden_size, hidden_size // 2, bidirectional=True)
        self.fc2 = nn.Linear(2 * hidden_size, 6)
        self.fc3 = nn.Linear(6, bins)

    def forward(self, x):
        frames, samples, _ = x.shape
        h = self.bn1(self.fc1(x.reshape(-1, self.bins)))
        h = torch.tanh(h.reshape(frames, samples, self.hidden_size))
        h = torch.cat([h, self.lstm(h)[0]], -1)
        h = F.relu(self.fc2(h.reshape(-1, h.shape[-1])))
        return F.relu(self.fc3(h).reshape(frames, samples, self.bins)) * x


class LocationAttention(nn.Module):
    def __init__(self, memory, dunits, att=4):
        super().__init__()
        self.dunits = dunits
        self.keys = nn.Linear(memory, att)
        self.query = nn.Linear(dunits, att, bias=False)
        self.energy = nn.Linear(att, 1)

    def forward(self, memory, z):
        z = memory.new_zeros(memory.size(0), self.dunits) if z is None else z
        query = self.query(z.view(memory.size(0), self.dunits)).unsqueeze(1)
        weights = self.energy(torch.tanh(self.keys(memory) + query)).softmax(1)
        return (weights * memory).sum(1)


@case(lambda: (floats(2, 5, 6), words(9, 2, 4)))
class LocationDecoder(nn.Module):
    """ESPnet's decoder: states of zeros, and an attention that checks their size."""

    def __init__(self, memory=6, dunits=7, vocab=9):
        super().__init__()
        self.dunits = dunits
        self.embed = nn.Embedding(vocab, 5)
        self.cells = nn.ModuleList([nn.LSTMCell(memory + 5, dunits), nn.LSTMCell(dunits, dunits)])
        self.attention = LocationAttention(memory, dunits)
        self.out = nn.Linear(dunits, vocab)

    def forward(self, memory, targets):
        z = [memory.new_zeros(memory.size(0), self.dunits) for _ in self.cells]
        c, outs = list(z), []
        for t in range(targets.size(1)):
            context = self.attention(memory, z[0] if t else None)
            x = torch.cat([self.embed(targets[:, t]), context], -1)
            for i, cell in enumerate(self.cells):
                z[i], c[i] = cell(x, (z[i], c[i]))
                x = z[i]
            outs.append(self.out(x))
        return torch.stack(outs, 1)


@case(lambda: floats(2, 1, 8, 10))
class KeywordCRNN(nn.Module):
    """A wake-word model: depthwise separable convolutions, GRU, last state."""

    def __init__(self, classes=4):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 6, (8, 3), padding=(0, 1)),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 6, (1, 3), groups=6, padding=(0, 1), bias=False),
            nn.Conv2d(6, 8, 1),
            nn.PReLU(8),
        )
        self.gru = nn.GRU(8, 10, num_layers=2, bidirectional=True)
        self.fc = nn.Linear(40, classes)

    def forward(self, x):
        x = self.net(x).squeeze(2).permute(2, 0, 1)
        _, h = self.gru(x)
        return self.fc(torch.cat([h[i] for i in range(4)], -1))
