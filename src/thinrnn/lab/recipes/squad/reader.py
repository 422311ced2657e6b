"""A trained BiDAF that only reads: the same logits in less time.

    every different word ── characters, GloVe, highway ── a vector, once
    every text ──────────── encoder, however many questions are about it
    [h; ũ; h*ũ; h*h̃] W ── h (W1 + h̃ W4) + (h*ũ) W3 + weights (u W2)

The last line is all that reads p, which is linear in it, at once: h̃ is the same at every token,
ũ a mean of the few vectors of the question, so that half of the work is left and p is never made.
LSTMs then begin behind their input weights. That pays where they are narrow; a model with wide ones
reads p itself.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn.lab.recipes.squad.model import BiDAF, BiLSTM, logits, reading_order, turned


class FastReader(nn.Module):
    """Start and end logits (B, T) from vectors of words and texts in numbers of these words."""

    def __init__(self, model: BiDAF) -> None:
        super().__init__()
        self.model = model.eval()
        self.rest = BehindAttention(model) if is_narrow(model) else None

    def words(self, rows: Tensor, characters: Tensor) -> Tensor:
        """Return the vectors (V, D) of words from their rows (V,) and characters (V, L)."""
        return self.spelled(self.model.vectors(rows), characters)

    def spelled(self, vectors: Tensor, characters: Tensor) -> Tensor:
        """Return the same from the vectors that the words have in GloVe or were trained."""
        found: Tensor = self.model.highway(torch.cat([self.model.spell(characters), vectors], -1))
        return found

    def forward(
        self, words: Tensor, context: Tensor, question: Tensor, about: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of questions (B, J) about contexts (C, T), in numbers of `words`.

        Number 0 is padding. `about` (B,) says which context a question is about; without it the
        first is about the first, and so on.
        """
        encoder = self.model.encoder
        h_mask, u_mask = (context != 0).t(), (question != 0).t()
        order = reading_order(h_mask)
        h = encoder(F.embedding(context.t(), words), order)
        u = encoder(F.embedding(question.t(), words), reading_order(u_mask))
        if about is not None:
            h, h_mask = h.index_select(1, about), h_mask.index_select(1, about)
            order = reading_order(h_mask)
        answer = self.model.answer if self.rest is None else self.rest
        found: tuple[Tensor, Tensor] = answer(h, u, h_mask, u_mask, order)
        return found


class BehindAttention(nn.Module):
    """What a BiDAF does behind its encoder."""

    def __init__(self, model: BiDAF) -> None:
        super().__init__()
        self.attention, self.modelling2 = model.attention, model.modelling2
        self.modelling1, self.output = Behind(model.modelling1), Behind(model.output)
        start, end = model.start, model.end
        p = 4 * len(model.attention.product)
        g = start.in_features - p
        weights = self.modelling1.weight, self.output.weight[:, :p]
        self.sizes = [*map(len, weights), 1, 1]
        of_p = torch.cat([*weights, start.weight[:, g:], end.weight[:, -p:]]).detach()
        self.of_p: Tensor
        self.register_buffer("of_p", torch.stack(of_p.split(p // 4, 1)), persistent=False)
        self.start = linear(start.weight[:, :g], start.bias)
        self.end = linear(end.weight[:, :-p], end.bias)

    def forward(
        self, h: Tensor, u: Tensor, h_mask: Tensor, u_mask: Tensor, order: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what `BiDAF.answer` returns."""
        into, over, start, end = self.gates(h, u, h_mask, u_mask).split(self.sizes, -1)
        g = self.modelling2(self.modelling1(into, order), order)
        start = logits((start + self.start(g)).squeeze(-1), h_mask)  # (B, T)
        weights = torch.softmax(start, -1).to(g.dtype).unsqueeze(1)
        a = weights @ g.transpose(0, 1)  # (B, 1, 2 six)
        m = self.output(self.output.with_rest(over, g, a), order)
        return start, logits((end + self.end(m)).squeeze(-1), h_mask)

    def gates(self, h: Tensor, u: Tensor, h_mask: Tensor, u_mask: Tensor) -> Tensor:
        """Return p W (T, B, N) without p; N are the gates of four LSTMs, the start and the end."""
        to_question, to_context = self.attention.weights(h, u, h_mask, u_mask)
        h, u = h.transpose(0, 1), u.transpose(0, 1)  # (B, T, size), (B, J, size)
        of_h, of_asked, of_both, of_told = self.of_p  # (N, size) each
        # Added in place: a sum of its own goes through memory once more, as long as the product.
        found = F.linear(h * (to_question @ u), of_both)
        found.baddbmm_(to_question, F.linear(u, of_asked))
        found.baddbmm_(h, (of_h + of_told * (to_context @ h)).transpose(1, 2))
        return found.transpose(0, 1)


class Behind(nn.Module):
    """The two LSTMs of a BiLSTM behind their input weights."""

    def __init__(self, both: BiLSTM) -> None:
        super().__init__()
        lstms = both.fwd, both.bwd
        self.weight: Tensor
        weights = torch.cat([lstm.get_parameter("weight_ih_l0") for lstm in lstms]).detach()
        self.register_buffer("weight", weights, persistent=False)
        self.fwd, self.bwd = (recurrent_part(lstm) for lstm in lstms)

    def forward(self, gates: Tensor, order: Tensor) -> Tensor:
        """Return (T, B, fwd + bwd) from what the input weights gave, (T, B, 4 (fwd + bwd))."""
        ahead, behind = gates.split([self.fwd.input_size, self.bwd.input_size], -1)
        there, _ = self.fwd(ahead)
        back, _ = self.bwd(turned(behind, order))
        return torch.cat([there, turned(back, order)], -1)

    def with_rest(self, gates: Tensor, g: Tensor, a: Tensor) -> Tensor:
        """Return what the input weights give for [p; g; a; g*a] from what they give for p."""
        of_g, of_a, of_both = self.weight[:, -3 * g.shape[-1] :].split(g.shape[-1], 1)
        found = gates.transpose(0, 1) + F.linear(a, of_a)  # (B, T, N)
        found.baddbmm_(g.transpose(0, 1), (of_g + of_both * a).transpose(1, 2))
        return found.transpose(0, 1)


def recurrent_part(lstm: nn.LSTM) -> nn.LSTM:
    """Return an LSTM whose input is what the input weights of another one gave."""
    n, state = lstm.hidden_size, lstm.state_dict()
    found = nn.LSTM(4 * n, n).to(state["weight_hh_l0"])
    found.load_state_dict({**state, "weight_ih_l0": torch.eye(4 * n)})
    return found.requires_grad_(False)


def is_narrow(model: BiDAF) -> bool:
    """True where an identity of 4n inputs costs less than the half of p's part that is saved."""
    lstms = [lstm for both in (model.modelling1, model.output) for lstm in (both.fwd, both.bwd)]
    return 4 * max(lstm.hidden_size for lstm in lstms) < 2 * len(model.attention.product)


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return a layer with given weights."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return layer
