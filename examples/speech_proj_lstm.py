"""A speech-like stack: convolution, batch norm, projected LSTM layers, a linear output.

With `proj_size` an LSTM layer has two kinds of neurons: cells ("lstm.l0_cell") and the projected
outputs that the next layer reads ("lstm.l0"). Both are pruned, and so are the channels of the
convolution and the bands of the spectrogram. The target counts mult-adds.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import thinrnn

BANDS, PHONES, UPDATES = 20, 8, 200


class Recogniser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv1d(BANDS, 32, kernel_size=5, stride=2, padding=2)
        self.norm = nn.BatchNorm1d(32)
        self.lstm = nn.LSTM(32, 64, num_layers=2, proj_size=24, batch_first=True)
        self.output = nn.Linear(24, PHONES)

    def forward(self, spectrogram):  # (batch, time, bands)
        frames = torch.relu(self.norm(self.front(spectrogram.transpose(1, 2))))
        hidden, _ = self.lstm(frames.transpose(1, 2))
        return self.output(hidden)  # (batch, time / 2, phones)


SOUNDS = torch.randn(PHONES, BANDS, generator=torch.Generator().manual_seed(1))


def make_batch(size: int = 16, segments: int = 5):
    """Return noisy spectrograms of phones that last eight frames each, and the phones."""
    phones = torch.randint(PHONES, (size, segments))
    frames = SOUNDS[phones.repeat_interleave(8, 1)]
    return frames + torch.randn_like(frames), phones.repeat_interleave(4, 1)


torch.manual_seed(0)
model = Recogniser()
example, _ = make_batch(2)
dense = thinrnn.count(model, example)

plan = thinrnn.find_groups(model, example)
print(plan)
thinrnn.attach_(model, plan)
target = thinrnn.Target(model, macs=0.3, steps=UPDATES // 2)
optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=5e-3, gate_lr=0.1))

for update in range(UPDATES):
    spectrogram, phones = make_batch()
    loss = cross_entropy(model(spectrogram).flatten(0, 1), phones.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    target.step()
    if update % 50 == 49:
        thinrnn.shrink_(model, optimizer)
        print(f"update {update + 1}: loss {loss.item():.3f}")

small = thinrnn.compact(model).eval()
difference = thinrnn.verify(model, small, example)

spectrogram, phones = make_batch(100)
right = (small(spectrogram).argmax(-1) == phones).float().mean()
print(f"\n{small}")
print(f"right frames: {right:.1%}")
print(f"mult-adds per step: {dense.macs:,} -> {thinrnn.count(small, example).macs:,}")
print(f"largest difference of the outputs: {difference:.1e}")
