"""BiDAF (Seo et al. 2017): which tokens of a context answer a question.

    characters ── CNN ──┐
    words ── GloVe ─────┴─ highway x 2 ── BiLSTM ── h (context), u (question)     shared
    h, u ── trilinear attention ── p = [h; ũ; h*ũ; h*h̃]
    p ── BiLSTM ── BiLSTM ── g ── start = [g; p] w
    a = sum of g weighted by the start's probabilities
    [p; g; a; g*a] ── BiLSTM ── m ── end = [m; p] w

B questions, T tokens of the context, J of the question, L characters of a word. Row 0 is padding;
it changes nothing: each direction of an LSTM reads the text from its own end, padding comes last.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The LSTMs of the encoder, and those that the paper prunes, in the order of its table.
ENCODER = ("encoder.fwd", "encoder.bwd")
SIX = tuple(
    f"{layer}.{direction}"
    for layer in ("modelling1", "modelling2", "output")
    for direction in ("fwd", "bwd")
)
FAR = -1e4  # the logit of padding; finite in every precision


class BiLSTM(nn.Module):
    """Two LSTMs over padded sequences; the second reads each sequence from its last token."""

    def __init__(self, inputs: int, fwd: int, bwd: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.fwd = nn.LSTM(inputs, fwd)
        self.bwd = nn.LSTM(inputs, bwd)

    def forward(self, x: Tensor, order: Tensor) -> Tensor:
        """Return (T, B, fwd + bwd); `order` is the `reading_order` of the sequences."""
        there, _ = self.fwd(self.dropout(x))
        back, _ = self.bwd(turned(self.dropout(x), order))
        return torch.cat([there, turned(back, order)], -1)


def reading_order(mask: Tensor) -> Tensor:
    """Return the rows (T B,) of sequences (T, B), each from its last token to its first.

    Padding stays where it is, so that to turn twice is to do nothing.

    >>> reading_order(torch.tensor([[True], [True], [True], [False]]))
    tensor([2, 1, 0, 3])
    """
    length, batch = mask.shape
    places = torch.arange(length, device=mask.device).unsqueeze(1)
    last = mask.sum(0) - 1
    source = torch.where(places <= last, last - places, places)
    return (source * batch + torch.arange(batch, device=mask.device)).flatten()


def turned(x: Tensor, order: Tensor) -> Tensor:
    """Return sequences (T, B, N) in another order of rows."""
    if x.requires_grad and torch.is_grad_enabled():
        found: Tensor = _Turn.apply(x, order)  # type: ignore[no-untyped-call]
        return found
    return x.flatten(0, 1).index_select(0, order).view_as(x)


class _Turn(torch.autograd.Function):
    """Turns sequences; the gradient is turned too, where torch would add up row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x.flatten(0, 1).index_select(0, order).view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return grad.flatten(0, 1).index_select(0, order).view(grad.shape), None


class Highway(nn.Module):
    """y = t relu(W x) + (1 - t) x,  t = sigmoid(V x)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * F.relu(self.transform(x)) + (1 - t) * x


class Attention(nn.Module):
    """Context-to-question and question-to-context attention with trilinear similarity."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.context = nn.Linear(size, 1)
        self.question = nn.Linear(size, 1, bias=False)
        self.product = nn.Parameter(torch.empty(size))

    def forward(self, h: Tensor, u: Tensor, h_mask: Tensor, u_mask: Tensor) -> Tensor:
        """Return p (T, B, 4 * size) from h (T, B, size), u (J, B, size) and their masks."""
        to_question, to_context = self.weights(h, u, h_mask, u_mask)
        asked = (to_question @ u.transpose(0, 1)).transpose(0, 1)  # ũ
        told = (to_context @ h.transpose(0, 1)).transpose(0, 1)  # h̃, (1, B, size)
        return torch.cat([h, asked, h * asked, h * told], -1)

    def weights(
        self, h: Tensor, u: Tensor, h_mask: Tensor, u_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the weights (B, T, J) of the question's tokens and (B, 1, T) of the context's."""
        s = (h * self.product).transpose(0, 1) @ u.permute(1, 2, 0)  # (B, T, J)
        s = s + self.context(h).transpose(0, 1) + self.question(u).permute(1, 2, 0)
        s = s.masked_fill(~u_mask.t().unsqueeze(1), FAR)
        most = s.amax(-1).masked_fill(~h_mask.t(), FAR)  # (B, T)
        return torch.softmax(s, -1), torch.softmax(most, -1).unsqueeze(1)


class BiDAF(nn.Module):
    """Start and end logits (B, T) from rows and characters of context and question.

    `hidden` are the encoder's neurons, forward and backward; one number is for both.
    """

    def __init__(
        self,
        *,
        rows: int,
        characters: int,
        vector: int = 100,
        character: int = 8,
        filters: int = 100,
        width: int = 5,
        hidden: int | Sequence[int] = 100,
        six: Sequence[int] = (100,) * 6,
        dropout: float = 0.0,
        character_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(rows, vector)
        self.characters = nn.Embedding(characters, character)
        # GloVe belongs to whoever runs the model: it is neither trained nor saved.
        self.glove: Tensor
        self.register_buffer("glove", torch.zeros(1, vector), persistent=False)
        self.character_dropout = nn.Dropout(character_dropout)
        self.conv = nn.Conv1d(character, filters, width)
        word = vector + filters
        self.highway = nn.Sequential(Highway(word), Highway(word))
        fwd, bwd = (hidden, hidden) if isinstance(hidden, int) else hidden
        self.encoder = BiLSTM(word, fwd, bwd, dropout)
        self.attention = Attention(fwd + bwd)
        p = 4 * (fwd + bwd)
        self.modelling1 = BiLSTM(p, six[0], six[1], dropout)
        self.modelling2 = BiLSTM(six[0] + six[1], six[2], six[3], dropout)
        g = six[2] + six[3]
        self.output = BiLSTM(p + 3 * g, six[4], six[5], dropout)
        self.dropout = nn.Dropout(dropout)
        self.start = nn.Linear(g + p, 1)
        self.end = nn.Linear(six[4] + six[5] + p, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start as the reference code does: Glorot, forget gates open, unknown words N(0, 1)."""
        for name, p in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(p)
            elif name not in ("words.weight", "attention.product"):
                nn.init.xavier_uniform_(p)
        nn.init.normal_(self.words.weight)
        attention = self.attention
        limit = math.sqrt(6 / (3 * len(attention.product) + 1))  # one row for all three parts
        for part in (attention.context.weight, attention.question.weight, attention.product):
            nn.init.uniform_(part, -limit, limit)
        for lstm in self.modules():
            if isinstance(lstm, nn.LSTM):
                n, m = lstm.hidden_size, lstm.input_size
                limit = math.sqrt(6 / (m + n + 4 * n))  # one matrix for input and state
                for name, p in lstm.named_parameters():
                    if "weight" in name:
                        nn.init.uniform_(p, -limit, limit)
                    elif "ih" in name:
                        nn.init.ones_(p.data[n : 2 * n])

    def set_glove_(self, vectors: Tensor) -> None:
        """Use these vectors for the rows behind the trained ones."""
        self.glove = vectors.to(self.words.weight)

    def set_dropout_(self, p: float) -> None:
        """Drop with another probability from now on, but for characters."""
        for module in self.modules():
            if isinstance(module, nn.Dropout) and module is not self.character_dropout:
                module.p = p

    def forward(
        self,
        context: Tensor,
        context_characters: Tensor,
        question: Tensor,
        question_characters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        h_mask, u_mask = (context != 0).t(), (question != 0).t()  # time comes first from here on
        order = reading_order(h_mask)
        h = self.encoder(self.embed(self.vectors(context), context_characters), order)
        u = self.embed(self.vectors(question), question_characters)
        u = self.encoder(u, reading_order(u_mask))  # (J, B, fwd + bwd)
        return self.answer(h, u, h_mask, u_mask, order)

    def vectors(self, rows: Tensor) -> Tensor:
        """Return the vectors of words, trained ones or GloVe's."""
        trained = self.words.num_embeddings
        own = self.words(rows.clamp(max=trained - 1))
        given = F.embedding((rows - trained).clamp(min=0), self.glove)
        return torch.where((rows < trained).unsqueeze(-1), own, given)

    def answer(
        self, h: Tensor, u: Tensor, h_mask: Tensor, u_mask: Tensor, order: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logits from what the encoder made of contexts and questions."""
        p = self.attention(h, u, h_mask, u_mask)  # (T, B, 4 (fwd + bwd))
        g = self.modelling2(self.modelling1(p, order), order)
        start = self.start(self.dropout(torch.cat([g, p], -1))).squeeze(-1)
        start = logits(start, h_mask)  # (B, T)
        weights = torch.softmax(start, -1).to(g.dtype).unsqueeze(1)
        a = (weights @ g.transpose(0, 1)).transpose(0, 1)  # (1, B, 2 six)
        m = self.output(torch.cat([p, g, a.expand_as(g), g * a], -1), order)
        end = self.end(self.dropout(torch.cat([m, p], -1))).squeeze(-1)
        return start, logits(end, h_mask)

    def embed(self, vectors: Tensor, characters: Tensor) -> Tensor:
        """Return (T, B, D + filters) from the vectors (B, T, D) and characters (B, T, L)."""
        vectors, characters = vectors.transpose(0, 1), characters.transpose(0, 1)
        spelled = self.spell(characters.flatten(0, 1)).view(*vectors.shape[:2], -1)
        words: Tensor = self.highway(torch.cat([spelled, vectors.to(spelled.dtype)], -1))
        return words

    def spell(self, characters: Tensor) -> Tensor:
        """Return (N, filters), what the character CNN makes of words (N, L)."""
        letters = self.character_dropout(self.characters(characters))  # (N, L, c)
        return F.relu(self.conv(letters.transpose(1, 2)).amax(-1))


def logits(x: Tensor, mask: Tensor) -> Tensor:
    """Return (B, T) from (T, B), in float32 at least; padding is out of the question."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide.masked_fill(~mask, FAR).t()


def best_spans(start: Tensor, end: Tensor, most: int | None = None) -> tuple[Tensor, Tensor]:
    """Return first and last tokens (B,) of the likeliest spans, first <= last, from logits (B, T).

    With `most`, spans of more tokens do not count.
    """
    start, end = torch.log_softmax(start, -1), torch.log_softmax(end, -1)
    if most is None or most >= start.shape[1]:
        best, first = start.cummax(-1)
    else:  # the best start among the last `most` tokens
        before = F.pad(start, (most - 1, 0), value=-torch.inf).unsqueeze(1)
        best, first = F.max_pool1d(before, most, 1, return_indices=True)
        best, first = best.squeeze(1), first.squeeze(1) - (most - 1)
    last = (best + end).argmax(-1, keepdim=True)
    return first.gather(1, last).squeeze(1), last.squeeze(1)


def weights_of(model: nn.Module) -> dict[str, int]:
    """Return how many numbers a model has learned, as the paper counts: biases too, GloVe not.

    An LSTM of torch has two biases, and only their sum matters: they count as one. "tables"
    are those of the characters and of the words outside GloVe.
    """
    found = {"tables": 0, "others": 0}
    for name, p in model.named_parameters():
        if "bias_hh" in name or name.startswith("thinrnn:"):
            continue
        found["tables" if name.startswith(("words.", "characters.")) else "others"] += p.numel()
    return {"weights": sum(found.values()), **found}


def example(batch: int, tokens: int, question: int = 12) -> tuple[Tensor, ...]:
    """Return inputs of a given size, without padding."""
    words = torch.ones(batch, tokens, dtype=torch.long)
    asked = torch.ones(batch, question, dtype=torch.long)
    return words, words.unsqueeze(-1).repeat(1, 1, 16), asked, asked.unsqueeze(-1).repeat(1, 1, 16)
