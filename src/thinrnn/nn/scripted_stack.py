"""The form of an RNNStack that torch.jit.script compiles: tensors in, lists of states out."""

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinrnn.errors import ThinRNNError
from thinrnn.nn.rnn_cell import CLASSES

if TYPE_CHECKING:
    from thinrnn.nn.rnn_stack import RNNStack


class _ScriptedStack(nn.ModuleDict):
    """The cells of a stack by name; outside TorchScript it is called like the stack itself."""

    def __init__(self, stack: "RNNStack") -> None:
        super().__init__({name: _scriptable(name, cell) for name, cell in stack.cells.items()})
        self.batch_first = stack.batch_first
        self.dropout = stack.dropout
        self._eager = (stack,)  # not as a part: the cells are there already
        self.train(stack.training)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._eager[0](*args, **kwargs)


class ScriptedLSTM(_ScriptedStack):
    """An LSTM; its state is a pair of lists, h and c."""

    def forward(
        self, input: Tensor, hx: tuple[list[Tensor], list[Tensor]] | None = None
    ) -> tuple[Tensor, tuple[list[Tensor], list[Tensor]]]:
        time = 1 if self.batch_first and input.dim() == 3 else 0
        h_n: list[Tensor] = []
        c_n: list[Tensor] = []
        outputs: list[Tensor] = []
        x = input
        for name, cell in self.items():
            backward = name.endswith("_reverse")
            if not backward and len(outputs) > 0:
                x = F.dropout(torch.cat(outputs, -1), self.dropout, self.training)
                outputs = []
            given = x.flip(time) if backward else x
            if hx is None:
                output, (h, c) = cell(given)
            else:
                before = (hx[0][len(h_n)].unsqueeze(0), hx[1][len(c_n)].unsqueeze(0))
                output, (h, c) = cell(given, before)
            outputs.append(output.flip(time) if backward else output)
            h_n.append(h.squeeze(0))
            c_n.append(c.squeeze(0))
        return torch.cat(outputs, -1), (h_n, c_n)


class ScriptedRNN(_ScriptedStack):
    """A GRU or RNN; its state is a list."""

    def forward(self, input: Tensor, hx: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        time = 1 if self.batch_first and input.dim() == 3 else 0
        h_n: list[Tensor] = []
        outputs: list[Tensor] = []
        x = input
        for name, cell in self.items():
            backward = name.endswith("_reverse")
            if not backward and len(outputs) > 0:
                x = F.dropout(torch.cat(outputs, -1), self.dropout, self.training)
                outputs = []
            given = x.flip(time) if backward else x
            if hx is None:
                output, h = cell(given)
            else:
                output, h = cell(given, hx[len(h_n)].unsqueeze(0))
            outputs.append(output.flip(time) if backward else output)
            h_n.append(h.squeeze(0))
        return torch.cat(outputs, -1), h_n


def _scriptable(name: str, cell: nn.RNNBase) -> nn.RNNBase:
    """Return a cell of torch's own class with the same Parameters."""
    if not cell.proj_size:
        return cell
    if cell.proj_size >= cell.hidden_size:
        raise ThinRNNError(
            f"RNNStack: '{name}' projects {cell.hidden_size} neurons to {cell.proj_size}, which "
            "torch.jit.script cannot run: export the model with export_onnx."
        )
    options: dict[str, Any] = {"bias": cell.bias, "batch_first": cell.batch_first}
    sizes = (cell.input_size, cell.hidden_size)
    plain = CLASSES["LSTM"](*sizes, proj_size=cell.proj_size, device="meta", **options)
    for own, parameter in cell.named_parameters():
        setattr(plain, own, parameter)
    plain._init_flat_weights()
    return plain
