"""The language model: plain torch, as a user would write it."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinrnn
from thinrnn.nn.rhn import RHN
from thinrnn.nn.rnn_stack import RNNStack
from thinrnn.plan import Plan

CELLS: dict[str, Callable[..., nn.Module]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn": nn.RNN,
    "rhn": RHN,
}


@dataclass(frozen=True)
class Dropouts:
    """What is dropped in training, as probabilities."""

    word: float = 0.0  # whole words of the embedding
    input: float = 0.0  # after the embedding
    layer: float = 0.0  # between layers
    output: float = 0.0  # before the output layer
    weight: float = 0.0  # entries of the recurrent matrices
    recurrent: float = 0.0  # the state inside recurrent highway layers

    def scaled(self, factor: float) -> "Dropouts":
        """Return all of them times a factor."""
        return Dropouts(*(factor * part for part in dataclasses.astuple(self)))


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, output; dropout before, between and after the layers.

    `model(tokens, state)` takes tokens (T, B) and returns logits (T, B, V) and the next state.
    With `locked`, a dropout mask is the same for all steps of a call.

    The last `rare` words of a tied model may have shorter vectors, of `rare_size` r. With E (n, d),
    R (rare, r) and P (d, r), n being the number of the other words:

        e(w) = E[w]  for w < n,  P R[w - n]  for the rare words
        logits = [h E^T ; (h P) R^T] + b

    With the `counts` (V,) of the tokens in the training text, b starts as their log frequencies.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        cell: str = "lstm",
        depth: int = 10,
        embedding: int = 400,
        hidden: tuple[int, ...] = (400, 400),
        tied: bool = False,
        rare: int = 0,
        rare_size: int = 64,
        locked: bool = False,
        dropouts: Dropouts | None = None,
        init_range: float | Literal["width"] | None = None,
        rnn_init: float | None = None,
        counts: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.words = vocabulary
        self.frequent = vocabulary - rare
        self.embedding = nn.Embedding(self.frequent, embedding)
        self.locked = locked
        self.rnn: nn.Module
        if has_one_module(cell, hidden, locked):
            self.rnn = CELLS[cell](embedding, hidden[0], num_layers=len(hidden))
        else:
            sizes = itertools.pairwise((embedding, *hidden))
            options = {"depth": depth} if cell == "rhn" else {}
            self.rnn = nn.ModuleList(CELLS[cell](m, n, **options) for m, n in sizes)
        self.decoder = nn.Linear(hidden[-1], self.frequent)
        self.set_dropouts(dropouts or Dropouts())
        inputs, outputs = first_ranges(init_range, cell, embedding, hidden[-1], tied)
        if inputs and outputs:
            nn.init.uniform_(self.embedding.weight, -inputs, inputs)
            nn.init.uniform_(self.decoder.weight, -outputs, outputs)
            nn.init.zeros_(self.decoder.bias)
        if rnn_init is not None:
            for parameter in self.rnn.parameters():
                is_bias = parameter.dim() == 1
                nn.init.uniform_(parameter, *((0, 0) if is_bias else (-rnn_init, rnn_init)))
            for layer in self.highways:
                layer.reset_parameters(rnn_init)
        if tied:
            self.decoder.weight = self.embedding.weight
        if rare:
            self.add_rare(rare, rare_size, embedding, inputs)
        if counts is not None:
            self.expect(counts)

    @torch.no_grad()
    def expect(self, counts: Tensor) -> None:
        """Start from the unigram model: the output biases are the logarithms of the frequencies.

        Otherwise the state has to learn the frequencies first. Adam drives it into saturation for
        that, within some 25 steps, and a saturated layer learns nothing else.
        """
        smooth = counts.double() + 1
        biases = (smooth / smooth.sum()).log().to(self.decoder.bias)
        self.decoder.bias.copy_(biases[: self.frequent])
        if self.frequent < self.words:
            self.rare_decoder.bias.copy_(biases[self.frequent :])

    def add_rare(self, words: int, size: int, embedding: int, init_range: float | None) -> None:
        """Add the rare words, whose vectors and logits begin as large as those of the others."""
        self.rare = nn.Embedding(words, size)
        self.widen = nn.Linear(size, embedding, bias=False)
        self.rare_decoder = nn.Linear(size, words)
        self.rare_decoder.weight = self.rare.weight
        if init_range is not None:
            nn.init.uniform_(self.rare.weight, -init_range, init_range)
            nn.init.zeros_(self.rare_decoder.bias)
        bound = math.sqrt(3 / size)  # a variance of 1 / size
        nn.init.uniform_(self.widen.weight, -bound, bound)

    def set_dropouts(self, dropouts: Dropouts) -> None:
        """Drop so much from now on."""
        self.dropouts = dropouts
        if isinstance(self.rnn, nn.RNNBase | RNNStack) and self.rnn.num_layers > 1:
            self.rnn.dropout = dropouts.layer
        for layer in self.highways:
            layer.dropout = dropouts.recurrent

    @property
    def highways(self) -> list[RHN]:
        """The recurrent highway layers."""
        return [module for module in self.rnn.modules() if isinstance(module, RHN)]

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        p = self.dropouts
        x = self.vectors(tokens)  # (T, B, E)
        if self.training and p.word:
            x = x * self.word_mask(tokens, x)
        x = self.drop(x, p.input)
        with dropped_weights(self.rnn, p.weight if self.training else 0.0):
            if isinstance(self.rnn, nn.ModuleList):
                x, state = self.layer_by_layer(self.rnn, x, state)
            else:
                x, state = self.rnn(x, state)
        return self.logits(self.drop(x, p.output)), state  # (T, B, V)

    def vectors(self, tokens: Tensor) -> Tensor:
        """Return e(w) of each token."""
        if self.frequent == self.words:
            plain: Tensor = self.embedding(tokens)
            return plain
        if torch.onnx.is_in_onnx_export():  # runtimes compute it once, when they load a file
            rare = self.rare.weight @ self.widen.weight.t()
            return F.embedding(tokens, torch.cat([self.embedding.weight, rare]))
        # Look up every token in both tables: only the device knows which tokens are rare.
        known = self.embedding(tokens.clamp(max=self.frequent - 1))
        rare = self.widen(self.rare((tokens - self.frequent).clamp(min=0)))
        return torch.where((tokens < self.frequent).unsqueeze(-1), known, rare)

    def logits(self, h: Tensor) -> Tensor:
        """Return how much each word is expected."""
        if self.frequent == self.words:
            plain: Tensor = self.decoder(h)
            return plain
        narrow = F.linear(h, self.widen.weight.t())
        return torch.cat([self.decoder(h), self.rare_decoder(narrow)], -1)

    def word_mask(self, tokens: Tensor, like: Tensor) -> Tensor:
        """Return (T, B, 1): what each token is multiplied by, the same for the same word.

        Sequences of a recurrent highway network have masks of their own, as its authors train it.
        """
        if not self.highways:
            return F.dropout(like.new_ones(self.words, 1), self.dropouts.word)[tokens]
        mask = F.dropout(like.new_ones(self.words, tokens.shape[1]), self.dropouts.word)
        return mask.gather(0, tokens).unsqueeze(-1)

    def layer_by_layer(self, layers: nn.ModuleList, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return what one torch module would return if its layers could have unequal sizes."""
        states = [None] * len(layers) if state is None else list(state)
        for i, layer in enumerate(layers):
            x, states[i] = layer(x if i == 0 else self.drop(x, self.dropouts.layer), states[i])
        return x, states

    def drop(self, x: Tensor, p: float) -> Tensor:
        if not self.training or not p:
            return x
        if self.locked:
            return x * F.dropout(x.new_ones(1, *x.shape[1:]), p)
        return F.dropout(x, p)


def first_ranges(
    given: float | Literal["width"] | None, cell: str, embedding: int, output: int, tied: bool
) -> tuple[float | None, float | None]:
    """Return the bounds of the first weights of embedding and output layer; None is torch's.

    By width, their variance is 1 / sqrt(width), between the 1 that suits what a layer reads and the
    1 / width that suits what an output layer multiplies. A plain RNN has no gates, and the gradient
    of large output weights drives it into saturation: their variance is 1 / width there.
    """
    if given != "width":
        return given, given
    outputs = math.sqrt(3 / (output if cell == "rnn" else math.sqrt(output)))
    return outputs if tied else math.sqrt(3 / math.sqrt(embedding)), outputs


def has_one_module(cell: str, hidden: tuple[int, ...], locked: bool) -> bool:
    """Return whether all layers are one module of torch, which has one size and its own dropout."""
    return len(set(hidden)) == 1 and not locked and cell != "rhn"


@contextlib.contextmanager
def dropped_weights(rnn: nn.Module, p: float) -> Iterator[None]:
    """Inside `with`, entries of the recurrent matrices are dropped with probability p."""
    cells = [module for module in rnn.modules() if isinstance(module, nn.RNNBase)] if p else []
    whole = [cell._flat_weights for cell in cells]
    for cell, weights in zip(cells, whole, strict=True):
        named = zip(cell._flat_weights_names, weights, strict=True)
        cell._flat_weights = [
            F.dropout(weight, p) if weight is not None and name.startswith("weight_hh") else weight
            for name, weight in named
        ]
    try:
        yield
    finally:
        for cell, weights in zip(cells, whole, strict=True):
            cell._flat_weights = weights


def example_tokens(
    batch: int = 2, steps: int = 3, device: torch.device | None = None, last: int = 0
) -> Tensor:
    """Return tokens for the tools that need to see the model at work: 0 and `last`, in turn."""
    tokens = torch.zeros(steps, batch, dtype=torch.long, device=device)
    tokens[1::2] = last
    return tokens


def find_plan(model: LanguageModel) -> Plan:
    """Return the groups of a model, found with its first and its last word: a rare one, if any."""
    device = model.embedding.weight.device
    return thinrnn.find_groups(model, example_tokens(device=device, last=model.words - 1))
