"""Outputs are compared with all digits, and training goes on as before."""

import pytest
import torch
from torch import nn

from thinrnn.lab.device.arithmetic import exact_products


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_what_was_set_comes_back(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(ValueError, match="in between"), exact_products():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
            raise ValueError("in between")
        assert torch.get_float32_matmul_precision() == precision
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.gpu
def test_a_gpu_computes_what_float64_computes():
    torch.manual_seed(0)
    rnn, x = nn.LSTM(300, 300).cuda(), torch.randn(20, 4, 300, device="cuda")
    with torch.no_grad(), exact_products():
        found = rnn(x)[0]
        expected = rnn.double()(x.double())[0]
    assert (found - expected).abs().max() < 1e-5
