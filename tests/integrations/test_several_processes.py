"""NeuronSelection under torchrun: two processes end with the small model of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

has_gloo = distributed.is_available() and distributed.is_gloo_available()
pytestmark = pytest.mark.skipif(not has_gloo, reason="this build of torch has no gloo")

WORKER = Path(__file__).parents[1] / "trainer_worker.py"


def run(which: str, count: int, folder: Path) -> list[dict[str, torch.Tensor]]:
    """Train in so many processes; return the small model of each."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone"]
    done = subprocess.run(
        [sys.executable, *(launcher if count > 1 else []), str(WORKER), which, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{which}-{count}-{rank}.pt") for rank in range(count)]


@pytest.mark.extended
@pytest.mark.parametrize("which", ["lightning", "transformers"])
def test_two_processes_end_with_the_small_model_of_one(which: str, tmp_path: Path) -> None:
    pytest.importorskip(which, reason="needs the extra integrations")
    (alone,) = run(which, 1, tmp_path)
    first, second = run(which, 2, tmp_path)
    for name, weight in alone.items():
        torch.testing.assert_close(first[name], weight, atol=1e-6, rtol=0)  # so shapes are equal
        assert torch.equal(second[name], first[name])
