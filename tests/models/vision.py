"""Images and video."""

import torch
import torch.nn.functional as F
from models.case import case, floats, words
from torch import nn


class BidirectionalLSTM(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.rnn = nn.LSTM(n_in, n_hidden, bidirectional=True)
        self.embedding = nn.Linear(n_hidden * 2, n_out)

    def forward(self, input):
        recurrent, _ = self.rnn(input)
        t, b, h = recurrent.size()
        return self.embedding(recurrent.view(t * b, h)).view(t, b, -1)


@case(lambda: floats(2, 1, 8, 16))
class CRNN(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        cnn = nn.Sequential()
        cnn.add_module("conv0", nn.Conv2d(1, 4, 3, 1, 1))
        cnn.add_module("relu0", nn.ReLU(True))
        cnn.add_module("pool0", nn.MaxPool2d(2, 2))
        cnn.add_module("conv1", nn.Conv2d(4, 6, 3, 1, 1))
        cnn.add_module("norm1", nn.BatchNorm2d(6))
        cnn.add_module("relu1", nn.ReLU(True))
        cnn.add_module("pool1", nn.MaxPool2d((4, 1)))
        self.cnn = cnn
        self.rnn = nn.Sequential(BidirectionalLSTM(6, 7, 8), BidirectionalLSTM(8, 7, classes))

    def forward(self, image):
        conv = self.cnn(image)
        assert conv.size(2) == 1, "the height of conv must be 1"
        return self.rnn(conv.squeeze(2).permute(2, 0, 1))


@case(lambda: floats(2, 3, 8, 8))
class CRNNReshape(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, padding=1)
        self.pool = nn.AvgPool2d(2)
        self.rnn = nn.GRU(5 * 4, 7, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(14, 6)

    def forward(self, x):
        x = self.pool(F.leaky_relu(self.conv(x)))
        x = x.permute(0, 3, 1, 2).flatten(2)
        return self.fc(self.rnn(x)[0]).log_softmax(2)


class ConvLSTMCell(nn.Module):
    def __init__(self, n, hidden):
        super().__init__()
        self.hidden_dim = hidden
        self.conv = nn.Conv2d(n + hidden, 4 * hidden, 3, padding=1)

    def forward(self, x, state):
        h, c = state
        combined = self.conv(torch.cat([x, h], dim=1))
        i, f, o, g = torch.split(combined, self.hidden_dim, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def init_hidden(self, b, size):
        zeros = torch.zeros(b, self.hidden_dim, *size, device=self.conv.weight.device)
        return zeros, zeros.clone()


@case(lambda: floats(2, 3, 2, 5, 5))
class ConvLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = ConvLSTMCell(2, 4)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, video):
        state = self.cell.init_hidden(video.size(0), video.shape[-2:])
        for t in range(video.size(1)):
            state = self.cell(video[:, t], state)
        return self.out(state[0])


@case(lambda: (floats(2, 3, 8, 8), words(10, 2, 4)))
class Captioner(nn.Module):
    """An image starts the state of the decoder; gated attention over the grid."""

    def __init__(self, hidden=8):
        super().__init__()
        conv = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.encoder = nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.embedding = nn.Embedding(10, 5)
        self.init_h = nn.Linear(6, hidden)
        self.init_c = nn.Linear(6, hidden)
        self.encoder_att = nn.Linear(6, 7)
        self.decoder_att = nn.Linear(hidden, 7)
        self.full_att = nn.Linear(7, 1)
        self.f_beta = nn.Linear(hidden, 6)
        self.decode_step = nn.LSTMCell(5 + 6, hidden)
        self.fc = nn.Linear(hidden, 10)
        self.embedding.weight.data.uniform_(-0.1, 0.1)
        self.fc.bias.data.fill_(0)

    def forward(self, image, caption):
        grid = self.encoder(image).permute(0, 2, 3, 1)
        grid = grid.reshape(grid.size(0), -1, grid.size(-1))
        mean = grid.mean(dim=1)
        h, c = self.init_h(mean), self.init_c(mean)
        words = self.embedding(caption)
        out = torch.zeros(caption.size(0), caption.size(1), 10)
        alphas = torch.zeros(caption.size(0), caption.size(1), grid.size(1))
        for t in range(caption.size(1)):
            att = self.full_att(F.relu(self.encoder_att(grid) + self.decoder_att(h).unsqueeze(1)))
            alpha = F.softmax(att.squeeze(2), dim=1)
            context = (grid * alpha.unsqueeze(2)).sum(dim=1)
            context = torch.sigmoid(self.f_beta(h)) * context
            h, c = self.decode_step(torch.cat([words[:, t], context], dim=1), (h, c))
            out[:, t] = self.fc(F.dropout(h, 0.5, self.training))
            alphas[:, t] = alpha
        return out, alphas


@case(lambda: floats(2, 4, 3, 6, 6))
class VideoClassifier(nn.Module):
    """A little residual network per frame, an LSTM over the frames."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5), nn.ReLU(inplace=True)
        )
        self.block = nn.Sequential(
            nn.Conv2d(5, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
            nn.Conv2d(6, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5),
        )  # fmt: skip
        self.lstm = nn.LSTM(5, 8, 2, batch_first=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, clip):
        frames = []
        for t in range(clip.size(1)):
            x = self.stem(clip[:, t])
            x = F.relu(x + self.block(x), inplace=True)
            frames.append(x.mean([2, 3]))
        out, _ = self.lstm(torch.stack(frames, dim=1))
        return self.fc(out[:, -1, :])


@case(lambda: floats(2, 6, 6))
class RowScanner(nn.Module):
    """Rows then columns (ReNet); an upsampling that turns channels into steps."""

    def __init__(self):
        super().__init__()
        self.rows = nn.GRU(1, 4, batch_first=True, bidirectional=True)
        self.columns = nn.GRU(8, 5, batch_first=True, bidirectional=True)
        self.up = nn.Linear(10, 2 * 7)
        self.out = nn.Linear(7, 1)

    def forward(self, image):
        b, h, w = image.shape
        x = self.rows(image.reshape(b * h, w, 1))[0].view(b, h, w, -1)
        x = x.transpose(1, 2).reshape(b * w, h, -1)
        x = self.columns(x)[0].view(b, w, h, -1).transpose(1, 2)
        up = self.up(x).view(b, h, 2 * w, -1)
        return self.out(torch.tanh(up)).squeeze(-1)
