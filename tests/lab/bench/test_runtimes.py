"""Every runtime streams the same model."""

import shutil

import numpy
import pytest
import torch

from thinrnn.lab.bench.candidates import add_c, make_candidate
from thinrnn.lab.bench.runtimes import FILES, prepare
from thinrnn.lab.recipes.language_model.load import load_model


@pytest.mark.parametrize("runtime", ["eager", "onnx", "int8", "c"])
def test_the_state_of_one_call_goes_into_the_next(small, tmp_path, runtime):
    if runtime in FILES:
        pytest.importorskip("onnxscript")
    if runtime == "c" and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    before = torch.get_num_threads()
    candidate = make_candidate("thin", "language_model", small, tmp_path, [runtime])
    if runtime == "c":
        add_c(candidate)
    call = prepare(runtime, threads=1, **candidate.place(runtime))(1, 1)
    torch.set_num_threads(before)
    steps = 6
    found = [numpy.asarray(call())[0, 0].copy() for _ in range(steps)]
    with torch.inference_mode():
        whole, _ = load_model(small).model(torch.zeros(steps + 1, 1, dtype=torch.long))
    # in PyTorch a first call makes the state
    wanted = whole[1:, 0].numpy() if runtime == "eager" else whole[:steps, 0].numpy()
    assert numpy.abs(numpy.stack(found) - wanted).max() < (0.02 if runtime == "int8" else 1e-5)
    assert numpy.abs(wanted[0] - wanted[-1]).max() > 1e-3  # the state matters
