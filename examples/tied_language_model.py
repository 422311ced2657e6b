"""A language model whose decoder shares the embedding's weights.

The tied matrix couples three things: the embedding's columns, the decoder's columns, and so the
neurons of the last LSTM layer. thinrnn detects this and puts one gate on each of these neurons. The
small model is still tied.
"""

import re
from pydoc_data.topics import topics
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import thinrnn

BATCH, STEPS, UPDATES = 16, 25, 400


class TiedLanguageModel(nn.Module):
    def __init__(self, vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2)
        self.decoder = nn.Linear(width, vocabulary)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.decoder.weight = self.embedding.weight

    def forward(self, x):
        hidden, _ = self.lstm(self.embedding(x))
        return self.decoder(hidden)


def read_text() -> tuple[torch.Tensor, int]:
    """Return token numbers, (time, batch), and how many different tokens there are."""
    text = re.findall(r"\w+|[^\w\s]", " ".join(topics[name] for name in sorted(topics)).lower())
    text = text[: BATCH * STEPS * 20]
    numbers = {token: i for i, token in enumerate(sorted(set(text)))}
    return torch.tensor([numbers[token] for token in text]).view(BATCH, -1).t(), len(numbers)


torch.manual_seed(0)
text, vocabulary = read_text()
model = TiedLanguageModel(vocabulary)
dense = thinrnn.count(model)
example = text[:STEPS]

plan = thinrnn.find_groups(model, example)
print(plan)
thinrnn.attach_(model, plan)
target = thinrnn.Target(model, params=0.3, steps=UPDATES // 2)
optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.1))

for update in range(UPDATES):
    start = update * STEPS % (len(text) - STEPS - 1)
    x, y = text[start : start + STEPS], text[start + 1 : start + STEPS + 1]
    loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    target.step()
    if update % 50 == 49:
        thinrnn.shrink_(model, optimizer)
        print(f"update {update + 1}: loss {loss.item():.2f}", *thinrnn.gates(model).values())

small = thinrnn.compact(model)
difference = thinrnn.verify(model, small, example)
assert small.decoder.weight is small.embedding.weight

with TemporaryDirectory() as folder:
    thinrnn.save(small, folder)
    loaded = thinrnn.load_(TiedLanguageModel(vocabulary), folder)
assert loaded.decoder.weight is loaded.embedding.weight
assert torch.equal(loaded.eval()(example), small.eval()(example))

print(f"\n{small}")
print(f"parameters: {dense.params:,} -> {thinrnn.count(small).params:,}")
print(f"largest difference of the outputs: {difference:.1e}")
