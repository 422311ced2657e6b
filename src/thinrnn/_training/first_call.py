"""What a model is called with first: the example that its plan is made from."""

import inspect
from typing import Any

import torch
from torch import nn

from thinrnn._model.tree import map_tensors


class FirstCall:
    """Keeps a copy of what the first call in training is given, as an example for `find_groups`."""

    def __init__(self, model: nn.Module) -> None:
        self.example: Any = None
        self.handle = model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.is_grad_enabled():  # an evaluation before the training
            return
        call = args if not kwargs else _by_name(model, args, kwargs)
        with torch.no_grad():
            self.example = map_tensors(call, lambda t: t.detach().clone())
        self.stop()

    def stop(self) -> None:
        """Look no more."""
        self.handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> "FirstCall":
        return self  # a copy of the model is not what we look at


def _by_name(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = inspect.signature(model.forward).parameters
    return dict(zip(names, args, strict=False)) | kwargs
