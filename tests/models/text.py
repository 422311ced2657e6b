"""Text: tagging, language models, translation, matching."""

import random
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from models.case import case, floats, words
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@case(lambda: (words(20, 2, 4), words(15, 2, 4, 5)))
class CharWordTagger(nn.Module):
    def __init__(self, tags=5):
        super().__init__()
        self.char_embed = nn.Embedding(15, 6, padding_idx=0)
        self.char_lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.word_embed = nn.Embedding(20, 8, padding_idx=0)
        self.word_lstm = nn.LSTM(18, 7, batch_first=True, bidirectional=True)
        self.hidden2tag = nn.Linear(14, tags)
        self.transitions = nn.Parameter(torch.randn(tags, tags))
        self.start = nn.Parameter(torch.randn(tags))

    def forward(self, sentence, chars):
        b, t, c = chars.shape
        _, (h, _) = self.char_lstm(self.char_embed(chars.view(b * t, c)))
        char_features = torch.cat([h[0], h[1]], -1).view(b, t, -1)
        x = torch.cat([self.word_embed(sentence), char_features], -1)
        emissions = self.hidden2tag(self.word_lstm(x)[0])
        alpha = self.start + emissions[:, 0]
        for i in range(1, t):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + emissions[:, i]
        return emissions, torch.logsumexp(alpha, 1)


def locked_dropout(x, p, training):
    if not training or not p:
        return x
    mask = x.new_empty(1, x.size(1), x.size(2)).bernoulli_(1 - p) / (1 - p)
    return x * mask


@case(lambda: words(15, 6, 3))
class AWDLSTM(nn.Module):
    def __init__(self, ntoken=15, ninp=6, nhid=9):
        super().__init__()
        self.ninp, self.nhid, self.nlayers = ninp, nhid, 3
        self.encoder = nn.Embedding(ntoken, ninp)
        sizes = [ninp, nhid, nhid, ninp]
        self.rnns = nn.ModuleList(nn.LSTM(sizes[i], sizes[i + 1]) for i in range(3))
        self.decoder = nn.Linear(ninp, ntoken)
        self.decoder.weight = self.encoder.weight

    def forward(self, input, hidden=None):
        emb = locked_dropout(self.encoder(input), 0.4, self.training)
        if hidden is None:
            hidden = [None] * self.nlayers
        new_hidden, raw = [], emb
        for i, rnn in enumerate(self.rnns):
            raw, state = rnn(raw, hidden[i])
            new_hidden.append(state)
            if i != self.nlayers - 1:
                raw = locked_dropout(raw, 0.3, self.training)
        output = locked_dropout(raw, 0.4, self.training)
        result = self.decoder(output.view(output.size(0) * output.size(1), output.size(2)))
        return result.view(output.size(0), output.size(1), -1), new_hidden


@case(lambda: words(20, 2, 5))
class ELMo(nn.Module):
    """Two directions as separate LSTMs, and a learned scalar mix of all layers."""

    def __init__(self, dim=6):
        super().__init__()
        self.embed = nn.Embedding(20, 2 * dim)
        self.proj = nn.Linear(2 * dim, dim)
        self.forwards = nn.ModuleList([nn.LSTM(dim, dim, batch_first=True) for _ in range(2)])
        self.backwards = nn.ModuleList([nn.LSTM(dim, dim, batch_first=True) for _ in range(2)])
        self.mix = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(3)])
        self.gamma = nn.Parameter(torch.ones(1))
        self.classifier = nn.Linear(2 * dim, 4)

    def forward(self, tokens):
        x = self.proj(self.embed(tokens))
        f, b = x, x.flip(1)
        layers = [torch.cat([x, x], -1)]
        for fw, bw in zip(self.forwards, self.backwards, strict=True):
            f = f + fw(f)[0]
            b = b + bw(b)[0]
            layers.append(torch.cat([f, b.flip(1)], -1))
        weights = F.softmax(torch.cat(list(self.mix)), 0)
        mixed = self.gamma * sum(w * layer for w, layer in zip(weights, layers, strict=True))
        return self.classifier(mixed.mean(1))


class LuongEncoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.hidden_size = hidden
        self.embedding = nn.Embedding(vocab, hidden)
        self.gru = nn.GRU(hidden, hidden, 2, dropout=0.1, bidirectional=True)

    def forward(self, src, lengths):
        packed = pack_padded_sequence(self.embedding(src), lengths)
        outputs, hidden = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs)
        return outputs[:, :, : self.hidden_size] + outputs[:, :, self.hidden_size :], hidden


class LuongDecoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.gru = nn.GRU(hidden, hidden, 2, dropout=0.1)
        self.concat = nn.Linear(hidden * 2, hidden)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, step, hidden, encoder_outputs):
        rnn_output, hidden = self.gru(self.embedding(step), hidden)
        weights = F.softmax(torch.sum(rnn_output * encoder_outputs, dim=2).t(), dim=1).unsqueeze(1)
        context = weights.bmm(encoder_outputs.transpose(0, 1)).squeeze(1)
        output = torch.tanh(self.concat(torch.cat((rnn_output.squeeze(0), context), 1)))
        return F.softmax(self.out(output), dim=1), hidden


@case(lambda: (words(12, 5, 3), torch.tensor([5, 4, 2]), words(12, 4, 3)))
class LuongSeq2Seq(nn.Module):
    """The chatbot tutorial: the encoder's first layers start the decoder."""

    def __init__(self):
        super().__init__()
        self.encoder = LuongEncoder(12, 8)
        self.decoder = LuongDecoder(12, 8)

    def forward(self, src, lengths, target):
        outputs, hidden = self.encoder(src, lengths)
        state = hidden[:2]
        step = torch.zeros(1, src.size(1), dtype=torch.long)
        teacher = random.random() < 0.5
        steps = []
        for i in range(target.size(0)):
            out, state = self.decoder(step, state, outputs)
            steps.append(out)
            step = target[i].view(1, -1) if teacher else out.argmax(1).view(1, -1)
        return torch.stack(steps)


@case(lambda: (words(12, 3, 5), words(10, 3, 4)))
class BahdanauSeq2Seq(nn.Module):
    def __init__(self, hidden=7):
        super().__init__()
        self.src_embed = nn.Embedding(12, 6)
        self.encoder = nn.GRU(6, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.tgt_embed = nn.Embedding(10, 5)
        self.W_enc = nn.Linear(2 * hidden, 6, bias=False)
        self.W_dec = nn.Linear(hidden, 6)
        self.v = nn.Linear(6, 1, bias=False)
        self.cell = nn.GRUCell(5 + 2 * hidden, hidden)
        self.pre_out = nn.Linear(hidden + 2 * hidden + 5, 9)
        self.out = nn.Linear(9, 10)

    def attend(self, state, memory, keys, mask):
        scores = self.v(torch.tanh(keys + self.W_dec(state).unsqueeze(1))).squeeze(-1)
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), -1)
        return (weights.unsqueeze(-1) * memory).sum(1), weights

    def forward(self, src, tgt, teacher_forcing=0.5):
        mask = src == 0
        memory, last = self.encoder(self.src_embed(src))
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], -1)))
        keys = self.W_enc(memory)
        token, logits, attention = tgt[:, 0], [], []
        for i in range(tgt.size(1)):
            word = self.tgt_embed(token)
            context, weights = self.attend(state, memory, keys, mask)
            state = self.cell(torch.cat([word, context], -1), state)
            hidden = F.relu(self.pre_out(torch.cat([state, context, word], -1)))
            logits.append(self.out(hidden))
            attention.append(weights)
            use_teacher = self.training and random.random() < teacher_forcing
            token = tgt[:, i] if use_teacher else logits[-1].argmax(-1)
        return torch.stack(logits, 1), torch.stack(attention, 1)


@case(lambda: floats(2, 5, 2))
class PointerNetwork(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.embed = nn.Linear(2, 7)
        self.encoder = nn.LSTM(7, hidden, batch_first=True)
        self.cell = nn.LSTMCell(7, hidden)
        self.start = nn.Parameter(torch.randn(7))
        self.W1 = nn.Linear(hidden, 6, bias=False)
        self.W2 = nn.Linear(hidden, 6, bias=False)
        self.V = nn.Linear(6, 1, bias=False)

    def forward(self, points):
        b, n, _ = points.shape
        x = self.embed(points)
        memory, (h, c) = self.encoder(x)
        h, c = h.squeeze(0), c.squeeze(0)
        step, mask, pointers = self.start.expand(b, -1), torch.zeros(b, n).bool(), []
        for _ in range(n):
            h, c = self.cell(step, (h, c))
            scores = self.V(torch.tanh(self.W1(memory) + self.W2(h).unsqueeze(1))).squeeze(-1)
            logits = scores.masked_fill(mask, -1e9).log_softmax(-1)
            pointers.append(logits)
            chosen = logits.argmax(-1)
            mask = mask.scatter(1, chosen.unsqueeze(1), True)
            step = x[torch.arange(b), chosen]
        return torch.stack(pointers, 1)


class AttentionPool(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.proj = nn.Linear(dim, size)
        self.context = nn.Parameter(torch.randn(size, 1))

    def forward(self, x):
        scores = torch.tanh(self.proj(x)).matmul(self.context)
        weights = torch.softmax(scores, 1)
        return (weights * x).sum(1), weights


@case(lambda: words(20, 2, 3, 4))
class HierarchicalAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.word_gru = nn.GRU(6, 5, batch_first=True, bidirectional=True)
        self.word_attention = AttentionPool(10, 7)
        self.sentence_gru = nn.GRU(10, 6, batch_first=True, bidirectional=True)
        self.sentence_attention = AttentionPool(12, 8)
        self.fc = nn.Linear(12, 3)

    def forward(self, documents):
        b, s, t = documents.shape
        x, _ = self.word_gru(self.embed(documents.view(b * s, t)))
        x, word_weights = self.word_attention(x)
        x, _ = self.sentence_gru(x.view(b, s, -1))
        x, sentence_weights = self.sentence_attention(x)
        return {"logits": self.fc(x), "words": word_weights, "sentences": sentence_weights}


@case(lambda: (words(20, 3, 5), words(20, 3, 4)))
class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.randn(20, 6), freeze=True)
        self.lstm = nn.LSTM(6, 7, batch_first=True, bidirectional=True)
        self.fc = nn.Sequential(nn.Linear(4 * 14, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))

    def encode(self, x):
        return self.lstm(self.embedding(x))[0].max(dim=1)[0]

    def forward(self, a, b):
        a, b = self.encode(a), self.encode(b)
        return self.fc(torch.cat([a, b, torch.abs(a - b), a * b], 1))


@case(lambda: words(15, 3, 5))
class SentenceVAE(nn.Module):
    def __init__(self, hidden=8, latent=4, vocab=15):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(vocab, 6)
        self.encoder = nn.LSTM(6, hidden, batch_first=True)
        self.to_mean = nn.Linear(hidden, latent)
        self.to_logvar = nn.Linear(hidden, latent)
        self.to_hidden = nn.Linear(latent, hidden)
        self.to_cell = nn.Linear(latent, hidden)
        self.decoder = nn.LSTM(6 + latent, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x):
        e = self.embed(x)
        _, (h, _) = self.encoder(e)
        mean, logvar = self.to_mean(h[-1]), self.to_logvar(h[-1])
        z = mean
        if self.training:
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        h0, c0 = torch.tanh(self.to_hidden(z)), self.to_cell(z)
        every = z.unsqueeze(1).expand(-1, x.size(1), -1)
        out, _ = self.decoder(torch.cat([e, every], -1), (h0.unsqueeze(0), c0.unsqueeze(0)))
        kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(-1)
        return self.out(out), kl


class TaggerOutput(NamedTuple):
    logits: torch.Tensor
    loss: torch.Tensor | None


@case(lambda: {"input_ids": words(20, 2, 6), "labels": None})
class KeywordOnlyTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 7)
        self.norm = nn.LayerNorm(7)
        self.rnn = nn.GRU(7, 8, 2, batch_first=True)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 4)

    def forward(self, *, input_ids, labels=None):
        h, _ = self.rnn(self.norm(self.embed(input_ids)))
        logits = self.head(self.drop(h))
        return TaggerOutput(logits, None)


@dataclass
class LMOutput:
    logits: torch.Tensor
    hidden: torch.Tensor
    loss: torch.Tensor | None = None


@case(lambda: words(20, 2, 6))
class PositionalLM(nn.Module):
    """A sinusoid buffer and a learned table are added to the words; hidden states come back."""

    def __init__(self, dim=8):
        super().__init__()
        self.embed = nn.Embedding(20, dim)
        position = torch.arange(32).unsqueeze(1)
        rate = torch.exp(torch.arange(0, dim, 2) * (-4.0 / dim))
        table = torch.zeros(1, 32, dim)
        table[0, :, 0::2] = torch.sin(position * rate)
        table[0, :, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table)
        self.learned = nn.Parameter(torch.randn(32, dim))
        self.lower = nn.GRU(dim, 9, batch_first=True)
        self.upper = nn.GRU(9, 7, batch_first=True)
        self.out = nn.Linear(7, 20)

    def forward(self, tokens):
        t = tokens.size(1)
        x = self.embed(tokens) + self.table[:, :t] + self.learned[:t]
        x, _ = self.lower(x)
        h, _ = self.upper(x)
        return LMOutput(self.out(h), h)


@case(lambda: (words(20, 3, 5), words(20, 3, 4), words(20, 3, 6)))
class CosineRanker(nn.Module):
    """Cosine similarity of normalised encodings: every neuron is mixed with every other."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.rnn = nn.GRU(6, 8, batch_first=True)

    def encode(self, x):
        return F.normalize(self.rnn(self.embed(x))[1][-1], dim=-1)

    def forward(self, query, good, bad):
        q, g, b = self.encode(query), self.encode(good), self.encode(bad)
        return (q * g).sum(-1) - (q * b).sum(-1)


@case(lambda: words(20, 4, 7))
class TextCNNGRU(nn.Module):
    """Several convolutions side by side, pooled, next to a GRU."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.convs = nn.ModuleList([nn.Conv1d(6, 5, k, padding=k // 2) for k in (1, 3, 5)])
        self.gru = nn.GRU(15, 7, batch_first=True)
        self.fc = nn.Linear(7 + 15, 3)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        maps = torch.cat([F.relu(conv(x)) for conv in self.convs], 1)
        pooled = F.adaptive_max_pool1d(maps, 1).squeeze(-1)
        _, h = self.gru(maps.transpose(1, 2))
        return self.fc(torch.cat([h[-1], pooled], 1))


@case(lambda: words(20, 3, 6))
class SampledSoftmaxLM(nn.Module):
    """Raw use of a known layer's weight: rows of the output matrix are looked up."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.rnn = nn.LSTM(6, 9, batch_first=True)
        self.out = nn.Linear(9, 20)

    def forward(self, tokens):
        h, _ = self.rnn(self.embed(tokens[:, :-1]))
        if self.training:
            return self.out(h)
        w = self.out.weight[tokens[:, 1:]]
        return (h * w).sum(-1) + self.out.bias[tokens[:, 1:]]
