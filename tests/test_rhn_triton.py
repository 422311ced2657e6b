"""The Triton kernels of the recurrent highway network, run by Triton's interpreter on the CPU.

TRITON_INTERPRET=1 python -m pytest tests/test_rhn_triton.py
"""

import os

import pytest
import torch
from rhn_cases import case, outputs_and_gradients

from thinrnn import rhn, rhn_fused, rhn_pointwise

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.mark.parametrize("width", [3, 16, 23])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pointwise_kernels_give_what_the_reference_gives(width, dropped, dtype):
    from thinrnn import rhn_triton

    leaves, mask = case(3, 2, 4, width, 3, dropped, dtype)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)

    def fused(*arguments):
        return rhn_fused.highway(*arguments, kernels=rhn_pointwise.Loop(rhn_triton))

    found = outputs_and_gradients(fused, leaves, mask)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_a_mask_may_lie_in_memory_as_it_likes():
    from thinrnn.rhn_persistent_triton import Whole

    leaves, mask = case(2, 3, 4, 16, 2, True, torch.float64)
    assert mask is not None
    other = mask.T.contiguous().T
    found = [
        outputs_and_gradients(
            lambda *arguments: rhn_fused.highway(*arguments, kernels=Whole(1)), leaves, laid
        )
        for laid in (mask, other)
    ]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("width", "at_once", "depth", "dropped"),
    [(3, 1, 1, True), (16, 0, 2, False), (16, 3, 2, True), (23, 1, 2, True), (70, 1, 1, False)],
)
def test_whole_steps_give_what_the_reference_gives(width, at_once, depth, dropped, monkeypatch):
    """Programs are interpreted one after the other, so only a single one may run several steps."""
    from thinrnn import rhn_persistent_triton

    if at_once != 1:
        monkeypatch.setattr(rhn_persistent_triton, "NEURONS", 32)
    Whole = rhn_persistent_triton.Whole
    leaves, mask = case(2, 2, 4, width, depth, dropped, torch.float64)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)

    def fused(*arguments):
        return rhn_fused.highway(*arguments, kernels=Whole(at_once))

    found = outputs_and_gradients(fused, leaves, mask)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("width", "batch", "options"),
    [
        (23, 2, {"at_once": 1}),
        (23, 2, {"neurons": 32}),
        (40, 3, {"at_once": 2, "neurons": 64}),
        (40, 20, {"at_once": 1, "rows": (16, 8), "look": False}),
        (70, 20, {"at_once": 1, "rows": (16, 16), "neurons": 8, "warps": 4}),
    ],
)
@pytest.mark.parametrize("dropped", [False, True])
def test_polling_gives_what_the_reference_gives(width, batch, options, dropped):
    """As above, only a single program may run several steps."""
    from thinrnn.rhn_polling_triton import Polling

    leaves, mask = case(2, batch, 4, width, 2, dropped, torch.float64)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)

    def fused(*arguments):
        return rhn_fused.highway(*arguments, kernels=Polling(**options))

    found = outputs_and_gradients(fused, leaves, mask)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("look", [False, True])
def test_polling_in_vain_ends_with_nan(look, monkeypatch):
    from thinrnn import rhn_polling_triton

    monkeypatch.setattr(rhn_polling_triton, "PATIENCE", 128)
    monkeypatch.setattr(rhn_polling_triton, "LOOKS", 32)
    (x, s, W, *rest), _ = case(2, 2, 4, 23, 2, False, torch.float64)
    kernels = rhn_polling_triton.Polling(neurons=16, look=look)
    with torch.no_grad():
        output = rhn_fused.highway(x, s, W, rest[:2], rest[2:], kernels=kernels)
    assert output.isnan().any(-1).all()


def test_programs_that_wait_in_vain_give_up_and_say_so(monkeypatch):
    """The first of two waits for the second, which the interpreter runs only afterwards."""
    from thinrnn import rhn_persistent_triton

    monkeypatch.setattr(rhn_persistent_triton, "PATIENCE", 5)
    (x, s, W, *rest), _ = case(2, 2, 4, 23, 2, False, torch.float64)
    with torch.no_grad():
        output = rhn_fused.highway(
            x, s, W, rest[:2], rest[2:], kernels=rhn_persistent_triton.Whole(0)
        )
    assert output.isnan().any(-1).all()
