"""Record one step of a model as a program: every tensor is known by the addresses of its values.

With one sequence and one step each tensor is a vector, whatever its shape. Functions that only move
values (views, slices, concatenations) are called on the addresses instead of the values, so they
take no code; the others become statements.
"""

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from thinrnn._model.tree import tensors_in
from thinrnn.c.program import Buffer, Operand, Program, Statement, StoredMatrix
from thinrnn.errors import ExportError
from thinrnn.nn.rhn import RHN
from thinrnn.onnx._trace.calls import CELLS, MODES, Zeros, read_call
from thinrnn.onnx._trace.operators import Weights

MOST_ROWS = 64  # of a tensor that a linear layer reads row by row


class Recorder(TorchFunctionMode):
    """Records the functions that a model calls in one step, from the first to the last.

    `states` names the states of the recurrent layers, in the order in which these are called.
    """

    def __init__(self, model: nn.Module, states: Sequence[str]) -> None:
        super().__init__()
        self.program = Program()
        self.running = [""]  # the names of the modules that are running
        self._model = model
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._names |= {id(b): name for name, b in model.named_buffers()}
        self._states = iter(states)
        self._streams = bool(states)
        self._buffers: list[Buffer] = []
        self._addresses: dict[int, tuple[Tensor, Tensor]] = {}
        self._constants: dict[int, tuple[Tensor, str]] = {}
        self._zeros = Zeros()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from thinrnn.c.operations import record

        kwargs = kwargs or {}
        if func in MODES:
            return self._layers(func, args)
        if func in CELLS:
            return self._cell(func, *args)
        result = record(self, func, args, kwargs)
        self._zeros.record(func, args, result)
        return result

    # --- tensors and buffers

    def knows(self, tensor: Any) -> bool:
        """Return whether a tensor depends on the inputs or states."""
        return isinstance(tensor, Tensor) and id(tensor) in self._addresses

    def addresses(self, tensor: Tensor) -> Tensor:
        """Return where each value of a tensor is; one that does not depend on the inputs becomes a
        constant."""
        if id(tensor) not in self._addresses:
            self.put(tensor, self.constant(tensor))
        return self._addresses[id(tensor)][1]

    def put(self, tensor: Tensor, where: Tensor | Buffer) -> Tensor:
        """Note where the values of a tensor are."""
        if isinstance(where, Buffer):
            where = torch.arange(where.start, where.start + where.size)
        self._addresses[id(tensor)] = (tensor, where.reshape(tensor.shape))
        return tensor

    def buffer(self, kind: str, name: str, size: int, type: str = "float") -> Buffer:
        last = self._buffers[-1] if self._buffers else None
        start = last.start + last.size if last else 0
        self._buffers.append(Buffer(kind, name, size, start, type))
        return self._buffers[-1]

    def work(self, size: int) -> Operand:
        """Return a new vector that lives within the step."""
        return Operand(self.buffer("work", f"v{len(self._buffers)}", size), 0, size)

    def input(self, name: str, tensor: Tensor) -> None:
        """Make a tensor an input of the step."""
        type = "float" if tensor.is_floating_point() else "int32_t"
        buffer = self.buffer("input", name, tensor.numel(), type)
        self.program.inputs.append(buffer)
        self.put(tensor, buffer)

    def output(self, name: str, tensor: Tensor) -> None:
        """Make a tensor an output of the step."""
        if not tensor.is_floating_point():
            raise ExportError(f"export_c: the output '{name}' holds whole numbers, not fractions.")
        buffer = self.buffer("output", name, tensor.numel())
        self.program.outputs.append(buffer)
        self._copy(self.addresses(tensor).flatten(), buffer)

    def say(self, code: str, writes: Sequence[Operand] = (), reads: Sequence[Operand] = ()) -> None:
        """Add a statement."""
        self.program.statements.append(Statement(code, tuple(writes), tuple(reads)))

    def vector(self, tensor: Tensor) -> Operand:
        """Return the values of a tensor in one piece, copied if they are not."""
        return self.at(self.addresses(tensor))

    def at(self, where: Tensor) -> Operand:
        """Return the values at some addresses in one piece, copied if they are not."""
        where = where.flatten()
        runs = list(_runs(where))
        if len(runs) == 1:
            return self._operand(*runs[0])
        copied = self.work(len(where))
        self._copy(where, copied.buffer)
        return copied

    def _copy(self, where: Tensor, to: Buffer) -> None:
        at = 0
        for start, size in _runs(where):
            out, from_ = Operand(to, at, size), self._operand(start, size)
            self.say(f"memcpy({{0}}, {{1}}, {size} * sizeof(float));", [out], [from_])
            at += size

    def _operand(self, start: int, size: int) -> Operand:
        for buffer in self._buffers:
            if buffer.start <= start < buffer.start + buffer.size:
                if start + size > buffer.start + buffer.size:
                    break
                return Operand(buffer, start - buffer.start, size)
        raise AssertionError("a run of addresses lies in one buffer")

    def constant(self, tensor: Tensor) -> Buffer:
        """Return a tensor that does not depend on the inputs as a buffer."""
        name = self._named(tensor, "constant") + "_values"
        buffer = self.buffer("constant", name, tensor.numel())
        self.program.constants[name] = tensor.detach().flatten()
        return buffer

    def array(self, tensor: Tensor | None) -> str:
        """Return a bias as an argument of a C function."""
        if tensor is None:
            return "0"
        self._must_be_constant(tensor)
        name = self._named(tensor, "bias")
        self.program.constants[name] = tensor.detach().flatten()
        return name

    def matrix(self, tensor: Tensor, *, rows_first: bool = True) -> str:
        """Return a matrix as two arguments of a C function: its values and its scale."""
        self._must_be_constant(tensor)
        name = self._named(tensor, "matrix") + ("" if rows_first else "_t")
        self.program.matrices[name] = StoredMatrix(name, tensor.detach(), rows_first)
        return f"{name}, {name}_scale"

    def _must_be_constant(self, tensor: Tensor) -> None:
        if self.knows(tensor):
            self.refuse("multiplies by a matrix that is computed from the input")

    def _named(self, tensor: Tensor, otherwise: str) -> str:
        if id(tensor) not in self._constants:
            name = self._names.get(id(tensor), f"{otherwise}.{len(self._constants)}")
            self._constants[id(tensor)] = (tensor, identifier(f"w_{name}"))
        return self._constants[id(tensor)][1]

    def refuse(self, what: str) -> None:
        """Raise with the name of the module that is running."""
        where = f"'{self.running[-1]}'" if self.running[-1] else "the model"
        raise ExportError(f"{where} {what}, which export_c cannot write; try export_onnx.")

    # --- recurrent layers

    def linear(self, x: Tensor, weight: str, bias: Tensor | None, shape: tuple[int, int]) -> Tensor:
        """Record W x + b for each row of x, and return where the results are."""
        rows, columns = shape
        places = self.addresses(x).reshape(-1, columns)
        if len(places) > MOST_ROWS:
            self.refuse(f"multiplies {len(places)} vectors by a matrix in one step")
        found = self.work(rows * len(places))
        for at, place in enumerate(places):
            out = Operand(found.buffer, at * rows, rows)
            code = f"linear({{0}}, {{1}}, {weight}, {self.array(bias)}, {rows}, {columns});"
            self.say(code, [out], [self.at(place)])
        return torch.arange(found.buffer.start, found.buffer.start + found.size)

    def _layers(self, func: Any, args: Any) -> tuple[Tensor, ...]:
        call = read_call(func, args)
        result: tuple[Tensor, ...] = func(*args)
        if call.x[..., 0].numel() != 1:
            self.refuse(f"reads {call.x[..., 0].numel()} steps for each step of the input")
        if not self._streams or not self._zeros.include(call.hx):
            self.refuse("starts from a state that the caller or the model provides")
        x = self.vector(call.x)
        ends: list[list[Tensor]] = []
        for (weights,) in call.layers:
            sizes = {"h": weights.hh.shape[1]} | (
                {"c": weights.hidden} if len(call.hx) == 2 else {}
            )
            state = [self._next_state(size) for size in sizes.values()]
            self.run(call.mode, x, weights, state)
            x = state[0]
            ends.append([_places(part) for part in state])
        self.put(result[0], ends[-1][0])
        for tensor, parts in zip(result[1:], zip(*ends, strict=True), strict=True):
            self.put(tensor, torch.cat(parts))
        return result

    def _next_state(self, size: int) -> Operand:
        buffer = self.buffer("state", next(self._states), size)
        self.program.states.append(buffer)
        return Operand(buffer, 0, size)

    def _cell(self, func: Any, x: Tensor, hx: Any, *weights: Any) -> Any:
        given = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        result = func(x, hx, *weights)
        if x[..., 0].numel() != 1:
            self.refuse(f"reads {x[..., 0].numel()} vectors in one step")
        state = []
        for tensor in given:
            copied = self.work(tensor.numel())
            self._copy(self.addresses(tensor).flatten(), copied.buffer)
            state.append(copied)
        mode = func.__name__.removesuffix("_cell").upper()
        own = Weights(*weights, *([None] * (4 - len(weights))), None)  # type: ignore[call-arg]
        self.run(mode, self.vector(x), own, state)
        for tensor, part in zip(tensors_in(result), state, strict=True):
            self.put(tensor, _places(part))
        return result

    def run(self, mode: str, x: Operand, w: Weights, state: list[Operand]) -> None:
        """Record one step of one layer, which changes its state in place."""
        h, n, rows, outputs = state[0], w.hidden, w.ih.shape[0], w.hh.shape[1]
        ih, hh = self.matrix(w.ih), self.matrix(w.hh)
        sums = self.work(rows)
        if mode == "GRU":
            own = self.work(rows)
            for out, part, weight, bias in ((sums, x, ih, w.b_ih), (own, h, hh, w.b_hh)):
                code = f"linear({{0}}, {{1}}, {weight}, {self.array(bias)}, {rows}, {part.size});"
                self.say(code, [out], [part])
            self.say(f"gru({{0}}, {{1}}, {{2}}, {n});", [h], [sums, own])
            return
        both = "0" if w.b_ih is None else self._sum_of(w)
        self.say(
            f"gates({{0}}, {{1}}, {ih}, {{2}}, {hh}, {both}, {rows}, {x.size}, {outputs});",
            [sums],
            [x, h],
        )
        if mode != "LSTM":
            function = f"{mode.partition('_')[2].lower() or 'tanh'}_"
            self.say(f"for (i = 0; i < {n}; i++) {{0}}[i] = {function}({{1}}[i]);", [h], [sums])
            return
        m = h if w.hr is None else self.work(n)
        self.say(f"lstm({{0}}, {{1}}, {{2}}, {n});", [m, state[1]], [sums])
        if w.hr is not None:
            code = f"linear({{0}}, {{1}}, {self.matrix(w.hr)}, 0, {outputs}, {n});"
            self.say(code, [h], [m])

    def _sum_of(self, w: Weights) -> str:
        """Return the two biases of a layer as one."""
        assert w.b_ih is not None and w.b_hh is not None
        name = self._named(w.b_ih, "bias")
        self.program.constants[name] = (w.b_ih + w.b_hh).detach().flatten()
        return name

    def run_rhn(self, rhn: RHN, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """Record an RHN, whose equations are recorded one by one, with its state."""
        if hx is not None or not self._streams:
            self.refuse("starts from a state that the caller or the model provides")
        state = self._next_state(rhn.hidden_size)
        first = input.new_zeros((1,) * (input.dim() - 1) + (rhn.hidden_size,))
        self.put(first, state.buffer)
        output, h_n = RHN.forward(rhn, input, first)
        self._copy(self.addresses(h_n).flatten(), state.buffer)
        return output, h_n


@contextlib.contextmanager
def recording(model: nn.Module, states: Sequence[str]) -> Iterator[Recorder]:
    """Inside `with`, what the model does is recorded."""
    recorder = Recorder(model, states)

    def leave(*_: Any) -> None:
        recorder.running.pop()

    hooks = []
    for name, module in model.named_modules():
        enter = functools.partial(lambda name, *_: recorder.running.append(name), name)
        hooks.append(module.register_forward_pre_hook(enter))
        hooks.append(module.register_forward_hook(leave))
        if isinstance(module, RHN):
            module.forward = functools.partial(recorder.run_rhn, module)  # type: ignore
    try:
        with recorder, torch.no_grad():
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()
        for module in model.modules():
            if isinstance(module, RHN):
                del module.forward


def identifier(name: str) -> str:
    """Return a name as C allows it."""
    return re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")


def _places(part: Operand) -> Tensor:
    start = part.buffer.start + part.offset
    return torch.arange(start, start + part.size)


def _runs(where: Tensor) -> Iterator[tuple[int, int]]:
    """Yield the parts of a list of addresses that follow one another: start and length."""
    breaks = (where.diff() != 1).nonzero().flatten() + 1
    for part in where.tensor_split(breaks):
        yield int(part[0]), len(part)
