"""Finding and removing our own hooks on somebody's modules, also on copies of them."""

from collections.abc import Callable
from typing import Any

from torch import nn

PLACES = ("_forward_pre_hooks", "_forward_hooks", "_load_state_dict_pre_hooks")


class Gone:
    """Stands in a copied model for what must not be copied with it."""

    def __call__(self, *_: Any) -> None:
        raise AssertionError("a hook that should have been removed")


def remove_hooks_(model: nn.Module, is_ours: Callable[[Any], bool]) -> None:
    """Remove every hook of which `is_ours` says that it, or the object it is a method of, is."""
    for module in model.modules():
        for place in PLACES:
            hooks = getattr(module, place)
            for key, hook in list(hooks.items()):
                plain = getattr(hook, "hook", hook)
                if is_ours(getattr(plain, "__self__", plain)):
                    del hooks[key]
                    for flags in ("_with_kwargs", "_always_called"):
                        getattr(module, place + flags, {}).pop(key, None)
