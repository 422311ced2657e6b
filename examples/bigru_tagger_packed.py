"""A bidirectional GRU that tags sequences of unequal length, packed.

The task is synthetic: the tag of a token tells which of its two neighbours are red, so the tagger
needs both directions. The gated model and the small one take packed sequences, like the dense one.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import thinrnn

TOKENS, UPDATES = 30, 150


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS + 1, 32, padding_idx=0)
        self.gru = nn.GRU(32, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 4)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        output, _ = self.gru(packed)
        padded, _ = pad_packed_sequence(output, batch_first=True, total_length=tokens.size(1))
        return self.head(padded)


def make_batch(size: int = 32, longest: int = 12):
    """Return tokens, lengths and tags; a tag of -100 marks padding and is ignored by the loss."""
    lengths = torch.randint(3, longest + 1, (size,))
    inside = torch.arange(longest) < lengths[:, None]
    tokens = torch.randint(1, TOKENS + 1, (size, longest)) * inside
    red = nn.functional.pad(((tokens % 3 == 1) & inside).long(), (1, 1))
    tags = 2 * red[:, :-2] + red[:, 2:]
    return tokens, lengths, tags.masked_fill(~inside, -100)


torch.manual_seed(0)
model = Tagger()
dense = thinrnn.count(model)
tokens, lengths, _ = make_batch()
example = (tokens, lengths)

plan = thinrnn.find_groups(model, example)
print(plan)
thinrnn.attach_(model, plan)
target = thinrnn.Target(model, params=0.25, steps=UPDATES // 2)
optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.2))

for update in range(UPDATES):
    tokens, lengths, tags = make_batch()
    loss = cross_entropy(model(tokens, lengths).flatten(0, 1), tags.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    target.step()
    if update % 50 == 49:
        thinrnn.shrink_(model, optimizer)
        print(f"update {update + 1}: loss {loss.item():.3f}")

small = thinrnn.compact(model).eval()
difference = thinrnn.verify(model, small, example)

tokens, lengths, tags = make_batch(500)
right = (small(tokens, lengths).argmax(-1) == tags)[tags >= 0].float().mean()
print(f"\n{small}")
print(f"right tags: {right:.1%}")
print(f"parameters: {dense.params:,} -> {thinrnn.count(small).params:,}")
print(f"largest difference of the outputs: {difference:.1e}")
