"""The Triton kernels of the recurrent highway network, run by Triton's interpreter on the CPU.

TRITON_INTERPRET=1 python -m pytest tests/nn/rhn/test_triton.py
"""

import functools
import itertools
import os

import pytest
import torch
from rhn_cases import case, outputs_and_gradients

from thinrnn.nn import rhn
from thinrnn.nn._rhn import fused as rhn_fused
from thinrnn.nn._rhn import pointwise

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.mark.parametrize("width", [3, 16, 23])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pointwise_kernels_give_what_the_reference_gives(width, dropped, dtype):
    from thinrnn.nn._rhn import pointwise_triton

    leaves, mask = case(3, 2, 4, width, 3, dropped, dtype)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)

    def fused(*arguments):
        return rhn_fused.highway(*arguments, kernels=pointwise.PointwiseLoop(pointwise_triton))

    found = outputs_and_gradients(fused, leaves, mask)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture
def side_by_side(monkeypatch):
    """Programs of a launch run as processes on shared memory, not one after the other.

    So they can wait for one another.
    """
    if not hasattr(os, "fork"):
        pytest.skip("needs processes that share memory")
    from triton.runtime import interpreter

    builder, run_all = interpreter.interpreter_builder, interpreter.GridExecutor.__call__

    def run_one(executor, place, args, kwargs) -> None:
        whole, set_place = (*executor.grid, 1, 1)[:3], builder.set_grid_idx
        builder.set_grid_dim = lambda *_: setattr(builder, "grid_dim", whole)
        builder.set_grid_idx = lambda *_: set_place(*(*place, 0, 0)[:3])
        executor.grid = (1,)
        run_all(executor, *args, **kwargs)

    def run(executor, *args, **kwargs) -> None:
        for tensor in args:
            if isinstance(tensor, torch.Tensor):
                tensor.untyped_storage().share_memory_()
        running = []
        for place in itertools.product(*map(range, executor.grid)):
            running.append(os.fork())
            if running[-1] == 0:
                status = 1
                try:
                    run_one(executor, place, args, kwargs)
                    status = 0
                finally:
                    os._exit(status)
        assert [os.waitpid(pid, 0)[1] for pid in running] == [0] * len(running)

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", run)


def polling(*arguments, **sizes):
    from thinrnn.nn._rhn.persistent import Polling

    return rhn_fused.highway(*arguments, kernels=Polling(**sizes))


@pytest.mark.parametrize(
    ("width", "batch", "neurons", "rows"),
    [
        (23, 2, 32, (16, 16)),  # a single program
        (23, 20, 8, (16, 16)),
        (40, 10, 32, (16, 8)),
        (40, 64, 32, (32, 32)),
        (23, 64, 16, (16, 64)),
        (40, 70, 32, (64, 32)),
        (70, 3, 16, (16, 16)),
    ],
)
@pytest.mark.parametrize("dropped", [False, True])
def test_polling_gives_what_the_reference_gives(width, batch, neurons, rows, dropped, side_by_side):
    leaves, mask = case(3, batch, 4, width, 2, dropped, torch.float64)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)
    fused = functools.partial(polling, neurons=neurons, rows=rows)
    found = outputs_and_gradients(fused, leaves, mask)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_mask_may_lie_in_memory_as_it_likes():
    leaves, mask = case(2, 3, 4, 16, 2, True, torch.float64)
    assert mask is not None
    fused = functools.partial(polling, neurons=32)
    other = mask.T.contiguous().T
    found = [outputs_and_gradients(fused, leaves, laid) for laid in (mask, other)]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_polling_in_vain_ends_with_nan(monkeypatch):
    """The first of two programs waits for the second, which is interpreted only afterwards."""
    from thinrnn.nn._rhn import persistent

    monkeypatch.setattr(persistent, "PATIENCE", 4)
    monkeypatch.setattr(persistent, "LOOKS", 32)
    (x, s, W, *rest), _ = case(2, 2, 4, 23, 2, False, torch.float64)
    with torch.no_grad():
        output = polling(x, s, W, rest[:2], rest[2:], neurons=16)
    assert output.isnan().any(-1).all()
