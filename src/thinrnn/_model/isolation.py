"""Running a user's model without side effects: fixed randomness, restored state, float64."""

import os
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from thinrnn._model.copying import copy_module, kept_attributes, to_float64_
from thinrnn._model.tree import Arguments, map_tensors, tensors_in
from thinrnn.errors import ExampleError, ThinRNNError

Result = TypeVar("Result")
LOW = (torch.float32, torch.float16, torch.bfloat16)
# Where the packages are; a user's project may also lie below a folder called "torch".
PACKAGES = tuple(
    str(folder) + os.sep for folder in (Path(torch.__file__).parent, Path(__file__).parents[1])
)
CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)
TYPES = tuple(getattr(torch, name) for name in ("FloatTensor", "HalfTensor", "BFloat16Tensor"))
DROPOUTS = {
    getattr(home, name)
    for home in (F, torch)
    for name in dir(home)
    if "dropout" in name and not name.startswith(("_", "native"))
}


_users_device: ContextVar[torch.device | None] = ContextVar("users_device", default=None)


@contextmanager
def ours_on_cpu() -> Iterator[None]:
    """Create our own tensors on the CPU, whatever torch's default device is."""
    device = torch.get_default_device()
    if device.type == "cpu":
        yield
        return
    token = _users_device.set(device)
    try:
        with torch.device("cpu"):
            yield
    finally:
        _users_device.reset(token)


def run(
    model: nn.Module,
    arguments: Arguments,
    *,
    training: bool = False,
    calls: int = 1,
    modes: Iterable[AbstractContextManager[Any]] = (),
) -> Any:
    """Return the model's last result on the arguments, repeatably and without side effects.

    Dropout is off even where the model applies it in eval. In a float64 model, casts to a lower
    precision and new tensors are float64 as well, so that differences are not rounding. The `modes`
    see what the model itself computes.
    """
    double = precision_of(model) == torch.float64
    with ExitStack() as stack:
        for context in (torch.no_grad(), fixed_randomness(), kept_attributes(model)):
            stack.enter_context(context)
        if (device := _users_device.get()) is not None:
            stack.enter_context(device)
        if "torch._dynamo" in sys.modules:  # compiled parts run as they were written
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for mode in modes:
            stack.enter_context(mode)
        stack.enter_context(_Plain(double))
        if training:
            model.train()
        for _ in range(calls):
            args, kwargs = map_tensors(arguments, torch.clone)  # the code may write into them
            result = model(*args, **kwargs)
        return result


class _Plain(TorchFunctionMode):
    """Takes out dropout; with `double`, keeps everything in float64."""

    def __init__(self, double: bool) -> None:
        self.double = double
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in DROPOUTS:
            return args[0] if args else kwargs["input"]
        if self.double:
            if func in CASTS:
                return args[0].double()
            if any(isinstance(value, (torch.dtype, type)) for value in args):
                args = tuple(_in_float64(value) for value in args)
            if "dtype" in kwargs:
                kwargs = {**kwargs, "dtype": _in_float64(kwargs["dtype"])}
        result = func(*args, **kwargs)
        if self.double and isinstance(result, Tensor) and result.dtype in LOW:
            return result.double()  # torch.zeros(...), or integers divided
        return result


def _in_float64(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in LOW else value
    return torch.DoubleTensor if isinstance(value, type) and value in TYPES else value


@contextmanager
def fixed_randomness(seed: int = 0) -> Iterator[None]:
    """Give every random generator a fixed seed, and restore its state at the end."""
    python, legacy = random.getstate(), np.random.get_state()
    in_use: Callable[[], bool] = torch.cuda.is_initialized
    devices = list(range(torch.cuda.device_count())) if in_use() else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed)
        _seed_torch(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)


def _seed_torch(seed: int) -> None:
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # the same for the CPU alone, and much faster
        torch.default_generator.manual_seed(seed)


def where_in_user_code(error: BaseException) -> str:
    """Return 'file:line: code' of the last line that is in neither package, torch or thinrnn."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(PACKAGES)]
    if not users:
        return "the model"
    last = users[-1]
    return f"{last.filename}:{last.lineno}: {last.line}"


def fresh_copy(
    model: nn.Module, arguments: Arguments, use: Callable[[nn.Module, Arguments], Result]
) -> tuple[nn.Module, Arguments, Result]:
    """Return an eval-mode copy, the arguments, and the result of `use` on both.

    Copy and arguments are in float64, or as they are where the model's code does not allow it.
    """
    if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        raise ExampleError(
            "the model has lazy layers whose sizes are not known yet: call it once first."
        )
    last: Exception | None = None
    for in_float64 in (True, False):
        try:
            clone, given = copy_module(model).eval(), arguments
            if in_float64:
                clone, given = to_float64_(clone), to_float64(arguments)
            return clone, given, use(clone, given)
        except ThinRNNError:
            raise
        except Exception as error:
            last = error
    assert last is not None
    shapes = ", ".join(str(tuple(t.shape)) for t in tensors_in(arguments)) or "no tensors"
    raise ExampleError(
        f"the model does not run on the example ({shapes}): {type(last).__name__}: {last} "
        f"[{where_in_user_code(last)}]. Give a tensor, a tuple of positional arguments or a dict "
        "of keyword arguments; wrap an argument that is itself a dict or tuple: (argument,)."
    ) from last


def to_float64(tree: Any) -> Any:
    """Return a structure with its floating-point tensors in float64."""
    return map_tensors(tree, lambda t: t.detach().double() if t.is_floating_point() else t)


def precision_of(model: nn.Module) -> torch.dtype:
    """Return the floating-point type that the model's parameters have."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
