"""The recurrent layers that a model calls, recorded during an ordinary run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from thinrnn.errors import ExampleError
from thinrnn.nn.rhn import RHN
from thinrnn.nn.rnn_stack import RNNStack
from thinrnn.onnx._trace.calls import CELLS, MODES, Call, Zeros, read_call


@dataclass(frozen=True)
class LayerCall:
    """One call of a recurrent layer: its name, its sizes, and how it started."""

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


class LayerCalls(TorchFunctionMode):
    """Records the recurrent layers that a model calls, without changing the run."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[LayerCall] = []
        self.given: list[Tensor] = []  # the states (B, size) in which they began
        self.last: list[Tensor] = []  # those in which they ended, in the same order
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
            self.given += [state for stacked in read_call(func, args).hx for state in stacked]
            self.last += [state for stacked in result[1:] for state in stacked]
        self._zeros.record(func, args, result)
        return result

    def note_rhn(self, name: str, rhn: RHN, hx: Any, output: Tensor, h_n: Tensor) -> None:
        """Record an RHN, which torch has no function for."""
        first, second = output.shape[:2] if output.dim() == 3 else (output.shape[0], 1)
        steps, batch = (second, first) if rhn.batch_first and output.dim() == 3 else (first, second)
        size = rhn.hidden_size
        name = f"{name}.l0".lstrip(".")
        self.layers.append(LayerCall(name, "RHN", size, size, 1, hx is None, False, steps, batch))
        start = h_n.new_zeros(h_n.shape) if hx is None else hx
        self.given.append(start.reshape(-1, size))
        self.last.append(h_n.reshape(-1, size))

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
                LayerCall(
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


def record_layers(model: nn.Module, run: Callable[[], Any]) -> tuple[Any, LayerCalls]:
    """Return the result of `run`, and the recurrent layers that it called."""
    calls = LayerCalls()
    stacks = {n for n, m in model.named_modules() if isinstance(m, RNNStack)}

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            calls.module, calls.in_stack = name, name.rpartition(".")[0] in stacks

        return hook

    def leave(name: str) -> Callable[..., None]:
        def hook(module: RHN, args: Any, kwargs: Any, result: Any) -> None:
            hx = args[1] if len(args) > 1 else kwargs.get("hx")
            calls.note_rhn(name, module, hx, *result)

        return hook

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            hooks.append(module.register_forward_pre_hook(enter(name)))
        elif isinstance(module, RHN):
            hooks.append(module.register_forward_hook(leave(name), with_kwargs=True))
    try:
        with calls, torch.no_grad():
            return run(), calls
    finally:
        for hook in hooks:
            hook.remove()
