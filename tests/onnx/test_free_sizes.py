"""Every size of every input is either free and checked, or named as fixed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from thinrnn import export_onnx
from thinrnn.onnx.runtime import OnnxFile

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package)


class WithLengths(nn.Module):
    """Takes tokens (B, T) and how many of them count."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.embedding, self.rnn = nn.Embedding(9, 4), nn.LSTM(4, 3, batch_first=True)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Any:
        x = self.embedding(tokens)
        if self.how == "mean":
            mask = torch.arange(x.shape[1])[None] < lengths[:, None]
            return (self.rnn(x)[0] * mask[..., None]).sum(1) / lengths[:, None]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, (h, _) = self.rnn(packed)
        return h[-1] if self.how == "last" else pad_packed_sequence(output, batch_first=True)[0]


class OneByOne(nn.Module):
    """Takes a batch of two, whatever comes."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.unbind(1)
        return self.gru(torch.stack([first, second], 1))[0]


@pytest.mark.parametrize("how", ["mean", "last", "padded"])
@pytest.mark.parametrize("lengths", [[1], [3, 3, 3], [3, 1]])
def test_models_with_lengths_take_any_batch(how: str, lengths: list[int], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = WithLengths(how).eval()
    example = torch.randint(9, (len(lengths), max(lengths))), torch.tensor(lengths)
    export = export_onnx(model, tmp_path / "x.onnx", example)
    assert export.fixed == ()
    for name in {name for sizes in export.checked for name in sizes}:
        assert len({sizes[name] for sizes in export.checked if name in sizes}) > 1
    file = OnnxFile(export.path)
    for batch, steps in ((1, 5), (2, 4), (5, 7)):
        tokens, counts = torch.randint(9, (batch, steps)), torch.arange(batch).clamp(1, steps)
        counts[0] = steps
        found = file({"tokens": tokens.numpy(), "lengths": counts.numpy()})
        expected = model(tokens, counts).detach()
        torch.testing.assert_close(torch.from_numpy(*found.values()), expected)
        for (name, value), declared in zip(found.items(), file.outputs.values(), strict=True):
            for size, said in zip(value.shape, declared.shape, strict=True):
                assert size == said or not isinstance(said, int), name


def test_a_fixed_size_is_named(tmp_path: Path) -> None:
    export = export_onnx(OneByOne(), tmp_path / "x.onnx", torch.randn(5, 2, 4))
    assert export.fixed == ("x[1] = 2", "x[2] = 4")
    assert "fixed   x[1] = 2, x[2] = 4" in str(export)
