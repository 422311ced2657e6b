"""A pruner's state inside the `state_dict` of its model, where every trainer stores and loads it.

state_dict()       weights, gates ── and ── thinrnn:pruner (JSON), thinrnn:pruner:NAME (tensors)
load_state_dict()  reads those first, so that the model gets gates and its size, then weights
"""

import json
from collections import OrderedDict
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

KEY = "thinrnn:pruner"

State = tuple[dict[str, Any], dict[str, Tensor]]  # what JSON can hold, and tensors


class Stateful(Protocol):
    """Whose state goes along with the model's."""

    def snapshot(self) -> State:
        """Return everything that the next steps depend on, besides the model."""
        ...

    def restore_(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Give the model the shape that it had, and go on from there."""
        ...


class StateDictHooks:
    """The two hooks on the model."""

    def __init__(self, model: nn.Module, stateful: Stateful) -> None:
        self.model, self.stateful = model, stateful
        self.handles = [
            model.register_state_dict_post_hook(partial(self.write)),  # torch marks the hook
            model.register_load_state_dict_pre_hook(self.read),
        ]

    def write(self, module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
        """Add the state to the model's."""
        if module is not self.model:  # a copy of the model
            return
        about, tensors = self.stateful.snapshot()
        text = json.dumps(about).encode()
        state[prefix + KEY] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        state.update({f"{prefix}{KEY}:{name}": t.detach().clone() for name, t in tensors.items()})

    def read(self, module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """Take the state out of the model's, and restore it."""
        about = state.pop(prefix + KEY, None)
        start = f"{prefix}{KEY}:"
        names = [key for key in state if key.startswith(start)]
        tensors = {key.removeprefix(start): state.pop(key) for key in names}
        if about is None or module is not self.model:
            return
        # torch is going through this dict, and gates come with a hook of their own
        module._load_state_dict_pre_hooks = OrderedDict(module._load_state_dict_pre_hooks)
        self.stateful.restore_(json.loads(bytes(about.cpu().tolist())), tensors)

    def stop(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()
        for key, hook in list(self.model._load_state_dict_pre_hooks.items()):
            if getattr(getattr(hook, "hook", hook), "__self__", None) is self:
                del self.model._load_state_dict_pre_hooks[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> "StateDictHooks":
        return self  # a copy of the model has no pruner
