"""Running somebody's model without leaving a trace: copies, fixed randomness, restored state."""

import copy
import random
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thinrnn.errors import ExampleError
from thinrnn.tree import Arguments, map_tensors, tensors_in


def copy_module(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Return a deep copy; tensors with a history (a state kept from the last call) are detached."""
    memo = {} if memo is None else memo
    for module in model.modules():
        for value in module.__dict__.values():
            for tensor in tensors_in(value):
                if not tensor.is_leaf:
                    memo.setdefault(id(tensor), tensor.detach().clone())
    return copy.deepcopy(model, memo)


def to_float64(tree: Any) -> Any:
    """Return a structure with its floating-point tensors in float64."""
    return map_tensors(tree, lambda t: t.detach().double() if t.is_floating_point() else t)


@contextmanager
def fixed_randomness(seed: int = 0) -> Iterator[None]:
    """Give every random generator a fixed seed, and its own state back at the end."""
    python, legacy = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed)
        # not torch.manual_seed, which writes down the whole call stack for a later start of CUDA
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make `torch.zeros(...)` in a model's code give `dtype`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def kept_attributes(model: nn.Module) -> Iterator[None]:
    """Undo what a call assigns to attributes and writes into buffers of the model."""
    attributes = [(m, dict(m.__dict__)) for m in model.modules()]
    buffers = [(b, b.clone()) for b in model.buffers()]
    try:
        yield
    finally:
        for module, saved in attributes:
            module.__dict__.clear()
            module.__dict__.update(saved)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def run(model: nn.Module, arguments: Arguments) -> Any:
    """Return the model's result on the arguments, repeatably and without a trace."""
    args, kwargs = arguments
    double = precision_of(model) == torch.float64
    dtype = torch.float64 if double else torch.get_default_dtype()
    with torch.no_grad(), fixed_randomness(), kept_attributes(model), default_dtype(dtype):
        return model(*args, **kwargs)


def where_in_user_code(error: BaseException) -> str:
    """Return 'file:line: code' of the last line that is neither torch's nor ours."""
    own = __name__.split(".")[0]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/torch/" not in frame.filename and f"/{own}/" not in frame.filename
    ]
    if not frames:
        return "the model"
    last = frames[-1]
    return f"{last.filename}:{last.lineno}: {last.line}"


def fresh_copy(model: nn.Module, arguments: Arguments) -> tuple[nn.Module, Arguments]:
    """Return an eval-mode copy and arguments that run, in float64 where the model allows it."""
    first: Exception | None = None
    for in_float64 in (True, False):
        clone, given = copy_module(model).eval(), arguments
        if in_float64:
            clone, given = clone.double(), to_float64(arguments)
        try:
            run(clone, given)
            return clone, given
        except Exception as error:
            first = error
    assert first is not None
    shapes = ", ".join(str(tuple(t.shape)) for t in tensors_in(arguments)) or "no tensors"
    raise ExampleError(
        f"the model does not run on the example ({shapes}): {type(first).__name__}: {first} "
        f"[{where_in_user_code(first)}]. Give a tensor, or a tuple of positional arguments."
    ) from first


def precision_of(model: nn.Module) -> torch.dtype:
    """Return the floating-point type that the model's parameters have."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def is_close_to(a: Tensor, b: Tensor) -> Tensor:
    """Return, element by element, whether two results differ by rounding alone."""
    tiny = 1e-11 if a.dtype == torch.float64 else 1e-5
    scale = a.abs() + b.abs() + torch.finfo(a.dtype).tiny
    return ((a - b).abs() <= tiny * scale) | (a.isnan() & b.isnan()) | (a == b)
