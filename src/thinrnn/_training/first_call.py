"""What a model is called with first: the example that its plan is made from."""

import inspect
from typing import Any

import torch
from torch import nn

from thinrnn._model.tree import map_tensors


class FirstCall:
    """Keeps a copy of what the first call in training is given, as an example for `find_groups`.

    Of calls inside each other the innermost counts: under DistributedDataParallel Lightning calls
    its module with a batch first, and that calls itself with what `forward` takes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.example: Any = None
        self.handles = [
            model.register_forward_pre_hook(self.begin, with_kwargs=True),
            model.register_forward_hook(self.end, always_call=True),
        ]
        self.depth = 0

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the arguments of a call in training."""
        self.depth += 1
        if not torch.is_grad_enabled():  # an evaluation before the training
            return
        call = args if not kwargs else _by_name(model, args, kwargs)
        with torch.no_grad():
            self.example = map_tensors(call, lambda t: t.detach().clone())

    def end(self, model: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        """Look no more once there is an example."""
        self.depth -= 1
        if self.depth == 0 and self.example is not None:
            self.stop()

    def stop(self) -> None:
        """Look no more."""
        for handle in self.handles:
            handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> "FirstCall":
        return self  # a copy of the model is not what we look at


def _by_name(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = inspect.signature(model.forward).parameters
    return dict(zip(names, args, strict=False)) | kwargs
