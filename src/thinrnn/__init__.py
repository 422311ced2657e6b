"""thinrnn makes recurrent networks thin: it learns which neurons they need and removes the rest.

The names are listed in `thinrnn.api`, and loaded when the first of them is used: torch takes a
second or more to import, and `thinrnn --help` does without.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from thinrnn.version import __version__ as __version__

if TYPE_CHECKING:
    from thinrnn.api import *  # noqa: F403
    from thinrnn.api import __all__ as __all__


class _Package(ModuleType):
    """The package, whose names come with the first use of one."""

    def __getattr__(self, name: str) -> Any:
        missing = AttributeError(f"module 'thinrnn' has no attribute {name!r}")
        if name.startswith("__") and name != "__all__":
            raise missing
        path = f"{__name__}.{name}"
        if find_spec(path) is not None and not _is_called_like(import_module(path), name):
            return sys.modules[path]
        api = import_module("thinrnn.api")
        self.__dict__.update({public: getattr(api, public) for public in api.__all__})
        self.__dict__["__all__"] = api.__all__
        if name in self.__dict__:
            return self.__dict__[name]
        if path in sys.modules:
            return sys.modules[path]
        raise missing

    def __setattr__(self, name: str, value: Any) -> None:
        if not _is_called_like(value, name):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.__getattr__("__all__")})


def _is_called_like(value: Any, name: str) -> bool:
    """Whether a module defines what bears its name: `thinrnn.compact` is the function in it."""
    return isinstance(value, ModuleType) and hasattr(value, name)


sys.modules[__name__].__class__ = _Package
