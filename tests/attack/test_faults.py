"""Whatever write fails, and wherever a process dies: the run then ends in the same weights."""

import json
import shutil

import pytest
from attack.conftest import TINY, attempt, describe
from attack.faults import Killed, faults

from thinrnn.lab.run.metrics import read_metrics

SHORT = {
    **TINY,
    "phases": "gated",
    "bptt": 30,
    "log_every": 2,
    "checkpoint_steps": 2,
    "checkpoint_seconds": 1e9,
}
EVERY = 10**9
KINDS = {"full": 8, "broken": 8, "killed": 12}  # cases of the short profile


@pytest.fixture(scope="module")
def train(texts):
    """Train or resume a short run, in this process."""
    files = [part for n in ("train", "valid") for part in (f"--{n}", texts / f"{n}.txt")]
    settings = [part for k, v in SHORT.items() for part in ("--set", f"{k}={v}")]

    def run(folder):
        if (folder / "config.json").exists():
            return attempt("train", "--resume", folder)
        return attempt("train", "lm", *files, "--out", folder, *settings)

    return run


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """What an undisturbed run ends in, and how many things it does to its folder."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with faults(folder) as state:
        assert train(folder).code in (0, 1)
    return result(folder), state.count


def result(folder):
    """What must not depend on faults: weights, metrics and sizes."""
    weights = (folder / "model/model.safetensors").read_bytes()
    events = [{**event, "seconds": 0} for event in read_metrics(folder / "metrics.jsonl")]
    small = json.loads((folder / "small.json").read_text())
    return weights, events, small["neurons"], small["valid_perplexity"]


@pytest.mark.extended
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_fault_at_any_write_the_run_ends_in_the_same_weights(
    kind, train, whole, tmp_path, many, count
):
    wanted, things = whole
    tried = min(things, many(KINDS[kind], EVERY))
    found = []
    for number in range(tried):
        at, folder = number * things // tried, tmp_path / "run"
        with faults(folder, kind, at):
            ended = train(folder)
        where = f"{kind} at {at} of {things}"
        if kind != "killed":
            found += [f"{where}: {fault}" for fault in ended.faults((0, 1, 2))]
        elif not isinstance(ended.raised, Killed):
            found.append(f"{where}: not killed, but {ended}")
        again = train(folder)
        found += [f"{where}, then: {fault}" for fault in again.faults((0, 1))]
        if not found and result(folder) != wanted:
            found.append(f"{where}: other weights")
        if left := [path for path in folder.rglob(".*") if path.name != ".lock"]:
            found.append(f"{where}: left {left}")
        shutil.rmtree(folder, ignore_errors=True)
    count(f"faults: {kind}", tried)
    assert not found, describe(found)
