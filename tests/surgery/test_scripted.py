"""torch.jit.script on small models."""

import io
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn.errors import ThinRNNError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")


class Tagger(nn.Module):
    """A convolution, a stack of unequal layers, and a loop that makes its own first state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, padding=1)
        self.rnn = nn.GRU(6, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(16, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.rnn(self.conv(x.transpose(1, 2)).transpose(1, 2))[0]
        h = torch.zeros(x.shape[0], self.cell.hidden_size)
        c = torch.zeros(x.shape[0], self.cell.hidden_size)
        for t in range(y.shape[1]):
            h, c = self.cell(y[:, t], (h, c))
        return self.head(h)


def test_small_models_can_be_scripted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Tagger(), torch.randn(2, 4, 3)
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    for i, gate in enumerate(thinrnn.gates(model).values()):
        gate.log_alpha = torch.linspace(-4 - i, 4, gate.size)
    small = thinrnn.compact(model, inputs="kept").eval()
    kept = thinrnn.kept_inputs(small)["x"]
    narrow = x[..., kept]
    for one in (small, thinrnn.load_(Tagger(), thinrnn.save(small, tmp_path)).eval()):
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.script(one), file)
            file.seek(0)
            torch.testing.assert_close(torch.jit.load(file)(narrow), small(narrow))
    assert thinrnn.verify(model, small, x) < 1e-5  # the small model's own hooks are still there

    selecting = thinrnn.compact(model)
    with pytest.raises(ThinRNNError, match=r"Conv1d selects its input.*inputs='kept'"):
        torch.jit.script(selecting)
    torch.testing.assert_close(selecting.eval()(x), small(narrow))
