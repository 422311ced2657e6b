"""What a model asks of torch's recurrent functions, met at the functions themselves.

Subclasses of nn.LSTM, hooks, weights computed on the fly: whatever a model does around its
recurrent layers, in the end it calls torch.lstm and the like.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from thinrnn.errors import ExampleError
from thinrnn.export.operators import Weights
from thinrnn.tree import tensors_in

MODES: dict[Any, str] = {
    torch.lstm: "LSTM",
    torch.gru: "GRU",
    torch.rnn_tanh: "RNN_TANH",
    torch.rnn_relu: "RNN_RELU",
}
CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)
PACK, UNPACK = torch._pack_padded_sequence, torch._pad_packed_sequence
MAKE_ZEROS = (torch.zeros, torch.zeros_like, Tensor.new_zeros)
KEEP_ZEROS = (
    *(Tensor.__getitem__, Tensor.index_select, torch.index_select, Tensor.unbind, torch.unbind),
    *(Tensor.to, Tensor.contiguous, Tensor.detach, Tensor.expand, Tensor.repeat),
    *(Tensor.reshape, Tensor.view, Tensor.unsqueeze, Tensor.squeeze, torch.stack, torch.cat),
)


@dataclass(frozen=True)
class Call:
    """One call of torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu."""

    mode: str
    x: Tensor  # (T, B, I), or (B, T, I) with batch_first
    batch_sizes: Tensor | None
    hx: tuple[Tensor, ...]
    layers: list[list[Weights]]  # by layer and direction
    batch_first: bool

    @property
    def steps_and_batch(self) -> tuple[int, int]:
        first, second = self.x.shape[:2]
        return (second, first) if self.batch_first else (first, second)


def read_call(func: Any, args: tuple[Any, ...]) -> Call:
    """Return the arguments of one of torch's recurrent functions by name."""
    mode = MODES[func]
    # (x, hx, weights, has_bias, layers, dropout, train, bidirectional, batch_first), or packed
    # (x, batch_sizes, hx, weights, has_bias, layers, dropout, train, bidirectional)
    is_packed = isinstance(args[3], list | tuple)
    batch_sizes = args[1] if is_packed else None
    hx, flat, has_bias, layers = args[2:6] if is_packed else args[1:5]
    bidirectional = args[8] if is_packed else args[7]
    directions = 2 if bidirectional else 1
    each = len(flat) // (layers * directions)
    weights = [_weights(flat[i : i + each], has_bias) for i in range(0, len(flat), each)]
    return Call(
        mode,
        args[0],
        batch_sizes,
        tuple(hx) if mode == "LSTM" else (hx,),
        [weights[i : i + directions] for i in range(0, len(weights), directions)],
        not is_packed and args[8],
    )


def _weights(flat: Any, has_bias: bool) -> Weights:
    ih, hh, *rest = flat
    b_ih, b_hh = rest[:2] if has_bias else (None, None)
    hr = rest[-1] if len(rest) in (1, 3) else None
    return Weights(ih, hh, b_ih, b_hh, hr)


class Zeros:
    """Tensors that are known to be zero, since they were made so; states of layers mostly are."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, int]] = {}

    def watch(self, func: Any, args: Any, result: Any) -> None:
        """Look at a call that has just been made."""
        if func in MAKE_ZEROS or (func in KEEP_ZEROS and self.include(tensors_in(args))):
            for tensor in tensors_in(result):
                self._known[id(tensor)] = (tensor, tensor._version)

    def include(self, tensors: Any) -> bool:
        """Say whether all of the tensors, at least one, are zero."""
        found = list(tensors)
        return bool(found) and all(
            id(t) in self._known and self._known[id(t)][1] == t._version for t in found
        )


@dataclass(frozen=True)
class Layer:
    """A recurrent layer as it was called: where it is, its sizes, what it started from."""

    name: str  # of the layer, as in "rnn.l0"
    mode: str
    hidden: int
    output: int  # of one direction: the projected size if there is one
    directions: int
    from_zeros: bool
    packed: bool
    steps: int
    batch: int

    @property
    def state_widths(self) -> dict[str, int]:
        return {"h": self.output} | ({"c": self.hidden} if self.mode == "LSTM" else {})


class Watch(TorchFunctionMode):
    """Notes the recurrent layers that a model calls, while it runs as it always does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[Layer] = []
        self.last: list[Tensor] = []  # the states (B, size) in which they ended
        self.cell_batches: list[int] = []
        self.module = ""
        self.in_stack = False
        self._zeros = Zeros()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MODES:
            self._note(read_call(func, args))
        elif func in CELLS:
            self.cell_batches.append(args[0].shape[0])
        result = func(*args, **(kwargs or {}))
        if func in MODES:
            self.last += [state for stacked in result[1:] for state in stacked]
        self._zeros.watch(func, args, result)
        return result

    def _note(self, call: Call) -> None:
        steps, batch = call.steps_and_batch
        width = call.layers[0][0].ih.shape[1]
        if call.x.shape[-1] != width:  # torch itself does not look at packed data of equal lengths
            raise ExampleError(f"'{self.module}' reads {width} features, not {call.x.shape[-1]}.")
        if call.batch_sizes is not None:
            steps, batch = len(call.batch_sizes), int(call.batch_sizes[0])
        for place, weights in enumerate(call.layers):
            name = self.module if self.in_stack else f"{self.module}.l{place}".lstrip(".")
            used = sum(layer.name.partition("#")[0] == name for layer in self.layers)
            self.layers.append(
                Layer(
                    f"{name}#{used + 1}" if used else name,
                    call.mode,
                    weights[0].hidden,
                    weights[0].hh.shape[1],
                    len(weights),
                    self._zeros.include(call.hx),
                    call.batch_sizes is not None,
                    steps,
                    batch,
                )
            )


def watch_layers(model: nn.Module, run: Callable[[], Any]) -> tuple[Any, Watch]:
    """Return what `run` returns, and the recurrent layers of the model that it called."""
    from thinrnn.rnn_stack import RNNStack

    watch = Watch()
    stacks = {n for n, m in model.named_modules() if isinstance(m, RNNStack)}

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            watch.module, watch.in_stack = name, name.rpartition(".")[0] in stacks

        return hook

    hooks = [
        module.register_forward_pre_hook(enter(name))
        for name, module in model.named_modules()
        if isinstance(module, nn.RNNBase)
    ]
    try:
        with watch, torch.no_grad():
            return run(), watch
    finally:
        for hook in hooks:
            hook.remove()
