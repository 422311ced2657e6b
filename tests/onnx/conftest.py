"""Exports in tests share what torch would read again for each of them."""

import functools
import importlib
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_registry() -> Iterator[None]:
    """Keep torch's table of ONNX translations, a third of the time of a small export."""
    try:
        module = importlib.import_module("torch.onnx._internal.exporter._registration")
        original = module.ONNXRegistry.from_torchlib
    except (ImportError, AttributeError):  # another torch
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.ONNXRegistry, "from_torchlib", staticmethod(functools.cache(original)))
        yield
