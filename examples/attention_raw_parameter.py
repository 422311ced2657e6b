"""A classifier with attention whose scale and query are raw parameters, not layers.

`find_groups` cuts parameters along that hold one number per neuron: those that multiply or add, and
those that read the neurons, such as the query here. A trial proves it.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import thinrnn

TOKENS, UPDATES = 40, 300


class Classifier(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 32)
        self.lstm = nn.LSTM(32, width, batch_first=True)
        self.scale = nn.Parameter(torch.ones(width))
        self.query = nn.Parameter(torch.randn(width) / width**0.5)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        hidden = self.lstm(self.embedding(tokens))[0] * self.scale
        attention = torch.softmax(torch.tanh(hidden) @ self.query, dim=1)
        return self.head((attention.unsqueeze(-1) * hidden).sum(1))


def make_batch(size: int = 64, steps: int = 10):
    """Return token sequences, and for each whether token 1 or token 2 comes first."""
    tokens = torch.randint(3, TOKENS, (size, steps))
    labels = torch.randint(2, (size,))
    places = torch.rand(size, steps).argsort(1)[:, :2].sort(1).values
    tokens.scatter_(1, places, torch.stack([1 + labels, 2 - labels], 1))
    return tokens, labels


torch.manual_seed(0)
model = Classifier()
dense = thinrnn.count(model)
example, _ = make_batch(4)

plan = thinrnn.find_groups(model, example)
print(f"{plan}\n")

thinrnn.attach_(model, plan)
target = thinrnn.Target(model, params=0.2, steps=UPDATES // 2)
optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.1))

for update in range(UPDATES):
    tokens, labels = make_batch()
    loss = cross_entropy(model(tokens), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    target.step()
    if update % 50 == 49:
        thinrnn.shrink_(model, optimizer)
        print(f"update {update + 1}: loss {loss.item():.3f}")

small = thinrnn.compact(model).eval()
difference = thinrnn.verify(model, small, example)
assert len(small.scale) == len(small.query) == small.lstm.hidden_size

tokens, labels = make_batch(1000)
right = (small(tokens).argmax(-1) == labels).float().mean()
print(f"\n{small}")
print(f"right answers: {right:.1%}")
print(f"parameters: {dense.params:,} -> {thinrnn.count(small).params:,}")
print(f"largest difference of the outputs: {difference:.1e}")
