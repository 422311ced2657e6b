"""torch's table of ONNX translations, built once in a process rather than in every export."""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch


@contextlib.contextmanager
def kept_translations() -> Iterator[None]:
    """Inside `with`, exports share one table; it takes a third of the time of a small export.

    torch has no public way to do this: with a torch that builds its table elsewhere, nothing
    changes.
    """
    try:
        module = importlib.import_module("torch.onnx._internal.exporter._registration")
        registry, build = module.ONNXRegistry, _built_by(module.ONNXRegistry.from_torchlib)
    except (ImportError, AttributeError):
        yield
        return
    with patch.object(registry, "from_torchlib", staticmethod(build)):
        yield


@functools.cache
def _built_by(build: Callable[..., Any]) -> Callable[..., Any]:
    return functools.cache(build)
