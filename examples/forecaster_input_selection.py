"""A forecaster that learns which of its input features matter.

The next value depends on three of twelve sensors. The input features are a group like any other, so
their gates close too. `kept_inputs` lists the features that are left, and `compact(inputs="kept")`
returns a model that takes only those.
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import thinrnn

FEATURES, USEFUL, UPDATES = 12, [2, 5, 7], 400


class Forecaster(nn.Module):
    def __init__(self, features: int = FEATURES) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, sensors):
        output, _ = self.lstm(sensors)
        return self.head(output)


def make_batch(size: int = 64, steps: int = 12):
    """Return sensor values and what to forecast: a sum with memory of the useful sensors."""
    sensors = torch.randn(size, steps, FEATURES)
    a, b, c = (sensors[..., i] for i in USEFUL)
    level, levels = torch.zeros(size), []
    for t in range(steps):
        level = 0.7 * level + 0.5 * a[:, t] - 0.4 * b[:, t] + 0.3 * c[:, t]
        levels.append(level)
    return sensors, torch.stack(levels, 1).unsqueeze(-1)


torch.manual_seed(0)
model = Forecaster()
dense = thinrnn.count(model)
example, _ = make_batch(4)

plan = thinrnn.find_groups(model, example)
print(plan)
thinrnn.attach_(model, plan)
penalty = thinrnn.L0(model, weight=1e-3)
optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.1))

for update in range(UPDATES):
    sensors, wanted = make_batch()
    loss = mse_loss(model(sensors), wanted)
    (loss + penalty()).backward()
    optimizer.step()
    optimizer.zero_grad()
    if update % 100 == 99:
        print(f"update {update + 1}: loss {loss.item():.3f}", *thinrnn.gates(model).values())

same = thinrnn.compact(model).eval()
difference = thinrnn.verify(model, same, example)
kept = thinrnn.kept_inputs(same)["sensors"]
assert kept == USEFUL, kept

lean = thinrnn.compact(model, inputs="kept").eval()
assert torch.allclose(lean(example[..., kept]), same(example), atol=1e-6)

print(f"\n{lean}")
print(f"sensors that matter: {kept}")
print(f"parameters: {dense.params:,} -> {thinrnn.count(lean).params:,}")
print(f"largest difference of the outputs: {difference:.1e}")
