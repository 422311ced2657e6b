"""The Triton kernels of the recurrent highway network, run by Triton's interpreter on the CPU.

TRITON_INTERPRET=1 python -m pytest tests/test_rhn_triton.py
"""

import itertools
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
        (40, 20, {"at_once": 1, "rows": (16, 8), "look": 0}),
        (70, 20, {"at_once": 1, "rows": (16, 16), "neurons": 8, "warps": 4, "look": 3}),
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


@pytest.fixture
def side_by_side(monkeypatch):
    """Programs of a launch run as processes on shared memory, not one after the other."""
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that share memory")
@pytest.mark.parametrize("look", [0, 32])
def test_polling_programs_side_by_side_wait_for_one_another(look, side_by_side):
    from thinrnn.rhn_polling_triton import Polling

    leaves, mask = case(3, 10, 4, 40, 2, True, torch.float64)
    expected = outputs_and_gradients(rhn.highway, leaves, mask)

    def fused(*arguments):
        kernels = Polling(neurons=32, rows=(16, 8), look=look)
        return rhn_fused.highway(*arguments, kernels=kernels)

    found = outputs_and_gradients(fused, leaves, mask)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("look", [0, 32])
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
