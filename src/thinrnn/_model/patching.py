"""Interception of the `forward` of some modules, and removal of our own hooks from a model."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from torch import nn

Key = TypeVar("Key")
Forward = Callable[..., Any]
Handle = Callable[[Key, Forward, tuple[Any, ...], dict[str, Any]], Any]
PLACES = ("_forward_pre_hooks", "_forward_hooks", "_load_state_dict_pre_hooks")


@contextmanager
def intercepted(
    modules: Iterable[tuple[nn.Module, type[nn.Module], Key]], handle: Handle[Key]
) -> Iterator[None]:
    """Send the modules' calls of `base.forward` through `handle(key, forward, args, kwargs)`.

    `modules` are triples (module, base, key), where `base` is the module's class or one that it is
    derived from. A subclass whose own `forward` prepares the input and calls `super().forward(...)`
    is intercepted where the base's part begins. Only these objects change, never their classes.
    """
    with ExitStack() as stack:
        for module, base, key in modules:
            stack.enter_context(_patched(module, base, partial(handle, key)))
        yield


@contextmanager
def _patched(module: nn.Module, base: type[nn.Module], handle: Forward) -> Iterator[None]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return handle(partial(base.forward, module), args, kwargs)

    kind = type(module)
    if kind.forward is base.forward and "forward" not in vars(module):
        vars(module)["forward"] = forward
        try:
            yield
        finally:
            vars(module).pop("forward", None)
    else:  # a class between the user's and the base: it is what `super()` finds
        own = {"forward": lambda self, *args, **kwargs: forward(*args, **kwargs)}
        between = type(base.__name__, (base,), own)
        new = type(kind.__name__, (kind, between), {"__module__": kind.__module__})
        module.__class__ = new
        try:
            yield
        finally:
            module.__class__ = kind


class Gone:
    """Replaces, in a copied model, a hook that must not be copied with it."""

    def __call__(self, *_: Any) -> None:
        raise AssertionError("a hook that should have been removed")


def remove_hooks_(model: nn.Module, is_ours: Callable[[Any], bool]) -> None:
    """Remove the hooks for which `is_ours` is true: of the hook, or of the object it belongs to."""
    for module in model.modules():
        for place in PLACES:
            hooks = getattr(module, place)
            for key, hook in list(hooks.items()):
                plain = getattr(hook, "hook", hook)
                if is_ours(getattr(plain, "__self__", plain)):
                    del hooks[key]
                    for flags in ("_with_kwargs", "_always_called"):
                        getattr(module, place + flags, {}).pop(key, None)
