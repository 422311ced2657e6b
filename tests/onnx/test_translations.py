"""Exports of one process share torch's table of translations, and leave torch as it was."""

import pytest

from thinrnn.onnx._trace.translations import kept_translations

registration = pytest.importorskip("torch.onnx._internal.exporter._registration")


def test_the_table_is_built_once_and_torch_stays_as_it_is() -> None:
    before = registration.ONNXRegistry.__dict__["from_torchlib"]
    found = []
    for _ in range(2):
        with kept_translations():
            found += [registration.ONNXRegistry.from_torchlib() for _ in range(2)]
            found.append(registration.ONNXRegistry().from_torchlib())  # as torch calls it
    assert all(table is found[0] for table in found)
    assert registration.ONNXRegistry.__dict__["from_torchlib"] is before
