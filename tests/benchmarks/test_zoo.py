"""A few models of the zoo, where their packages are installed."""

import argparse
import sys
from importlib.util import find_spec

import pytest

from benchmarks.zoo import in_process

PACKAGES = {
    "OpenUnmix": "openunmix",
    "VoiceEncoder": "resemblyzer",
    "RecurrentPPO": "sb3_contrib",
    "minGRU": "minGRU_pytorch",
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_model_of_a_package_works(name: str) -> None:
    if find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed: see benchmarks/zoo_models.py")
    row = in_process(sys.executable, name, argparse.Namespace(onnx=False, timeout=120))
    if row.get("why", "").startswith("ModuleNotFoundError"):
        pytest.skip(f"{PACKAGES[name]} cannot be imported: {row['why']}")
    assert row["works"], row
