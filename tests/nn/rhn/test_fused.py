"""The fused recurrent highway network against the equations: outputs and all gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rhn_cases import case, outputs_and_gradients

from thinrnn import RHN
from thinrnn.nn import rhn
from thinrnn.nn._rhn import fused as rhn_fused


@given(
    steps=st.integers(1, 4),
    batch=st.integers(1, 3),
    inputs=st.integers(1, 5),
    width=st.sampled_from([1, 3, 8, 16, 17, 23]),
    depth=st.integers(1, 4),
    dropped=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_outputs_and_all_gradients_are_those_of_the_reference(
    steps, batch, inputs, width, depth, dropped, dtype
):
    leaves, mask = case(steps, batch, inputs, width, depth, dropped, dtype)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)
    found = outputs_and_gradients(rhn_fused.highway, leaves, mask)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_bf16_is_near_the_reference():
    leaves, mask = case(5, 4, 9, 21, 3, True, torch.float32)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)
    with torch.autocast("cpu", torch.bfloat16):
        found = outputs_and_gradients(rhn_fused.highway, leaves, mask)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert (a - b).norm() / b.norm() < 0.02


def test_gradients_of_what_needs_none_are_left_out():
    leaves, _ = case(2, 2, 3, 5, 2, False, torch.float64)
    x, s, W, *rest = (leaf.detach() for leaf in leaves)
    rest[1].requires_grad_()
    output = rhn_fused.highway(x, s, W, rest[:2], rest[2:])
    output.sum().backward()
    assert rest[1].grad is not None and rest[0].grad is None


def test_weights_may_be_slices_of_larger_ones():
    """As views of a flat buffer are, or gated weights that an optimizer holds."""
    leaves, mask = case(3, 2, 4, 6, 2, True, torch.float64)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)
    strided = [leaf.detach().mT.contiguous().mT if leaf.dim() > 1 else leaf for leaf in leaves]
    for leaf in strided:
        leaf.requires_grad_()
    found = outputs_and_gradients(rhn_fused.highway, strided, mask)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("layout", ["plain", "batch_first", "unbatched"])
def test_the_module_gives_the_same_on_both_ways(layout, monkeypatch):
    torch.manual_seed(0)
    module = RHN(4, 7, depth=3, batch_first=layout == "batch_first").double()
    x = torch.randn(5, 4).double() if layout == "unbatched" else torch.randn(5, 2, 4).double()
    expected = module(x)
    monkeypatch.setattr(rhn, "highway", rhn_fused.highway)
    torch.testing.assert_close(module(x), expected)
