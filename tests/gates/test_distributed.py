"""Training under DistributedDataParallel gives what one process gives."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ddp_worker
import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import thinrnn
from thinrnn.errors import GateError

has_gloo = distributed.is_available() and distributed.is_gloo_available()
pytestmark = pytest.mark.skipif(not has_gloo, reason="this build of torch has no gloo")


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


def run_on_two(folder: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    args = [(rank, 2, str(folder), options) for rank in range(2)]
    processes = [context.Process(target=ddp_worker.run, args=a) for a in args]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
        assert process.exitcode == 0
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def assert_same(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    assert found["kept"] == expected["kept"]
    assert found["weights"].keys() == expected["weights"].keys()
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(found["weights"][name], weight, atol=tolerance, rtol=0)


WAYS: dict[str, dict[str, Any]] = {
    "settles": {},
    "shrinks": {"shrink": (20, 40)},
    "several sizes": {
        "sizes": {"params": [0.8, 0.5], "steps": 15, "finish": 10},
        "shrink": (20, 30, 45),
    },
}


@pytest.mark.extended
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_train_as_one(tmp_path: Path, way: str) -> None:
    """Noise, decisions, cuts and weights: 50 steps with equal global batches."""
    alone = ddp_worker.result(ddp_worker.train(0, 1, WAYS[way]))
    ranks = run_on_two(tmp_path, {**WAYS[way], "wrap": "last"})
    assert_same(ranks[0], alone, 1e-6)
    assert_same(ranks[1], ranks[0], 0)


@pytest.mark.extended
def test_gates_attached_to_a_wrapped_model(tmp_path: Path) -> None:
    """Each rank starts its gates at random; the values of rank 0 count."""
    alone = ddp_worker.result(ddp_worker.train(0, 1, {"shrink": (40,), "wrap": None}))
    ranks = run_on_two(tmp_path, {"shrink": (40,), "wrap": "first"})
    assert_same(ranks[1], ranks[0], 0)
    assert ranks[0]["kept"].keys() == alone["kept"].keys()


@pytest.mark.parametrize("way", WAYS)
def test_a_wrapper_changes_nothing(one_process: None, way: str) -> None:
    alone = ddp_worker.result(ddp_worker.train(0, 1, WAYS[way]))
    wrapped = ddp_worker.result(ddp_worker.train(0, 1, {**WAYS[way], "wrap": "last"}))
    assert_same(wrapped, alone, 1e-12)


def test_communication_hooks_stay(one_process: None) -> None:
    model = ddp_worker.Classifier()
    thinrnn.attach_(model, thinrnn.find_groups(model, ddp_worker.EXAMPLE))
    wrapped = DistributedDataParallel(model)
    calls = []

    def pass_on(state: None, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        calls.append(bucket.index())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    wrapped.register_comm_hook(None, pass_on)
    wrapped(ddp_worker.EXAMPLE).sum().backward()
    thinrnn.gates(model)["rnn.l0"].log_alpha = torch.tensor([9.0] * 8 + [-9.0] * 2)
    assert thinrnn.shrink_(model) == 2
    calls.clear()
    wrapped(ddp_worker.EXAMPLE).sum().backward()
    assert calls


def test_gradient_accumulation_without_synchronization(one_process: None) -> None:
    model = ddp_worker.Classifier()
    thinrnn.attach_(model, thinrnn.find_groups(model, ddp_worker.EXAMPLE))
    wrapped = DistributedDataParallel(model)
    with wrapped.no_sync():
        wrapped(ddp_worker.EXAMPLE).sum().backward()
    wrapped(ddp_worker.EXAMPLE).sum().backward()
    assert all(gate.log_alpha.grad is not None for gate in thinrnn.gates(model).values())


def test_sharded_parameters_are_refused(one_process: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))
    model = ddp_worker.Classifier()
    plan = thinrnn.find_groups(model, ddp_worker.EXAMPLE)
    gated = thinrnn.attach_(ddp_worker.Classifier(), plan)
    fully_shard(model, mesh=mesh)
    with pytest.raises(GateError, match="sharded by FSDP"):
        thinrnn.attach_(model, plan)
    fully_shard(gated, mesh=mesh)
    with pytest.raises(GateError, match="sharded by FSDP"):
        gated(ddp_worker.EXAMPLE)


def test_find_groups_of_a_sharded_model(one_process: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model: nn.Module = ddp_worker.Classifier()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(GateError, match="sharded by FSDP"):
        thinrnn.find_groups(model, ddp_worker.EXAMPLE)
