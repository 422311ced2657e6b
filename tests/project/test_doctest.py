"""The examples in docstrings run, with torch and the public names of thinrnn at hand."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import thinrnn

MODULES = [
    "thinrnn",
    *(module.name for module in pkgutil.walk_packages(thinrnn.__path__, "thinrnn.")),
]
NAMES = {name: getattr(thinrnn, name) for name in thinrnn.__all__}


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples(name: str) -> None:
    module = (
        pytest.importorskip(name)
        if "triton" in name or name.endswith("_rhn.persistent")
        else importlib.import_module(name)
    )
    at_hand = {"torch": torch, "nn": torch.nn, "thinrnn": thinrnn, **NAMES}
    tests = doctest.DocTestFinder().find(module, globs={**at_hand, **vars(module)})
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.failures == 0
