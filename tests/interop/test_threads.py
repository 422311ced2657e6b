"""Gated models in several threads, and in forked and spawned processes."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from interop.net import Tagger, X, gated
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import thinrnn
from thinrnn._gates import threads
from thinrnn.errors import GateError

CALLS = 60


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(timeout=120) for future in [pool.submit(work) for work in works]]


def no_gated_weight_is_left(model: Tagger) -> bool:
    own = [getattr(model.rnn, name) for name in model.rnn._flat_weights_names]
    plain = all(a is b for a, b in zip(model.rnn._flat_weights, own, strict=True))
    return plain and "weight" not in model.head.__dict__


@torch.no_grad()
def test_threads_get_the_outputs_that_one_thread_gets() -> None:
    model = gated().eval()
    examples = [torch.randint(20, (length, 2)) for length in (3, 4, 5)]
    expected = [model(x) for x in examples]

    @torch.no_grad()
    def work(place: int) -> bool:
        results = [model(examples[place]) for _ in range(CALLS)]
        return all(torch.equal(result, expected[place]) for result in results)

    assert all(in_threads(*(lambda place=place: work(place) for place in range(3))))
    assert no_gated_weight_is_left(model)


def test_threads_that_call_layers_on_their_own() -> None:
    model = gated().eval()
    with torch.no_grad():
        inside = model.emb(X)
        expected = model(X), model.rnn(inside)[0]

    @torch.no_grad()
    def layer() -> bool:
        return all(torch.equal(model.rnn(inside)[0], expected[1]) for _ in range(CALLS))

    @torch.no_grad()
    def whole() -> bool:
        return all(torch.equal(model(X), expected[0]) for _ in range(CALLS))

    assert all(in_threads(layer, whole, layer))
    assert no_gated_weight_is_left(model)


def test_threads_that_train_and_read() -> None:
    """An actor reads while a learner trains: each sample is one sample, no weight stays gated."""
    model = gated()
    optimizer = torch.optim.SGD(thinrnn.param_groups(model, lr=1e-3), lr=1e-3)
    is_over = threading.Event()

    def learn() -> bool:
        for _ in range(CALLS // 3):
            model(X).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        is_over.set()
        return True

    @torch.no_grad()
    def act() -> bool:
        while not is_over.is_set():
            if not model(X).isfinite().all():
                return False
        return True

    assert all(in_threads(learn, act, act))
    assert no_gated_weight_is_left(model)
    assert thinrnn.verify(model.eval(), thinrnn.compact(model), X) < 1e-5


def test_a_call_that_another_thread_broke_off_is_forgotten() -> None:
    model = gated().eval()
    expected = model(X)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for module in (model, model.rnn):
        handle = model.rnn.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            module(X if module is model else model.emb(X))
        handle.remove()
        assert torch.equal(in_threads(lambda: model(X))[0], expected)
        assert no_gated_weight_is_left(model)
        assert torch.equal(model(X), expected)


def test_a_forward_that_waits_for_its_own_threads_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "PATIENCE", 0.05)
    model = gated().eval()
    expected = model(X)

    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = model

        def forward(self, x: Tensor) -> Tensor:
            return self.inside(x)

    def call_elsewhere(module: nn.Module, args: Any) -> None:
        in_threads(lambda: model.head(torch.zeros(1, 8)))

    handle = model.rnn.register_forward_pre_hook(call_elsewhere)
    with pytest.raises(GateError, match=r"another thread.*take turns.*same thread"):
        Parallel()(X)
    handle.remove()
    assert torch.equal(model(X), expected)
    assert no_gated_weight_is_left(model)


@pytest.fixture
def one_core() -> Iterator[None]:
    """A forked process must not wait for threads of torch that it does not have."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Features(Dataset[Tensor]):
    """What a gated model makes of an example, computed in the worker."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 4

    @torch.no_grad()
    def __getitem__(self, place: int) -> Tensor:
        return self.model((X + place) % 20)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.extended)])
def test_workers_of_a_data_loader(start: str, one_core: None) -> None:
    if start == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    model = gated().eval()
    expected = torch.stack([Features(model)[place] for place in range(4)])
    loader = DataLoader(Features(model), batch_size=2, num_workers=2, multiprocessing_context=start)
    torch.testing.assert_close(torch.cat(list(loader)), expected)
    assert torch.equal(Features(model)[0], expected[0])
    del loader
    gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_process_forked_while_a_thread_is_inside(one_core: None) -> None:
    model = gated().eval()
    expected = model(X)
    is_inside, may_leave = threading.Event(), threading.Event()

    def stay(*_: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            is_inside.set()
            may_leave.wait(60)

    model.rnn.register_forward_hook(stay)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(model, X)
        assert is_inside.wait(60)
        child = os.fork()
        if child == 0:  # the thread that is inside does not exist here
            os._exit(0 if torch.equal(model(X), expected) else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        may_leave.set()
        assert torch.equal(other.result(60), expected)
    assert status == 0


def add_to_gates(model: nn.Module) -> None:
    with torch.no_grad():
        for gate in thinrnn.gates(model).values():
            gate.log_alpha += 1


@pytest.mark.extended
def test_processes_that_share_memory_share_gates() -> None:
    model = gated().share_memory()
    before = {name: gate.log_alpha.detach().clone() for name, gate in thinrnn.gates(model).items()}
    context = torch.multiprocessing.get_context("spawn")
    process = context.Process(target=add_to_gates, args=(model,))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    for name, gate in thinrnn.gates(model).items():
        torch.testing.assert_close(gate.log_alpha.detach(), before[name] + 1)
